"""The console report of ``parity order``: one line a batch size, then what parts the trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from parity.order.record import TREE, Bits, OrderTable, Row, sizes_text
from parity.presenting import Options, printable, write_text
from parity_reports.layout import INDENT, LABEL, Page, measure, paint
from parity_reports.screen import screen_of

HEADS = ("M", "verdict", "digest", "probes", "seconds")
FEW = 4  # batch sizes of the first line
MOST = 5  # lines of one tree
LEAST = 24  # columns of a tree that is worth a place in the line; else it has its own
CUT = "..."


class OrderConsole:
    """Presenter ``console`` of tables of orders."""

    name = "console"

    def write(self, found: OrderTable, stream: TextIO, options: Options) -> None:
        """Write the report as ``stream`` can show it."""
        screen = screen_of(stream, options)
        page = Page(screen.width, screen.dot)
        if options.quiet:
            page.line((quiet_line(found), ""), indent=0)
        else:
            _report(page, found, options.json_path)
        write_text(stream, paint(page.lines, screen.color))


def what(found: OrderTable) -> str:
    """``numpy.matmul f32, K 64, N 8, cpu``."""
    size = f"K {found.K:,}" if found.terms != "products" else f"K {found.K:,}, N {found.N:,}"
    return f"{found.op} {found.dtype}, {size}, {found.device}"


def headline(found: OrderTable) -> str:
    """What follows the verdict: ``at M 1``, ``the same at M 1, 8``, ``2 over 3 batch sizes``."""
    bad = [row.M for row in found.rows if row.verdict != TREE]
    if bad:
        return f"at M {few(bad)}"
    wrong = [one for one in found.bits if not one.agrees]
    if wrong:
        return f"the bits of M {wrong[0].ref:,} and {wrong[0].dut:,} say otherwise"
    count, sizes = len(found.trees), [row.M for row in found.rows]
    if count > 1:
        return f"{count} trees over {len(sizes)} batch sizes"
    return f"at M {sizes[0]:,}" if len(sizes) == 1 else f"the same at M {few(sizes)}"


def few(sizes: Sequence[int]) -> str:
    """``1, 2, 3, 4 and 60 more``."""
    more = len(sizes) - FEW
    return sizes_text(sizes) if more < 1 else f"{sizes_text(sizes[:FEW])} and {more} more"


def quiet_line(found: OrderTable) -> str:
    """Verdict, headline and op."""
    return f"{word(found).lower()}: {headline(found)}: {what(found)}"


def word(found: OrderTable) -> str:
    """``TREE``, or the first verdict that is not."""
    bad = next((row.verdict for row in found.rows if row.verdict != TREE), "")
    if bad or not found.rows:
        return bad.upper() or "NOTHING"
    return "TREE" if found.green else "CONTRADICTED"


def bits_text(one: Bits) -> str:
    """What the outputs of two batch sizes say about their orders."""
    sizes = f"M {one.ref:,} and {one.dut:,}"
    if one.same:
        if not one.unlike:
            return f"{sizes}: one tree, {one.outputs:,} outputs equal"
        return f"{sizes}: one tree, but {one.unlike:,} of {one.outputs:,} outputs differ"
    if one.unlike:
        return f"{sizes}: two trees, {one.unlike:,} of {one.outputs:,} outputs differ"
    return f"{sizes}: two trees, but none of {one.outputs:,} outputs differs"


def _report(page: Page, found: OrderTable, json_path: str) -> None:
    role = "good" if found.green else "bad"
    page.line((word(found), role), (f"  {headline(found)}", ""), indent=0)
    page.gap()
    page.fact("op", what(found))
    page.gap()
    cut = _table(page, found.rows)
    if cut:
        _whole(page, found, cut, json_path)
    _named(page, found)
    _partings(page, found)
    for row in found.rows:
        if row.verdict != TREE:
            _evidence(page, row)
    if found.bits:
        page.gap()
    for one in found.bits:
        role = "" if one.agrees else "bad"
        page.fact("bits", bits_text(one) + (f"; first {one.example}" if one.example else ""))
        if role:
            page.line(("the trees and the bits contradict each other", role))
    page.gap()
    _about(page, found)


def _table(page: Page, rows: Sequence[Row]) -> set[int]:
    """One line for each M, its tree in what is left of the line or in a line of its own; the
    numbers of trees that were cut. Where even the rest is too wide, the digest has its own line."""
    cells = [_cells(row) for row in rows]
    widths = [max(map(measure, column)) for column in zip(HEADS, *cells, strict=True)]
    room = page.width - INDENT - sum(widths) - 2 * len(widths)
    inline, beside = room >= LEAST, room < -2
    cut: set[int] = set()
    page.line((_columns(HEADS, widths, "tree" if inline else "", room), "dim"))
    for row, texts in zip(rows, cells, strict=True):
        tree = printable(row.words)
        short = _shortened(tree, room if inline else page.width - 2 * INDENT)
        if short != tree:
            cut.add(row.tree)
        page.line((_columns(texts, widths, short if inline else "", room), ""))
        if beside and row.digest:
            page.line((row.digest, ""), indent=2 * INDENT)
        if short and not inline:
            page.line((short, ""), indent=2 * INDENT)
    return cut


def _cells(row: Row) -> tuple[str, ...]:
    return (f"{row.M:,}", row.verdict, row.digest or "-", f"{row.probes:,}", f"{row.seconds:.2f}")


def _columns(texts: Sequence[str], widths: Sequence[int], tree: str, room: int) -> str:
    size, verdict, digest, probes, seconds = texts
    parts = [f"{size:>{widths[0]}}", f"{verdict:<{widths[1]}}"]
    if room >= LEAST:
        parts.append(tree + " " * (room - measure(tree)))
    if room >= -2:
        parts.append(f"{digest:<{widths[2]}}")
    parts += [f"{probes:>{widths[3]}}", f"{seconds:>{widths[4]}}"]
    return "  ".join(parts).rstrip()


def _shortened(text: str, room: int) -> str:
    if measure(text) <= room:
        return text
    return text[: room - len(CUT)] + CUT


def _whole(page: Page, found: OrderTable, cut: set[int], json_path: str) -> None:
    """The trees that the table cuts; one that would fill the screen is cut here too."""
    page.gap()
    page.line((f"cut above at {CUT}:", "dim"))
    room = MOST * (page.width - INDENT - LABEL)
    for row in (one for one in found.trees if one.tree in cut):
        words = printable(row.words)
        page.fact(
            f"tree {row.tree}",
            f"M {sizes_text(found.sizes_of(row.tree))}: {_shortened(words, room)}",
        )
        if measure(words) > room:
            where = next(filter(None, (*found.written, json_path)), "what --json FILE writes")
            page.fact("", f"({CUT}: the whole is in {where})")


def _named(page: Page, found: OrderTable) -> None:
    for row in found.trees:
        if row.name:
            page.fact("named", f"M {sizes_text(found.sizes_of(row.tree))}: {row.name}")


def _partings(page: Page, found: OrderTable) -> None:
    if not found.partings:
        return
    page.gap()
    for line in found.partings:
        page.fact("parts", line)


def _evidence(page: Page, row: Row) -> None:
    page.gap()
    page.line((f"M {row.M:,}: {row.verdict}", "bad"))
    for line in row.evidence:
        page.text(line, indent=2 * INDENT)


def _revealed(rows: Sequence[Row]) -> str:
    """What the first reveal alone took of the probes and seconds above."""
    told = [
        f"M {row.M:,}: {stage.probes:,} probes, {stage.seconds:.2f} s"
        for row in rows[:FEW]
        if (stage := row.stages.get("reveal"))
    ]
    return "; ".join(told)


def _about(page: Page, found: OrderTable) -> None:
    page.fact("key", ", ".join(f"{name} {text}" for name, text in found.key if name != "op"))
    page.fact("reveal", _revealed(found.rows))
    page.fact("files", ", ".join(found.written))
    for note in found.notes:
        page.fact("note", note)
    page.fact("time", f"{found.seconds:,.1f} s")
    if not found.green:
        page.gap()
        page.line(("reproduce:", "dim"))
        page.line((found.reproduce, ""))
