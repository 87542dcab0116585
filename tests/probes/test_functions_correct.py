"""Correct rounding against precise values rounded by exact integers, and how it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt
import pytest

from parity.elementary.functions import FUNCTIONS, open_implementation
from parity.errors import NotRunError
from parity_probes import correct_functions
from parity_probes.correct_functions import ASSUMED, CorrectlyRounded, platform_errors
from parity_probes.exact_functions import ExactFunctions
from tests.oracle.rounding import float32_from_fraction

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint32]

SEED = 20_261_201
POINTS = 3_000
QUIET = 0x00400000
# Where the results change kind: specials, subnormals, overflow, underflow, constant ends.
EDGES = [
    0x00000000, 0x00000001, 0x00000002, 0x00000003, 0x007FFFFE, 0x007FFFFF, 0x00800000, 0x00800001,
    0x00FFFFFF, 0x01000001, 0x20000000, 0x21800000, 0x33000000, 0x33800000, 0x39000000, 0x3C000000,
    0x3F000000, 0x3F490FDA, 0x3F490FDB, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC90FDB, 0x40490FDB,
    0x41A00000, 0x41A00001, 0x42AEAC4F, 0x42AEAC50, 0x42B17217, 0x42B17218, 0x42CFF1B4, 0x42CFF1B5,
    0x42D00000, 0x4B800000, 0x4B800455, 0x4F490FDB, 0x50A3E87F, 0x73DAADEC, 0x7F7FFFFF,
]  # fmt: skip


@pytest.fixture(scope="module")
def correct() -> CorrectlyRounded:
    return CorrectlyRounded()


@pytest.fixture
def precise() -> Iterator[None]:
    """gmpy2 with many bits, more than the code under test uses."""
    with gmpy2.context(precision=600):
        yield


def true_value(function: str, x: float) -> Fraction:
    """``function`` of a finite x to 600 bits."""
    given = gmpy2.mpfr(x)
    e_minus = gmpy2.exp(-given)
    values = {
        "expf": lambda: gmpy2.exp(given),
        "cosf": lambda: gmpy2.cos(given),
        "sinf": lambda: gmpy2.sin(given),
        "logf": lambda: gmpy2.log(given),
        "rsqrt": lambda: 1 / gmpy2.sqrt(given),
        "sigmoid": lambda: 1 / (1 + e_minus),
        "silu": lambda: given / (1 + e_minus),
        "softplus": lambda: gmpy2.log(1 + gmpy2.exp(given)) if x < 100 else given,
    }
    value = values[function]()
    numerator, denominator = value.as_integer_ratio()
    return Fraction(int(numerator), int(denominator))


def by_integers(function: str, x: Floats) -> Bits:
    """The nearest float32 of each true value; a zero keeps the sign of the exact result."""
    found = []
    for value in x.tolist():
        exact = true_value(function, value)
        rounded = np.float32(float32_from_fraction(exact))
        negative = exact < 0 or (exact == 0 and np.signbit(np.float32(value)))
        found.append(-abs(rounded) if negative and function != "softplus" else rounded)
    return np.array(found, np.float32).view(np.uint32)


def arguments(function: str) -> Floats:
    """Edges and their neighbours of both signs, random bit patterns, and common arguments; for the
    exponentials none whose exact value is beyond float64."""
    rng = np.random.default_rng(SEED)
    edges = np.array(EDGES, np.uint32)
    random = rng.integers(0, 2**32, POINTS, dtype=np.uint32)
    common = rng.normal(0, 10, POINTS).astype(np.float32).view(np.uint32)
    bits = np.concatenate([edges, edges + 1, random, common])
    both = np.concatenate([bits, bits ^ np.uint32(0x80000000)]).view(np.float32)
    kept = both[np.isfinite(both)]
    if function in ("logf", "rsqrt"):
        return kept[kept > 0]
    return kept if function in ("cosf", "sinf") else kept[np.abs(kept) < 300]


def words(values: Any) -> list[str]:
    return [f"{int(value):08x}" for value in values]


@pytest.mark.usefixtures("precise")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_random_and_boundary_arguments(correct: CorrectlyRounded, function: str) -> None:
    x = arguments(function)
    assert x.size > 3_000
    wrong = correct.evaluate(function, x).view(np.uint32) != by_integers(function, x)
    assert words(x[wrong].view(np.uint32)) == []


# Function, argument, result.
SPECIALS = [
    ("expf", "7f800000", "7f800000"), ("expf", "ff800000", "00000000"),
    ("expf", "42b17218", "7f800000"), ("expf", "7f7fffff", "7f800000"),
    ("expf", "ff7fffff", "00000000"), ("expf", "c2cff1b4", "00000001"),
    ("expf", "c2cff1b5", "00000000"), ("expf", "80000000", "3f800000"),
    ("cosf", "7f800000", "7fc00000"), ("cosf", "ff800000", "7fc00000"),
    ("sinf", "7f800000", "7fc00000"), ("sinf", "80000000", "80000000"),
    ("sinf", "80000001", "80000001"), ("sinf", "00000000", "00000000"),
    ("logf", "00000000", "ff800000"), ("logf", "80000000", "ff800000"),
    ("logf", "80000001", "7fc00000"), ("logf", "ff800000", "7fc00000"),
    ("logf", "7f800000", "7f800000"), ("logf", "3f800000", "00000000"),
    ("rsqrt", "00000000", "7f800000"), ("rsqrt", "80000000", "ff800000"),
    ("rsqrt", "7f800000", "00000000"), ("rsqrt", "bf800000", "7fc00000"),
    ("rsqrt", "00000001", "64b504f3"), ("rsqrt", "7f7fffff", "1f800000"),
    ("sigmoid", "7f800000", "3f800000"), ("sigmoid", "ff800000", "00000000"),
    ("sigmoid", "80000000", "3f000000"), ("sigmoid", "ff7fffff", "00000000"),
    ("silu", "7f800000", "7f800000"), ("silu", "ff800000", "80000000"),
    ("silu", "80000000", "80000000"), ("silu", "00000001", "00000001"),
    ("silu", "80000001", "80000000"), ("silu", "ff7fffff", "80000000"),
    ("softplus", "7f800000", "7f800000"), ("softplus", "ff800000", "00000000"),
    ("softplus", "00000000", "3f317218"), ("softplus", "7f7fffff", "7f7fffff"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "x", "result"), SPECIALS)
def test_specials(correct: CorrectlyRounded, function: str, x: str, result: str) -> None:
    given = np.array([int(x, 16)], np.uint32).view(np.float32)
    assert words(correct.evaluate(function, given).view(np.uint32)) == [result]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nan_keeps_sign_and_payload(correct: CorrectlyRounded, function: str) -> None:
    bits = np.array([0x7FC00000, 0x7F800001, 0xFF812345, 0xFFFFFFFF], np.uint32)
    found = correct.evaluate(function, bits.view(np.float32)).view(np.uint32)
    assert words(found) == words(bits | QUIET)


# x, cos, sin: correctly rounded; the UCRT's are the same here.
LARGE_ANGLES = [
    (1, "3f0a5140", "3f576aa4"),
    (40, "bf2abc74", "3f3ebfbc"),
    (2000, "bebc23a8", "3f6e1712"),
    (48039, "bf1dc737", "bf499946"),
    (131071, "bf51675e", "bf13430a"),
    (500000, "bf7beb6c", "3e361962"),
    (16793388, "be758c73", "bf7887ea"),
    (1e10, "3f5f84c5", "bef99a64"),
]


@pytest.mark.parametrize("name", ["correct", "ucrt"])
def test_large_angles(name: str) -> None:
    opened = open_implementation(name)
    x = np.array([row[0] for row in LARGE_ANGLES], np.float32)
    assert words(opened.evaluate("cosf", x).view(np.uint32)) == [row[1] for row in LARGE_ANGLES]
    assert words(opened.evaluate("sinf", x).view(np.uint32)) == [row[2] for row in LARGE_ANGLES]


def test_red_large_angles_by_a_short_reduction() -> None:
    """A reduction in float32 alone is wrong in most rows."""
    x = np.array([row[0] for row in LARGE_ANGLES], np.float32)
    turns = np.round(np.float32(x) / np.float32(2 * np.pi))
    short = np.cos(x - turns * np.float32(2 * np.pi)).astype(np.float32).view(np.uint32)
    rows = [row[1] for row in LARGE_ANGLES]
    assert [a == b for a, b in zip(words(short), rows, strict=True)].count(False) >= 6


def test_hard_cases_are_few(correct: CorrectlyRounded) -> None:
    rng = np.random.default_rng(SEED)
    x = rng.uniform(-80, 80, 1 << 20).astype(np.float32)
    before = correct.hard
    correct.evaluate("expf", x)
    assert 0 < correct.hard - before < 60


def test_every_argument_by_mpfr_gives_the_same(
    correct: CorrectlyRounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(SEED).normal(0, 10, 2_000).astype(np.float32)
    x = x[np.abs(x) > 0.01]
    wanted = {f: correct.evaluate(f, np.abs(x)).tobytes() for f in FUNCTIONS}
    monkeypatch.setattr(correct_functions, "MARGIN", 1e-5)
    before = correct.hard
    assert {f: correct.evaluate(f, np.abs(x)).tobytes() for f in FUNCTIONS} == wanted
    assert correct.hard - before > 0.98 * x.size * (len(FUNCTIONS) - 1)


# --- what is assumed of float64 -----------------------------------------------------------------

CALLED = ("exp", "log", "log1p", "sin", "cos")


def disturbed(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    """NumPy's float64 functions, each result off by ``size`` of itself, up or down at random."""
    for name in CALLED:
        plain = getattr(np, name)

        def off(x: Any, plain: Any = plain) -> Any:
            y = plain(x)
            if np.asarray(x).dtype != np.float64:
                return y
            signs = np.where(np.random.default_rng(SEED).integers(0, 2, np.shape(y)), 1, -1)
            return y * (1.0 + size * signs)

        monkeypatch.setattr(correct_functions.np, name, off)


def near_boundaries(correct: CorrectlyRounded, function: str) -> Floats:
    """Arguments whose float64 estimate is closest to a boundary of float32, by a sample."""
    x = np.random.default_rng(SEED).uniform(-80, 80, 1 << 19).astype(np.float32)
    x = np.abs(x) if function in ("logf", "rsqrt") else x
    y = correct._estimates[function](x)
    place = np.abs((y.view(np.uint64) & np.uint64((1 << 29) - 1)).astype(np.int64) - (1 << 28))
    return x[np.argsort(place)[:3_000]]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_assumed_error_leaves_every_result_right(
    correct: CorrectlyRounded, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    x = near_boundaries(correct, function)
    wanted = correct.evaluate(function, x).tobytes()
    disturbed(monkeypatch, ASSUMED)
    assert correct.evaluate(function, x).tobytes() == wanted


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name != "rsqrt"])
def test_red_a_larger_error_is_seen(
    correct: CorrectlyRounded, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    x = near_boundaries(correct, function)
    wanted = correct.evaluate(function, x).view(np.uint32).copy()
    disturbed(monkeypatch, 1e-10)
    assert np.count_nonzero(correct.evaluate(function, x).view(np.uint32) != wanted) > 10
    with pytest.raises(NotRunError, match=r"NumPy's float64 functions err by 1\.0e-10"):
        CorrectlyRounded()


def test_this_platform_is_far_better_than_assumed() -> None:
    errors = platform_errors(ExactFunctions())
    assert set(errors) == set(CALLED)
    assert max(errors.values()) < 1e-15


# --- angles -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("precise")
def test_reduction_of_every_size() -> None:
    """Quadrant and angle of random arguments, of the nearest ones to a multiple of pi/2, and of
    the largest, against 600 bits."""
    rng = np.random.default_rng(SEED)
    random = rng.integers(0x3F490FDB, 0x7F800000, 2_000, dtype=np.uint32)
    bits = np.concatenate([random, random | 0x80000000, [0x50A3E87F, 0x73DAADEC, 0x7F7FFFFF]])
    x = bits.astype(np.uint32).view(np.float32)
    quadrant, angle = correct_functions.Quadrants(ExactFunctions().two_over_pi).reduce(x)
    for value, n, r in zip(x.tolist(), quadrant.tolist(), angle.tolist(), strict=True):
        turns = gmpy2.rint(gmpy2.mpfr(value) * 2 / gmpy2.const_pi())
        rest = gmpy2.mpfr(value) - turns * gmpy2.const_pi() / 2
        assert n == int(turns) % 4
        assert abs(r / rest - 1) < 2.0**-51


def test_shapes_and_layouts(correct: CorrectlyRounded) -> None:
    x = np.random.default_rng(SEED).normal(0, 9, 100_003).astype(np.float32)
    whole = correct.evaluate("sinf", x)
    assert whole.dtype == np.float32
    assert correct.evaluate("sinf", x[::-3]).tobytes() == whole[::-3].tobytes()
    assert correct.evaluate("sinf", x[:0]).shape == (0,)
