"""Markdown for a run of probes, promises, rungs or a gate: one row a claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from parity.presenting import Options, write_text
from parity.runs.checks import Check, CheckRun
from parity.status import ExitStatus, Verdict
from parity_reports import wording
from parity_reports.markdown_report import ROWS, more, reproduce
from parity_reports.markdown_text import code, fence, prose, table

CLAIMS = 24  # that all have a row


class MarkdownChecks:
    """Presenter ``markdown`` of a run of checks."""

    name = "markdown"

    def write(self, run: CheckRun, stream: TextIO, options: Options) -> None:
        """Write the report; of the options only ``json_path`` matters, as the place of the rest."""
        write_text(stream, render(run, options.json_path))


def render(run: CheckRun, json_path: str = "") -> str:
    """The report as text."""
    rest = f"in {json_path}" if json_path else "with --json FILE"
    lines = [f"### parity {prose(run.name)}: **{prose(run.called)}** {prose(run.said)}", ""]
    lines += [*_claims(run), *_facts(run)]
    failed = next((check for check in run.checks if _failed(check)), None)
    lines += _details(failed or run.checks[0], rest) if run.checks else []
    if run.verdict is not Verdict.SAME:
        lines += reproduce((failed.reproduce if failed else "") or run.reproduce)
    return "\n".join(lines).rstrip("\n") + "\n"


def _claims(run: CheckRun) -> Iterator[str]:
    """A row a claim; of a long list only those that are not the same, with how many are."""
    shown = list(run.checks)
    if len(shown) > CLAIMS:
        shown = [check for check in run.checks if check.verdict is not Verdict.SAME]
    heads = ("claim", "verdict", "found", "compared")
    columns = len(heads) if any(check.compared for check in shown) else len(heads) - 1
    if shown:
        rows = [_row(check)[:columns] for check in shown]
        yield from (*table(heads[:columns], rows, right=columns - 3), "")
    left = len(run.checks) - len(shown)
    if left:
        yield from (f"{wording.of(left, len(run.checks))} claims: same", "")


def _row(check: Check) -> tuple[str, ...]:
    said = check.said
    if check.first is not None and check.first not in said:
        said += f"; first key {check.first}"
    called = check.verdict.replace("_", " ")
    return code(check.name), called, prose(said), f"{check.compared:,}"


def _failed(check: Check) -> bool:
    return check.verdict.exit_status is ExitStatus.DIVERGED


def _facts(run: CheckRun) -> Iterator[str]:
    if run.facts:
        rows = [(prose(label), prose(text)) for label, text in run.facts.items()]
        yield from (*table(("", ""), rows), "")


def _details(check: Check, rest: str) -> Iterator[str]:
    """The lines of the first claim that failed, or of the first one; those of a probe stand as it
    prints them."""
    if check.details:
        yield from (f"Details of {code(check.name)}:", "", *fence(check.details[:ROWS]), "")
        yield from more(ROWS, len(check.details), rest)
