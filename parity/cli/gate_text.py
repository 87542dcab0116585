"""The evidence of a gate as text: all of it comes from the record, nothing is found out anew."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from parity.gate.told import facts, headline, ratio_text, tests, times

Record = Mapping[str, Any]
LABEL, WIDTH = 11, 80


def gate_line(record: Record) -> str:
    """The one line of ``-q``."""
    whole = record["statistics"]["all"]
    ratio = "" if whole is None else f", ratio {ratio_text(whole)}"
    return f"{record['verdict']}: {headline(record)}{ratio}"


def gate_lines(record: Record, kept: str | None, address: str) -> list[str]:
    """The whole report. ``kept``: where the evidence stands, None where it could not be kept."""
    lines = [f"{record['verdict'].upper()}  {headline(record)}", ""]
    for label, text in facts(record):
        lines += _fact(label, text)
    if record["statistics"]["all"] is not None:
        lines += ["", *_table(record), ""]
        lines += [line for label, text in tests(record) for line in _fact(label, text)]
    lines += [line for note in record["notes"] for line in _fact("note", note)]
    if record["problem"]:
        lines += ["", "  reproduce:", f"  {record['problem']['reproduce']}", ""]
    lines += _fact("evidence", f"{kept}, sha256 {address[:16]}" if kept else "not kept")
    return [*lines, *_fact("time", f"{record['seconds']:,.1f} s")]


def _table(record: Record) -> list[str]:
    """Medians with quartiles of both sides, and the ratio with its interval, by M."""
    statistics = record["statistics"]
    cells = [("M", "base ms (quartiles)", "candidate ms (quartiles)", "ratio (interval)")]
    for size, timing in [*statistics["by_size"].items(), ("all", statistics["all"])]:
        spans = (times(timing["base"]), times(timing["candidate"]))
        cells.append((size, *spans, ratio_text(timing)))
    widths = [max(len(row[at]) for row in cells) for at in range(4)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _fact(label: str, text: str) -> list[str]:
    """One labelled fact, folded at blanks where it is wider than WIDTH."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<{LABEL}}",
        subsequent_indent=" " * (LABEL + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
