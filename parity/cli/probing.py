"""``parity isodiff`` and ``parity rollback``: probes of one engine."""

from __future__ import annotations

import re
import shlex
import time
from typing import TYPE_CHECKING, Any

from parity.cli.reporting import require_writable_reports, write_lines
from parity.errors import InputError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.registry import (
    ENGINES,
    PROBES,
    engine_class,
    find,
    foreign_engine_class,
    plugins,
)
from parity.spec import EngineSpec, parse_spec
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.model.model import Model
    from parity.probe import Ask, Found, Probe
    from parity.run import Side

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
    json_path: str | None,
    **options: Any,
) -> int:
    """Run the named probes one after the other; the exit status is the worst of theirs."""
    from parity.probe import worst

    require_writable_reports(json_path)
    spec = parse_spec(engine, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(f"--engine {engine}: not an engine", "parity engines lists them")
    ask = make_ask(typed, **options)
    found = []
    for name in names:
        probe = find(PROBES, name).load()()
        began = time.monotonic()
        with Progress(quiet=quiet) as progress:
            found.append(_run(probe, spec, ask, progress))
        if json_path != STDOUT:
            write_lines(_report(found[-1], ask, time.monotonic() - began, quiet), STDOUT)
    if json_path is not None:
        write_lines(_json(found).splitlines(), json_path)
    return int(worst([one.verdict for one in found]).exit_status)


def make_ask(
    typed: str,
    *,
    model: str,
    weights: str,
    synthetic_kind: str,
    seed: int,
    seeds: int,
    sizes: str,
    positions: str,
    chunks: str = "",
) -> Ask:
    """Settings of the probes from the options; ``--synthetic`` implies hybrid-tiny."""
    from parity.model.model import synthetic
    from parity.probe import Ask

    if seeds < 1:
        raise InputError(f"--seeds {seeds}: nothing to run", "give --seeds 1 or more")
    name = model or ("hybrid-tiny" if synthetic_kind else "moe-tiny")
    models = tuple(synthetic(name, seed + k, weights, synthetic_kind) for k in range(seeds))
    ask = Ask(
        sizes=parse_sizes(sizes, "--m"),
        starts=parse_positions(positions),
        models=models,
        chunks=parse_sizes(chunks, "--chunks") if chunks else (),
        reproduce=typed,
    )
    _check_room(ask)
    return ask


def _check_room(ask: Ask) -> None:
    """Refuse what the KV cache has no room for: the furthest block and the steps after it."""
    config = ask.models[0].config
    last = max(ask.starts) + max(ask.sizes) + ask.more - 1
    if last >= config.context:
        raise InputError(
            f"--pos {max(ask.starts)} with --m {max(ask.sizes)} and {ask.more} further steps: "
            f"position {last} is past the KV cache of {config.name} ({config.context:,} positions)",
            "give a smaller --pos or --m",
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


def _run(probe: Probe, spec: EngineSpec, ask: Ask, progress: Progress) -> Found:
    """What the probe found; not run, naming what is missing, before any model is loaded."""
    from parity.run import Run
    from parity.sides import open_side

    engine = foreign_engine_class(spec.name) if spec.foreign else engine_class(spec.name)
    missing = [need for need in probe.needs if need not in engine.capabilities]
    if missing:
        return _not_run(probe, spec, missing)

    about: dict[str, str] = {}

    def opened(model: Model, positions: int) -> Side:
        run = Run(model=model, prompt=(0,) * positions, n=0)
        side = open_side("engine", spec, run, progress)
        about.update(side.engine.describe(), version=side.engine.version)
        return side

    return _attributed(probe.run(opened, ask), spec, ask, about)


def _attributed(found: Found, spec: EngineSpec, ask: Ask, about: dict[str, str]) -> Found:
    """Say what ran: a result that names no engine can be pasted anywhere."""
    emulated = about.get("emulated") == "yes"
    if emulated:
        found.headline += ", emulated"
        found.brief += ", emulated" if found.brief else ""
    parts = [spec.text, about.get("version", ""), about.get("device", "")]
    parts.append("emulated" if emulated else "")
    models = ", ".join(model.label for model in ask.models)
    found.facts += [("engine", "  ".join(filter(None, parts))), ("model", models)]
    return found


def _not_run(probe: Probe, spec: EngineSpec, missing: list[str]) -> Found:
    from parity.probe import Found

    what = f"capability {missing[0]!r}"
    if len(missing) > 1:
        what = f"capabilities {', '.join(map(repr, missing))}"
    text = f"{spec.text} lacks the {what}, needed for {probe.name}"
    hint = ("next", "parity engines lists what each engine offers")
    return Found(probe.name, Verdict.NOT_RUN, text, [hint], brief=text)


def _json(found: list[Found]) -> str:
    """One object, or a list of them where several probes ran."""
    if len(found) == 1:
        return found[0].to_json()
    return f"[{','.join(one.to_json() for one in found)}]"


def _report(found: Found, ask: Ask, seconds: float, quiet: bool) -> list[str]:
    word = found.verdict.replace("_", " ")
    if quiet:
        return [f"{word}: {found.brief or found.headline}"]
    lines = [*found.lines, f"{word.upper()}  {found.headline}", ""]
    if found.table:
        lines += [*(f"  {line}" for line in found.table), ""]
    lines += [line for label, text in found.facts for line in _fact(label, text)]
    if found.verdict in (Verdict.DIVERGED, Verdict.UNSTABLE):
        lines += ["", "  reproduce:", f"  {reproducing(ask.reproduce, found.failing)}"]
    return [*lines, *_fact("time", f"{seconds:,.1f} s")]


def reproducing(typed: str, failing: str) -> str:
    """The command as typed, with the options in ``failing`` in place of its own, and without
    those that a rerun does not need: ``--seeds``, ``--json``, ``-q``."""
    given = shlex.split(failing)
    replaced = {word for word in given if word.startswith("--")} | {"--seeds", "--json"}
    kept: list[str] = []
    words = iter(shlex.split(typed))
    for word in words:
        if word in replaced:
            next(words, None)
        elif word.partition("=")[0] not in replaced and word not in ("-q", "--quiet"):
            kept.append(word)
    return shlex.join([*kept, *given])


def _fact(label: str, text: str) -> list[str]:
    """One labelled fact, folded at blanks where it is wider than 80 columns."""
    lines, line = [], f"  {label:<{LABEL - 1}}"
    for word in text.split(" "):
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = " " * (LABEL + 1)
        line += f" {word}"
    return [*lines, line]
