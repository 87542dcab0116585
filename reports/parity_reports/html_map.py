"""The map of an HTML report: the SVG paths, rings and labels that draw a grid, and its tables.

Every state is one path, told apart by its shape first. Horizontal lengths are in units that stretch
with the page; vertical ones are pixels. Above MARKS_LIMIT this drawing has one mark a layer and
position, and the page's script draws every key on a canvas in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from parity.tree import Cause, KeyState, Tree
from parity_reports import wording
from parity_reports.html_elements import LISTED
from parity_reports.html_grid import BLANK, STATES, Column, Grid, first_index
from parity_reports.html_panels import state_columns
from parity_reports.states import (
    BORN_EQUAL,
    CAUSES,
    LOOKS,
    WORST,
    is_born,
    sourced_name,
    state_name,
    tally,
)

MARKS_LIMIT = 6_000  # keys of a map with one mark a key without the script
LINES_LIMIT = 400  # rows or columns drawn without the script; above, neighbours share one
SEGMENT_WIDTH = 12  # characters of a segment's name on the axis
COLUMN = 20  # units; a mark takes 16 of them
EDGE = 8  # units between the layers and the columns before and after them
FIRST, BORN, CONTROL = "first", "born", "control"
RINGS = 12  # births with a ring of their own; rings of more would cover each other
LABELS = 6  # births with a label; more are counted in the legend
LABEL_SHARE = 30.0  # % of the width that a label may take
_ALWAYS = (Cause.BORN, Cause.INHERITED, Cause.MASKED)  # in the legend once any cause is known
_BAR = "M2 6h22"
_SHAPES = {
    FIRST: "M1 6h24",
    Cause.BORN: "M1 6h24",
    BORN_EQUAL: "M1 6h24",
    Cause.MASKED: "M2 4.6h22v2.8h-22z",
    KeyState.MISSING: "M4 6h4M18 6h4",
    KeyState.NOT_COMPARABLE: "M3 6h4M11 6h4M19 6h4",
}
CLASSES = {name: shown.kind for name, shown in LOOKS.items()} | {FIRST: FIRST}


@dataclass(frozen=True)
class Ring:
    """A mark around one key: ``kind`` first, born or control; an empty label is not drawn. x and
    width in %; y, height and ``below``, the lower edge of the row, in px."""

    kind: str
    label: str
    x: float
    width: float
    y: float
    height: float
    below: float
    at_end: bool  # the label stands to the left of the mark's right edge


@dataclass(frozen=True)
class Label:
    """Text on an axis at a place in % (columns) or px (rows); ``minor`` goes on narrow screens."""

    text: str
    place: float
    minor: bool = False


@dataclass(frozen=True)
class Key:
    """One entry of the legend; ``count`` None: it is among another entry's."""

    name: str
    kind: str
    shape: str
    count: int | None


@dataclass(frozen=True)
class Sheet:
    """How a grid is laid out: ``rows`` and ``cols`` of the grid that share a line or column;
    ``detailed``: one mark a key; ``slot`` height of a mark and ``gap`` between rows, px."""

    grid: Grid
    rows: list[range]
    cols: list[range]
    detailed: bool
    slot: int
    gap: int

    @property
    def slots(self) -> int:
        """Marks under each other in a cell."""
        return self.grid.slots if self.detailed else 1

    @property
    def pitch(self) -> int:
        """From one row to the next, px."""
        return self.slots * self.slot + self.gap

    @cached_property
    def edges(self) -> list[int]:
        """x of each column, units."""
        edges, x, layers = [], 0, [self.grid.cols[group[0]].layer is None for group in self.cols]
        for number, outside in enumerate(layers):
            if number and outside != layers[number - 1]:
                x += EDGE
            edges.append(x)
            x += COLUMN
        return edges

    @property
    def width(self) -> int:
        """Units."""
        return self.edges[-1] + COLUMN

    @property
    def height(self) -> int:
        """px."""
        return len(self.rows) * self.pitch

    def top(self, row: int, slot: int) -> int:
        """Upper edge of a mark, px."""
        return row * self.pitch + slot * self.slot

    def spot(self, place: int) -> tuple[int, int, int]:
        """Line, column and slot where a place of the grid is drawn."""
        row, col, slot = self.grid.at(place)
        if self.detailed:
            return row, col, slot
        line = next(number for number, group in enumerate(self.rows) if row in group)
        return line, next(number for number, group in enumerate(self.cols) if col in group), 0


@dataclass(frozen=True)
class MapView:
    """Everything the template needs to draw a map and its tables."""

    sheet: Sheet
    paths: list[tuple[str, str]]  # (state, path data)
    rings: list[Ring]
    legend: list[Key]
    col_labels: list[Label]
    row_labels: list[Label]
    segments: list[tuple[str, str]]  # (number, name) of those too long for the axis
    label: str
    read: str  # what stands under the map before any script
    first: bool
    born: bool
    unlisted: int
    unplaced: int
    positions: list[tuple[str, dict[str, int], str]]
    positions_total: int
    cells: list[tuple[str, str, str]]
    cells_total: int
    state_names: list[str]

    @property
    def size(self) -> str:
        """Few columns are not stretched over the page."""
        columns = len(self.sheet.cols)
        return "small" if columns <= 8 else "middle" if columns <= 20 else "large"

    @property
    def rows_class(self) -> str:
        """Room for the labels of the rows."""
        longest = max(len(label.text) for label in self.row_labels)
        return "narrow" if longest <= 6 else "middle" if longest <= 12 else "wide"


def map_view(tree: Tree, grid: Grid, said: str, names: tuple[str, str]) -> MapView:
    """The map of ``tree``, drawn. ``said``: the run in a line, for those who do not see it;
    ``names``: what the sides are called."""
    sheet = build_sheet(grid)
    aliases = segment_names([segment for segment, _ in grid.rows])
    positions, cells = by_position(tree, grid), by_cell(grid)
    return MapView(
        sheet=sheet,
        paths=paths(tree, sheet),
        rings=rings(tree, sheet),
        legend=legend(tree),
        col_labels=_col_labels(sheet),
        row_labels=_row_labels(sheet, aliases),
        segments=[(alias, name) for name, alias in aliases.items() if alias != name],
        label=f"Map of keys. {said}",
        read=_read(tree, names),
        first=first_index(tree) is not None,
        born=any(map(is_born, tree.keys)),
        unlisted=tree.counts.total - len(tree.keys),
        unplaced=grid.unplaced,
        positions=positions[:LISTED],
        positions_total=len(positions),
        cells=cells[:LISTED],
        cells_total=len(cells),
        state_names=state_columns(tree),
    )


def build_sheet(grid: Grid) -> Sheet:
    """Lay ``grid`` out: one mark a key where it has few, else one a layer and position."""
    placed = len(grid.places) - grid.unplaced
    lines = max(len(grid.rows), len(grid.cols))
    detailed = placed <= MARKS_LIMIT and lines <= LINES_LIMIT
    if detailed:
        rows, cols = _alone(len(grid.rows)), _alone(len(grid.cols))
    else:
        rows = _grouped([segment for segment, _ in grid.rows])
        cols = _grouped([col.label if col.layer is None else "" for col in grid.cols])
    slot, gap = _density(len(rows), grid.slots, detailed)
    return Sheet(grid, rows, cols, detailed, slot, gap)


def _alone(number: int) -> list[range]:
    return [range(at, at + 1) for at in range(number)]


def _grouped(kinds: Sequence[str]) -> list[range]:
    """Neighbours of one kind together, as many as the limit of lines wants."""
    shared = -(-len(kinds) // LINES_LIMIT)
    groups: list[range] = []
    for at, kind in enumerate(kinds):
        last = groups[-1] if groups else range(0)
        if last and kinds[last[0]] == kind and len(last) < shared:
            groups[-1] = range(last[0], at + 1)
        else:
            groups.append(range(at, at + 1))
    return groups


def _density(rows: int, slots: int, detailed: bool) -> tuple[int, int]:
    """(slot, gap) in px: roomy where the map fits on a screen, denser where it does not."""
    if not detailed:
        return (10, 4) if rows <= 40 else (6, 2) if rows <= 100 else (4, 0)
    for slot, gap, room in ((6, 20, 700), (4, 14, 900)):
        if rows * (slots * slot + gap) <= room:
            return slot, gap
    return 3, 14


def _spots(sheet: Sheet) -> Iterator[tuple[int, int, int, str]]:
    """Every mark: line, column, slot, and the name of the worst state it covers."""
    grid = sheet.grid
    if sheet.detailed:
        for place, state in enumerate(grid.states):
            if state != BLANK:
                yield (*grid.at(place), STATES[state])
        return
    for line, rows in enumerate(sheet.rows):
        for number, cols in enumerate(sheet.cols):
            parts = [grid.ranks[_part(grid, row, cols)] for row in rows]
            rank = min(min(part, default=255) for part in parts)
            if rank != 255:
                yield line, number, 0, WORST[rank]


def _part(grid: Grid, row: int, cols: range) -> slice:
    return slice(grid.cell(row, cols[0]).start, grid.cell(row, cols[-1]).stop)


def paths(tree: Tree, sheet: Sheet) -> list[tuple[str, str]]:
    """One path a state; missing and extra share a shape. The first key is drawn by itself."""
    first = _first_spot(tree, sheet)
    parts: dict[str, list[str]] = {}
    for row, col, slot, state in _spots(sheet):
        kind = FIRST if state == KeyState.DIFFERS and (row, col, slot) == first else state
        y = sheet.top(row, slot) + sheet.slot / 2
        parts.setdefault(kind, []).append(_mark(kind, sheet.edges[col] + 2, y, sheet.slot))
    return [(kind, "".join(parts[kind])) for kind in (*reversed(WORST), FIRST) if kind in parts]


def _first_spot(tree: Tree, sheet: Sheet) -> tuple[int, int, int] | None:
    index = first_index(tree)
    place = -1 if index is None else sheet.grid.places[index]
    return None if place < 0 else sheet.spot(place)


def _mark(kind: str, x: int, y: float, slot: int) -> str:
    if kind in (KeyState.MISSING, KeyState.EXTRA):
        return f"M{x + 1} {y:g}h3M{x + 12} {y:g}h3"
    if kind == KeyState.NOT_COMPARABLE:
        return f"M{x} {y:g}h3m3.5 0h3m3.5 0h3"
    if kind == Cause.MASKED:  # hollow: the two edges of a bar
        half = slot / 5
        return f"M{x} {y - half:g}h16v{2 * half:g}h-16z"
    return f"M{x} {y:g}h16"


def control_index(tree: Tree) -> int | None:
    """Index of the row of the control's key, if the tree lists it."""
    planted = tree.control.key if tree.control else None
    return next((i for i, row in enumerate(tree.keys) if row.key == planted), None)


def rings(tree: Tree, sheet: Sheet) -> list[Ring]:
    """Around the control's key, the births and the first key, which comes last: it lies on top."""
    first, control = first_index(tree), control_index(tree)
    born = [i for i, row in enumerate(tree.keys) if is_born(row) and i != first]
    wanted = [(CONTROL, control)] if control != first else []
    wanted += [(BORN, index) for index in born] if len(born) <= RINGS else []
    named = len(born) <= LABELS
    found = []
    for kind, index in (*wanted, (FIRST, first)):
        if index is not None and sheet.grid.places[index] >= 0:
            label = f"{kind}: {tree.keys[index].key}" if named or kind != BORN else ""
            found.append(_ring(kind, label, sheet.spot(sheet.grid.places[index]), sheet))
    return _with_room(found)


def _ring(kind: str, label: str, spot: tuple[int, int, int], sheet: Sheet) -> Ring:
    row, col, slot = spot
    x, size = 100 * sheet.edges[col] / sheet.width, 100 * COLUMN / sheet.width
    y, below = sheet.top(row, slot), sheet.top(row, sheet.slots)
    return Ring(kind, label, x, size, y, sheet.slot, below, x > 60)


def _with_room(found: list[Ring]) -> list[Ring]:
    """The same without the labels of births that would lie on another label."""
    taken: list[tuple[float, float]] = []
    kept = []
    for ring in reversed(found):
        start = ring.x + ring.width - LABEL_SHARE if ring.at_end else ring.x
        near = any(ring.below == y and abs(start - x) < LABEL_SHARE for y, x in taken)
        shown = replace(ring, label="") if near and ring.kind == BORN else ring
        taken += [(ring.below, start)] if shown.label else []
        kept.append(shown)
    return kept[::-1]


def legend(tree: Tree) -> list[Key]:
    """Missing and extra share one entry, the first is one of the others."""
    counts, found = tree.counts, tally(tree.keys)
    equal = counts.same - sum(found.get(name, 0) for name in (Cause.MASKED, BORN_EQUAL))
    rows: list[tuple[str, str, int | None]] = [(KeyState.SAME, KeyState.SAME, equal)]
    known = any(name in found for name in CAUSES)
    rows += [(name, name, found.get(name, 0)) for name in CAUSES if known and name in _ALWAYS]
    if BORN_EQUAL in found:
        rows.append((BORN_EQUAL, BORN_EQUAL, found[BORN_EQUAL]))
    first = wording.first_row(tree)
    if first is not None and state_name(first) == KeyState.DIFFERS:
        rows.append((FIRST, FIRST, None))
    if not known or KeyState.DIFFERS in found:
        left = found.get(KeyState.DIFFERS, 0) if known else counts.differ
        rows.append((KeyState.DIFFERS, KeyState.DIFFERS, left))
    rows.append(("missing or extra", KeyState.MISSING, counts.missing + counts.extra))
    rows.append((KeyState.NOT_COMPARABLE, KeyState.NOT_COMPARABLE, counts.not_comparable))
    return [Key(text, CLASSES[name], _SHAPES.get(name, _BAR), n) for text, name, n in rows]


def _col_labels(sheet: Sheet) -> list[Label]:
    """About a dozen layers, at even steps; ``final`` always."""
    cols = [_col_name(sheet.grid.cols, group) for group in sheet.cols]
    layers = [number for number, (_, layer) in enumerate(cols) if layer]
    step = next(2**n for n in range(32) if len(layers) <= 14 * 2**n)
    order = {number: at for at, number in enumerate(layers)}
    labels = []
    for number, (text, layer) in enumerate(cols):
        place = 100 * (sheet.edges[number] + COLUMN / 2) / sheet.width
        if not layer:
            labels.append(Label(text, place))
        elif order[number] % step == 0:
            labels.append(Label(text, place, order[number] // step % 2 == 1))
    return labels


def _col_name(cols: Sequence[Column], group: range) -> tuple[str, bool]:
    first, last = cols[group[0]], cols[group[-1]]
    text = first.label if len(group) == 1 else f"{first.label} to {last.label}"
    return text, first.layer is not None


def _row_labels(sheet: Sheet, aliases: dict[str, str]) -> list[Label]:
    """As many as have room; a row of several positions is labelled with its first."""
    step = -(-16 // sheet.pitch)
    labels = []
    for number, group in enumerate(sheet.rows):
        if number % step == 0:
            segment, pos = sheet.grid.rows[group[0]]
            place = number * sheet.pitch + sheet.slots * sheet.slot / 2
            labels.append(Label(f"{aliases[segment]} t{pos}".lstrip(), place))
    return labels


def segment_names(segments: Sequence[str]) -> dict[str, str]:
    """What each segment is called on the axis: its name, or a number where that is long."""
    names = list(dict.fromkeys(segments))
    if max(map(len, names)) <= SEGMENT_WIDTH:
        return {name: name for name in names}
    return {name: f"s{number}" if name else "" for number, name in enumerate(names)}


def _read(tree: Tree, names: tuple[str, str]) -> str:
    """The line under the map before any script: the first key with both sides."""
    first = first_index(tree)
    if first is None:
        return f"{tree.control.key}: the control's key" if tree.control else ""
    row = tree.keys[first]
    sides = f"{names[0]} {row.ref or 'absent'}  {names[1]} {row.dut or 'absent'}"
    return f"{row.key}  {sourced_name(row)}, first  {sides}"


def by_position(tree: Tree, grid: Grid) -> list[tuple[str, dict[str, int], str]]:
    """Per row: its name, keys by the name of their state, and the first key not the same."""
    found = []
    for number, (segment, pos) in enumerate(grid.rows):
        begin = number * grid.stride
        part = grid.states[begin : begin + grid.stride]
        counts = {name: part.count(state) for state, name in enumerate(STATES)}
        unequal = (at for at, state in enumerate(part) if not _equal(state))
        first = next(unequal, None)
        key = "" if first is None else tree.keys[grid.keys[begin + first]].key
        found.append((f"{segment} t{pos}".lstrip(), counts, key))
    return found


_SAME_NAMES = (KeyState.SAME, Cause.MASKED, BORN_EQUAL)


def _equal(state: int) -> bool:
    """Whether a place holds a key with the same bytes on both sides, or none."""
    return state == BLANK or STATES[state] in _SAME_NAMES


def by_cell(grid: Grid) -> list[tuple[str, str, str]]:
    """Per position and layer in which not all is the same: where, and its fields by state, as the
    strip of that layer says them."""
    same = STATES.index(KeyState.SAME)
    plain = {same, BLANK}
    found = []
    for row, (segment, pos) in enumerate(grid.rows):
        for number, col in enumerate(grid.cols):
            part = grid.states[grid.cell(row, number)]
            if not plain.issuperset(part):
                found.append((f"{segment} t{pos}".lstrip(), col.name, _words(col.fields, part)))
    return found


def _words(fields: Sequence[str], states: bytes) -> str:
    """``ok nrm, kraw; DIFF born attn; DIFF inherited ores``, in the order of the first of each."""
    by_word: dict[str, list[str]] = {}
    for field, state in zip(fields, states, strict=True):
        if state != BLANK:
            by_word.setdefault(LOOKS[STATES[state]].word, []).append(field)
    return "; ".join(f"{word} {', '.join(names)}" for word, names in by_word.items())
