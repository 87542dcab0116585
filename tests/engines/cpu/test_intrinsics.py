"""The intrinsics against Python's exact integers and rationals."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numba import njit

from parity_cpu.intrinsics import (
    bits_of_f32,
    bits_of_f64,
    clz64,
    f32_of_bits,
    f64_of_bits,
    fma32,
    fma64,
    umul64hi,
)

SEED = 7


def filled(function: Any, result: type, *columns: Any) -> Any:
    """`function` applied row by row in compiled code."""

    @njit
    def loop(out: Any, a: Any, b: Any, c: Any) -> None:
        for i in range(out.size):
            out[i] = function(a[i], b[i], c[i])

    out = np.empty(columns[0].size, result)
    loop(out, *columns)
    return out


@njit
def fma64_row(a: Any, b: Any, c: Any) -> Any:
    return fma64(a, b, c)


@njit
def fma32_row(a: Any, b: Any, c: Any) -> Any:
    return fma32(a, b, c)


@njit
def two_roundings(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


@njit
def high_half(a: Any, b: Any, c: Any) -> Any:
    return umul64hi(a, b)


@njit
def leading_zeros(a: Any, b: Any, c: Any) -> Any:
    return clz64(a)


@njit
def through_bits32(a: Any, b: Any, c: Any) -> Any:
    return bits_of_f32(f32_of_bits(a))


@njit
def through_bits64(a: Any, b: Any, c: Any) -> Any:
    return bits_of_f64(f64_of_bits(a))


def operands(kind: type) -> tuple[Any, Any, Any]:
    """Factors near 1 and addends of every size at which a rounded product shows in the sum."""
    rng = np.random.default_rng(SEED)
    a, b = rng.uniform(1, 2, (2, 4_000)).astype(kind)
    size = float(np.finfo(kind).eps) ** rng.uniform(-1, 0, 4_000)
    return a, b, (rng.uniform(-1, 1, 4_000) * size).astype(kind)


def exact(a: Any, b: Any, c: Any) -> list[Fraction]:
    return [
        Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        for x, y, z in zip(a, b, c, strict=True)
    ]


def nearest(value: Fraction, kind: type) -> Any:
    """The float of `kind` nearest to an exact value (float() of a Fraction rounds once)."""
    if kind is np.float64:
        return np.float64(float(value))
    guess = np.float32(float(value))
    around = (np.nextafter(guess, kind(-np.inf)), guess, np.nextafter(guess, kind(np.inf)))
    return min(around, key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.uint32)) & 1))


@pytest.mark.parametrize(("name", "kind"), [(fma64_row, np.float64), (fma32_row, np.float32)])
def test_fma_rounds_once(name: Any, kind: type) -> None:
    columns = operands(kind)
    ref = np.array([nearest(value, kind) for value in exact(*columns)], kind)
    assert filled(name, kind, *columns).tobytes() == ref.tobytes()


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_red_two_roundings(kind: type) -> None:
    columns = operands(kind)
    ref = np.array([nearest(value, kind) for value in exact(*columns)], kind)
    assert filled(two_roundings, kind, *columns).tobytes() != ref.tobytes()


def test_integers() -> None:
    rng = np.random.default_rng(SEED)
    a, b = rng.integers(0, 2**64, (2, 1_000), dtype=np.uint64)
    a[:4], b[:2] = (0, 1, 2**63, 2**64 - 1), (2**64 - 1, 2**64 - 1)
    high = [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    assert filled(high_half, np.uint64, a, b, a).tolist() == high
    zeros = [64 - int(x).bit_length() for x in a >> (b & np.uint64(63))]
    assert filled(leading_zeros, np.uint64, a >> (b & np.uint64(63)), a, a).tolist() == zeros


def test_bit_casts_keep_every_pattern() -> None:
    rng = np.random.default_rng(SEED)
    small = rng.integers(0, 2**32, 10_000, dtype=np.uint32)
    small[:4] = 0x7F800001, 0xFFC12345, 0x80000000, 1
    wide = rng.integers(0, 2**64, 10_000, dtype=np.uint64)
    wide[:2] = 0x7FF0000000000001, 0xFFF8000000000123
    assert filled(through_bits32, np.uint32, small, small, small).tobytes() == small.tobytes()
    assert filled(through_bits64, np.uint64, wide, wide, wide).tobytes() == wide.tobytes()
