"""The elements of one key in an HTML report: table, distances in value order, where they lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from parity.tree import ElementRow, Elements
from parity_reports import wording
from parity_reports.axes import axis_names, leading_axis

LISTED = 100  # rows of one list in the file
BLOCK = "32-block"  # what a tensor of one dimension is divided into
HEIGHT, MIDDLE, REACH = 14, 7, 6  # px of a drawn row, its line, and how far a mark reaches
Digits = list[list[tuple[str, bool]]]  # groups of runs of hex digits, and whether they changed


@dataclass(frozen=True)
class Bar:
    """One line of a histogram; ``share`` in % of the longest bar of those that differ."""

    label: str
    count: int
    share: float
    kind: str = "differs"


@dataclass(frozen=True)
class WhereRow:
    """One head, row or block: how many of its elements differ, and a path with a mark for each:
    above the line where the dut is larger, below it where it is smaller."""

    label: str
    count: int
    share: float
    path: str


@dataclass(frozen=True)
class Where:
    """Where in the tensor the elements lie; ``width``: elements of a drawn row, 0 where none is;
    ``drawn``: how many elements the marks are of, where that is not all."""

    axis: str
    width: int
    rows: list[WhereRow]
    total: int
    drawn: int


@dataclass(frozen=True)
class ElementView:
    """One differing element."""

    index: str
    ref: Digits
    dut: Digits
    row: ElementRow
    distance: str


@dataclass(frozen=True)
class ElementsView:
    """Elements of one key: sentence, table, histogram and place."""

    key: str
    sentence: str
    note: str
    head: str
    unit: str
    kinds: bool  # whether any row is more than a plain value
    rows: list[ElementView]
    total: int
    differ: int
    bars: list[Bar]
    where: Where | None


def elements_view(elements: Elements, rows: int = LISTED) -> ElementsView:
    """Everything of the elements of one key, at most ``rows`` of them."""
    return ElementsView(
        key=elements.key,
        sentence=wording.elements_sentence(elements, leading_axis(elements), bins=True),
        note=elements.note,
        head=f"[{','.join(axis_names(elements))}]",
        unit=elements.unit,
        kinds=any(row.kind != "value" for row in elements.rows[:rows]),
        rows=[_element(row) for row in elements.rows[:rows]],
        total=elements.total,
        differ=elements.differ,
        bars=_bars(elements),
        where=_where(elements, rows),
    )


def changed_digits(own: str, other: str) -> Digits:
    """``own`` in groups of 4, each a list of runs; nothing is marked where the lengths differ."""
    marks = [a != b for a, b in zip(own, other, strict=True)] if len(own) == len(other) else []
    groups: Digits = []
    for at, digit in enumerate(own):
        changed = bool(marks) and marks[at]
        if at % 4 == 0:
            groups.append([])
        runs = groups[-1]
        if runs and runs[-1][1] == changed:
            runs[-1] = (runs[-1][0] + digit, changed)
        else:
            runs.append((digit, changed))
    return groups


def _element(row: ElementRow) -> ElementView:
    return ElementView(
        index=f"[{', '.join(map(str, row.index))}]",
        ref=changed_digits(row.ref_hex, row.dut_hex),
        dut=changed_digits(row.dut_hex, row.ref_hex),
        row=row,
        distance="" if row.ulp is None else f"{row.ulp:+,}",
    )


def _bars(elements: Elements) -> list[Bar]:
    """Distances from the smallest to the largest, the equal ones between them, then the classes:
    they add up to the tensor. Without signs, as old files are, the distances alone."""
    plain = {name for name, _, _ in elements.signed}
    below = [(_signed(name, "-"), n) for name, n, _ in reversed(elements.signed) if n]
    above = [(_signed(name, "+"), n) for name, _, n in elements.signed if n]
    classes = [(name, n) for name, n in elements.histogram if name not in plain]
    left = elements.total - elements.differ
    equal = [("equal", left)] if elements.total else []
    found = [*below, *equal, *above, *classes] if plain else [*classes, *equal]
    longest = max((n for name, n in found if name != "equal"), default=0) or 1
    return [
        Bar(name, n, 100.0, "same") if name == "equal" else Bar(name, n, _share(n, longest))
        for name, n in found
    ]


def _signed(name: str, sign: str) -> str:
    """``3 to 4`` as ``+3 to +4``, ``over 256`` as ``below -256``."""
    said = re.sub(r"\d+", lambda digits: sign + digits[0], name)
    return said.replace("over", "below" if sign == "-" else "above")


def _share(count: int, longest: int) -> float:
    return round(100 * count / longest, 2)


def _where(elements: Elements, limit: int) -> Where | None:
    """By head or row; a tensor of one dimension by 32-block."""
    shape = _shape(elements.ref_type)
    counts = elements.groups or elements.blocks
    if not counts:
        return None
    flat = not elements.groups
    axis = BLOCK if flat else leading_axis(elements)
    width = 32 if flat else _product(shape[1:])
    # Only rows in the file are drawn; of a long tensor that is the first differing ones.
    shown = counts[:limit]
    paths = _paths(elements.places, width, {index for index, _ in shown})
    longest = max(count for _, count in counts)
    rows = [
        WhereRow(f"{axis} {index:,}", count, _share(count, longest), paths.get(index, ""))
        for index, count in shown
    ]
    drawn = len(elements.places) if len(elements.places) < elements.differ else 0
    return Where(axis, width if paths else 0, rows, len(counts), drawn)


def _paths(places: Sequence[tuple[int, int]], width: int, wanted: set[int]) -> dict[int, str]:
    """By row, one stroke an element."""
    paths: dict[int, str] = {}
    for flat, sign in places if width else ():
        row, at = divmod(flat, width)
        if row in wanted:
            begin, end = (MIDDLE, -REACH) if sign > 0 else (MIDDLE, REACH)
            if not sign:
                begin, end = MIDDLE - REACH, 2 * REACH
            paths[row] = f"{paths.get(row, '')}M{at + 0.5:g} {begin}v{end}"
    return paths


def _shape(text: str) -> list[int]:
    """The numbers of ``f32[4,32]``."""
    inside = text.partition("[")[2].rstrip("]")
    return [int(part) for part in inside.split(",") if part.strip().isdecimal()]


def _product(numbers: Sequence[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product
