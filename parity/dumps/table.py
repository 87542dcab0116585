"""Many dump records as columns: 20 bytes each in memory, where an Entry takes some 400.

A ``Table`` is a sequence of entries like any other, and makes each one when it is asked for. The
reader builds them block by block; the comparison works on them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import SupportsIndex, overload

import numpy as np

from parity.dump import Dump, Entry, TensorType
from parity.errors import ParityBug
from parity.keys import Key


class Places:
    """Every place (a key without its position) of one dump, numbered as they come.

    A place is written as a Key of position 0, or FREE for a tensor file's own name.
    """

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._ids: dict[Key, int] = {}

    def id_of(self, key: Key) -> int:
        """Number of the place of ``key``."""
        place = Key(min(key.pos, 0), key.layer, key.field)
        found = self._ids.get(place)
        if found is None:
            found = self._ids[place] = len(self.keys)
            self.keys.append(place)
        return found


class Kinds:
    """Every type of one dump, numbered as they come; 0 is a type that was not recorded."""

    def __init__(self) -> None:
        self.types: list[TensorType | None] = [None]
        self._ids: dict[TensorType | None, int] = {None: 0}

    def id_of(self, kind: TensorType | None) -> int:
        """Number of ``kind``."""
        found = self._ids.get(kind)
        if found is None:
            found = self._ids[kind] = len(self.types)
            self.types.append(kind)
        return found


@dataclass(frozen=True, eq=False)
class Table(Sequence[Entry]):
    """Records of one segment, in file order.

    ``pos`` int32[n], ``place`` int32[n] into ``places``, ``digest`` uint64[n], ``kind`` int32[n]
    into ``kinds``; ``nonfinite``: row to (count, flat index of the first), where there are any.
    """

    pos: np.ndarray
    place: np.ndarray
    digest: np.ndarray
    kind: np.ndarray
    places: list[Key]
    kinds: list[TensorType | None]
    nonfinite: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Table:
        """``entries`` as columns; a table as it is."""
        return entries if isinstance(entries, Table) else joined([entries])

    def __len__(self) -> int:
        return len(self.pos)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        kind = self.kinds[self.kind[row]]
        return Entry(self.key(row), int(self.digest[row]), kind, self.nonfinite.get(row))

    def __iter__(self) -> Iterator[Entry]:
        for start in range(0, len(self), 1 << 16):
            rows = np.arange(start, min(start + (1 << 16), len(self)))
            yield from filter(None, self.entries_at(rows))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table):
            return self.unlike_rows(other) == []
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(Entry.__eq__, self, other))

    def unlike_rows(self, other: Table) -> list[int] | None:
        """Rows whose type, digest or nonfinite is another than in the same row of ``other``; None
        where the two do not have the same keys in the same order."""
        if not self._same_keys(other):
            return None
        kinds = other.kind
        if other.kinds != self.kinds:
            numbers = {kind: number for number, kind in enumerate(self.kinds)}
            # A type that no row here has gets a number that no row here has.
            kinds = np.array([numbers.get(kind, -1) for kind in other.kinds], np.int32)[kinds]
        found = set(np.flatnonzero((self.digest != other.digest) | (self.kind != kinds)).tolist())
        told = self.nonfinite.keys() | other.nonfinite.keys()
        found |= {row for row in told if self.nonfinite.get(row) != other.nonfinite.get(row)}
        return sorted(found)

    def _same_keys(self, other: Table) -> bool:
        """Whether both have the same keys in the same order."""
        if len(self) != len(other) or not np.array_equal(self.pos, other.pos):
            return False
        places = other.place
        if other.places is not self.places and other.places != self.places:
            numbers = {place: number for number, place in enumerate(self.places)}
            places = np.array([numbers.get(each, -1) for each in other.places], np.int32)[places]
        return np.array_equal(self.place, places)

    def keys(self) -> Iterator[Key]:
        """The key of every row."""
        for pos, place in zip(self.pos.tolist(), self.place.tolist(), strict=True):
            yield Key(pos, *self.places[place][1:])

    def key(self, row: int) -> Key:
        """The key of one row."""
        place = self.places[self.place[row]]
        return Key(int(self.pos[row]), place.layer, place.field)

    def entries_at(self, rows: np.ndarray) -> list[Entry | None]:
        """Entries of many rows; None where a row is -1."""
        if not len(self):
            return [None] * len(rows)
        columns = (self.pos, self.place, self.digest, self.kind)
        found = zip(rows.tolist(), *(column[rows].tolist() for column in columns), strict=True)
        return [
            None
            if row < 0
            else Entry(
                Key(pos, self.places[place].layer, self.places[place].field),
                digest,
                self.kinds[kind],
                self.nonfinite.get(row),
            )
            for row, pos, place, digest, kind in found
        ]

    def select(self, wanted: np.ndarray) -> Table:
        """The rows where ``wanted`` (bool[n]) holds, in their order."""
        return self if wanted.all() else self._taken(np.flatnonzero(wanted))

    def of_fields(self, fields: Collection[str]) -> Table:
        """The rows of some fields, in their order."""
        wanted = np.array([each.field in fields for each in self.places], bool)
        return self.select(wanted[self.place])

    def by_position(self) -> dict[int, Table]:
        """The rows of each position, in their order."""
        if not len(self):
            return {}
        order = np.argsort(self.pos, kind="stable")
        ends = np.flatnonzero(np.diff(self.pos[order])) + 1
        return {int(self.pos[rows[0]]): self._taken(rows) for rows in np.split(order, ends)}

    def _taken(self, kept: np.ndarray) -> Table:
        at = {int(row): index for index, row in enumerate(kept)} if self.nonfinite else {}
        nonfinite = {at[row]: pair for row, pair in self.nonfinite.items() if row in at}
        return replace(
            self,
            pos=self.pos[kept],
            place=self.place[kept],
            digest=self.digest[kept],
            kind=self.kind[kept],
            nonfinite=nonfinite,
        )

    def with_digest(self, row: int, digest: int) -> Table:
        """A copy in which one digest is another."""
        digests = self.digest.copy()
        digests[row] = digest
        return replace(self, digest=digests)


class Builder:
    """A table while it grows, by whole blocks and by single entries."""

    def __init__(self, places: Places, kinds: Kinds) -> None:
        self.places, self.kinds = places, kinds
        self.rows = 0
        self.nonfinite: dict[int, tuple[int, int]] = {}
        self._columns = [np.empty(64, dtype) for dtype in _DTYPES]  # with room for more rows
        self._latest: tuple[list[Key], list[TensorType | None], np.ndarray, np.ndarray] | None
        self._latest = None

    def __len__(self) -> int:
        return self.rows

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries; those of a table by column."""
        if isinstance(entries, Table):
            self._add_table(entries)
            return
        pos, place, digest, kind = self._columns
        for row, entry in enumerate(entries, self.rows):
            if row == len(pos):
                self._make_room(row + 1)
                pos, place, digest, kind = self._columns
            try:
                pos[row], digest[row] = entry.key.pos, entry.digest
            except OverflowError as error:
                told = f"{entry.key}: digest {entry.digest:#x}"
                raise ParityBug(f"{told}: no position or no digest of 64 bits") from error
            place[row], kind[row] = self.places.id_of(entry.key), self.kinds.id_of(entry.type)
            if entry.nonfinite is not None:
                self.nonfinite[row] = entry.nonfinite
            self.rows = row + 1

    def _add_table(self, table: Table) -> None:
        places, kinds = self._numbers(table)
        begin = self.rows
        columns = table.pos, places[table.place], table.digest, kinds[table.kind]
        self.add_block(*columns)
        self.nonfinite |= {begin + row: pair for row, pair in table.nonfinite.items()}

    def _numbers(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """int32 each: our numbers of a table's places and types. Kept for the tables that follow:
        those of the steps of one run number them alike."""
        kept = self._latest
        if kept is not None and kept[0] is table.places and kept[1] is table.kinds:
            places, kinds = kept[2:]
            if len(places) == len(table.places) and len(kinds) == len(table.kinds):
                return places, kinds
        places = np.array([self.places.id_of(place) for place in table.places], np.int32)
        kinds = np.array([self.kinds.id_of(kind) for kind in table.kinds], np.int32)
        self._latest = table.places, table.kinds, places, kinds
        return places, kinds

    def add_block(self, *columns: np.ndarray) -> None:
        """Append a block of positions, places, digests and kinds."""
        end = self.rows + len(columns[0])
        self._make_room(end)
        for mine, column in zip(self._columns, columns, strict=True):
            mine[self.rows : end] = column
        self.rows = end

    def table(self) -> Table:
        """What was appended so far; later rows do not show in it."""
        pos, place, digest, kind = (column[: self.rows] for column in self._columns)
        places, kinds = self.places.keys, self.kinds.types
        return Table(pos, place, digest, kind, places, kinds, dict(self.nonfinite))

    def _make_room(self, rows: int) -> None:
        """Twice as much, one column after the other; what is never written takes no memory."""
        if rows <= len(self._columns[0]):
            return
        for at, column in enumerate(self._columns):
            self._columns[at] = np.empty(max(rows, 2 * len(column)), column.dtype)
            self._columns[at][: self.rows] = column[: self.rows]


_DTYPES: tuple[type[np.generic], ...] = (np.int32, np.int32, np.uint64, np.int32)


def joined(parts: Iterable[Iterable[Entry]]) -> Table:
    """One table of several sequences of entries, one after the other."""
    builder = Builder(Places(), Kinds())
    for part in parts:
        builder.add(part)
    return builder.table()


def tables(dump: Dump) -> dict[str, Table]:
    """The segments of ``dump`` as tables, in file order."""
    return {name: Table.of(entries) for name, entries in dump.segments.items()}
