"""Element-level detail of one key: which elements differ, how, and by how many ULP.

Distances are taken between bit patterns ordered as their values are: sign-magnitude patterns
become signed integers, so that +0 and -0 meet at 0 and the neighbours of zero are 2 apart.
A ULP count describes a difference; it never decides whether there is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parity.dtypes import (
    FLOATS,
    bit_patterns,
    dtype_bits,
    dtype_name,
    flat_pieces,
    is_signed,
    tensor_bytes,
    value_text,
)
from parity.dump import TensorType
from parity.tree import ElementRow, Elements

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KINDS", "compare_tensors", "dtype_name", "tensor_bytes"]

# What a difference is. All but the first are listed apart from the ULP bins.
KINDS = ("value", "zero sign", "NaN payload", "NaN in ref", "NaN in dut", "infinity")
_VALUE, _ZERO_SIGN, _NAN_PAYLOAD, _NAN_REF, _NAN_DUT, _INFINITY = range(len(KINDS))
# First distances of the histogram's bins; the last bin is open.
_BINS = {1: "1", 2: "2", 3: "3 to 4", 5: "5 to 16", 17: "17 to 256", 257: "over 256"}
BLOCK = 32  # elements that share a scale in every quantised form (contract 1.3, 1.4)
PLACES = 512  # differing elements whose place is kept


@dataclass(frozen=True)
class _Found:
    """The elements whose bits differ, in C order: arrays of one length.

    ``where``: flat index; ``ref``, ``dut``: bit patterns as uint64; ``kind``: index into KINDS;
    ``distance``: |ULP| or steps as uint64; ``above``: whether the dut is larger.
    """

    where: np.ndarray
    ref: np.ndarray
    dut: np.ndarray
    kind: np.ndarray
    distance: np.ndarray
    above: np.ndarray

    @classmethod
    def joined(cls, pieces: list[_Found]) -> _Found:
        """Pieces one after the other."""
        import numpy as np

        columns = zip(*(vars(piece).values() for piece in pieces), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def at(self, chosen: list[int]) -> _Found:
        """Some of them, by their place here."""
        return _Found(*(column[chosen] for column in vars(self).values()))

    @property
    def measured(self) -> np.ndarray:
        """Where a distance means something: between two numbers of different value."""
        numbers: np.ndarray = (self.kind == _VALUE) | (self.kind == _INFINITY)
        return numbers


def compare_tensors(
    key: str,
    ref: np.ndarray,
    dut: np.ndarray,
    *,
    limit: int = 12,
    dtypes: tuple[str, str] | None = None,
) -> Elements:
    """Compare the bits of two tensors element by element.

    ``dtypes``: the dump's names of both dtypes where the arrays only carry them (bf16 in uint16).
    ``total`` is the number of elements compared: 0 where dtypes or sizes differ, which the note
    then says. Same dtype and size in two shapes are compared flat, in C order, with indices in
    the ref's shape. ``rows`` holds the first of each kind that is not a plain value, then the
    first others, ``limit`` in all, by index. Raises InputError for a dtype no dump can name.
    """
    names = dtypes or (dtype_name(ref.dtype), dtype_name(dut.dtype))
    types = TensorType(names[0], ref.shape), TensorType(names[1], dut.shape)
    compared = names[0] == names[1] and ref.size == dut.size
    tally = _Tally(types[0], limit)
    if compared:
        for ref_piece, dut_piece in zip(flat_pieces(ref), flat_pieces(dut), strict=True):
            tally.add(ref_piece, dut_piece)
    return Elements(
        key=key,
        ref_type=str(types[0]),
        dut_type=str(types[1]),
        total=ref.size if compared else 0,
        differ=tally.differ,
        max_ulp=tally.largest,
        unit="ULP" if names[0] in FLOATS else "step",
        histogram=tally.histogram(),
        groups=list(tally.groups.items()),
        rows=tally.rows(),
        note=_note(types, compared),
        signed=tally.signed(),
        blocks=list(tally.blocks.items()),
        places=tally.places,
    )


class _Tally:
    """What was found in the pieces of two tensors so far; ``kind``: dtype and shape of the ref."""

    def __init__(self, kind: TensorType, limit: int) -> None:
        self.differ, self.seen = 0, 0
        self.largest: int | None = None
        self.groups: dict[int, int] = {}  # leading index: differing elements
        self.blocks: dict[int, int] = {}  # 32-block of a tensor of one dimension: the same
        self.places: list[tuple[int, int]] = []  # flat index, sign of the distance
        self._kind, self._limit = kind, limit
        self._bins = [0] * (len(_BINS) + len(KINDS) - 1)
        self._larger = [0] * len(_BINS)  # of the bins of plain values, where the dut is larger
        self._shown: list[_Found] = []

    def add(self, ref: np.ndarray, dut: np.ndarray) -> None:
        """The next elements in C order, flat and as many of each."""
        found = _find(ref, dut, self._kind.dtype, self.seen)
        self.seen += ref.size
        if not found.where.size:
            return
        self.differ += found.where.size
        if (distances := found.distance[found.measured]).size:
            self.largest = max(self.largest or 0, int(distances.max()))
        self._bins = [sum(pair) for pair in zip(self._bins, _binned(found), strict=True)]
        larger = _by_distance(found.distance[(found.kind == _VALUE) & found.above])
        self._larger = [sum(pair) for pair in zip(self._larger, larger, strict=True)]
        for index, count in _grouped(found.where, self._kind.shape):
            self.groups[index] = self.groups.get(index, 0) + count
        for index, count in _blocked(found.where, self._kind.shape):
            self.blocks[index] = self.blocks.get(index, 0) + count
        self.places += _signs(found, PLACES - len(self.places))
        joined = _Found.joined([*self._shown, found.at(_chosen(found.kind, self._limit))])
        self._shown = [joined.at(_chosen(joined.kind, self._limit))]

    def histogram(self) -> list[tuple[str, int]]:
        """Differing elements by distance, then by kind; empty bins are left out."""
        names = [*_BINS.values(), *KINDS[1:]]
        return [(name, count) for name, count in zip(names, self._bins, strict=True) if count]

    def signed(self) -> list[tuple[str, int, int]]:
        """(bin, dut smaller, dut larger) of the plain values; empty bins are left out."""
        bins = zip(_BINS.values(), self._bins, self._larger, strict=False)
        return [(name, count - larger, larger) for name, count, larger in bins if count]

    def rows(self) -> list[ElementRow]:
        """The elements to show, by index."""
        return [_row(one, at, self._kind) for one in self._shown for at in range(one.where.size)]


def _note(types: tuple[TensorType, TensorType], compared: bool) -> str:
    ref, dut = types
    if ref == dut:
        return ""
    what = "dtypes" if ref.dtype != dut.dtype else "shapes"
    how = "compared flat, in C order" if compared else "not compared"
    return f"{what} differ: ref {ref}, dut {dut}; elements are {how}"


def _find(ref: np.ndarray, dut: np.ndarray, dtype: str, begin: int) -> _Found:
    """``begin``: flat index of the first element of both pieces."""
    import numpy as np

    ref_bits, dut_bits = bit_patterns(ref), bit_patterns(dut)
    at = np.flatnonzero(ref_bits != dut_bits)
    where = at + begin
    wide = (ref_bits[at].astype(np.uint64), dut_bits[at].astype(np.uint64))
    if dtype in FLOATS:
        return _float_differences(where, *wide, dtype)
    # Unsigned images in the order of the values: a signed integer's sign bit is flipped.
    flip = np.uint64(1 << (8 * ref_bits.itemsize - 1) if is_signed(dtype) else 0)
    images = tuple(side ^ flip for side in wide)
    distance = np.maximum(*images) - np.minimum(*images)
    kind = np.full(where.size, _VALUE)
    return _Found(where, *wide, kind, distance, images[1] > images[0])


def _float_differences(where: np.ndarray, ref: np.ndarray, dut: np.ndarray, dtype: str) -> _Found:
    """``ref``, ``dut``: bit patterns as uint64 of the elements at the flat indices ``where``."""
    import numpy as np

    form = FLOATS[dtype]
    sign = np.uint64(1 << (form.bits - 1))
    infinity = np.uint64(form.infinity)
    size = (ref & (sign - np.uint64(1)), dut & (sign - np.uint64(1)))
    minus = ((ref & sign) != 0, (dut & sign) != 0)
    nan = (size[0] > infinity, size[1] > infinity)
    cases = {
        _NAN_PAYLOAD: nan[0] & nan[1],
        _NAN_REF: nan[0],
        _NAN_DUT: nan[1],
        _ZERO_SIGN: (size[0] | size[1]) == 0,
        _INFINITY: (size[0] == infinity) | (size[1] == infinity),
    }
    kind = np.select(list(cases.values()), list(cases), _VALUE)
    apart = np.maximum(*size) - np.minimum(*size)
    distance = np.where(minus[0] == minus[1], apart, size[0] + size[1])
    above = np.where(minus[0] == minus[1], (size[1] > size[0]) != minus[1], minus[0])
    return _Found(where, ref, dut, kind, distance, above)


def _binned(found: _Found) -> list[int]:
    """How many differ by each distance of _BINS, then in each other kind."""
    import numpy as np

    by_distance = _by_distance(found.distance[found.kind == _VALUE])
    by_kind = np.bincount(found.kind, minlength=len(KINDS)).tolist()
    return [*by_distance, *by_kind[1:]]


def _by_distance(distance: np.ndarray) -> list[int]:
    """How many of the distances, uint64 and from 1, fall into each bin of _BINS."""
    import numpy as np

    places = np.searchsorted(np.array(list(_BINS), np.uint64), distance, side="right") - 1
    counts: list[int] = np.bincount(places, minlength=len(_BINS)).tolist()
    return counts


def _signs(found: _Found, limit: int) -> list[tuple[int, int]]:
    """(flat index, +1 dut larger, -1 smaller, 0 no distance) of the first ``limit``."""
    import numpy as np

    where, above = found.where[:limit], found.above[:limit]
    signs = np.where(found.measured[:limit], np.where(above, 1, -1), 0)
    return list(zip(where.tolist(), signs.tolist(), strict=True))


def _blocked(where: np.ndarray, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """(32-block, differing elements) for tensors of one dimension."""
    import numpy as np

    if len(shape) != 1:
        return []
    blocks, counts = np.unique(where // BLOCK, return_counts=True)
    return list(zip(blocks.tolist(), counts.tolist(), strict=True))


def _grouped(where: np.ndarray, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """(leading index, differing elements) for tensors of two dimensions or more."""
    import numpy as np

    if len(shape) < 2:
        return []
    leading, counts = np.unique(where // math.prod(shape[1:]), return_counts=True)
    return list(zip(leading.tolist(), counts.tolist(), strict=True))


def _chosen(kind: np.ndarray, limit: int) -> list[int]:
    """Which differing elements to show, ascending."""
    import numpy as np

    kinds, first = np.unique(kind, return_index=True)
    special = first[kinds != _VALUE].tolist()
    chosen = dict.fromkeys([*sorted(special), *range(min(limit, kind.size))])
    return sorted(list(chosen)[:limit])


def _row(found: _Found, at: int, kind: TensorType) -> ElementRow:
    import numpy as np

    index = np.unravel_index(found.where[at], kind.shape)
    ref, dut = int(found.ref[at]), int(found.dut[at])
    distance = int(found.distance[at]) if found.measured[at] else None
    if distance is not None and not found.above[at]:
        distance = -distance
    digits = dtype_bits(kind.dtype) // 4
    return ElementRow(
        index=tuple(int(part) for part in index),
        ref_hex=f"{ref:0{digits}x}",
        dut_hex=f"{dut:0{digits}x}",
        ref_value=value_text(ref, kind.dtype),
        dut_value=value_text(dut, kind.dtype),
        ulp=distance,
        kind=KINDS[found.kind[at]],
    )
