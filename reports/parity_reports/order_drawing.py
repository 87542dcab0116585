"""The drawing of a summation tree as data: where each mark and line stands, in pixels.

Terms stand at the bottom, in the order of their index; an addition stands above what it adds. Of a
tree too large to be read the top is drawn: what hangs below is one box with its number of terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from parity.order.tree import Order, Tree

LARGEST = 64  # terms of a tree that is drawn whole
TOP = 33  # terms and boxes of the top of a larger one: two fused sums of 17
COLUMN, BOX = 18.4, 36.0  # pixels from one term, or one box, to the next
STEP, TALLEST = 30.0, 460.0  # pixels of a level at most; of the whole drawing, about
EDGE, FOOT = 16.0, 26.0  # room around, and for the numbers below
APART = 15.0  # pixels between the additions of one level, at least

ADD, WIDE, FUSED, NARROW = "add", "wide", "fused", "narrow"
TERM, FMA, REST = "term", "fma", "rest"
LEGEND: Mapping[str, str] = {
    TERM: "a term",
    FMA: "a product that enters its addition unrounded (FMA)",
    REST: "a part not drawn, with its number of terms",
    ADD: "an addition in f32",
    WIDE: "an addition in f64",
    FUSED: "a fused sum of several terms, rounded once",
}


@dataclass(frozen=True)
class Mark:
    """A term, a box or an addition. ``label`` stands below a term and inside a box; ``told`` is
    shown when it is pointed at. ``narrow``: its result is stored in a narrower format."""

    x: float
    y: float
    kind: str
    label: str
    told: str
    narrow: bool = False


@dataclass(frozen=True)
class Line:
    """From a part up to the addition that takes it."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Drawing:
    """``whole``: the whole tree is drawn. ``legend``: the kinds that occur, with what they are."""

    width: float
    height: float
    lines: list[Line]
    marks: list[Mark]
    legend: list[tuple[str, str]]
    whole: bool


def drawing(order: Order) -> Drawing:
    """The drawing of an order; of one of more than LARGEST terms, of its top."""
    tree = order.tree
    whole = tree.n <= LARGEST
    shown = _everything(tree) if whole else _top(tree)
    heights = _heights(tree, shown)
    ends = sorted((node for node in shown if heights[node] == 0), key=lambda one: tree.lows[one])
    column = COLUMN if whole else BOX
    x = {node: EDGE + column * (at + 0.5) for at, node in enumerate(ends)}
    levels = max(heights.values())
    step = min(STEP, TALLEST / levels) if levels else STEP
    _place(tree, shown, heights, x)
    floor = EDGE + step * levels
    y = {node: floor - step * heights[node] for node in shown}
    lines = [
        Line(_px(x[child]), _px(y[child]), _px(x[node]), _px(y[node]))
        for node in shown
        if heights[node]
        for child in _children(tree, node)
    ]
    marks = [_mark(order, node, heights[node], x[node], y[node]) for node in shown]
    kinds = {mark.kind for mark in marks}
    legend = [(kind, text) for kind, text in LEGEND.items() if kind in kinds]
    if any(mark.narrow for mark in marks):
        legend.append((NARROW, f"underlined: its result is stored in {order.stored}"))
    width = max(x.values()) + column / 2 + EDGE
    return Drawing(_px(width), _px(floor + FOOT), lines, marks, legend, whole)


def _everything(tree: Tree) -> list[int]:
    """All nodes, children first."""
    return list(range(tree.n + len(tree.children)))


def _top(tree: Tree) -> list[int]:
    """The nodes next to the root, children first: the largest part is opened, again and again,
    while there is room."""
    ends, opened = [tree.root], list[int]()
    while True:
        largest = max(ends, key=lambda node: (tree.sizes[node], -tree.lows[node]))
        parts = _children(tree, largest)
        if not parts or (opened and len(ends) - 1 + len(parts) > TOP):
            break
        ends.remove(largest)
        ends += parts
        opened.append(largest)
    return sorted(ends + opened)


def _children(tree: Tree, node: int) -> tuple[int, ...]:
    return tree.children[node - tree.n] if node >= tree.n else ()


def _heights(tree: Tree, shown: list[int]) -> dict[int, int]:
    """0 for what stands at the bottom; children come before parents."""
    found: dict[int, int] = {}
    for node in shown:
        parts = [found[child] for child in _children(tree, node) if child in found]
        found[node] = 1 + max(parts) if parts else 0
    return found


def _place(tree: Tree, shown: list[int], heights: dict[int, int], x: dict[int, float]) -> None:
    """Each addition between its outermost parts; those of one level are pushed apart."""
    for level in range(1, max(heights.values()) + 1):
        here = [node for node in shown if heights[node] == level]
        for node in here:
            parts = [x[child] for child in _children(tree, node)]
            x[node] = (min(parts) + max(parts)) / 2
        here.sort(key=lambda node: (x[node], tree.lows[node]))
        for left, right in pairwise(here):
            x[right] = max(x[right], x[left] + APART)


def _mark(order: Order, node: int, height: int, x: float, y: float) -> Mark:
    tree = order.tree
    if node < tree.n:
        kind = FMA if node in order.fma else TERM
        return Mark(_px(x), _px(y), kind, str(node), f"term {node}")
    size, low = tree.sizes[node], tree.lows[node]
    if height == 0:
        return Mark(_px(x), _px(y), REST, f"{size:,}", f"{size:,} terms, the lowest {low}")
    parts = len(_children(tree, node))
    kind = WIDE if node in order.wide else FUSED if node in order.fused_nodes else ADD
    label = str(parts) if kind == FUSED else ""
    told = f"{parts} parts, {size:,} terms from {low}"
    return Mark(_px(x), _px(y), kind, label, told, node in order.narrow)


def _px(value: float) -> float:
    return round(value, 1)
