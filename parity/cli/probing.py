"""``parity isodiff`` and ``parity rollback``: probes of one engine."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from parity.cli.options import input_files
from parity.cli.reporting import (
    CHECK_REPORTS,
    report_paths,
    require_writable_reports,
    write_check_reports,
    write_checks_not_run,
    write_lines,
)
from parity.cli.rerunning import WRITES, rerun, words_without
from parity.errors import InputError, NotRunError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.runs.checks import of_probes
from parity.spec import EngineSpec, Runnable, runnable
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.runs.checks import CheckRun
    from parity.runs.probe import Ask, Found

LABEL = 9  # width of the label column
WIDTH = 80
_SIZES = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?")
_POSITIONS = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")


def run_probes(
    typed: str,
    names: tuple[str, ...],
    *,
    engine: str,
    quiet: bool,
    **options: Any,
) -> int:
    """Run the named probes one after the other; the exit status is the worst of theirs."""
    from parity.runs.probe import worst

    json_path = options.pop("json_path")
    reports = report_paths(options, CHECK_REPORTS)
    spec = runnable(engine, "--engine")
    own = spec.model if isinstance(spec, EngineSpec) else ""
    inputs = [*input_files(**options), *input_files(own)]
    require_writable_reports(json_path, *reports.values(), inputs=inputs)
    ask = make_ask(typed, sides=(spec,), **options)
    try:
        found = list(_each(names, spec, ask, quiet, STDOUT not in (json_path, *reports.values())))
    except NotRunError as error:
        write_checks_not_run(error, " and ".join(names), rerun(typed), reports)
        raise
    if json_path is not None:
        write_lines(_json(found).splitlines(), json_path)
    run = checks_of(found)
    write_check_reports(run, reports, json_path or "")
    return int(worst([one.verdict for one in found]).exit_status)


def _each(
    names: Sequence[str], spec: Runnable, ask: Ask, quiet: bool, printed: bool
) -> Iterator[Found]:
    """What each probe found; ``printed``: on stdout as soon as it is known."""
    from parity.runs.probe_run import run_probe

    for name in names:
        began = time.monotonic()
        with Progress(quiet=quiet) as progress:
            found = run_probe(name, spec, ask, progress)
        found.seconds = time.monotonic() - began
        found.command = rerun(ask.reproduce)
        found.reproduce = reproducing(ask.reproduce, found.failing)
        if printed:
            write_lines(_report(found, quiet), STDOUT)
        yield found


def checks_of(found: Sequence[Found]) -> CheckRun:
    """What probes of one command found, as every report of them is told."""
    seconds = sum(one.seconds for one in found)
    return of_probes(found, [one.reproduce for one in found], found[0].command, seconds)


def make_ask(
    typed: str,
    *,
    synthetic_kind: str,
    sizes: str,
    positions: str,
    tokens: str | None,
    chunks: str = "",
    **options: Any,
) -> Ask:
    """Settings of the probes from the options; ``--synthetic`` implies hybrid-tiny. ``options``:
    as ``parity.runs.probe_run.probe_settings``."""
    from parity.runs.probe_run import probe_settings
    from parity.runs.settings import parse_tokens

    return probe_settings(
        sizes=parse_sizes(sizes, "--m"),
        starts=parse_positions(positions),
        only=synthetic_kind,
        tokens=None if tokens is None else parse_tokens(tokens),
        chunks=parse_sizes(chunks, "--chunks") if chunks else (),
        reproduce=typed,
        **options,
    )


def parse_sizes(text: str, option: str) -> tuple[int, ...]:
    """``4``, ``2,4,8`` or ``2..8`` as numbers; InputError shows the part that is none."""
    found: list[int] = []
    for part in text.split(","):
        read = _SIZES.fullmatch(part.strip())
        if read is None:
            raise InputError(
                f"{option}: {part!r} is not a number or a range of at most six digits",
                f"write {option} 2..8",
            )
        found += range(int(read[1]), int(read[2] or read[1]) + 1)
    if not found or min(found) < 1:
        raise InputError(f"{option} {text}: nothing to run", f"write {option} 2..8")
    return tuple(dict.fromkeys(found))


def parse_positions(text: str) -> tuple[int, ...]:
    """``33:38`` or ``33`` as first positions of a block."""
    read = _POSITIONS.fullmatch(text)
    starts = range(int(read[1]), int(read[2] or read[1]) + 1) if read else ()
    if not starts:
        raise InputError(f"--pos: {text!r} is not a range of positions", "write --pos 33:38")
    return tuple(starts)


def _json(found: list[Found]) -> str:
    """One object, or a list of them where several probes ran."""
    if len(found) == 1:
        return found[0].to_json()
    return f"[{','.join(one.to_json() for one in found)}]"


def _report(found: Found, quiet: bool) -> list[str]:
    word = found.verdict.replace("_", " ")
    if quiet:
        return [f"{word}: {found.brief or found.headline}"]
    lines = [*found.lines, f"{word.upper()}  {found.headline}", ""]
    if found.table:
        lines += [*(f"  {line}" for line in found.table), ""]
    lines += [line for label, text in found.facts for line in _fact(label, text)]
    if found.verdict in (Verdict.DIVERGED, Verdict.UNSTABLE):
        lines += ["", "  reproduce:", f"  {found.reproduce}"]
    return [*lines, *_fact("time", f"{found.seconds:,.1f} s")]


def reproducing(typed: str, failing: str) -> str:
    """The command as typed, with the options in ``failing`` in place of its own, and without
    those that a rerun does not need: ``--seeds``, reports, ``-q``."""
    given = shlex.split(failing)
    replaced = {word for word in given if word.startswith("--")} | {"--seeds", *WRITES}
    return shlex.join([*words_without(typed, replaced), *given])


def _fact(label: str, text: str) -> list[str]:
    """One labelled fact, folded at blanks where it is wider than 80 columns."""
    lines, line = [], f"  {label:<{LABEL - 1}}"
    for word in text.split(" "):
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = " " * (LABEL + 1)
        line += f" {word}"
    return [*lines, line]
