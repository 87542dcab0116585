"""The console report of a run of probes, promises, rungs or a gate, made again from its file.

The commands print more while they run; this is what their file still tells. Nothing is cut.
"""

from __future__ import annotations

from typing import TextIO

from parity.presenting import Options, write_text
from parity.runs.checks import Check, CheckRun
from parity.status import ExitStatus, Verdict
from parity_reports.layout import Page, paint
from parity_reports.screen import Screen, screen_of

_WORDS = {Verdict.SAME: "ok", Verdict.NOT_RUN: "not run"}
_AROUND = 8  # lines beside those of the claims: verdict, gaps, command, time
_GAP = "  "  # between a label and its text, and between the columns of a table


class ConsoleChecks:
    """Presenter ``console`` of a run of checks."""

    name = "console"

    def write(self, run: CheckRun, stream: TextIO, options: Options) -> None:
        """Write the report as ``stream`` can show it."""
        screen = screen_of(stream, options)
        page = Page(screen.width, screen.dot)
        if options.quiet:
            page.line((f"{run.called.lower()}: {run.said}", ""), indent=0)
        else:
            _fill(page, run, screen)
        write_text(stream, paint(page.lines, screen.color))


def _fill(page: Page, run: CheckRun, screen: Screen) -> None:
    page.line((f"{run.called}  {run.said}", ""), indent=0)
    page.gap()
    _claims(page, run, len(run.checks) + _AROUND <= screen.height)
    for label, text in run.facts.items():
        page.fact(label, text)
    if run.verdict.exit_status is ExitStatus.DIVERGED and run.reproduce:
        failed = (check.reproduce for check in run.checks if _word(check) == "FAILED")
        page.gap()
        page.line(("reproduce:", "dim"))
        page.line((next(filter(None, failed), run.reproduce), ""))
    if run.seconds:
        page.fact("time", f"{run.seconds:,.1f} s")


def _claims(page: Page, run: CheckRun, every: bool) -> None:
    """Each claim with its lines; those that hold are counted where the screen has no room."""
    held = [check for check in run.checks if check.verdict is Verdict.SAME]
    for check in run.checks:
        if not every and check.verdict is Verdict.SAME:
            continue
        if len(run.checks) > 1:
            page.fact(_word(check), f"{check.name}: {check.said}")
        for line in check.details:
            _detail(page, line)
        if check.details and len(run.checks) > 1:
            page.gap()
    if not every and held:
        page.fact("ok", f"{len(held):,} of {len(run.checks):,}, each in the JSON and HTML reports")


def _detail(page: Page, line: str) -> None:
    """A published line as it was printed, a labelled fact, or a row of a table."""
    label, _, text = line.partition(_GAP)
    if line.startswith("["):
        page.line((line, ""), indent=0)
    elif label.isalpha() and text and _GAP not in text:
        page.fact(label, text)
    else:
        page.line((line, ""))


def _word(check: Check) -> str:
    return _WORDS.get(check.verdict, "FAILED")
