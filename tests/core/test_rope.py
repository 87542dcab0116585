"""The rotary frequencies: the float32 nearest to the exact value, by another formula (1.7)."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from parity.model.config import PRESETS
from parity.model.rope import inv_freq, nearest_f32

SIZES = sorted(
    {(config.theta, config.rot_dim) for config in PRESETS.values()}
    | {(1e6, 128), (1e7, 64), (1e7, 24), (1e7, 8), (1e4, 2), (5e5, 80)}
)


def exact(theta: float, rot_dim: int, i: int) -> Fraction:
    """theta^(-2i/rot_dim) by decimal power, 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Fraction(Decimal(theta) ** (Decimal(-2 * i) / Decimal(rot_dim)))


def not_nearest(values: np.ndarray, theta: float, rot_dim: int) -> list[int]:
    """Indices whose value has a neighbour that is nearer to the exact one."""
    found = []
    for i, value in enumerate(values):
        wanted = exact(theta, rot_dim, i)
        around = (np.nextafter(value, np.float32(to)) for to in (0, np.inf))
        distance = abs(Fraction(float(value)) - wanted)
        if any(abs(Fraction(float(other)) - wanted) < distance for other in around):
            found.append(i)
    return found


@pytest.mark.parametrize(("theta", "rot_dim"), SIZES)
def test_every_frequency_is_the_nearest(theta: float, rot_dim: int) -> None:
    made = inv_freq(theta, rot_dim)
    assert (made.dtype, made.shape) == (np.float32, (rot_dim // 2,))
    assert not_nearest(made, theta, rot_dim) == []
    assert float(made[0]) == 1.0
    assert (np.diff(made) < 0).all()


def test_red_one_unit_off() -> None:
    made = inv_freq(1e6, 96)
    made[17] = np.nextafter(made[17], np.float32(np.inf))
    made[31] = np.nextafter(made[31], np.float32(0))
    assert not_nearest(made, 1e6, 96) == [17, 31]


def test_red_powers_in_float32() -> None:
    """What a runtime that computes them in float32 gets: other values."""
    exponents = np.arange(0, 96, 2, dtype=np.float32) / np.float32(96)
    made = (np.float32(1) / np.float32(1e6) ** exponents).astype(np.float32)
    assert len(not_nearest(made, 1e6, 96)) > 5


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (Fraction(1), 0x3F800000),
        (1 + Fraction(1, 1 << 24) + Fraction(1, 1 << 60), 0x3F800001),
        (1 + Fraction(1, 1 << 24) - Fraction(1, 1 << 60), 0x3F800000),
        (Fraction(1, 3), 0x3EAAAAAB),
    ],
)
def test_nearest_f32(value: Fraction, bits: int) -> None:
    """A double in between would round twice: 1 + 2^-24 + 2^-60 is above the tie, not on it."""
    assert int(nearest_f32(value).view(np.uint32)) == bits
