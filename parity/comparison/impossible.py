"""Dumps that no computation gives: many keys with one hash (a dead tap, a stale buffer, zeros).

A hash is remarked upon when one side tells it for

* three fields or more: no three of them ever have the same bytes (two may: at position 0 RoPE
  turns by the angle 0, so that with an f32 cache k has knorm's bytes);
* one field in three layers or more;
* one field of one layer at three positions or more whose tokens are not all the same.

Only values of 64 bytes or more count: the ids of a top-3 repeat by chance. A type that was not
recorded counts as large, but for the fields that are small in every model. A tensor file's own
names say nothing of a computation and do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parity.dtypes import dtype_bits
from parity.dump import Dump, TensorType
from parity.dumps.table import Table
from parity.fnv import hex16
from parity.keys import FREE, Key

ENOUGH = 3  # fields, layers or positions with one hash
LARGE = 64  # bytes
SMALL_FIELDS = frozenset({"topk", "topp", "ks", "vs", "beta", "g", "gs"})
SHOWN = 3  # keys that a remark names


@dataclass(frozen=True)
class Shared:
    """A hash that ``count`` keys of one segment have, and the first of them that count."""

    digest: int
    count: int
    first: list[str]


def one_hash_notes(ref: Dump, dut: Dump) -> list[str]:
    """A remark for each side in which keys share a hash that they cannot have together."""
    return [
        _text(side, found)
        for side, dump in (("ref", ref), ("dut", dut))
        if (found := shared_hashes(dump))
    ]


def shared_hashes(dump: Dump) -> list[Shared]:
    """The hashes of ``dump`` that are remarked upon, the most frequent first."""
    tokens = dump.header.get("tokens", "").split(",")
    found = [
        shared
        for entries in dump.segments.values()
        for shared in _of_table(Table.of(entries), tokens)
    ]
    return sorted(found, key=lambda shared: -shared.count)


def _of_table(table: Table, tokens: Sequence[str]) -> Iterator[Shared]:
    # The upper halves sort in half the time; the few that repeat by chance part again below.
    halves = (table.digest >> np.uint64(32)).astype(np.uint32)
    ordered = np.sort(halves)
    often = np.unique(ordered[ENOUGH - 1 :][ordered[ENOUGH - 1 :] == ordered[: 1 - ENOUGH]])
    if not often.size:
        return
    rows = np.flatnonzero(np.isin(halves, often))
    by_digest: dict[int, list[int]] = {}
    for row, digest in zip(rows.tolist(), table.digest[rows].tolist(), strict=True):
        by_digest.setdefault(digest, []).append(row)
    for digest, shared in by_digest.items():
        keys = [table.key(row) for row in shared if _counts(table, row)]
        if _impossible(keys, tokens):
            yield Shared(digest, len(shared), [key.tag for key in keys[:SHOWN]])


def _impossible(keys: Sequence[Key], tokens: Sequence[str]) -> bool:
    """Whether ``keys``, all with one hash, cannot all be right."""
    if len({key.field for key in keys}) >= ENOUGH:
        return True
    layers: dict[str, set[int | None]] = {}
    places: dict[tuple[int | None, str], list[int]] = {}
    for key in keys:
        layers.setdefault(key.field, set()).add(key.layer)
        places.setdefault((key.layer, key.field), []).append(key.pos)
    if any(len(found) >= ENOUGH for found in layers.values()):
        return True
    return any(_unlike_tokens(positions, tokens) for positions in places.values())


def _unlike_tokens(positions: Sequence[int], tokens: Sequence[str]) -> bool:
    """Whether enough positions are known to have been fed more than one token."""
    fed = {tokens[pos] for pos in positions if 0 <= pos < len(tokens)}
    return len(positions) >= ENOUGH and len(fed) > 1


def _counts(table: Table, row: int) -> bool:
    """Whether the value is a key's, and large enough not to repeat by chance."""
    if table.pos[row] == FREE:
        return False
    kind: TensorType | None = table.kinds[table.kind[row]]
    if kind is None:
        return table.key(row).field not in SMALL_FIELDS
    return dtype_bits(kind.dtype) * int(np.prod(kind.shape)) >= 8 * LARGE


def _text(side: str, found: Sequence[Shared]) -> str:
    first = found[0]
    names = ", ".join([*first.first, "..."] if first.count > SHOWN else first.first)
    text = f"{first.count:,} keys of the {side} have one hash, {hex16(first.digest)} ({names}): "
    text += "a dead tap, a stale buffer or zeros"
    others = sum(shared.count for shared in found[1:])
    return f"{text}; {others:,} more keys share {len(found) - 1:,} such hashes" if others else text
