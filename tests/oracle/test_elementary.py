"""expf, cosf, sinf, logf against recorded results, special values, and planted impostors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.oracle import elementary, scalar
from tests.oracle.elementary import Float32Function, bits32, float32
from tests.oracle.exact import Exact

GOLDEN = Path(__file__).parents[1] / "golden"
POINTS = 300
F = np.float32


def _log(x: float) -> float:
    if x == 0.0:
        return -math.inf
    return math.log(x) if x > 0.0 else math.nan


def _periodic(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else math.nan


def _exp(x: float) -> float:
    return math.exp(x) if x < 700.0 else x * math.inf


# Binary64 and one rounding: correctly rounded, near-ties aside. What a replica must not be.
IMPOSTORS: dict[str, Callable[[float], float]] = {
    "expf": _exp,
    "cosf": _periodic(math.cos),
    "sinf": _periodic(math.sin),
    "logf": _log,
}


def _impostor_bits(name: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        values = [F(IMPOSTORS[name](float(v))) for v in x.view(F)]
    return np.array(values, F).view(np.uint32)


def golden_points(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Argument and result bits: ends, an even spread, and as many hard points again."""
    with np.load(GOLDEN / f"ucrt_{name}.npz") as stored:
        x, y = stored["x"], stored["y"]
    even = np.unique(np.linspace(0, x.size - 1, POINTS).astype(np.int64))
    sample = np.linspace(1, x.size - 2, 40 * POINTS).astype(np.int64)
    hard = sample[_impostor_bits(name, x[sample]) != y[sample]][:POINTS]
    chosen = np.concatenate([np.arange(40), even, hard, np.arange(x.size - 40, x.size)])
    return x[chosen], y[chosen]


def _wrong(function: Float32Function, x: np.ndarray, y: np.ndarray) -> int:
    """How many results differ; any NaN stands for any other."""
    count = 0
    for argument, result in zip(x.tolist(), y.tolist(), strict=True):
        got = bits32(function(float32(argument)))
        both_nan = got & 0x7FFFFFFF > 0x7F800000 and result & 0x7FFFFFFF > 0x7F800000
        count += got != result and not both_nan
    return count


@pytest.mark.parametrize("name", IMPOSTORS)
def test_golden_points(name: str) -> None:
    """Recorded results, the hard ones among them, come out bit for bit."""
    x, y = golden_points(name)
    assert x.size > 2 * POINTS
    assert _wrong(getattr(elementary, name), x, y) == 0


@pytest.mark.parametrize("name", IMPOSTORS)
def test_a_correctly_rounded_impostor_is_noticed(name: str) -> None:
    """The chosen points tell the UCRT's function from a correctly rounded one."""
    x, y = golden_points(name)
    impostor = IMPOSTORS[name]
    with np.errstate(all="ignore"):
        assert _wrong(lambda v: F(impostor(float(v))), x, y) > 100


@pytest.mark.parametrize(
    ("name", "argument", "result"),
    [
        ("expf", 0xFF800000, 0x00000000),
        ("expf", 0x7F800000, 0x7F800000),
        ("expf", 0x42B17217, 0x7F7FFF84),
        ("expf", 0x42B17218, 0x7F800000),
        ("expf", 0xC2CFF1B4, 0x00000001),
        ("expf", 0xC2CFF1B5, 0x00000000),
        ("expf", 0x80000000, 0x3F800000),
        ("expf", 0x7FA00001, 0x7FE00001),
        ("cosf", 0x7F800000, 0xFFC00000),
        ("sinf", 0xFF800000, 0xFFC00000),
        ("sinf", 0x80000000, 0x80000000),
        ("sinf", 0x00000001, 0x00000001),
        ("cosf", 0x73DAADEC, 0xBEED5AC6),
        ("sinf", 0x73DAADEC, 0x3F62D466),
        ("logf", 0x00000000, 0xFF800000),
        ("logf", 0xBF800000, 0xFFC00000),
        ("logf", 0x7F800000, 0x7F800000),
        ("logf", 0x3F6FFFFF, 0xBD842CCE),
        ("logf", 0x3F700000, 0xBD842CC6),
        ("logf", 0x007FFFFF, 0xC2AEAC50),
    ],
)
def test_special_values(name: str, argument: int, result: int) -> None:
    """Infinities, zeros, NaN and the bounds of the ranges."""
    assert bits32(getattr(elementary, name)(float32(argument))) == result


def test_sigmoid_and_silu_round_each_step() -> None:
    """1.9: 1 / (1 + expf(-x)), then x times that; expf(bfe55c35) = 3e2aa58e."""
    x = Exact.from_bits(0x3FE55C35)
    sigmoid = Exact(1) / (Exact(1) + Exact.from_bits(0x3E2AA58E))
    assert bits32(scalar.sigmoid(float32(x.bits))) == sigmoid.bits
    assert bits32(scalar.silu(float32(x.bits))) == (x * sigmoid).bits
    assert (
        bits32(scalar.silu(float32(x.bits))) != (x / (Exact(1) + Exact.from_bits(0x3E2AA58E))).bits
    )


def test_softplus_threshold() -> None:
    """1.9: above 20 it is x itself; below, logf(1 + expf(x)), which is not x.

    Between 15 and 88.7 the two agree, so a threshold of 15 instead of 20 cannot be seen; one of
    10, or none at all, can.
    """
    above, below = F(100.0), float32(0x41673408)
    assert bits32(scalar.softplus(above)) == bits32(above)
    assert bits32(elementary.logf(F(F(1.0) + elementary.expf(above)))) == 0x7F800000
    assert bits32(scalar.softplus(below)) != bits32(below)
    assert bits32(scalar.softplus(F(0.0))) == 0x3F317218
    assert bits32(scalar.softplus(F(20.0))) == bits32(F(20.0))
