"""The elements of one key on the console: how many differ, by how much, and four of them.

A table where it fits, a line a side where it does not. Hex digits that changed are marked.
"""

from __future__ import annotations

from parity.tree import ElementRow, Elements
from parity_reports import wording
from parity_reports.axes import axis_names, leading_axis
from parity_reports.layout import INDENT, Line, Page, measure

_GAPS = ("", "  ", "  ", "   ", "  ", "   ")  # before each column of the elements


def show_elements(page: Page, elements: Elements, json_path: str, shown: int) -> None:
    """What differs in one key: counts, distances, and the first ``shown`` elements with their
    digits; the JSON holds the rest."""
    axes = axis_names(elements)
    counted = wording.elements_sentence(elements, leading_axis(elements), bins=True)
    for text in (counted, elements.note):
        if text:
            page.text(text)
    rows = elements.rows[:shown]
    if not rows:
        return
    heads = [f"[{','.join(axes)}]", "ref hex", "ref value", "dut hex", "dut value", elements.unit]
    table = [heads, *([_index(row), *_cells(row)] for row in rows)]
    widths = [max(measure(line[column]) for line in table) for column in range(len(heads))]
    if INDENT + sum(widths) + sum(map(len, _GAPS)) <= page.width:
        _table(page, table, widths, rows)
    else:
        _facts(page, heads[0], rows, elements.unit)
    _more(page, elements, json_path, shown)


def _table(page: Page, table: list[list[str]], widths: list[int], rows: list[ElementRow]) -> None:
    for number, line in enumerate(table):
        spans: Line = []
        for column, text in enumerate(line):
            spans.append((_GAPS[column] + " " * (widths[column] - measure(text)), ""))
            if number and column in (1, 3):
                spans += _digits(rows[number - 1], dut=column == 3)
            else:
                spans.append((text, "" if number else "dim"))
        page.line(*spans)


def _facts(page: Page, head: str, rows: list[ElementRow], unit: str) -> None:
    """The table for a narrow screen: one side a line, the distance behind the dut."""
    for row in rows:
        ref_value, dut_value, ulp = _cells(row)[1], _cells(row)[3], _cells(row)[4]
        page.line((f"{head} {_index(row)}", ""))
        page.line(("ref  ", "dim"), *_digits(row, dut=False), (f"  {ref_value}", ""), indent=4)
        away = f"  {ulp}" + (f" {unit}" if row.kind == "value" else "")
        page.line(("dut  ", "dim"), *_digits(row, dut=True), (f"  {dut_value}{away}", ""), indent=4)


def _more(page: Page, elements: Elements, json_path: str, shown: int) -> None:
    left, kept = elements.differ - shown, len(elements.rows) - shown
    if left <= 0:
        return
    where = f"in {json_path}" if json_path else "with --json FILE"
    if kept < left:
        where = f"{max(kept, 0):,} of them {where}"
        page.line((f"{left:,} more, {where}", ""))
    else:
        page.line((f"{left:,} more {where}", ""))


def _digits(row: ElementRow, dut: bool) -> list[wording.Span]:
    """Hex digits, those that changed marked."""
    own, other = (row.dut_hex, row.ref_hex) if dut else (row.ref_hex, row.dut_hex)
    if len(own) != len(other):
        return [(own, "")]
    return [(a, "" if a == b else "digit") for a, b in zip(own, other, strict=True)]


def _cells(row: ElementRow) -> list[str]:
    ulp = "" if row.ulp is None else f"{row.ulp:+,}"
    kind = "" if row.kind == "value" else row.kind
    last = ", ".join(text for text in (ulp, kind) if text)
    return [row.ref_hex, row.ref_value, row.dut_hex, row.dut_value, last]


def _index(row: ElementRow) -> str:
    return f"[{', '.join(map(str, row.index))}]"
