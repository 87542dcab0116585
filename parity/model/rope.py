"""The rotary frequencies (contract 1.7), computed with more than f64 precision."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np


def inv_freq(theta: float, rot_dim: int) -> np.ndarray:
    """The f32 nearest to theta^(-2i/rot_dim) for i in 0 .. rot_dim/2 - 1, float32[rot_dim/2].

    Decimal arithmetic of 40 digits, then one rounding to f32.
    """
    with localcontext() as context:
        context.prec = 40
        log_theta = Decimal(theta).ln()
        exact = [
            (-(2 * i) * log_theta / rot_dim).exp() if i else Decimal(1) for i in range(rot_dim // 2)
        ]
    return np.array([nearest_f32(Fraction(value)) for value in exact], np.float32)


def nearest_f32(value: Fraction) -> np.float32:
    """The float32 nearest to a positive exact value (ties to even are not met here)."""
    guess = np.float32(float(value))
    around = (np.nextafter(guess, np.float32(0)), guess, np.nextafter(guess, np.float32(np.inf)))
    return min(around, key=lambda candidate: abs(Fraction(float(candidate)) - value))
