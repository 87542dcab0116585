"""Angles reduced to a quadrant and at most pi/4, in 128-bit integers: no rounding but the last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

# x = m * 2^e with a 24-bit integer m; e of 1/2 and of the largest float32.
LOWEST, HIGHEST = -24, 104
# The turns are kept modulo 4 in 2 integer bits and FRACTION others: four words of 32 bits.
FRACTION = 126
_LOW = np.uint64(0xFFFFFFFF)
_WORD, _TOP = np.uint64(32), np.uint64(62)
_HALF_TURN = np.uint64(1 << 61)
_PI_OVER_2 = np.float64(np.pi / 2)


class Quadrants:
    """``two_over_pi(bits)`` gives floor(2/pi * 2^bits)."""

    def __init__(self, two_over_pi: Callable[[int], int]) -> None:
        powers = range(LOWEST, HIGHEST + 1)
        turns = [two_over_pi(FRACTION + e) % (1 << (FRACTION + 2)) for e in powers]
        # 2^e * 2/pi modulo 4, cut to FRACTION bits, lowest word first
        self._words = [
            np.array([(turn >> shift) & 0xFFFFFFFF for turn in turns], np.uint64)
            for shift in (0, 32, 64, 96)
        ]

    def reduce(self, x: Floats) -> tuple[npt.NDArray[np.int64], Doubles]:
        """Quadrant (0 to 3) and angle r, |r| up to pi/4, of each x = quadrant * pi/2 + r modulo 2
        pi. x: (n,) float32, 1/2 and more in size; what is not finite gives nonsense.

        m times a cut word errs by 2^-102 quadrants. No float32 comes closer to a multiple of pi/2
        than some 2^-30, so r is as good as its float64 rounding: a few times 2^-53 of its size.
        """
        bits = x.view(np.uint32)
        m = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x800000)).astype(np.uint64)
        e = np.minimum((bits >> np.uint32(23)) & np.uint32(0xFF), np.uint32(HIGHEST + 150))
        at = e.astype(np.intp) - (LOWEST + 150)
        high, low = self._product(m, at)
        quadrant = (high + _HALF_TURN) >> _TOP
        rest = (high - (quadrant << _TOP)).view(np.int64)
        turns = np.ldexp(np.float64(rest), -62) + np.ldexp(np.float64(low), -FRACTION)
        negative = (bits >> np.uint32(31)).view(np.int32) != 0
        signed = np.where(negative, -np.int64(quadrant), np.int64(quadrant)) & 3
        return signed, np.where(negative, -turns, turns) * _PI_OVER_2

    def _product(self, m: Words, at: npt.NDArray[np.intp]) -> tuple[Words, Words]:
        """m * 2^e * 2/pi modulo 4: the high and the low 64 of FRACTION + 2 bits."""
        p0, p1, p2, p3 = (m * words[at] for words in self._words)
        p1 = p1 + (p0 >> _WORD)
        p2 = p2 + (p1 >> _WORD)
        p3 = p3 + (p2 >> _WORD)
        return (p3 << _WORD) | (p2 & _LOW), (p1 << _WORD) | (p0 & _LOW)
