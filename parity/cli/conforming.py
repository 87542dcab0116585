"""``parity conformance``: does an engine keep the promises of the engine Protocol?"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
from parity.cli.rerunning import rerun
from parity.errors import NotRunError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.promises.conformance import BROKEN, KEPT, NOT_CHECKED, NOT_OFFERED, Outcome
from parity.runs.checks import Check, CheckRun
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.model.model import Model

NAME, VERSION = "conformance", 1
FORMAT = "parity-conformance"
_VERDICTS = {
    **{KEPT: Verdict.SAME, BROKEN: Verdict.DIVERGED},
    **{NOT_OFFERED: Verdict.NOT_RUN, NOT_CHECKED: Verdict.NOT_RUN},
}


def run_conformance(
    typed: str,
    side: str,
    *,
    model: str,
    weights: str | None,
    seed: int,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity conformance``; 0 when every promise that the engine makes is kept."""
    from parity.runs.carried import model_text, open_for
    from parity.spec import runnable

    json_path = options.pop("json_path")
    reports = report_paths(options, CHECK_REPORTS)
    sides = (runnable(side, "conformance"),)
    text = model_text(sides, model)
    require_writable_reports(json_path, *reports.values(), inputs=input_files(text))
    opened = open_for(sides, text, seed=seed, weights=weights)
    began = time.monotonic()
    try:
        outcomes = _outcomes(side, opened, seed, quiet)
    except NotRunError as error:
        write_checks_not_run(error, NAME, rerun(typed), reports)
        raise
    record = _record(outcomes, side, opened.label, rerun(typed))
    run = checks_of(record)
    if json_path is not None:
        write_lines([json.dumps(record, indent=1)], json_path)
    if STDOUT not in (json_path, *reports.values()):
        lines = _lines(run, outcomes, time.monotonic() - began)
        write_lines([f"{run.called.lower()}: {run.said}"] if quiet else lines, STDOUT)
    write_check_reports(run, reports, json_path or "")
    return int(run.verdict.exit_status)


def _outcomes(side: str, model: Model, seed: int, quiet: bool) -> list[Outcome]:
    from parity.testing import PROMISES, promise_outcomes

    found = []
    with Progress(quiet=quiet) as progress:
        for outcome in promise_outcomes(side, model=model, seed=seed):
            found.append(outcome)
            progress.update(side, outcome.promise, len(found), len(PROMISES))
    return found


def checks_of(record: Mapping[str, Any]) -> CheckRun:
    """What became of each promise, as every report is told. ``record``: of the JSON file."""
    states = {word.lower(): word for word in _VERDICTS}
    outcomes = [
        Outcome(one["promise"], states[one["state"]], one["text"]) for one in record["promises"]
    ]
    broken = [one for one in outcomes if one.state == BROKEN]
    verdict, reproduce = Verdict.DIVERGED if broken else Verdict.SAME, record["reproduce"]
    checks = tuple(
        Check(one.promise, _VERDICTS[one.state], _said(one), reproduce=reproduce)
        for one in outcomes
    )
    facts = {name: record[name] for name in ("engine", "model")}
    word = BROKEN if broken else KEPT.upper()
    return CheckRun(
        *(NAME, verdict, _headline(outcomes), checks, reproduce, facts),
        word=word,
        records=(record,),
    )


def _headline(outcomes: Sequence[Outcome]) -> str:
    """``18 of 20 promises kept, 2 not offered``; ``first shapes, 1 of 20 promises broken``."""
    counts = Counter(one.state for one in outcomes)
    parts = [f"{counts[KEPT]} of {len(outcomes)} promises kept"]
    first = next((one.promise for one in outcomes if one.state == BROKEN), None)
    if first is not None:
        parts = [f"first {first}", f"{counts[BROKEN]} of {len(outcomes)} promises broken"]
    rest = (KEPT,) * (first is not None) + (NOT_OFFERED, NOT_CHECKED)
    return ", ".join([*parts, *(f"{counts[name]} {name}" for name in rest if counts[name])])


def _said(one: Outcome) -> str:
    if one.state == NOT_OFFERED:
        return f"the capability {one.text!r} is not offered"
    if one.state == NOT_CHECKED:
        return "not checked: the engine lacks a member"
    return one.text or one.state


def _lines(run: CheckRun, outcomes: list[Outcome], seconds: float) -> list[str]:
    lines = [f"{run.called}  {run.said}", ""]
    for one in outcomes:
        text = f" ({one.text})" if one.state == NOT_OFFERED else f": {one.text}"
        lines.append(f"  {one.state:<11}  {one.promise}{text if one.text else ''}")
    lines += ["", *(f"  {label:<8} {text}" for label, text in run.facts.items())]
    if run.verdict is not Verdict.SAME:
        first = next(one.promise for one in outcomes if one.state == BROKEN)
        lines += [
            f"  promise  the docstring of parity.testing.{first} says what is asked",
            *("", "  reproduce:", f"  {run.reproduce}"),
        ]
    return [*lines, f"  time     {seconds:,.1f} s"]


def _record(outcomes: Sequence[Outcome], engine: str, model: str, reproduce: str) -> dict[str, Any]:
    """The object of the JSON file: the verdict is ``kept`` or ``broken``."""
    broken = any(one.state == BROKEN for one in outcomes)
    promises = [
        {"promise": one.promise, "state": one.state.lower(), "text": one.text} for one in outcomes
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": (BROKEN if broken else KEPT).lower(),
        "engine": engine,
        "model": model,
        "reproduce": reproduce,
        "promises": promises,
    }
