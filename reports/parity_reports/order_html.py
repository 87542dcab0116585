"""The HTML report of ``parity order``: verdicts by batch size, evidence, bits and drawn trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TextIO

from parity.order.file import order_of
from parity.order.record import TREE, Bits, OrderTable, Row, sizes_text
from parity.presenting import Options, write_text
from parity_reports.html_frame import framed
from parity_reports.html_panels import Fact
from parity_reports.order_console import headline, quiet_line, what, word
from parity_reports.order_drawing import LARGEST, Drawing, drawing


@dataclass(frozen=True)
class RowView:
    """One batch size; ``number``: of its tree, 0 where there is none."""

    M: int
    verdict: str
    kind: str
    number: int
    digest: str
    words: str
    name: str
    probes: int
    calls: int
    seconds: str


@dataclass(frozen=True)
class BitsView:
    """Outputs of one pair of batch sizes."""

    sizes: str
    trees: str
    outputs: int
    unlike: int
    example: str
    kind: str
    word: str


@dataclass(frozen=True)
class TreeView:
    """One different tree, drawn."""

    number: int
    title: str
    words: str
    caption: str
    drawing: Drawing


@dataclass(frozen=True)
class Named:
    """Lines under a title."""

    title: str
    lines: list[str]


@dataclass(frozen=True)
class Group:
    """Batch sizes that share a tree."""

    number: int
    sizes: str


class OrderHtml:
    """Presenter ``html`` of tables of orders."""

    name = "html"

    def write(self, found: OrderTable, stream: TextIO, options: Options) -> None:
        """Write the page."""
        write_text(stream, render(found, options.json_path))


def render(found: OrderTable, json_path: str = "") -> str:
    """The page as ASCII text."""
    evidence = [Named(f"M {row.M:,}: {row.verdict}", row.evidence) for row in found.rows]
    trees = [_tree(found, row) for row in found.trees]
    context: dict[str, Any] = {
        "who": "parity order",
        "title": quiet_line(found),
        "word": word(found).capitalize(),
        "kind": "good" if found.green else "bad",
        "place": f"{what(found)}: {headline(found)}",
        "reproduce": found.reproduce,
        "facts": _facts(found),
        "groups": [Group(row.tree, sizes_text(found.sizes_of(row.tree))) for row in found.trees],
        "trees_text": _trees_text(len(trees)),
        "partings": found.partings,
        "rows": [_row(row) for row in found.rows],
        "named": any(row.name for row in found.rows),
        "evidence": [one for one in evidence if one.lines],
        "checks": [_bits(one) for one in found.bits],
        "trees": trees,
        "about": [Fact("file", path) for path in found.written]
        + [Fact("note", note) for note in found.notes],
        "key": found.key + found.own_keys,
    }
    context["nav"] = _navigation(context)
    return framed("order.html.j2", context, json_path, ("order.css",))


def _navigation(context: dict[str, Any]) -> list[tuple[str, str]]:
    """Sections that are there."""
    sections = (("sizes", "Batch sizes"), ("evidence", "Evidence"), ("checks", "Bits"))
    more = (("trees", "Trees"), ("provenance", "Holds for"))
    always = ("sizes", "provenance")
    return [(id_, name) for id_, name in (*sections, *more) if id_ in always or context[id_]]


def _trees_text(count: int) -> str:
    if count == 0:
        return "no tree was found"
    return "one tree for all that have one" if count == 1 else f"{count} different trees"


def _facts(found: OrderTable) -> list[Fact]:
    shape = f"K {found.K:,}" if found.terms != "products" else f"K {found.K:,}, N {found.N:,}"
    probes = sum(row.probes for row in found.rows)
    return [
        Fact("Op", found.op),
        Fact("Shape", f"{found.dtype}, {shape}"),
        Fact("Terms", found.terms),
        Fact("Probes", f"{probes:,}"),
        Fact("Time", f"{found.seconds:,.1f} s on {found.device}"),
    ]


def _row(row: Row) -> RowView:
    kind = "good" if row.verdict == TREE else "bad"
    return RowView(
        *(row.M, row.verdict, kind, row.tree, row.digest, row.words, row.name),
        *(row.probes, row.calls, f"{row.seconds:.2f}"),
    )


def _bits(one: Bits) -> BitsView:
    kind, state = ("good", "as the trees say") if one.agrees else ("bad", "contradicted")
    trees = "the same" if one.same else "two"
    sizes = f"{one.ref:,} and {one.dut:,}"
    return BitsView(sizes, trees, one.outputs, one.unlike, one.example, kind, state)


def _tree(found: OrderTable, row: Row) -> TreeView:
    order = order_of(row.order or {}, f"M {row.M}")
    drawn = drawing(order)
    n = order.tree.n
    caption = f"{n:,} terms, all drawn"
    if not drawn.whole:
        caption = f"{n:,} terms; drawn is the top, as more than {LARGEST} terms cannot be read"
    title = f"Tree {row.tree}: M = {sizes_text(found.sizes_of(row.tree))}"
    if row.name:
        title += f", {row.name}"
    return TreeView(row.tree, title, row.words, caption, drawn)
