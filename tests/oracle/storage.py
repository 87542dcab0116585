"""Q4_0 storage: binary16 scales and packed nibbles (contract 1.0, 1.3)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from tests.oracle.rounding import float32_from_fraction

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 32
HALF_BLOCK = 16


@lru_cache(maxsize=1 << 16)
def widen_f16(bits: int) -> np.float32:
    """The binary32 equal to a finite binary16, decoded from its fields."""
    exponent = (bits >> 10) & 31
    fraction = bits & 1023
    if exponent == 31:
        raise ValueError(f"scale {bits:04x} is not finite; the contract refuses it at load")
    if exponent == 0:
        size = Fraction(fraction, 1 << 24)
    else:
        size = Fraction(1024 + fraction, 1024) * Fraction(2) ** (exponent - 15)
    value = float32_from_fraction(size)
    return F(-value) if bits >> 15 else value


NIBBLE_VALUES = [F(nibble - 8) for nibble in range(16)]


def block_weights(packed: Array) -> list[np.float32]:
    """The 32 values nibble - 8 of a block: low nibbles are 0..15, high ones 16..31."""
    codes = [int(byte) for byte in packed]
    low = [NIBBLE_VALUES[byte & 15] for byte in codes]
    high = [NIBBLE_VALUES[byte >> 4] for byte in codes]
    return low + high
