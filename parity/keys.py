"""Keys: the full ordered address of one dumped value, written ``t<pos>_l<L>_<field>``.

Keys order by dataflow: position, then layer, then field, then the fields after the last layer
(``final_normed``, ``logits``). A field no schema knows keeps the place it has in the ref dump.
Tensor files may also hold free keys, whose name has no key's form; dumps may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from parity.errors import InputError

# Dataflow order of the fields of one layer (docs/contract.md sections 2 and 3): K's chain before
# Q's, the FFN's optional fields between ores and x. No layer has all of them.
LAYER_FIELDS = (
    *("nrm", "kraw", "knorm", "k", "ks", "v", "vs", "qrope", "attn", "gated"),
    *("qkv", "z", "conv", "hist", "qn", "kn", "beta", "g", "s", "o", "gn"),
    *("ores", "fnrm", "rlogits", "topk", "topp", "gate", "up", "act", "down", "gs", "sh", "x"),
)
FINAL_FIELDS = ("final_normed", "logits")

# A field never looks like a layer part: ``t0_l07_x`` is refused, not read as a field ``l07_x``.
_TAG = re.compile(
    r"t(0|[1-9]\d{0,8})(?:_l(0|[1-9]\d{0,5}))?_((?!l\d+_)[A-Za-z][A-Za-z0-9_.\-]*)", re.ASCII
)
_LAST = 1 << 60  # rank of a field that an order was not told of
LARGEST = 999_999_999  # position, as nine digits hold it
FREE = -1  # position of a key whose name has no key's form (tensor files)


class Key(NamedTuple):
    """Address of one dumped value: position, layer (None outside the layers) and field.

    A tuple, because a dump of a million lines builds and hashes one for every line.
    """

    pos: int
    layer: int | None
    field: str

    @property
    def tag(self) -> str:
        """The written form, e.g. ``t33_l7_attn`` or ``t33_logits``; a free key's own name."""
        if self.pos == FREE:
            return self.field
        where = "" if self.layer is None else f"_l{self.layer}"
        return f"t{self.pos}{where}_{self.field}"

    def __str__(self) -> str:
        return self.tag

    @classmethod
    def parse(cls, tag: str) -> Key:
        """Read a tag; raises InputError when it has no key's form."""
        found = _TAG.fullmatch(tag)
        if found is None:
            raise InputError(
                f"not a key: {tag!r}", "write keys as t<pos>_l<layer>_<field> or t<pos>_<field>"
            )
        pos, layer, field = found.groups()
        return cls(int(pos), None if layer is None else int(layer), field)

    @classmethod
    def of_name(cls, name: str) -> Key:
        """The key of a tensor file's name: parsed where it is a tag, else a free key.

        Free keys come before all others and keep the ref file's order.
        """
        if _TAG.fullmatch(name):
            return cls.parse(name)
        return cls(FREE, None, name)


def in_schema(key: Key) -> bool:
    """Whether the contract gives the field of ``key`` its place."""
    if key.layer is not None:
        return key.field in LAYER_FIELDS
    return key.pos != FREE and key.field in FINAL_FIELDS


class KeyOrder:
    """A total order over keys, built from the schema and the fields that were really seen.

    ``ref`` and ``dut`` are the keys of both dumps in file order. Unknown fields are placed after
    the field that precedes them in the ref dump, then in the dut dump; one outside the layers
    that precedes its position's layers (``t0_embed``) is placed before them.
    """

    def __init__(self, ref: Iterable[Key] = (), dut: Iterable[Key] = ()) -> None:
        chains = _Chains(_Chain(()), _Chain(()), _Chain(LAYER_FIELDS), _Chain(FINAL_FIELDS))
        for keys in (ref, dut):
            chains.place(keys)
        self._free_rank = chains.free.ranks()
        self._layer_rank = chains.layers.ranks()
        outer = ((0, chains.before.ranks()), (2, chains.final.ranks()))
        self._outer_rank = {
            field: (part, rank) for part, ranks in outer for field, rank in ranks.items()
        }

    def __call__(self, key: Key) -> tuple[int, int, int, int]:
        """Sort key: (position, 0 before / 1 in / 2 after the layers, layer, field rank).

        Fields neither in the schema nor in the dumps given share the last rank.
        """
        pos, layer, field = key
        if layer is not None:
            return (pos, 1, layer, self._layer_rank.get(field, _LAST))
        if pos == FREE:
            return (FREE, 0, 0, self._free_rank.get(field, _LAST))
        part, rank = self._outer_rank.get(field, (2, _LAST))
        return (pos, part, 0, rank)


class _Chain:
    """Field names in dataflow order, as a linked list: a late name costs the same as any."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._next: dict[str, str] = dict(zip(("", *fields), (*fields, ""), strict=True))

    def __contains__(self, field: str) -> bool:
        return field in self._next

    def add(self, field: str, after: str) -> None:
        """Put ``field`` after the field ``after`` ("" is the front)."""
        self._next[field] = self._next[after]
        self._next[after] = field

    def ranks(self) -> dict[str, int]:
        """Place of each field, from 0."""
        ranks: dict[str, int] = {}
        field = self._next[""]
        while field:
            ranks[field] = len(ranks)
            field = self._next[field]
        return ranks


@dataclass
class _Chains:
    """The chains of free names and of the fields before, in and after the layers."""

    free: _Chain
    before: _Chain
    layers: _Chain
    final: _Chain

    def place(self, keys: Iterable[Key]) -> None:
        """Link every unknown field of ``keys`` into the chain it belongs to."""
        keys = list(keys)
        kinds = {(min(pos, 0), layer is None, field) for pos, layer, field in keys}
        if all(self._knows(Key(pos, None if outer else 0, name)) for pos, outer, name in kinds):
            return  # the usual case, much quicker than the loop below
        latest: dict[tuple[int, int | None, bool], str] = {}  # the field last seen at a place
        with_layers: set[int] = set()  # positions whose layers have begun
        for key in keys:
            if key.layer is not None:
                with_layers.add(key.pos)
            place = (key.pos, key.layer, key.pos in with_layers)
            if not self._knows(key):
                after = latest.get(place, "")
                self._chain(key, after, place[2]).add(key.field, after)
            latest[place] = key.field

    def _knows(self, key: Key) -> bool:
        if key.layer is not None:
            return key.field in self.layers
        if key.pos == FREE:
            return key.field in self.free
        return key.field in self.final or key.field in self.before

    def _chain(self, key: Key, after: str, layers_begun: bool) -> _Chain:
        """Where an unknown field belongs: with its neighbour, else by where the layers are."""
        if key.layer is not None:
            return self.layers
        if key.pos == FREE:
            return self.free
        in_final = after in self.final if after else layers_begun
        return self.final if in_final else self.before
