"""How far apart two sides are, field by field: counted in ULP, and against the size of the ref.

One key's tensors are looked at, a piece at a time, and only sums and extremes are kept. Distances
describe; whether a key is equal is decided by dtype, shape and bytes alone.

The bound. Two right computations of one model in other orders of addition differ by rounding: the
ops of a layer leave relative errors of some units of roundoff ``u`` (2^-24 in f32, 2^-11 in f16,
2^-8 in bf16), and those of the layers before it add up as independent errors do, by the root of
the sum of their squares. So a field may be off by ``ROUNDINGS * sqrt(1 + before) * SPREAD * u`` of
its size, the root of the mean square of the ref's values. ``before`` counts the layers before it, a
recurrent one as RECURRENT: its state carries errors from position to position. SPREAD is what a
field's own op makes of them: a norm of small values and a product of two have a few values far
above the others. The figures are measured, with a margin (docs/torch.md, "Against the reference
engine").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from parity.dtypes import (
    BOOL,
    FLOATS,
    INTEGERS,
    bit_patterns,
    dtype_name,
    flat_pieces,
    is_signed,
    same_bits,
)
from parity.profiles import ProfileRow

if TYPE_CHECKING:
    import numpy as np

    from parity.keys import Key
    from parity.model.config import ModelConfig

# Units of roundoff that the ops of one layer may leave; sums of half formats are kept in f32, and
# rounded where they are stored.
ROUNDINGS = {"f64": 128.0, "f32": 128.0, "f16": 48.0, "bf16": 48.0}
RECURRENT = 4.0  # squares of that in the place of 1: twice the error of another layer
SPREAD = {"gn": 16.0, "o": 4.0, "act": 4.0, "attn": 2.0, "gated": 2.0, "down": 2.0}
SPREAD |= {"conv": 2.0, "sh": 4.0, "s": 4.0}
STEP = "step"
_BF16_LEAST = -133  # exponent of the smallest subnormal of bf16


def roundoff(dtype: str) -> float:
    """Unit roundoff of a float format: half the distance from 1 to the next larger value."""
    return 2.0 ** -(FLOATS[dtype].mantissa + 1)


def layers_before(config: ModelConfig, layer: int | None) -> float:
    """How many layers a field's errors come from, a recurrent one counted as RECURRENT. ``layer``:
    None after the last, below 0 before the first."""
    layers = range(config.layers if layer is None else max(layer, 0))
    hybrid = config.family == "hybrid"
    return sum(RECURRENT if hybrid and config.is_gdn(one) else 1.0 for one in layers)


def bound_of(config: ModelConfig, layer: int | None, field: str, arithmetic: str) -> float:
    """What ``ProfileRow.relative`` of a field may be. ``arithmetic``: the coarsest format that a
    side computes in."""
    depth = math.sqrt(1 + layers_before(config, layer))
    return ROUNDINGS[arithmetic] * depth * SPREAD.get(field, 1.0) * roundoff(arithmetic)


def coarsest(dtypes: Iterable[str]) -> str:
    """The float format with the fewest mantissa bits among some dtypes; "" where none is one."""
    floats = [name for name in dtypes if name in FLOATS]
    return min(floats, key=lambda name: FLOATS[name].mantissa, default="")


class FieldTally:
    """What was seen of one field of one layer so far."""

    def __init__(self, layer: int | None, field: str) -> None:
        self.layer, self.field = layer, field
        self.largest: list[tuple[Key, float]] = []  # by key: the largest |difference|
        self.strange: list[Key] = []  # differing values that are not finite, or no common measure
        self._dtypes: tuple[str, str] = ("", "")
        self._keys = self._equal = self._elements = self._differ = 0
        self._nonfinite = self._unmeasured = 0
        self._unit, self._ulp = "", -1
        self._squares, self._finite = 0.0, 0
        self._worst: tuple[float, Key | None, int, tuple[int, ...]] = (-1.0, None, 0, ())

    @property
    def rms(self) -> float:
        """Root of the mean square of the ref's finite values."""
        return math.sqrt(self._squares / self._finite) if self._finite else 0.0

    def add(self, key: Key, ref: np.ndarray, dut: np.ndarray) -> None:
        """One key more: the values of both sides, of any dtypes and shapes."""
        self._dtypes = dtype_name(ref.dtype), dtype_name(dut.dtype)
        self._keys += 1
        self._equal += same_bits(ref, dut)
        unit = _unit(*self._dtypes)
        if not unit or ref.shape != dut.shape:
            self._unmeasured += 1
            self.strange.append(key)
            return
        self._unit = unit
        self._elements += ref.size
        largest, begin, nonfinite = 0.0, 0, self._nonfinite
        for pair in zip(flat_pieces(ref), flat_pieces(dut), strict=True):
            largest = max(largest, self._piece(key, *pair, begin, ref.shape))
            begin += len(pair[0])
        self.largest.append((key, largest))
        if self._nonfinite > nonfinite:
            self.strange.append(key)

    def lost(self, key: Key) -> None:
        """One key more, of which a side gave no values."""
        self._keys += 1
        self._unmeasured += 1
        self.strange.append(key)

    def _piece(
        self, key: Key, ref: np.ndarray, dut: np.ndarray, begin: int, shape: tuple[int, ...]
    ) -> float:
        """The next elements in C order; the largest |difference| among them."""
        import numpy as np

        wide = _widened(ref), _widened(dut)
        finite = np.isfinite(wide[0])
        self._finite += int(finite.sum())
        self._squares += float(np.square(wide[0][finite]).sum())
        at = np.flatnonzero(_other_bits(ref, dut, wide))
        self._differ += len(at)
        both = at[finite[at] & np.isfinite(wide[1][at])]
        self._nonfinite += len(at) - len(both)
        if not len(both):
            return 0.0
        self._ulp = max(self._ulp, _farthest(ref[both], dut[both], self._unit))
        sizes = np.abs(wide[1][both] - wide[0][both])
        first = int(np.argmax(sizes))
        if sizes[first] > self._worst[0]:
            self._worst = float(sizes[first]), key, begin + int(both[first]), shape
        return float(sizes[first])

    def row(self) -> ProfileRow:
        """All of it as data."""
        import numpy as np

        size, key, at, shape = self._worst
        index = () if key is None else np.unravel_index(at, shape)
        return ProfileRow(
            layer=self.layer,
            field=self.field,
            ref_dtype=self._dtypes[0],
            dut_dtype=self._dtypes[1],
            keys=self._keys,
            equal=self._equal,
            elements=self._elements,
            differ=self._differ,
            unit=self._unit,
            max_ulp=None if self._ulp < 0 else self._ulp,
            max_diff=max(size, 0.0),
            rms=self.rms,
            relative=_over(max(size, 0.0), self.rms),
            key="" if key is None else key.tag,
            element=tuple(int(part) for part in index),
            nonfinite=self._nonfinite,
            unmeasured=self._unmeasured,
        )

    def judged(self, config: ModelConfig, arithmetic: str) -> ProfileRow:
        """The row with its bound and the first key beyond it: integers must be equal, and what has
        no common measure is beyond any bound."""
        row = self.row()
        bound = 0.0
        if self._unit != STEP and arithmetic:
            bound = bound_of(config, self.layer, self.field, arithmetic)
        beyond = [key for key, size in self.largest if not size <= bound * self.rms]
        first = min([*beyond, *self.strange], key=lambda key: key.pos, default=None)
        return replace(row, bound=bound, outside="" if first is None else first.tag)


def _over(size: float, rms: float) -> float | None:
    if rms:
        return size / rms
    return None if size else 0.0


def _unit(ref: str, dut: str) -> str:
    """What a distance of two dtypes counts in: the narrower float format, "step" for integers; ""
    where they have no common measure."""
    if ref in FLOATS and dut in FLOATS:
        return coarsest((ref, dut))
    whole = (*INTEGERS, BOOL)
    return STEP if ref in whole and dut in whole else ""


def _widened(values: np.ndarray) -> np.ndarray:
    """The same values as f64[n]: exact but for integers beyond 2^53."""
    import numpy as np

    return values.astype(np.float64)


def _other_bits(
    ref: np.ndarray, dut: np.ndarray, wide: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """bool[n]: other bits, with another dtype once both are widened."""
    pair = (ref, dut) if ref.dtype == dut.dtype else wide
    other: np.ndarray = bit_patterns(pair[0]) != bit_patterns(pair[1])
    return other


def _farthest(ref: np.ndarray, dut: np.ndarray, unit: str) -> int:
    """The largest distance of finite values, in steps between neighbours of the format ``unit``.

    A value of a wider format is rounded to it first (to nearest, ties to even), so that 0 means:
    the narrower side holds the other's value as well as it can.
    """
    import numpy as np

    if unit == STEP:
        places = [_integer_places(side) for side in (ref, dut)]
    else:
        places = [_float_places(side, unit) for side in (ref, dut)]
    return int((np.maximum(*places) - np.minimum(*places)).max())


def _integer_places(values: np.ndarray) -> np.ndarray:
    """uint64[n] in the order of the values of all integers up to 64 bits."""
    import numpy as np

    if is_signed(dtype_name(values.dtype)):
        return values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    # An unsigned value stands above all negative ones; one of 2^63 and more would not fit.
    return np.minimum(values.astype(np.uint64), np.uint64((1 << 63) - 1)) + np.uint64(1 << 63)


def _float_places(values: np.ndarray, unit: str) -> np.ndarray:
    """uint64[n]: the places of finite values on the line of the format ``unit``; its neighbours are
    1 apart, and both zeros stand on one place."""
    import numpy as np

    bits = bit_patterns(_narrowed(values, unit)).astype(np.uint64)
    sign, zero = np.uint64(1 << (FLOATS[unit].bits - 1)), np.uint64(1 << 63)
    size = bits & (sign - np.uint64(1))
    places: np.ndarray = np.where(bits & sign, zero - size, zero + size)
    return places


def _narrowed(values: np.ndarray, unit: str) -> np.ndarray:
    """Values in the format ``unit``, rounded to nearest even; bf16 as the uint16 of its bits."""
    import numpy as np

    name = dtype_name(values.dtype)
    if name == unit:
        return values
    if unit != "bf16":
        with np.errstate(over="ignore"):  # beyond the largest value stands infinity
            return values.astype({"f16": np.float16, "f32": np.float32}[unit])
    wide = values.astype(np.float64)
    exponent = np.frexp(wide)[1] - 1 - FLOATS[unit].mantissa
    step = np.ldexp(1.0, np.maximum(exponent, _BF16_LEAST))
    with np.errstate(over="ignore"):
        rounded = (np.rint(wide / step) * step).astype(np.float32)
    upper: np.ndarray = (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return upper
