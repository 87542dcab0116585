"""Rows of squares for an output of few bits, made by integers alone.

Squares do not cancel, so what one order's rounding leaves out of another's is far below the last
place of bf16 or f16. It shows where the exact sum lies halfway between two of the output's numbers:
whatever is lost on the way decides to which of them it goes.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from parity.order.tree import Order

TIES = 4  # terms that bring a row to a tie, each smaller than the one before
PLACES = {"f32": 23, "bf16": 7, "f16": 10}  # bits after the first one
# Powers of two, each way, over which the other terms lie. Squares of bf16 have 16 bits: they round
# in f32 only where they lie apart. f16 has no room for more.
SPREADS = {"f32": 1, "bf16": 4, "f16": 3}
F32_DIGITS = 24
LEAST = {"f32": -126, "bf16": -126, "f16": -14}  # exponent of the smallest normal number


def rows_at_ties(order: Order, bits: np.ndarray) -> np.ndarray:
    """float32[rows, n] of uint64[rows, n], all of them random."""
    import numpy as np

    from parity.order.rows import drawn

    n, places, spread = order.tree.n, PLACES[order.dtype], SPREADS[order.dtype]
    whole, exponent = drawn(bits, places, spread)
    # The sum of an f16 output stays below its largest number, whatever n is.
    scale = -(n.bit_length() // 2 + 1) if order.out == "f16" else 0
    if n > TIES:
        chosen = np.argsort(bits, axis=1, kind="stable")[:, :TIES]
        rows = np.arange(len(bits))[:, None]
        whole[rows, chosen] = 0
    w: np.ndarray = np.ldexp(whole.astype(np.float32), exponent + (scale - places))
    if n <= TIES:
        return w
    unit = scale - places - spread  # all terms are whole numbers of 2^unit
    fewest = 1 << max(0, LEAST[order.dtype] - unit)  # an op may drop what is smaller
    totals = _sums_of_squares(whole, exponent + spread, spread)
    for row, (leaves, total) in enumerate(zip(chosen, totals, strict=True)):
        terms = _to_tie(total, 1 + PLACES[order.out], places)
        w[row, leaves] = [term if term >= fewest else 0 for term in terms]
        w[row, leaves] = np.ldexp(w[row, leaves], unit)
    return w


def _sums_of_squares(whole: np.ndarray, exponent: np.ndarray, spread: int) -> list[int]:
    """The exact sum of (whole * 2^exponent)^2 of each row, exponents 0 to 2 * spread."""
    import numpy as np

    squares = np.square(whole.astype(np.int64))
    totals = [0] * len(whole)
    for each in range(2 * spread + 1):
        there = np.where(exponent == each, squares, 0)
        for shift, part in ((24, there >> 24), (0, there & ((1 << 24) - 1))):  # int64 holds them
            for row, found in enumerate(part.sum(axis=1).tolist()):
                totals[row] += found << (shift + 2 * each)
    return totals


def _to_tie(total: int, digits: int, places: int) -> list[int]:
    """Whole numbers of ``places`` bits after the first one whose squares bring ``total`` near a
    number halfway between two of ``digits`` bits: half of f32's last place beside it, on the side
    where the tie does not go. There each way to round the sum to f32 goes to another output."""
    half = 1 << max(0, total.bit_length() - digits - 1)
    beside = 1 << max(0, total.bit_length() - F32_DIGITS - 1)
    left = -1
    lower = total // (2 * half)
    while left < 0:  # an even one takes the tie, and is left by what lies above it
        left = (2 * lower + 1) * half + (-beside if lower % 2 else beside) - total
        lower += 1
    terms = []
    for _ in range(TIES):
        root = isqrt(left)
        cut = max(0, root.bit_length() - places - 1)
        term = root >> cut << cut
        terms.append(term)
        left -= term * term
    return terms
