"""The map of an HTML report: where each key stands, and the SVG paths and rings that draw it.

Row = position (of a segment), column = layer, fields downwards in dataflow order. Every state is
one path, told apart by its shape first. Horizontal lengths are in units that stretch with the
page; vertical ones are pixels. All of it is arithmetic on the rows of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.keys import FREE, Key, KeyOrder
from parity.tree import Cause, KeyRow, KeyState, Tree
from parity_reports.states import WORST, is_born, state_name, worst_of
from parity_reports.values import parse_key

KEYS_LIMIT = 6_000  # above: one mark a (position, layer) instead of one a key
LINES_LIMIT = 400  # rows or columns drawn; above, neighbours share one
SEGMENT_WIDTH = 12  # characters of a segment's name on the axis
COLUMN = 20  # units; a mark takes 16 of them
EDGE = 8  # units between the layers and the columns before and after them
FIRST, BORN, CONTROL = "first", "born", "control"
RINGS = 60  # births with a ring of their own; a bar of theirs is told by its height alone
LABELS = 6  # births with a label; more are counted in the legend
LABEL_SHARE = 30.0  # % of the width that a label may take
BEFORE, LAYERS = 0, 1  # parts of a step, as KeyOrder numbers them


@dataclass(frozen=True)
class Spot:
    """A key's place on the map: row, column, place in the cell; ``index`` into the tree's keys."""

    row: int
    col: int
    slot: int
    index: int


@dataclass(frozen=True)
class Column:
    """A layer (or layers that share a column), or the fields before or after the layers."""

    label: str
    layer: int | None
    fields: tuple[str, ...]


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
class Grid:
    """Where marks stand: ``edges``, x of each column; ``pitch`` of rows; height of a slot; slots
    of a cell."""

    edges: list[int]
    pitch: int
    slot: int
    slots: int

    def top(self, row: int, slot: int) -> int:
        """Upper edge of a mark, px."""
        return row * self.pitch + slot * self.slot


@dataclass(frozen=True)
class Map:
    """Everything the template needs to draw a map, and the script to find keys in it."""

    spots: list[Spot]
    rows: list[tuple[str, str]]  # (segment, position as text)
    cols: list[Column]
    by_layer: bool
    pitch: int
    slot: int
    gap: int
    width: int
    height: int
    edges: list[int]  # x of each column
    paths: list[tuple[str, str]]  # (state, path data)
    rings: list[Ring]
    col_labels: list[Label]
    row_labels: list[Label]
    unplaced: int  # keys whose name has no place


def build_map(tree: Tree) -> Map | None:
    """The map of ``tree``; None where no key has a position (files of tensors)."""
    found = [(index, key) for index, row in enumerate(tree.keys) if (key := _key(row)) is not None]
    if not found:
        return None
    order = KeyOrder([key for _, key in found])
    ranks = [order(key) for _, key in found]
    by_layer = len(tree.keys) > KEYS_LIMIT or _many_lines(tree, found, ranks)
    cols, col_of, slot_of = _columns([key for _, key in found], ranks, by_layer)
    rows, row_of = _rows([(tree.keys[index].segment, key.pos) for index, key in found])
    spots = [
        Spot(
            row_of[tree.keys[index].segment, key.pos],
            col_of[rank[1], rank[2]],
            0 if by_layer else slot_of[rank[1], rank[2], rank[3]],
            index,
        )
        for (index, key), rank in zip(found, ranks, strict=True)
    ]
    slots = 1 if by_layer else max(len(col.fields) for col in cols)
    slot, gap = _density(len(rows), slots, by_layer)
    edges = _edges(cols)
    width, pitch = edges[-1] + COLUMN, slots * slot + gap
    grid = Grid(edges, pitch, slot, slots)
    first = first_index(tree)
    return Map(
        spots=spots,
        rows=rows,
        cols=cols,
        by_layer=by_layer,
        pitch=pitch,
        slot=slot,
        gap=gap,
        width=width,
        height=len(rows) * pitch,
        edges=edges,
        paths=_paths(tree, spots, grid, first),
        rings=_rings(tree, spots, grid, first),
        col_labels=_col_labels(cols, edges, width),
        row_labels=_row_labels(rows, pitch, slots * slot),
        unplaced=len(tree.keys) - len(found),
    )


def first_index(tree: Tree) -> int | None:
    """Index of the row of the first key that differs, if the tree lists it."""
    rows = (i for i, row in enumerate(tree.keys) if row.key == tree.first)
    return next((i for i in rows if tree.keys[i].state != KeyState.SAME), None)


def cells(spots: Sequence[Spot]) -> dict[tuple[int, int, int], list[int]]:
    """Indices of the keys under each mark, in dataflow order."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for spot in spots:
        found.setdefault((spot.row, spot.col, spot.slot), []).append(spot.index)
    return found


def _key(row: KeyRow) -> Key | None:
    key = parse_key(row.key)
    return None if key is None or key.pos == FREE else key


def _many_lines(
    tree: Tree, found: list[tuple[int, Key]], ranks: list[tuple[int, int, int, int]]
) -> bool:
    rows = {(tree.keys[index].segment, key.pos) for index, key in found}
    return max(len(rows), len({rank[1:3] for rank in ranks})) > LINES_LIMIT


def _columns(
    keys: list[Key], ranks: list[tuple[int, int, int, int]], by_layer: bool
) -> tuple[list[Column], dict[tuple[int, int], int], dict[tuple[int, int, int], int]]:
    """Columns, the column of (part, layer), and the slot of (part, layer, field rank)."""
    fields: dict[tuple[int, int], dict[int, str]] = {}
    for key, (_, part, layer, rank) in zip(keys, ranks, strict=True):
        fields.setdefault((part, layer), {})[rank] = key.field
    places = sorted(fields)
    shared = -(-len(places) // LINES_LIMIT) if by_layer else 1
    groups = _grouped(places, shared)
    cols: list[Column] = []
    col_of: dict[tuple[int, int], int] = {}
    slot_of: dict[tuple[int, int, int], int] = {}
    for number, group in enumerate(groups):
        names = [fields[group[0]][rank] for rank in sorted(fields[group[0]])]
        cols.append(_column(group, names))
        for place in group:
            col_of[place] = number
            slot_of |= {(*place, rank): i for i, rank in enumerate(sorted(fields[place]))}
    return cols, col_of, slot_of


def _grouped(places: list[tuple[int, int]], shared: int) -> list[list[tuple[int, int]]]:
    """``shared`` neighbouring layers together; the parts before and after stay alone."""
    groups: list[list[tuple[int, int]]] = []
    for place in places:
        last = groups[-1] if groups else []
        if last and last[0][0] == place[0] == LAYERS and len(last) < shared:
            last.append(place)
        else:
            groups.append([place])
    return groups


def _column(group: list[tuple[int, int]], names: list[str]) -> Column:
    part, layer = group[0]
    if part != LAYERS:
        return Column("before" if part == BEFORE else "final", None, tuple(names))
    label = str(layer) if len(group) == 1 else f"{layer} to {group[-1][1]}"
    return Column(label, layer, tuple(names))


def _rows(
    places: list[tuple[str, int]],
) -> tuple[list[tuple[str, str]], dict[tuple[str, int], int]]:
    """Rows of (segment, position) in the tree's order; neighbours share one above the limit."""
    unique = list(dict.fromkeys(places))
    shared = -(-len(unique) // LINES_LIMIT)
    rows: list[list[tuple[str, int]]] = []
    row_of = {}
    for place in unique:
        if not rows or rows[-1][0][0] != place[0] or len(rows[-1]) == shared:
            rows.append([])
        rows[-1].append(place)
        row_of[place] = len(rows) - 1
    return [(group[0][0], _span(group)) for group in rows], row_of


def _span(group: list[tuple[str, int]]) -> str:
    first, last = group[0][1], group[-1][1]
    return f"t{first}" if first == last else f"t{first} to t{last}"


def _density(rows: int, slots: int, by_layer: bool) -> tuple[int, int]:
    """(slot, gap) in px: roomy where the map fits on a screen, denser where it does not."""
    if by_layer:
        return (10, 4) if rows <= 40 else (6, 2) if rows <= 100 else (4, 0)
    for slot, gap, room in ((6, 20, 700), (4, 14, 900)):
        if rows * (slots * slot + gap) <= room:
            return slot, gap
    return 3, 14


def _edges(cols: list[Column]) -> list[int]:
    edges, x = [], 0
    for number, col in enumerate(cols):
        if number and (col.layer is None) != (cols[number - 1].layer is None):
            x += EDGE
        edges.append(x)
        x += COLUMN
    return edges


def _paths(tree: Tree, spots: list[Spot], grid: Grid, first: int | None) -> list[tuple[str, str]]:
    """One path a state; missing and extra share a shape. The first key is drawn by itself."""
    parts: dict[str, list[str]] = {}
    for (row, col, slot), indices in cells(spots).items():
        state = worst_of([state_name(tree.keys[index]) for index in indices])
        kind = FIRST if first in indices and state == KeyState.DIFFERS else state
        y = grid.top(row, slot) + grid.slot / 2
        parts.setdefault(kind, []).append(_mark(kind, grid.edges[col] + 2, y, grid.slot))
    return [(kind, "".join(parts[kind])) for kind in (*reversed(WORST), FIRST) if kind in parts]


def _mark(kind: str, x: int, y: float, slot: int) -> str:
    if kind in (KeyState.MISSING, KeyState.EXTRA):
        return f"M{x + 1} {y:g}h3M{x + 12} {y:g}h3"
    if kind == KeyState.NOT_COMPARABLE:
        return f"M{x} {y:g}h3m3.5 0h3m3.5 0h3"
    if kind == Cause.MASKED:  # hollow: the two edges of a bar
        half = slot / 5
        return f"M{x} {y - half:g}h16v{2 * half:g}h-16z"
    return f"M{x} {y:g}h16"


def _rings(tree: Tree, spots: list[Spot], grid: Grid, first: int | None) -> list[Ring]:
    """Around the control's key, the births and the first key, which comes last: it lies on top."""
    planted = tree.control.key if tree.control else None
    control = next((i for i, row in enumerate(tree.keys) if row.key == planted), None)
    born = [i for i, row in enumerate(tree.keys) if is_born(row) and i != first]
    wanted = [(CONTROL, control)] if control != first else []
    wanted += [(BORN, index) for index in born] if len(born) <= RINGS else []
    at = {spot.index: spot for spot in spots}
    named = len(born) <= LABELS
    rings = []
    for kind, index in (*wanted, (FIRST, first)):
        if index is not None and index in at:
            label = f"{kind}: {tree.keys[index].key}" if named or kind != BORN else ""
            rings.append(_ring(kind, label, at[index], grid))
    return _with_room(rings)


def _ring(kind: str, label: str, spot: Spot, grid: Grid) -> Ring:
    width = grid.edges[-1] + COLUMN
    x, size = 100 * grid.edges[spot.col] / width, 100 * COLUMN / width
    y, below = grid.top(spot.row, spot.slot), grid.top(spot.row, grid.slots)
    return Ring(kind, label, x, size, y, grid.slot, below, x > 60)


def _with_room(rings: list[Ring]) -> list[Ring]:
    """The same without the labels of births that would lie on another label."""
    taken: list[tuple[float, float]] = []
    kept = []
    for ring in reversed(rings):
        start = ring.x + ring.width - LABEL_SHARE if ring.at_end else ring.x
        near = any(ring.below == y and abs(start - x) < LABEL_SHARE for y, x in taken)
        shown = replace(ring, label="") if near and ring.kind == BORN else ring
        taken += [(ring.below, start)] if shown.label else []
        kept.append(shown)
    return kept[::-1]


def _col_labels(cols: list[Column], edges: list[int], width: int) -> list[Label]:
    """About a dozen layers, at even steps; ``final`` always."""
    layers = [number for number, col in enumerate(cols) if col.layer is not None]
    step = next(2**n for n in range(32) if len(layers) <= 14 * 2**n)
    labels = []
    for number, col in enumerate(cols):
        place = 100 * (edges[number] + COLUMN / 2) / width
        if col.layer is None:
            labels.append(Label(col.label, place))
        elif layers.index(number) % step == 0:
            labels.append(Label(col.label, place, layers.index(number) // step % 2 == 1))
    return labels


def _row_labels(rows: list[tuple[str, str]], pitch: int, height: int) -> list[Label]:
    """As many as have room; a row of several positions is labelled with its first."""
    step = -(-16 // pitch)
    aliases = segment_names(rows)
    labels = []
    for number, (segment, text) in enumerate(rows):
        if number % step == 0:
            name = f"{aliases[segment]} {text.split(' ')[0]}".lstrip()
            labels.append(Label(name, number * pitch + height / 2))
    return labels


def segment_names(rows: Sequence[tuple[str, str]]) -> dict[str, str]:
    """What each segment is called on the axis: its name, or a number where that is long."""
    names = list(dict.fromkeys(segment for segment, _ in rows))
    if max(map(len, names)) <= SEGMENT_WIDTH:
        return {name: name for name in names}
    return {name: f"s{number}" if name else "" for number, name in enumerate(names)}
