"""Match the keys of two dumps, segment by segment in dataflow order, and judge each.

Works on columns throughout: a key is one number (its position and the rank of its place), so that
ten million keys are matched, ordered and judged in a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from parity.dump import MAIN, PARTIAL, Dump, Entry
from parity.dumps.table import Table, tables
from parity.dumps.texts import tags, value_texts
from parity.errors import InputError
from parity.keys import Key, KeyOrder, in_schema
from parity.tree import KeyState

STATES = (
    *(KeyState.SAME, KeyState.DIFFERS, KeyState.MISSING, KeyState.EXTRA),
    KeyState.NOT_COMPARABLE,
)
SAME, DIFFERS, MISSING, EXTRA, NOT_COMPARABLE = range(5)  # as a part's ``states`` holds them
_CHUNK = 1 << 20  # keys judged at once: the columns of a part are large enough as they are
# From the tables of a segment: rows of ref and of dut (bool[n] each) that no key of the other
# side can be compared with.
_Rows = np.ndarray | slice
Apart = Callable[[Table, Table], tuple[np.ndarray, np.ndarray]]


class Ranks:
    """Keys as numbers that rise in dataflow order: (position + 1) * places + rank of the place."""

    def __init__(self, segments: Iterable[Table], order: KeyOrder) -> None:
        lists = {id(table.places): table.places for table in segments}
        places = {place: None for found in lists.values() for place in found}
        self._places = sorted(places, key=order)
        self._ranks = {place: rank for rank, place in enumerate(self._places)}
        self.count = max(1, len(places))

    def codes(self, table: Table) -> np.ndarray:
        """int64[n]: the number of each row's key."""
        ranks = np.array([self._ranks[place] for place in table.places], np.int64)
        codes: np.ndarray = (table.pos + np.int64(1)) * self.count + ranks[table.place]
        return codes

    def key(self, code: int) -> Key:
        """The key that a number stands for."""
        place = self._places[code % self.count]
        return Key(code // self.count - 1, place.layer, place.field)

    def tags(self, codes: np.ndarray) -> list[str]:
        """The written forms of the keys that numbers stand for."""
        return tags(codes // self.count - 1, codes % self.count, self._places)

    def having(self, wanted: Callable[[Key], bool]) -> list[int]:
        """Ranks of the places that ``wanted`` holds for; a place has position 0 or FREE."""
        return [rank for rank, place in enumerate(self._places) if wanted(place)]


@dataclass
class Part:
    """The keys of one segment, in dataflow order, with what became of each.

    ``codes`` int64[n] rise; ``ref_rows`` and ``dut_rows`` int[n] are -1 where the side lacks the
    key; ``states`` uint8[n] index STATES. ``reordered``: the keys that both sides have stand in
    another order in the dut. ``aligned``: both sides have all keys, in this order.
    """

    segment: str
    refs: Table
    duts: Table
    ranks: Ranks
    codes: np.ndarray
    ref_rows: np.ndarray
    dut_rows: np.ndarray
    reordered: bool
    aligned: bool
    states: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.states = np.empty(len(self.codes), np.uint8)
        numbers = {kind: number for number, kind in enumerate(self.refs.kinds)}
        # A type that the ref lacks gets a number that none of its rows has.
        kinds = np.array([numbers.get(kind, -1) for kind in self.duts.kinds], np.int32)
        for begin in range(0, len(self), _CHUNK):
            self.states[begin : begin + _CHUNK] = self._judged(begin, kinds)

    def __len__(self) -> int:
        return len(self.codes)

    def key(self, at: int) -> Key:
        """The key at one index."""
        return self.ranks.key(int(self.codes[at]))

    def entries(self, at: np.ndarray) -> list[tuple[Key, Entry | None, Entry | None]]:
        """Key and entries of ref and dut at many indices, None where the side lacks the key."""
        keys = map(self.ranks.key, self.codes[at].tolist())
        refs, duts = (
            table.entries_at(rows[at])
            for table, rows in ((self.refs, self.ref_rows), (self.duts, self.dut_rows))
        )
        return list(zip(keys, refs, duts, strict=True))

    def texts(self, at: np.ndarray) -> tuple[list[str], list[str | None], list[str | None]]:
        """Tags, and what ref and dut told, at many indices; None where the side lacks the key."""
        refs, duts = self.ref_rows[at], self.dut_rows[at]
        told = value_texts(self.refs, refs), value_texts(self.duts, duts)
        return self.ranks.tags(self.codes[at]), *told

    def stop(self) -> int | None:
        """Index of the first key that is not finite on a side: its run ends with this step."""
        found = [
            np.flatnonzero(np.isin(rows, list(table.nonfinite)))[0]
            for table, rows in ((self.refs, self.ref_rows), (self.duts, self.dut_rows))
            if table.nonfinite
        ]
        return int(min(found)) if found else None

    def first_fault(self) -> int | None:
        """Index of the first key that is neither the same nor not comparable."""
        faults = np.flatnonzero((self.states != SAME) & (self.states != NOT_COMPARABLE))
        return int(faults[0]) if len(faults) else None

    def step_of(self, at: int) -> tuple[int, int]:
        """Begin and end of the indices that have the position of the key at ``at``."""
        count = self.ranks.count
        begin = int(self.codes[at]) // count * count
        found = np.searchsorted(self.codes, [begin, begin + count])
        return int(found[0]), int(found[1])

    def states_of(self, ranks: list[int]) -> np.ndarray:
        """States of the keys at the places with these ranks."""
        return self.states[np.isin(self.codes % self.ranks.count, ranks)]

    def untyped(self) -> tuple[int, int]:
        """How many keys that both sides have are without a type in ref, and in dut."""
        bare = self.refs.kind == 0, self.duts.kind == 0
        if not (bare[0].any() or bare[1].any()):
            return 0, 0
        both = (self.ref_rows >= 0) & (self.dut_rows >= 0)
        ref, dut = bare[0][self.ref_rows[both]].sum(), bare[1][self.dut_rows[both]].sum()
        return int(ref), int(dut)

    def set_apart(self, ref: np.ndarray, dut: np.ndarray) -> None:
        """Make rows of ref and of dut (bool[n] each) not comparable, where one side has the key."""
        for rows, mask, lacking in ((self.ref_rows, ref, MISSING), (self.dut_rows, dut, EXTRA)):
            alone = np.flatnonzero(self.states == lacking)
            self.states[alone[mask[rows[alone]]]] = NOT_COMPARABLE

    def end_at(self, last: int, lacking: int) -> None:
        """Keys after index ``last`` that one side lacks are not comparable: it ended there."""
        after = self.states[last + 1 :]
        after[after == lacking] = NOT_COMPARABLE

    def _judged(self, begin: int, kinds: np.ndarray) -> np.ndarray:
        """States of the keys from ``begin`` on; ``kinds``: the ref's number of each dut's type."""
        chunk = slice(begin, begin + _CHUNK)
        if self.aligned:
            return np.where(self._same(chunk, chunk, kinds), SAME, DIFFERS).astype(np.uint8)
        ref, dut = self.ref_rows[chunk], self.dut_rows[chunk]
        states = np.full(len(ref), DIFFERS, np.uint8)
        states[dut < 0], states[ref < 0] = MISSING, EXTRA
        both = np.flatnonzero(states == DIFFERS)
        states[both[self._same(ref[both], dut[both], kinds)]] = SAME
        return states

    def _same(self, ref: _Rows, dut: _Rows, kinds: np.ndarray) -> np.ndarray:
        """bool[n]: equal digests and no other type."""
        ref_kinds, dut_kinds = self.refs.kind[ref], kinds[self.duts.kind[dut]]
        same: np.ndarray = self.refs.digest[ref] == self.duts.digest[dut]
        same &= (ref_kinds == dut_kinds) | (ref_kinds == 0) | (dut_kinds == 0)
        return same


@dataclass
class Match:
    """The keys of both sides. ``first`` and ``stop`` are (part, index): of the first key that is
    not the same, and of the first that is not finite, after which nothing is comparable."""

    parts: list[Part] = field(default_factory=list)
    first: tuple[Part, int] | None = None
    stop: tuple[Part, int] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def count(self, state: int) -> int:
        """How many keys have one state."""
        return sum(int((part.states == state).sum()) for part in self.parts)

    def finish(self) -> None:
        """Find where comparing stops, and the first key that is not the same."""
        for part in self.parts:
            if self.stop is not None:
                part.states[:] = NOT_COMPARABLE
            elif (stop := part.stop()) is not None:
                self.stop = part, stop
                part.states[stop + 1 :] = NOT_COMPARABLE
            if self.first is None and (first := part.first_fault()) is not None:
                self.first = part, first


def match_keys(ref: Dump, dut: Dump, apart: Apart | None = None) -> Match:
    """Match the keys of two dumps and judge each.

    A dump with the header ``partial`` ended at its last key: what it lacks from there on is not
    comparable. Raises InputError when the two were hashed differently or a segment holds a key
    twice.
    """
    _check_hashes(ref, dut)
    refs, duts = tables(ref), tables(dut)
    ranks = Ranks([*refs.values(), *duts.values()], _order(refs, duts))
    match = Match()
    for name in segment_names(ref, dut):
        sides = refs.get(name, Table.of([])), duts.get(name, Table.of([]))
        part = _part(name, sides, ranks, (ref.source, dut.source))
        if apart is not None:
            part.set_apart(*apart(*sides))
        for dump, rows, lacking in ((ref, part.ref_rows, EXTRA), (dut, part.dut_rows, MISSING)):
            if PARTIAL in dump.header and name not in list(dump.segments)[:-1]:
                part.end_at(int(np.max(np.flatnonzero(rows >= 0), initial=-1)), lacking)
        match.parts.append(part)
    match.finish()
    return match


def dump_order(ref: Dump, dut: Dump) -> KeyOrder:
    """The dataflow order of the keys of both dumps."""
    return _order(tables(ref), tables(dut))


def segment_names(ref: Dump, dut: Dump) -> list[str]:
    """Segments in the order they are compared: the unnamed, the ref's, the dut's own."""
    return sorted({**ref.segments, **dut.segments}, key=lambda name: name != MAIN)


def _check_hashes(ref: Dump, dut: Dump) -> None:
    if ref.hash_name != dut.hash_name:
        raise InputError(
            f"hashes differ: {ref.source} has {ref.hash_name}, {dut.source} has {dut.hash_name}",
            "write one of the two again, with the same --hash",
        )


def _order(refs: dict[str, Table], duts: dict[str, Table]) -> KeyOrder:
    return KeyOrder(*(_deciding_keys(list(side.values())) for side in (refs, duts)))


def _deciding_keys(segments: list[Table]) -> Iterator[Key]:
    """The keys that place the fields outside the schema: those of each position in which such a
    field stands for the first time. No other position can tell a KeyOrder anything."""
    positions: dict[tuple[int, bool, str], int] = {}
    for table in segments:
        strange = [at for at, place in enumerate(table.places) if not in_schema(place)]
        if strange and len(table):
            first = np.full(len(table.places), -1)
            first[table.place[::-1]] = np.arange(len(table))[::-1]  # the last one written stays
            for at in sorted((at for at in strange if first[at] >= 0), key=first.__getitem__):
                pos, layer, name = table.places[at]
                positions.setdefault((pos, layer is None, name), int(table.pos[first[at]]))
    wanted = list(set(positions.values()))
    for table in segments:
        rows = np.flatnonzero(np.isin(table.pos, wanted)).tolist() if wanted else []
        yield from map(table.key, rows)


def _part(name: str, sides: tuple[Table, Table], ranks: Ranks, sources: tuple[str, str]) -> Part:
    """Match one segment."""
    ref_codes = ranks.codes(sides[0])
    ref_rows, refs = _in_order(ref_codes, sides[0], sources[0])
    if _same_keys(*sides):
        aligned = refs is ref_codes
        return Part(name, *sides, ranks, refs, ref_rows, ref_rows, False, aligned)
    dut_codes = ranks.codes(sides[1])
    dut_rows, duts = _in_order(dut_codes, sides[1], sources[1])
    merged = refs
    if not np.array_equal(refs, duts):
        merged, ref_rows, dut_rows = _merged((refs, duts), (ref_rows, dut_rows))
    reordered = not np.array_equal(ref_codes, dut_codes) and _reordered(
        (ref_codes, dut_codes), ref_rows, dut_rows
    )
    return Part(name, *sides, ranks, merged, ref_rows, dut_rows, reordered, False)


def _same_keys(refs: Table, duts: Table) -> bool:
    """Whether both have the same keys in the same order, with places numbered alike."""
    return (
        refs.places == duts.places
        and np.array_equal(refs.pos, duts.pos)
        and np.array_equal(refs.place, duts.place)
    )


def _in_order(codes: np.ndarray, table: Table, source: str) -> tuple[np.ndarray, np.ndarray]:
    """(rows in the order of their codes, those codes); refuses a code that stands there twice."""
    if (codes[1:] > codes[:-1]).all():
        return np.arange(len(codes), dtype=np.int32), codes
    rows = np.argsort(codes)
    ordered = codes[rows]
    if (ordered[1:] == ordered[:-1]).any():
        rows = np.argsort(codes, kind="stable")
        twice = table.key(int(rows[:-1][ordered[1:] == ordered[:-1]].min()))
        raise InputError(
            f"{source}: key {twice} appears twice in its segment",
            "write the dump again, with one line for each key",
        )
    return rows, ordered


def _merged(
    codes: tuple[np.ndarray, ...], rows: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(all codes, the ref's rows, the dut's rows), -1 where a side lacks the code."""
    together = np.concatenate(codes)
    order = np.argsort(together, kind="stable")  # two runs that rise: merged in linear time
    ordered = together[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    place = np.empty(len(together), np.int64)
    place[order] = np.cumsum(new) - 1
    merged = ordered[new]
    found = np.full((2, len(merged)), -1)
    found[0, place[: len(codes[0])]] = rows[0]
    found[1, place[len(codes[0]) :]] = rows[1]
    return merged, found[0], found[1]


def _reordered(codes: tuple[np.ndarray, ...], ref_rows: np.ndarray, dut_rows: np.ndarray) -> bool:
    """Whether the keys that both sides have stand in another order in the dut's file."""
    both = (ref_rows >= 0) & (dut_rows >= 0)
    refs, duts = codes[0][np.sort(ref_rows[both])], codes[1][np.sort(dut_rows[both])]
    return not np.array_equal(refs, duts)
