"""Where each key of a tree stands: rows are positions, columns layers, fields run downwards.

A key has one number, its *place*: row, then column, then field, so that the order of places is
dataflow order inside a position. The map, its tables and the page's script all count so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from parity.keys import FREE, Key, KeyOrder
from parity.tree import KeyState, Tree
from parity_reports.states import LOOKS, WORST, state_name
from parity_reports.values import parse_key

BEFORE, LAYERS = 0, 1  # parts of a step, as KeyOrder numbers them
STATES = list(LOOKS)  # states are numbered so
BLANK = len(STATES)  # no key stands at that place
SPARSE = 8  # places a key; a tree that needs more of them has no map
SMALL = 100_000  # places that any tree may have
_RANKS = bytes([*(WORST.index(name) for name in STATES), 255])  # by number, 0 is the worst


@dataclass(frozen=True)
class Column:
    """A layer, or the fields before or after the layers. ``begin``: first place in a row."""

    label: str
    layer: int | None
    fields: tuple[str, ...]
    begin: int

    @property
    def name(self) -> str:
        """``layer 7``, or where it stands else."""
        if self.layer is not None:
            return f"layer {self.layer}"
        return "after the last layer" if self.label == "final" else "before the layers"


@dataclass(frozen=True)
class Grid:
    """All keys of a tree by their place. ``rows``: (segment, position); ``places``: by index into
    the tree's keys, -1 for a name without position; ``states``: by place, a number of STATES or
    BLANK; ``keys``: by place, the index into the tree's keys."""

    rows: list[tuple[str, int]]
    cols: list[Column]
    places: list[int]
    states: bytes
    keys: dict[int, int]

    @property
    def stride(self) -> int:
        """Places in a row."""
        return self.cols[-1].begin + len(self.cols[-1].fields)

    @cached_property
    def slots(self) -> int:
        """Fields of the column that has most."""
        return max(len(col.fields) for col in self.cols)

    @cached_property
    def begins(self) -> list[int]:
        """First place of each column in a row."""
        return [col.begin for col in self.cols]

    @cached_property
    def ranks(self) -> bytes:
        """By place, how bad its state is: 0 is the worst, 255 no key."""
        return self.states.translate(_RANKS + bytes(256 - len(_RANKS)))

    @property
    def unplaced(self) -> int:
        """Keys whose name has no position."""
        return self.places.count(-1)

    def at(self, place: int) -> tuple[int, int, int]:
        """(row, column, slot)."""
        row, rest = divmod(place, self.stride)
        col = bisect_right(self.begins, rest) - 1
        return row, col, rest - self.cols[col].begin

    def cell(self, row: int, col: int) -> slice:
        """The places of one layer at one position."""
        begin = row * self.stride + self.cols[col].begin
        return slice(begin, begin + len(self.cols[col].fields))

    def runs(self) -> Iterator[tuple[int, int]]:
        """The states in the order of places: (number, how many of them)."""
        return ((state, sum(1 for _ in run)) for state, run in groupby(self.states))


def build_grid(tree: Tree) -> Grid | None:
    """The grid of ``tree``; None where no key has a position (files of tensors), and where keys
    lie so far apart that nearly all places would be empty."""
    found = [parse_key(row.key) for row in tree.keys]
    keys = [key for key in found if key is not None and key.pos != FREE]
    if not keys:
        return None
    cols, begin_of = _columns(keys)
    tagged = [(row.segment, key) for row, key in zip(tree.keys, found, strict=True)]
    placed = [(segment, key.pos) for segment, key in tagged if key is not None and key.pos != FREE]
    rows = list(dict.fromkeys(placed))
    stride = cols[-1].begin + len(cols[-1].fields)
    if len(rows) * stride > max(SMALL, SPARSE * len(keys)):
        return None
    row_of = {row: number * stride for number, row in enumerate(rows)}
    places = [
        -1 if key is None or key.pos == FREE else row_of[segment, key.pos] + begin_of[key[1:]]
        for segment, key in tagged
    ]
    states = bytearray([BLANK]) * (len(rows) * stride)
    for place, row in zip(places, tree.keys, strict=True):
        if place >= 0:
            states[place] = _NUMBERS[state_name(row)]
    by_place = {place: index for index, place in enumerate(places) if place >= 0}
    return Grid(rows, cols, places, bytes(states), by_place)


def first_index(tree: Tree) -> int | None:
    """Index of the row of the first key that differs, if the tree lists it."""
    rows = (i for i, row in enumerate(tree.keys) if row.key == tree.first)
    return next((i for i in rows if tree.keys[i].state != KeyState.SAME), None)


_NUMBERS = {name: number for number, name in enumerate(STATES)}


def _columns(keys: list[Key]) -> tuple[list[Column], dict[tuple[int | None, str], int]]:
    """Columns, and the place in a row of each (layer, field)."""
    order = KeyOrder(keys)
    kinds = {key[1:]: key for key in keys}  # one key for each (layer, field): order has no position
    ranks = {kind: order(key)[1:] for kind, key in kinds.items()}
    cols: list[Column] = []
    begin_of: dict[tuple[int | None, str], int] = {}
    begin = 0
    ordered = sorted(ranks, key=lambda kind: (*ranks[kind], kind[1]))
    for (part, layer), group in groupby(ordered, key=lambda kind: ranks[kind][:2]):
        names = tuple(field for _, field in group)
        label = str(layer) if part == LAYERS else "before" if part == BEFORE else "final"
        number = layer if part == LAYERS else None
        cols.append(Column(label, number, names, begin))
        begin_of |= {(number, field): begin + at for at, field in enumerate(names)}
        begin += len(names)
    return cols, begin_of
