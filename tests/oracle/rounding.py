"""Exact rational arithmetic with one rounding, for the oracle's fused steps (contract 4).

Everything goes through integers: a float is a ratio with a power of two below, so products and
sums are exact and the one rounding is an integer division.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# binary32: 24 significant bits, and no quantum below 2^-149.
SIGNIFICAND_BITS = 24
MIN_EXPONENT = -149
MAX_EXPONENT = 128


def float32_from_ratio(num: int, den: int) -> np.float32:
    """The binary32 nearest to num / den (den > 0), ties to even; a zero comes back as +0."""
    if num == 0:
        return np.float32(0.0)
    size = abs(num)
    # 2^(exponent) <= size / den < 2^(exponent + 2): one step of correction settles it.
    exponent = size.bit_length() - den.bit_length() - 1
    while size >= _scaled(den, exponent + 1):
        exponent += 1
    quantum = max(exponent - (SIGNIFICAND_BITS - 1), MIN_EXPONENT)
    steps = _nearest_even(size, den, quantum)
    overflow = steps >> max(0, MAX_EXPONENT - quantum)
    magnitude = math.inf if overflow else math.ldexp(steps, quantum)
    return np.float32(math.copysign(magnitude, num))


def _scaled(den: int, exponent: int) -> Fraction:
    return den * Fraction(2) ** exponent


def _nearest_even(size: int, den: int, quantum: int) -> int:
    """size / (den * 2^quantum) rounded to an integer, ties to even."""
    if quantum >= 0:
        den <<= quantum
    else:
        size <<= -quantum
    whole, rest = divmod(size, den)
    if 2 * rest > den or (2 * rest == den and whole & 1):
        whole += 1
    return whole


def float32_from_fraction(value: Fraction) -> np.float32:
    """The binary32 nearest to an exact value: one rounding, never by way of binary64."""
    return float32_from_ratio(value.numerator, value.denominator)


def _exact_sum(a: float, b: float, c: float) -> tuple[int, int]:
    """a * b + c as an exact ratio (finite arguments)."""
    an, ad = a.as_integer_ratio()
    bn, bd = b.as_integer_ratio()
    cn, cd = c.as_integer_ratio()
    return an * bn * cd + cn * ad * bd, ad * bd * cd


def fma64(a: float, b: float, c: float) -> float:
    """a * b + c with one rounding to binary64 (finite arguments and result)."""
    num, den = _exact_sum(a, b, c)
    if num == 0:
        # Exactly zero: the product is then exact too, and plain arithmetic gives the sign.
        return a * b + c
    # Dividing two ints rounds once, correctly, subnormal results included.
    return num / den


def fma32(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c with one rounding to binary32; a factor not finite is left to the plain form."""
    if not (np.isfinite(a) and np.isfinite(b)):
        return np.float32(np.float32(a * b) + c)
    # The product is finite, however large: beside an infinity it does not count.
    if not np.isfinite(c):
        return np.float32(c)
    num, den = _exact_sum(float(a), float(b), float(c))
    if num == 0:
        return np.float32(np.float32(a * b) + c)
    return float32_from_ratio(num, den)
