"""``parity conformance``: does an engine keep the promises of the engine Protocol?"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

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

NAME, VERSION = "conformance", 1
_VERDICTS = {
    **{KEPT: Verdict.SAME, BROKEN: Verdict.DIVERGED},
    **{NOT_OFFERED: Verdict.NOT_RUN, NOT_CHECKED: Verdict.NOT_RUN},
}


def run_conformance(
    typed: str, side: str, *, model: str, seed: int, quiet: bool, **options: Any
) -> int:
    """Run ``parity conformance``; 0 when every promise that the engine makes is kept."""
    json_path = options.pop("json_path")
    reports = report_paths(options, CHECK_REPORTS)
    require_writable_reports(json_path, *reports.values())
    began = time.monotonic()
    try:
        outcomes = _outcomes(side, model, seed, quiet)
    except NotRunError as error:
        write_checks_not_run(error, NAME, rerun(typed), reports)
        raise
    run = _check_run(outcomes, side, f"{model} seed {seed}", rerun(typed))
    if json_path is not None:
        write_lines([_json(run, outcomes)], json_path)
    if STDOUT not in (json_path, *reports.values()):
        lines = _lines(run, outcomes, time.monotonic() - began)
        write_lines([f"{run.called.lower()}: {run.said}"] if quiet else lines, STDOUT)
    write_check_reports(run, reports)
    return int(run.verdict.exit_status)


def _outcomes(side: str, model: str, seed: int, quiet: bool) -> list[Outcome]:
    from parity.testing import PROMISES, promise_outcomes

    found = []
    with Progress(quiet=quiet) as progress:
        for outcome in promise_outcomes(side, model=model, seed=seed):
            found.append(outcome)
            progress.update(side, outcome.promise, len(found), len(PROMISES))
    return found


def _check_run(outcomes: list[Outcome], side: str, model: str, reproduce: str) -> CheckRun:
    broken = [one for one in outcomes if one.state == BROKEN]
    verdict = Verdict.DIVERGED if broken else Verdict.SAME
    checks = tuple(
        Check(one.promise, _VERDICTS[one.state], _said(one), reproduce=reproduce)
        for one in outcomes
    )
    facts = {"engine": side, "model": model}
    word = BROKEN if broken else KEPT.upper()
    return CheckRun(NAME, verdict, _headline(outcomes), checks, reproduce, facts, word=word)


def _headline(outcomes: list[Outcome]) -> str:
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


def _json(run: CheckRun, outcomes: list[Outcome]) -> str:
    """Versioned JSON: the verdict is ``kept`` or ``broken``."""
    promises = [
        {"promise": one.promise, "state": one.state.lower(), "text": one.text} for one in outcomes
    ]
    head = {"format": "parity-conformance", "version": VERSION, "verdict": run.called.lower()}
    body = {**head, **run.facts, "reproduce": run.reproduce, "promises": promises}
    return json.dumps(body, indent=1)
