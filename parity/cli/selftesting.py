"""``parity selftest``: every fault at every level, and the table of what became of each."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.reporting import (
    CHECK_REPORTS,
    report_paths,
    require_writable_reports,
    write_check_reports,
    write_checks_not_run,
    write_lines,
)
from parity.cli.rerunning import rerun
from parity.comparison.compare import compare_dumps
from parity.comparison.files import compare_files
from parity.errors import InputError, NotRunError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.runs.checks import Check, CheckRun
from parity.spec import EngineSpec, parse_spec
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.selftest.planting import Level, Selftest, Trial
    from parity.tree import Tree

NAME = "selftest"
BUILT_IN = ("cpu", "emu", "cuda")  # all but the first where they work here
MODELS = ("moe-tiny", "hybrid-tiny")  # one of each family
NAMES, CELL, LABEL, LEVEL, WIDTH = 24, 7, 11, 16, 80  # columns
MEANING = (
    "caught: diverged (exit 1), first at exactly the planted key; exit 2: refused, naming it; "
    "noted: same, with a note; quiet: no difference"
)


def run_selftest(
    typed: str, *, engines: Sequence[str], seed: int, quiet: bool, **options: Any
) -> int:
    """Run ``parity selftest``; 0 when every fault was caught, 1 when not.

    ``engines``: those asked for by name, none of which may be absent.
    """
    json_path = options.pop("json_path")
    reports = report_paths(options, CHECK_REPORTS)
    require_writable_reports(json_path, *reports.values())
    specs = [_spec(text) for text in engines or BUILT_IN]
    try:
        found = _tried(specs, seed, quiet, optional=not engines)
    except NotRunError as error:
        write_checks_not_run(error, NAME, rerun(typed), reports)
        raise
    found.reproduce = rerun(typed)
    checks = checks_of(record_of(found))
    if json_path is not None:
        write_lines([to_json(found)], json_path)
    if STDOUT not in (json_path, *reports.values()):
        write_lines([headline(found)] if quiet else report(found), STDOUT)
    write_check_reports(checks, reports, json_path or "")
    return int(checks.verdict.exit_status)


def _tried(specs: Sequence[EngineSpec], seed: int, quiet: bool, *, optional: bool) -> Selftest:
    """Every fault at every level."""
    from parity.selftest.faults import FAULTS
    from parity.selftest.planting import Selftest, try_level

    began, found = time.monotonic(), Selftest(seed)
    with Progress(quiet=quiet) as progress, tempfile.TemporaryDirectory(prefix="parity-") as made:
        levels = _levels(Path(made), specs, found, progress, optional=optional)
        for number, level in enumerate(levels):
            told = partial(_tell, progress, level.name, number * len(FAULTS))
            found.trials += try_level(level, told)
    found.seconds = time.monotonic() - began
    return found


def checks_of(record: Mapping[str, Any]) -> CheckRun:
    """Every trial as a claim, as every report is told; ``record``: of the JSON file."""
    found, again = _read(record), record.get("reproduce", "")
    checks = tuple(
        Check(
            f"{trial.level}: {trial.fault}",
            Verdict.SAME if trial.caught else Verdict.DIVERGED,
            str(trial.want) if trial.caught else _missed(trial).strip(),
            first=None if trial.caught else trial.key,
            compared=1,
            reproduce=again,
        )
        for trial in found.trials
    )
    checks += tuple(Check(level, Verdict.NOT_RUN, why) for level, why in found.not_run.items())
    verdict = Verdict.SAME if record["passed"] else Verdict.DIVERGED
    word, _, said = headline(found).partition("  ")
    facts = {"seed": str(found.seed)}
    return CheckRun(NAME, verdict, said, checks, again, facts, found.seconds, word, (record,))


def _read(record: Mapping[str, Any]) -> Selftest:
    from parity.selftest.faults import Want
    from parity.selftest.planting import Selftest, Trial

    trials = [Trial(**{**one, "want": Want(one["want"])}) for one in record["trials"]]
    return Selftest(record["seed"], trials, record["not_run"], record["seconds"])


def _spec(text: str) -> EngineSpec:
    spec = parse_spec(text, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(f"--engine {text}: not an engine", "parity engines lists them")
    return spec


def _tell(progress: Progress, level: str, before: int, fault: str, number: int) -> None:
    total = before + number + 1
    progress.update("selftest", f"{level}: {fault}", before + number, total, "trials")


def _levels(
    folder: Path,
    specs: Sequence[EngineSpec],
    found: Selftest,
    progress: Progress,
    *,
    optional: bool,
) -> Iterator[Level]:
    """Each level when its turn comes. ``optional``: all engines but the first may be absent."""
    from parity.model.model import synthetic
    from parity.runs.sides import open_unloaded
    from parity.selftest.levels import DumpFiles, EngineRuns, TensorFiles

    yield DumpFiles(folder, found.seed, _compare_paths)
    yield TensorFiles(folder, found.seed, _compare_paths)
    for number, spec in enumerate(specs):
        try:
            engine = open_unloaded(spec, progress)
            for name in MODELS:
                model = synthetic(name, found.seed)
                yield EngineRuns(f"{spec.text} {name}", engine, model, found.seed, compare_dumps)
        except NotRunError as error:
            if not optional or not number:
                raise
            found.not_run[spec.text] = error.message


def _compare_paths(ref: Path, dut: Path) -> Tree:
    """As ``parity compare REF DUT`` does."""
    from parity.runs.engine_diff import Ask

    return compare_files(ref, dut, Ask())


# --- what it prints -------------------------------------------------------------------------------


def record_of(found: Selftest) -> dict[str, Any]:
    """The object of the JSON file."""
    from parity.selftest.planting import FORMAT, VERSION

    return {"format": FORMAT, "version": VERSION, "passed": found.passed, **asdict(found)}


def to_json(found: Selftest) -> str:
    """Versioned JSON text."""
    return json.dumps(record_of(found), indent=1)


def headline(found: Selftest) -> str:
    """``PASSED  78 of 78 faults caught, 18 of 18 equal pairs without an alarm``."""
    from parity.selftest.faults import Want

    texts = []
    for faults, what in ((True, "faults caught"), (False, "equal pairs without an alarm")):
        mine = [
            trial.caught
            for trial in found.trials
            if (trial.want in (Want.CAUGHT, Want.REFUSED)) == faults
        ]
        texts.append(f"{sum(mine):,} of {len(mine):,} {what}")
    return f"{'PASSED' if found.passed else 'FAILED'}  {', '.join(texts)}"


def report(found: Selftest) -> list[str]:
    """The table, what was missed, and where the faults were planted."""
    levels = found.levels
    by_name: dict[str, dict[str, Trial]] = {}
    for trial in found.trials:
        by_name.setdefault(trial.fault, {})[trial.level] = trial
    lines = [headline(found), "", *_heads(levels)]
    for name, row in by_name.items():
        cells = (f"{_word(row[level]):>{CELL}}" for level in levels)
        lines.append(f"  {name:<{NAMES - 2}}{''.join(cells)}")
    lines += ["", *(_missed(trial) for trial in found.missed)]
    planted = {trial.level: trial.key for trial in reversed(found.trials)}
    for number, level in enumerate(levels):
        label = f"seed {found.seed}" if not number else ""
        lines += _fact(label, f"{level:<{LEVEL}} planted at {planted[level]}")
    lines += _fact("words", MEANING)
    for reason in found.not_run.values():
        lines += _fact("not run", reason)
    return [*lines, *_fact("time", f"{found.seconds:,.1f} s")]


def _heads(levels: Sequence[str]) -> list[str]:
    """The name of each level over its column: ``cpu`` and below it ``moe``."""
    pairs = [level.partition(" ")[::2] for level in levels]
    rows = [[pair[0] for pair in pairs], [pair[1].partition("-")[0] for pair in pairs]]
    heads = ("fault", "")
    return [
        f"  {head:<{NAMES - 2}}{''.join(f'{name[: CELL - 1]:>{CELL}}' for name in row)}".rstrip()
        for head, row in zip(heads, rows, strict=True)
    ]


def _word(trial: Trial) -> str:
    from parity.selftest.faults import Want

    if trial.caught:
        return str(trial.want)
    return "MISSED" if trial.want in (Want.CAUGHT, Want.REFUSED) else "ALARM"


def _missed(trial: Trial) -> str:
    found = f"found at {trial.found}" if trial.found else "not found"
    what = trial.problem or f"{found}: {trial.said}, exit {trial.status}"
    return f"  {_word(trial)}  {trial.fault}, {trial.level}, at {trial.key}: {what}"


def _fact(label: str, text: str) -> list[str]:
    """One labelled fact, folded at blanks where it is wider than 80 columns."""
    lines, line = [], f"  {label:<{LABEL - 3}}"
    for word in re.split("(?<=[^ ]) ", text):
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = " " * (LABEL - 1)
        line += f" {word}"
    return [*lines, line]
