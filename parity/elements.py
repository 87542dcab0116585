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
    none = ref.reshape(-1)[:0]
    found = _find(ref, dut, names[0]) if compared else _find(none, none, names[0])
    distances = found.distance[found.measured]
    return Elements(
        key=key,
        ref_type=str(types[0]),
        dut_type=str(types[1]),
        total=ref.size if compared else 0,
        differ=found.where.size,
        max_ulp=int(distances.max()) if distances.size else None,
        unit="ULP" if names[0] in FLOATS else "step",
        histogram=_histogram(found),
        groups=_groups(found.where, ref.shape),
        rows=[_row(found, at, types[0]) for at in _chosen(found.kind, limit)],
        note=_note(types, compared),
    )


def _note(types: tuple[TensorType, TensorType], compared: bool) -> str:
    ref, dut = types
    if ref == dut:
        return ""
    what = "dtypes" if ref.dtype != dut.dtype else "shapes"
    how = "compared flat, in C order" if compared else "not compared"
    return f"{what} differ: ref {ref}, dut {dut}; elements are {how}"


def _find(ref: np.ndarray, dut: np.ndarray, dtype: str) -> _Found:
    import numpy as np

    ref_bits, dut_bits = bit_patterns(ref), bit_patterns(dut)
    where = np.flatnonzero(ref_bits != dut_bits)
    wide = (ref_bits[where].astype(np.uint64), dut_bits[where].astype(np.uint64))
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


def _histogram(found: _Found) -> list[tuple[str, int]]:
    """Differing elements by distance, then by kind; empty bins are left out."""
    import numpy as np

    plain = found.distance[found.kind == _VALUE]
    places = np.searchsorted(np.array(list(_BINS), np.uint64), plain, side="right") - 1
    by_distance = np.bincount(places, minlength=len(_BINS)).tolist()
    by_kind = np.bincount(found.kind, minlength=len(KINDS)).tolist()
    named = [*zip(_BINS.values(), by_distance, strict=True)]
    named += zip(KINDS[1:], by_kind[1:], strict=True)
    return [(name, count) for name, count in named if count]


def _groups(where: np.ndarray, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """(leading index, differing elements) for tensors of two dimensions or more."""
    import numpy as np

    if len(shape) < 2 or not where.size:
        return []
    block = math.prod(shape[1:])
    leading, counts = np.unique(where // block, return_counts=True)
    return [(int(index), int(count)) for index, count in zip(leading, counts, strict=True)]


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
