"""The console report of ``parity mathfn``: verdict, facts, bins, classes and examples, as text.

Every fact comes from the result; what is wider than the screen folds or runs long, never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from parity.elementary.mathfn import Example, Sweep, Table, TableRow, implementation_facts
from parity.elementary.tally import CLASSES
from parity.presenting import Options, write_text
from parity.status import Verdict
from parity_reports import mathfn_wording as wording
from parity_reports.layout import Page, measure, paint
from parity_reports.screen import screen_of

SHOWN = 4  # examples of one list; the JSON and HTML reports hold the rest
_WORDS = {
    Verdict.SAME: ("SAME", "good"),
    Verdict.DIVERGED: ("DIVERGED", "bad"),
    Verdict.UNSTABLE: ("UNSTABLE", "bad"),
    Verdict.NOT_RUN: ("NOT RUN", "warn"),
}
HEADS = ("input", "ref hex", "ref value", "dut hex", "dut value", "ULP")
# What may follow in a line of its own, and where the headline is cut for it.
PARTINGS = (("besides", ", and "), ("largest", " by at most "), ("largest", ", at most "))
# Lists shown beside the first and the worst: a difference that has no distance is never lost.
APART = ("NaN in ref", "NaN in dut", "NaN payload", "zero sign")


class FunctionConsole:
    """Presenter ``console`` of sweeps and tables."""

    name = "console"

    def write(self, found: Sweep | Table, stream: TextIO, options: Options) -> None:
        """Write the report as ``stream`` can show it."""
        screen = screen_of(stream, options)
        page = Page(screen.width, screen.dot)
        if options.quiet:
            page.line((wording.quiet_line(found), ""), indent=0)
        elif isinstance(found, Table):
            _table(page, found)
        else:
            _sweep(page, found)
        write_text(stream, paint(page.lines, screen.color))


def _sweep(page: Page, sweep: Sweep) -> None:
    _verdict(page, sweep)
    for label, about in (("ref", sweep.ref), ("dut", sweep.dut)):
        page.fact(label, f"{about['name']}: {implementation_facts(about)}")
    page.fact("inputs", wording.inputs_text(sweep.inputs))
    page.fact("special", wording.special_text(sweep))
    page.fact("places", wording.places_text(sweep))
    page.fact("drift", wording.drift_text(sweep.exponents))
    for remark in sweep.remarks:
        page.fact("remark", remark)
    _bins(page, sweep)
    _classes(page, sweep)
    _examples(page, sweep)
    if sweep.verdict is not Verdict.SAME:
        page.gap()
        page.line(("reproduce:", "dim"))
        page.line((sweep.reproduce, ""))
    page.fact("time", wording.time_text(sweep))


def _verdict(page: Page, sweep: Sweep) -> None:
    """The first line; where it is too wide, its last parts have lines of their own."""
    word, role = _WORDS[sweep.verdict]
    text = wording.headline(sweep)
    rest: dict[str, str] = {}
    for label, parting in PARTINGS:
        if len(word) + 2 + measure(text) > page.width and parting in text:
            text, _, rest[label] = text.partition(parting)
    page.line((word, role), (f"  {text}", ""), indent=0)
    page.gap()
    for label, _ in reversed(PARTINGS):
        page.fact(label, rest.pop(label, ""))


def _bins(page: Page, sweep: Sweep) -> None:
    page.gap()
    rows: list[Sequence[str]] = [("ULP", "inputs", "dut below", "dut above")]
    for one in sweep.bins:
        split = [one.below, one.above]
        rows.append((one.name, f"{one.count:,}", *("" if n is None else f"{n:,}" for n in split)))
    rows.append(("all", f"{sweep.pairs:,}", "", ""))
    _aligned(page, rows, left=1)


def _classes(page: Page, sweep: Sweep) -> None:
    """Classes of results: one line where both sides agree everywhere, else the table."""
    counts = sweep.results
    size = range(len(CLASSES))
    page.gap()
    if all(counts[ref][dut] == 0 for ref in size for dut in size if ref != dut):
        found = [f"{CLASSES[at]} {counts[at][at]:,}" for at in size if counts[at][at]]
        page.fact("results", f"{', '.join(found)}, the same on both sides")
    else:
        rows: list[Sequence[str]] = [("ref \\ dut", *CLASSES)]
        rows += [(CLASSES[at], *(f"{n:,}" for n in counts[at])) for at in size]
        _aligned(page, rows, left=1)
    found = [f"{CLASSES[at]} {n:,}" for at, n in enumerate(sweep.input_classes) if n]
    page.fact("inputs", ", ".join(found))


def _examples(page: Page, sweep: Sweep) -> None:
    lists: list[tuple[str, Sequence[Example]]] = [
        (name, sweep.examples.get(name, [])) for name in ("first", "worst", *APART)
    ]
    lists.append(("special", sweep.special.examples if sweep.special else []))
    first, worst = (found for _, found in lists[:2])
    alike = bool(worst) and worst[:SHOWN] == first[:SHOWN]
    if alike:
        lists[:2] = [("first, and none is worse", first)]
    shown = [(name, found[:SHOWN]) for name, found in lists if found]
    if not shown:
        return
    page.gap()
    rows: list[Sequence[str]] = [HEADS]
    for name, found in shown:
        rows += [(name,), *map(_cells, found)]
        more = sweep.special.differ - len(found) if name == "special" and sweep.special else 0
        if more:
            rows.append((f"{more:,} more, in the JSON and HTML reports",))
    _aligned(page, rows, left=0)


def _cells(one: Example) -> tuple[str, ...]:
    distance = "none" if one.ulp is None else f"{one.ulp:+,}"
    return one.x_hex, one.ref_hex, one.ref, one.dut_hex, one.dut, distance


def _table(page: Page, table: Table) -> None:
    word, role = _WORDS[table.verdict]
    page.line((word, role), (f"  {wording.table_text(table)}", ""), indent=0)
    if table.next_step:
        page.gap()
        page.fact("next", table.next_step, foldable=False)
    for row in table.rows:
        page.gap()
        page.line((row.name, "key"), (f"  {row.inputs}", ""))
        page.fact("measured", wording.measured_text(row))
        page.fact("reported", row.expected.reported)
        page.fact("rerun", _rerun(row))
    page.gap()
    page.fact("seed", str(table.seed))
    for label, text in table.about.items():
        page.text(f"{label}: {text}")
    page.fact("time", f"{table.seconds:,.1f} s")
    page.gap()
    page.line(("reproduce:", "dim"))
    page.line((table.reproduce, ""))


def _rerun(row: TableRow) -> str:
    expected = wording.expected_text(row)
    if not expected or row.verdict is Verdict.NOT_RUN:
        return ""
    return f"{expected}: {'inside' if row.verdict is Verdict.SAME else 'OUTSIDE'}"


def _aligned(page: Page, rows: Sequence[Sequence[str]], left: int) -> None:
    """Columns two blanks apart, the first ``left`` of them flush left, under the first row. A row
    of one cell is a heading."""
    full = [row for row in rows if len(row) > 1]
    widths = [max(map(measure, column)) for column in zip(*full, strict=True)]
    for number, row in enumerate(rows):
        if len(row) == 1:
            page.line((row[0], "dim"))
            continue
        cells = []
        for at, (text, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - measure(text))
            cells.append(text + blank if at < left else blank + text)
        page.line(("  ".join(cells).rstrip(), "dim" if number == 0 else ""))
