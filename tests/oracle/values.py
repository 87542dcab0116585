"""Boundary values and seeded random arrays that the case tables are built from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.scalar import fnv1a64

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Args = tuple[Any, ...]
Case = tuple[str, Args]

FLT_MAX = F(np.finfo(F).max)
MIN_NORMAL = F(np.finfo(F).smallest_normal)
MIN_SUBNORMAL = F(np.finfo(F).smallest_subnormal)
# A case that starts with this word may produce NaN, and then any NaN will do (contract 1.10).
NON_FINITE = "non-finite: "


def f32_words(words: str) -> Array:
    """The binary32 values with these bit patterns, eight hexadecimal digits each."""
    return np.array([int(word, 16) for word in words.split()], np.uint32).view(F)


def up(x: float | np.float32) -> np.float32:
    """The binary32 just above x."""
    return F(np.nextafter(F(x), F(np.inf)))


def down(x: float | np.float32) -> np.float32:
    """The binary32 just below x."""
    return F(np.nextafter(F(x), F(-np.inf)))


def signed(*values: float | np.float32) -> Array:
    """Each value and its negative, in turn."""
    return np.array([s for v in values for s in (F(v), F(-F(v)))], F)


ZEROS = signed(0.0)
SUBNORMALS = signed(MIN_SUBNORMAL, 3 * MIN_SUBNORMAL, F(2.0**-140), down(MIN_NORMAL))
SMALL_NORMALS = signed(MIN_NORMAL, up(MIN_NORMAL), F(2.0**-100), F(2.0**-75))
AROUND_ONE = signed(down(0.5), 0.5, up(0.5), down(1.0), 1.0, up(1.0), down(2.0), 2.0, up(2.0))
LARGE = signed(F(2.0**24), F(2.0**63), F(2.0**64), F(2.0**100), F(2.0**126))
HUGE = signed(F(2.0**127), down(FLT_MAX), FLT_MAX)
SPECIALS = np.concatenate([ZEROS, SUBNORMALS, SMALL_NORMALS, AROUND_ONE, LARGE, HUGE])
# Products of any two of these stay finite, so sums of them hold no inf - inf.
TAME = np.concatenate([ZEROS, SUBNORMALS, SMALL_NORMALS, AROUND_ONE, LARGE[:2]])

F16_SCALES = {
    "one": 0x3C00,
    "minus one": 0xBC00,
    "zero": 0x0000,
    "minus zero": 0x8000,
    "smallest subnormal": 0x0001,
    "minus smallest subnormal": 0x8001,
    "largest subnormal": 0x03FF,
    "smallest normal": 0x0400,
    "a third": 0x3555,
    "minus a third": 0xB555,
    "largest": 0x7BFF,
    "minus largest": 0xFBFF,
}


def generator(name: str) -> np.random.Generator:
    """A generator whose seed is the name's own FNV-1a-64: no state is shared between cases."""
    return np.random.Generator(np.random.PCG64(fnv1a64(name.encode())))


def normal(name: str, *shape: int, size: float = 1.0) -> Array:
    """Normally distributed binary32, times size."""
    return (generator(name).standard_normal(shape) * size).astype(F)


def any_exponent(name: str, *shape: int, low: int = -40, high: int = 20) -> Array:
    """Random significands with exponents spread evenly over [low, high)."""
    rng = generator(name)
    exponents = rng.integers(low, high, shape)
    signs = rng.choice(np.array([-1.0, 1.0]), shape)
    return np.ldexp(signs * rng.uniform(1.0, 2.0, shape), exponents).astype(F)


def any_bits(name: str, *shape: int) -> Array:
    """Random finite bit patterns, subnormals and huge values included."""
    rng = generator(name)
    bits = rng.integers(0, 0x7F800000, shape, dtype=np.uint32)
    bits |= rng.integers(0, 2, shape, dtype=np.uint32) << np.uint32(31)
    return bits.view(F)


def picked(name: str, table: Array, *shape: int) -> Array:
    """Values drawn from a table."""
    return generator(name).choice(table, shape).astype(table.dtype)


def random_nibbles(name: str, *shape: int) -> Array:
    """Packed nibbles, u8[..., blocks * 16]; shape ends in the number of blocks."""
    *outer, blocks = shape
    return generator(f"{name} nibbles").integers(0, 256, (*outer, blocks * 16), dtype=np.uint8)


def random_scales(name: str, *shape: int) -> Array:
    """Binary16 scales as a model has them: both signs, small, not powers of two."""
    values = generator(f"{name} scales").standard_normal(shape) * 0.05
    return values.astype(np.float16).view(np.uint16)


def any_scales(name: str, *shape: int) -> Array:
    """Random finite binary16 bit patterns."""
    rng = generator(f"{name} any scales")
    bits = rng.integers(0, 0x7C00, shape, dtype=np.uint16)
    return bits | (rng.integers(0, 2, shape, dtype=np.uint16) << np.uint16(15))


def ramp_nibbles(*shape: int) -> Array:
    """Low nibbles 0..15, high nibbles 15..0 in every block."""
    *outer, blocks = shape
    block = np.array([e | (15 - e) << 4 for e in range(16)], np.uint8)
    return np.ascontiguousarray(np.broadcast_to(np.tile(block, blocks), (*outer, blocks * 16)))


def rows_of(*rows: Array) -> Array:
    """Rows of one length, stacked."""
    return np.stack([np.asarray(row, F) for row in rows])


def filled(length: int, values: Array) -> Array:
    """A row of this length that repeats the values."""
    return np.resize(values, length).astype(F)
