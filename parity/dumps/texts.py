"""The texts of many records at once, without an entry for any (docs/dump-format.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.dump import nonfinite_text
from parity.dumps.table import Table
from parity.errors import InputError, ParityBug
from parity.keys import FREE, LARGEST, Key

_CHUNK = 1 << 16  # records whose texts are in memory together


def tags(pos: np.ndarray, place: np.ndarray, places: list[Key]) -> list[str]:
    """The written form of n keys: positions int[n], and places int[n] into ``places``."""
    ends = [_end(each) for each in places]
    return [
        ends[at] if one == FREE else f"t{one}{ends[at]}"
        for one, at in zip(pos.tolist(), place.tolist(), strict=True)
    ]


def digest_texts(digests: np.ndarray) -> list[str]:
    """16 hexadecimal digits each of uint64[n]."""
    return digests.astype(">u8").tobytes().hex("\n", 8).split("\n") if digests.size else []


def value_texts(table: Table, rows: np.ndarray) -> list[str | None]:
    """Everything of each of some rows but the tag, as ``Entry.value_text``; None where a row is
    -1."""
    if not len(table):
        return [None] * len(rows)
    kinds = ["" if kind is None else f" {kind}" for kind in table.kinds]
    chosen = rows.tolist()
    columns = chosen, digest_texts(table.digest[rows]), table.kind[rows].tolist()
    texts = [
        None if row < 0 else f"{digest}{kinds[kind]}"
        for row, digest, kind in zip(*columns, strict=True)
    ]
    if table.nonfinite:
        pairs = zip(texts, chosen, strict=True)
        return [None if text is None else f"{text}{_nonfinite(table, row)}" for text, row in pairs]
    return texts


def record_lines(table: Table, *, plain: bool) -> Iterator[str]:
    """The lines of a segment without line ends; ``plain``: tag and digest alone. Raises ParityBug
    for a key that no dump may hold, before the first line of the rows that hold it."""
    known = np.array([_may_stand(place) for place in table.places], bool)
    ends = [_end(place) for place in table.places]
    kinds = ["" if plain or kind is None else f" {kind}" for kind in table.kinds]
    for begin in range(0, len(table), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        pos, place, kind = table.pos[rows], table.place[rows], table.kind[rows]
        bad = np.flatnonzero(~known[place] | (pos < 0) | (pos > LARGEST))
        if bad.size:
            raise ParityBug(f"a dump cannot hold the key {table.key(begin + int(bad[0]))!r}")
        columns = pos.tolist(), place.tolist(), digest_texts(table.digest[rows]), kind.tolist()
        lines = [
            f"t{one}{ends[at]} {digest}{kinds[number]}"
            for one, at, digest, number in zip(*columns, strict=True)
        ]
        if table.nonfinite and not plain:
            lines = [f"{line}{_nonfinite(table, row)}" for row, line in enumerate(lines, begin)]
        yield from lines


def _nonfinite(table: Table, row: int) -> str:
    found = table.nonfinite.get(row)
    return "" if found is None else f" {nonfinite_text(found)}"


def _end(place: Key) -> str:
    return place.tag if place.pos == FREE else place.tag.removeprefix(f"t{place.pos}")


def _may_stand(place: Key) -> bool:
    """Whether the written form of the keys of a place is read back as them."""
    if place.pos == FREE:
        return False
    try:
        return Key.parse(place.tag) == place
    except InputError:
        return False
