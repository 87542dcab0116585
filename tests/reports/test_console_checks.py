"""A run of more claims than a screen has lines: what failed is told, what holds is counted."""

from __future__ import annotations

import io
from dataclasses import replace

from parity.presenting import Options
from parity.runs.checks import CheckRun
from parity_reports.console_checks import ConsoleChecks
from tests.reports.check_runs import GREEN, LINES, RED, probes

COUNTED = "30 of 31, each in the JSON and HTML reports"


def console(run: CheckRun) -> str:
    stream = io.StringIO()
    ConsoleChecks().write(run, stream, Options(width=80))
    return stream.getvalue()


def run_of(greens: int) -> CheckRun:
    """Rollbacks that hold around one isodiff that does not."""
    few = probes(RED, GREEN)
    red, green = few.checks
    named = [replace(green, name=f"rollback {number}") for number in range(greens)]
    return replace(few, checks=[*named, red])


def test_claims_that_hold_are_counted_where_the_screen_has_no_room() -> None:
    lines = console(run_of(30)).splitlines()
    assert [line.split() for line in lines if line.strip().startswith("ok ")] == [
        ["ok", *COUNTED.split()]
    ]
    assert any(line.strip().startswith("FAILED ") for line in lines)
    assert f"  {LINES[0]}" in lines
    assert len(lines) <= 30


def test_a_few_are_told_one_by_one() -> None:
    text = console(run_of(3))
    assert COUNTED not in text
    assert [text.count(f"rollback {number}: ") for number in range(3)] == [1, 1, 1]
