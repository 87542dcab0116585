"""JUnit for a run of probes or promises: one test case a claim, and one for the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from parity.presenting import Options, write_text
from parity.runs.checks import Check, CheckRun
from parity.status import Verdict
from parity_reports.junit_xml import FAILED, PASSED, RUN, SKIPPED, Case, document

_OUTCOMES = {Verdict.SAME: PASSED, Verdict.NOT_RUN: SKIPPED}


class JunitChecks:
    """Presenter ``junit`` of a run of probes or promises."""

    name = "junit"

    def write(self, run: CheckRun, stream: TextIO, options: Options) -> None:
        """Write one suite as ASCII XML; no option changes it."""
        write_text(stream, render(run))


def render(run: CheckRun) -> str:
    """The suite as text."""
    first = next((check.first for check in run.checks if check.first is not None), "")
    facts = {"verdict": str(run.verdict), "first": first, "reproduce": run.reproduce}
    return document(cases(run), {**facts, **run.facts}, run.seconds)


def cases(run: CheckRun) -> Iterator[Case]:
    """The verdict, then the claims in their order. Of a run that was not run none passes."""
    total = sum(check.compared for check in run.checks)
    outcome = _OUTCOMES.get(run.verdict, FAILED)
    yield Case(RUN, "verdict", outcome, str(run.verdict), run.said, run.reproduce, total)
    for check in run.checks:
        yield _case(run, check)


def _case(run: CheckRun, check: Check) -> Case:
    outcome, kind = _OUTCOMES.get(check.verdict, FAILED), str(check.verdict)
    if run.verdict is Verdict.NOT_RUN and outcome == PASSED:
        outcome, kind = SKIPPED, str(run.verdict)
    text = "\n".join(part for part in (check.reproduce, *check.details) if part)
    group = f"parity.{run.name.replace(' and ', '_')}"
    return Case(group, check.name, outcome, kind, check.said, text, check.compared)
