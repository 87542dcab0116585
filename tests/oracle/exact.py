"""Binary32 by exact fractions, rounded by search: the judge of the scalar twins.

Nothing here is shared with the oracle's own rounding: the nearest float is found by bisecting
all bit patterns and comparing exact distances.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

LARGEST = 0x7F7FFFFF


def magnitude(bits: int) -> Fraction:
    """The exact value of a non-negative bit pattern; 7f800000 stands for 2^128."""
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    if exponent == 0:
        return Fraction(fraction, 1 << 149)
    return Fraction(0x800000 | fraction) * Fraction(2) ** (exponent - 150)


def _last_below(fits: Callable[[Fraction], bool]) -> int:
    """The highest bit pattern up to the largest float that still fits."""
    low, high = 0, LARGEST
    while low < high:
        middle = (low + high + 1) // 2
        if fits(magnitude(middle)):
            low = middle
        else:
            high = middle - 1
    return low


def _choose(bits: int, beyond_middle: int) -> int:
    """bits or bits + 1, by the sign of (exact value - middle); a tie goes to even bits."""
    up = beyond_middle > 0 or (beyond_middle == 0 and bits & 1 == 1)
    if bits + up > LARGEST:
        raise OverflowError("the rounded result is infinite")
    return bits + up


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


class Exact:
    """One binary32 value. Each operator rounds once; a zero result is +0."""

    def __init__(self, value: Fraction | int | float) -> None:
        exact = Fraction(value)
        size = abs(exact)
        bits = _last_below(lambda v: v <= size)
        middle = (magnitude(bits) + magnitude(bits + 1)) / 2
        bits = _choose(bits, _sign(size - middle))
        self.value = magnitude(bits) if exact >= 0 else -magnitude(bits)
        self.bits = bits | (0x80000000 if exact < 0 else 0)

    @classmethod
    def from_bits(cls, bits: int) -> Exact:
        """The float with this bit pattern (finite)."""
        size = magnitude(bits & 0x7FFFFFFF)
        return cls(-size if bits >> 31 else size)

    def __add__(self, other: Exact) -> Exact:
        return Exact(self.value + other.value)

    def __sub__(self, other: Exact) -> Exact:
        return Exact(self.value - other.value)

    def __mul__(self, other: Exact) -> Exact:
        return Exact(self.value * other.value)

    def __truediv__(self, other: Exact) -> Exact:
        return Exact(self.value / other.value)

    def root(self) -> Exact:
        """The correctly rounded square root: squares are compared, no root is ever taken."""
        bits = _last_below(lambda v: v * v <= self.value)
        middle = (magnitude(bits) + magnitude(bits + 1)) / 2
        return Exact.from_bits(_choose(bits, _sign(self.value - middle * middle)))

    def nearest_integer(self) -> int:
        """The integer nearest to it, ties to even."""
        return round(self.value)
