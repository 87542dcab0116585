"""Synthetic weights from integers only (contract section 8): the definition of what bits become.

``u(name, k) = splitmix64((seed ^ fnv1a64(name)) + k)`` mod 2^64: word k of a stream depends on
seed, name and k alone, so any slice can be made by itself, in any language.

* nibbles of a Q4_0 matrix: the little-endian bytes of the words of ``<name>.qs``, in storage order;
* f16 scales: word k of ``<name>.d`` gives block k; bit 63 is the sign, bits 62..53 the mantissa,
  the exponent is the matrix's own (``q4_exponent``): signs make the mean weight 0;
* f32 matrices: the top 24 bits minus 2^23, times an exact power of two: uniform in [-2^e, 2^e);
* norm weights: (3 * 2^21 + the top 22 bits) * 2^-23: uniform in [0.75, 1.25).
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from parity.fnv import fnv1a64

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def words(seed: int, name: str, start: int, count: int) -> np.ndarray:
    """Words ``start`` .. ``start + count - 1`` of the stream ``name``, as uint64[count]."""
    base = ((seed ^ fnv1a64(name.encode())) + start) & ((1 << 64) - 1)
    z = np.arange(count, dtype=np.uint64)
    z += np.uint64(base)
    z += _GAMMA
    z ^= z >> np.uint64(30)
    z *= _MIX1
    z ^= z >> np.uint64(27)
    z *= _MIX2
    z ^= z >> np.uint64(31)
    return z


def nibble_bytes(seed: int, name: str, blocks: int) -> np.ndarray:
    """The 16 bytes of each Q4_0 block, uint8[blocks * 16]."""
    return words(seed, f"{name}.qs", 0, 2 * blocks).astype("<u8", copy=False).view(np.uint8)


def scale_bits(seed: int, name: str, blocks: int, exponent: int) -> np.ndarray:
    """The f16 scales of Q4_0 blocks as bit patterns, uint16[blocks], of size 2^e to 2^(e+1)."""
    top = (words(seed, f"{name}.d", 0, blocks) >> np.uint64(53)).astype(np.uint16)
    sign = (top >> np.uint16(10)) << np.uint16(15)
    biased = np.uint16((exponent + 15) << 10)
    return sign | biased | (top & np.uint16(0x3FF))


def q4_exponent(columns: int) -> int:
    """Exponent that gives a row of ``columns`` weights a gain near 1.

    A weight is (nibble - 8) * d: its standard deviation is sqrt(21.5 * 7/3) = 7.08 times 2^e,
    so 2^-e = floor-power-of-two of isqrt(50 * columns).
    """
    return -(isqrt(50 * columns).bit_length() - 1)


def signed_f32(seed: int, name: str, count: int, exponent: int) -> np.ndarray:
    """Uniform f32 values in [-2^e, 2^e), each an integer times 2^(e-23), float32[count]."""
    top = (words(seed, name, 0, count) >> np.uint64(40)).astype(np.int32) - np.int32(1 << 23)
    return np.ldexp(top.astype(np.float32), exponent - 23)


def router_exponent(columns: int) -> int:
    """Exponent that gives router logits a standard deviation near 1.6 for inputs of size 1."""
    return 1 - isqrt(columns // 3).bit_length()


def matrix_exponent(columns: int) -> int:
    """Exponent that gives a row of ``columns`` uniform f32 weights a gain near 0.8."""
    return -isqrt(columns // 3).bit_length()


def norm_weights(seed: int, name: str, count: int) -> np.ndarray:
    """Norm weights in [0.75, 1.25), float32[count]."""
    top = (words(seed, name, 0, count) >> np.uint64(42)).astype(np.int32) + np.int32(3 << 21)
    return np.ldexp(top.astype(np.float32), -23)


def prompt_tokens(seed: int, count: int, real_ids: int) -> list[int]:
    """The tokens of a synthetic prompt (contract section 7)."""
    return [int(word) % real_ids for word in words(seed, "prompt", 0, count)]
