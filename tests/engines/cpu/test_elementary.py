"""expf, cosf, sinf, logf against the UCRT's own results, and 1.9 against NumPy. Contract 4, 1.9."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from parity_cpu.ops import elementary
from parity_cpu.ops.elementary import map_elementary
from tests.engines.cpu import ucrt_replica
from tests.engines.cpu.compiled_code import (
    fast_math_lines,
    float64_values,
    fma_instructions,
    host_has_fma,
)

GOLDEN = Path(__file__).parents[2] / "golden"
ROUTINES = ("expf", "cosf", "sinf", "logf")
BUILT_ON_THEM = ("sigmoid", "silu", "softplus")
GOLDEN_POINTS = 200_000
SEED = 20_261_129

Bits = npt.NDArray[np.uint32]
Replica = Callable[..., npt.NDArray[np.float32]]


@pytest.fixture(autouse=True)
def _quiet_numpy() -> Iterator[None]:
    """Overflow and inf - inf belong to these routines; NumPy would warn."""
    with np.errstate(all="ignore"):
        yield


def golden(name: str) -> tuple[Bits, Bits]:
    """Argument bits and result bits of one routine."""
    with np.load(GOLDEN / f"ucrt_{name}.npz") as data:
        return data["x"], data["y"]


def bits_by_numba(name: str, x: Any) -> Bits:
    """Result bits of the Numba twin for argument bits x."""
    arguments = np.ascontiguousarray(x, np.uint32).view(np.float32)
    out = np.full(arguments.shape, np.float32(12345.0))
    map_elementary(name)(out, arguments)
    return out.view(np.uint32)


def bits_by_replica(name: str, x: Bits, changed: str = "") -> Bits:
    """Result bits of the NumPy replica, with one detail changed."""
    replica: Replica = getattr(ucrt_replica, name)
    return replica(x.view(np.float32), changed).view(np.uint32)


def words(values: Any) -> list[str]:
    """Bit patterns as readers of the tables know them."""
    return [f"{int(value):08x}" for value in values]


def in_domain(name: str, x: Bits) -> npt.NDArray[np.bool_]:
    """Where the replica answers: finite, and positive for logf."""
    finite = (x & 0x7FFFFFFF) < 0x7F800000
    return finite & (x > 0) & (x < 0x7F800000) if name == "logf" else finite


# --- the UCRT's results -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUTINES)
def test_golden_points(name: str) -> None:
    x, y = golden(name)
    assert x.size == GOLDEN_POINTS
    assert words(x[bits_by_numba(name, x) != y]) == []


# Argument, then the result of each routine, from worked examples done by hand.
EXAMPLES = [
    ("expf", "bf800000", "3ebc5ab2"),
    ("expf", "3f800000", "402df854"),
    ("expf", "c2890f89", "0e0c39fd"),
    ("expf", "c2cff1b4", "00000001"),
    ("expf", "c2af0000", "006cb2bc"),
    ("expf", "42b17217", "7f7fff84"),
    ("expf", "3c000001", "3f810101"),
    ("expf", "bf008732", "3f1af3ad"),
    ("expf", "bfe55c35", "3e2aa58e"),
    ("expf", "c0d7bffa", "3a9aac74"),
    ("expf", "c14e4ee7", "36289b15"),
    ("expf", "c239b2d3", "1e021819"),
    ("cosf", "3f490fdb", "3f3504f3"),
    ("sinf", "3f490fdb", "3f3504f3"),
    ("cosf", "42c80000", "3f5cc0ee"),
    ("sinf", "42c80000", "bf01a12e"),
    ("cosf", "461c4000", "bf73c074"),
    ("sinf", "461c4000", "be9c797d"),
    ("cosf", "4b800455", "3f27566e"),
    ("sinf", "4b800455", "bf41bcbc"),
    ("cosf", "4f490fda", "3eaa0353"),
    ("sinf", "4f490fda", "3f717974"),
    ("cosf", "4f490fdb", "3f6de695"),
    ("sinf", "4f490fdb", "bebd1862"),
    ("cosf", "50a3e87f", "b10a4ed8"),
    ("sinf", "50a3e87f", "3f800000"),
    ("cosf", "73daadec", "beed5ac6"),
    ("sinf", "73daadec", "3f62d466"),
    ("cosf", "7f7fffff", "3f5a5f96"),
    ("sinf", "7f7fffff", "bf0599b3"),
    ("cosf", "4b800456", "3ed50e37"),
    ("sinf", "4b800456", "3f68c866"),
    ("logf", "3f000000", "bf317218"),
    ("logf", "3f6fffff", "bd842cce"),
    ("logf", "3f700000", "bd842cc6"),
    ("logf", "3f87ffff", "3d785168"),
    ("logf", "3f880000", "3d785186"),
    ("logf", "42c80000", "40935d8e"),
    ("logf", "00000001", "c2ce8ed0"),
    ("logf", "007fffff", "c2aeac50"),
    ("logf", "40490fdb", "3f928683"),
]

SPECIALS = [
    ("expf", "7f800000", "7f800000"),
    ("expf", "ff800000", "00000000"),  # the project's choice: +0
    ("expf", "42b17218", "7f800000"),  # first overflow
    ("expf", "c2cff1b5", "00000000"),  # first zero
    ("expf", "c2aeac4f", "00800026"),  # last normal result
    ("expf", "00000000", "3f800000"),
    ("expf", "80000000", "3f800000"),
    ("expf", "7f800001", "7fc00001"),
    ("expf", "ff812345", "7fc12345"),  # the sign is dropped, the payload kept
    ("cosf", "7f800000", "ffc00000"),
    ("cosf", "ff800000", "ffc00000"),
    ("cosf", "ff812345", "ffc12345"),
    ("cosf", "80000001", "3f800000"),
    ("sinf", "7f800000", "ffc00000"),
    ("sinf", "ff800000", "ffc00000"),
    ("sinf", "7f812345", "7fc12345"),
    ("sinf", "80000000", "80000000"),
    ("sinf", "80000001", "80000001"),
    ("logf", "7f800000", "7f800000"),
    ("logf", "ff800000", "ffc00000"),
    ("logf", "00000000", "ff800000"),
    ("logf", "80000000", "ff800000"),
    ("logf", "80000001", "ffc00000"),
    ("logf", "bf800000", "ffc00000"),
    ("logf", "3f800000", "00000000"),
    ("logf", "ff812345", "ffc12345"),
    ("logf", "7f812345", "7fc12345"),
]


@pytest.mark.parametrize(("name", "x", "result"), EXAMPLES + SPECIALS)
def test_examples_and_specials(name: str, x: str, result: str) -> None:
    assert words(bits_by_numba(name, [int(x, 16)])) == [result]


# x, quadrant, f0, f1, reduced angle of cosf, reduced angle of sinf.
HUGE = [
    ("4f490fdb", 0, "bfced34c3846ba35", "bc708590b83065bb", "bfd835cf8d1b785b", "bfd835cf8d1b785a"),
    ("50a3e87f", 1, "3e16032c95393f01", "3aabffc79436de5d", "3e2149dafd6b8987", "3e2149dafd6b8986"),
    ("73daadec", 1, "3fd3a3ce6949ffa1", "3c6df22183be09c0", "3fded9a8df6286f5", "3fded9a8df6286f4"),
    ("7f7fffff", 0, "bfd65ecad0899482", "bc6f48a7dbca4e54", "bfe191cfe681daf7", "bfe191cfe681daf6"),
    ("4b800456", 1, "bfd17c7ed707e714", "bc62311ba74cfb16", "bfdb77a9a2b5c2f5", "bfdb77a9a2b5c2f4"),
]


@pytest.mark.parametrize(("x", "quadrant", "first", "second", "by_cosf", "by_sinf"), HUGE)
def test_huge_arguments(
    x: str, quadrant: int, first: str, second: str, by_cosf: str, by_sinf: str
) -> None:
    n, f0, f1 = elementary.reduce_huge(np.uint32(int(x, 16)))
    angle = elementary.huge_angle_cos(f0, f1)
    found = np.array([f0, f1, angle, f0 * elementary.PIO2]).view(np.uint64)
    assert n == quadrant
    assert [f"{bits:016x}" for bits in found] == [first, second, by_cosf, by_sinf]


@pytest.mark.parametrize("name", ROUTINES)
def test_random_bit_patterns_against_the_replica(name: str) -> None:
    x = np.random.default_rng(SEED).integers(0, 2**32, 1 << 17, dtype=np.uint32)
    x = x[in_domain(name, x)]
    assert x.size > 60_000
    assert words(x[bits_by_numba(name, x) != bits_by_replica(name, x)]) == []


# --- a changed detail is caught by the golden points --------------------------------------------

# Routine, what is changed, and the exact points that notice it, or how many do at least.
CAUGHT: list[tuple[str, str, list[str] | int]] = [
    ("expf", "r without fma", ["c2890f89"]),
    ("expf", "T*(1+q)", ["be3510e2"]),
    ("expf", "ln 2/64 in two pieces", ["4283070f", "c16912cd"]),
    ("expf", "one more Taylor term", 4_800),
    ("expf", "floor instead of nearest n", 400),
    ("expf", "rounded to float, then scaled", 600),
    ("expf", "subnormal results flushed", 27_000),
    ("cosf", "no 2^-7 branch", 2_700),
    ("sinf", "no 2^-7 branch", 1_500),
    ("sinf", "no 2^-13 branch", ["80000000"]),
    ("cosf", "the other function's huge reduction", ["73daadec", "f3daadec"]),
    ("cosf", "the other function's bound", ["4e0c2583", "ce0c2583"]),
    ("logf", "everything without fma", 2_500),
]

# The points of the golden files whose result is not the correctly rounded one. A libm's float64
# function decides a few near-ties in 2^32 otherwise.
NOT_CORRECTLY_ROUNDED = {"expf": 4_876, "cosf": 14_393, "sinf": 13_163, "logf": 13_841}

# Measured over every float: these change nothing, so a golden point must not notice them either.
HARMLESS = [
    ("expf", "q as r * (1 + ...)"),
    *((name, "polynomials without fma") for name in ("cosf", "sinf")),
    *((name, "c8 nearest to 1/8!") for name in ("cosf", "sinf")),
    *((name, "n without fma") for name in ("cosf", "sinf")),
    *((name, "fused tail product") for name in ("cosf", "sinf")),
    ("sinf", "the other function's huge reduction"),
    ("cosf", "no 2^-13 branch"),
]


def golden_points_noticing(name: str, changed: str) -> list[str]:
    x, y = golden(name)
    kept = in_domain(name, x)
    x, y = x[kept], y[kept]
    return words(x[bits_by_replica(name, x, changed) != y])


@pytest.mark.parametrize("name", ROUTINES)
def test_unchanged_replica_equals_the_golden_points(name: str) -> None:
    assert golden_points_noticing(name, "") == []


@pytest.mark.parametrize(("name", "changed", "points"), CAUGHT)
def test_red_changed_detail(name: str, changed: str, points: list[str] | int) -> None:
    noticed = golden_points_noticing(name, changed)
    if isinstance(points, int):
        assert len(noticed) >= points
    else:
        assert noticed == points


@pytest.mark.parametrize("name", ROUTINES)
def test_red_correctly_rounded_impostor(name: str) -> None:
    noticed = golden_points_noticing(name, "correctly rounded")
    assert abs(len(noticed) - NOT_CORRECTLY_ROUNDED[name]) <= 5


@pytest.mark.parametrize(("name", "changed"), HARMLESS)
def test_harmless_detail_is_not_noticed(name: str, changed: str) -> None:
    assert golden_points_noticing(name, changed) == []


# --- contract 1.9 -------------------------------------------------------------------------------

F = np.float32
# 1 + expf(x) is a tie in binary32: expf(x) = 5 * 2^-24 exactly, and every x with expf(x) in
# [2^24, 2^25); 20 and its neighbours; far tails; zeros, subnormals, infinities; then ordinary ones.
CHOSEN = np.concatenate(
    [
        np.array([0xC1706AE2, 0x41706AE2, 0x80000000, 0, 1, 0x80000001, 0x7F7FFFFF], np.uint32),
        np.array([16.7, 17.0, 17.25, -16.7, -17.0, -16.635532], F).view(np.uint32),
        np.array([20.0, np.nextafter(F(20), F(30)), np.nextafter(F(20), F(0))], F).view(np.uint32),
        np.array([-50.0, -88.0, -103.9, -104.0, -3e38, -np.inf, np.inf], F).view(np.uint32),
        np.random.default_rng(SEED).normal(0, 6, 2_000).astype(F).view(np.uint32),
    ]
)


def sigmoid_by_numpy(x: np.float32) -> np.float32:
    return F(F(1) / F(F(1) + ucrt_replica.expf(np.array([-x], F))[0]))


def silu_by_numpy(x: np.float32) -> np.float32:
    return F(x * sigmoid_by_numpy(x))


def softplus_by_numpy(x: np.float32) -> np.float32:
    if x > F(20):
        return x
    sum_ = F(F(1) + ucrt_replica.expf(np.array([x], F))[0])
    return F(ucrt_replica.logf(np.array([sum_], F))[0])


def softplus_with_20_linear(x: np.float32) -> np.float32:
    return x if x >= F(20) else softplus_by_numpy(x)


def silu_as_one_quotient(x: np.float32) -> np.float32:
    return F(x / F(F(1) + ucrt_replica.expf(np.array([-x], F))[0]))


def scalar_bits(function: Callable[[np.float32], np.float32]) -> Bits:
    return np.array([function(x) for x in CHOSEN.view(F)], F).view(np.uint32)


def points_noticing(name: str, function: Callable[[np.float32], np.float32]) -> list[str]:
    """Chosen points where the twin and a scalar function differ; NaN against NaN is no difference.

    Which payload an operation on two NaNs keeps is not defined (contract 1.10).
    """
    twin, other = bits_by_numba(name, CHOSEN), scalar_bits(function)
    both_nan = np.isnan(twin.view(F)) & np.isnan(other.view(F))
    return words(CHOSEN[(twin != other) & ~both_nan])


def test_the_tie_is_a_tie() -> None:
    assert words(bits_by_numba("expf", [0xC1706AE2])) == words([F(5 * 2.0**-24).view(np.uint32)])


@pytest.mark.parametrize("name", BUILT_ON_THEM)
def test_functions_of_1_9(name: str) -> None:
    assert points_noticing(name, globals()[f"{name}_by_numpy"]) == []


def test_values_of_1_9() -> None:
    minus_zero, one = "80000000", "3f800000"
    assert words(bits_by_numba("sigmoid", [0, 0xC2D00000, 0x42D00000])) == [
        "3f000000",
        "00000000",
        one,
    ]
    assert words(bits_by_numba("silu", [0, 0x80000000, 0xC2D00000])) == [
        "00000000",
        minus_zero,
        minus_zero,
    ]
    assert words(bits_by_numba("softplus", [0, 0xC2D00000, 0x41A00001])) == [
        "3f317218",
        "00000000",
        "41a00001",
    ]


def test_red_bound_of_softplus() -> None:
    # At 20 the logarithm's result is 20 itself, so the bound cannot be told there by its bits:
    # one that lies lower can.
    assert points_noticing("softplus", softplus_with_20_linear) == []
    assert len(points_noticing("softplus", lambda x: x if x > F(8) else softplus_by_numpy(x))) > 100


def test_red_silu_as_one_quotient() -> None:
    assert len(points_noticing("silu", silu_as_one_quotient)) > 100


# --- what was compiled --------------------------------------------------------------------------

FLOAT32_ONLY = ("ucrt_logf", "log_special", "log_near_one", *BUILT_ON_THEM)
WITH_FLOAT64 = ("ucrt_expf", "ucrt_cosf", "ucrt_sinf")


def compiled(name: str) -> Any:
    """One scalar function, compiled for its only signature."""
    function: Any = getattr(elementary, name)
    function(np.uint32(0) if name == "log_special" else np.float32(1.5))
    return function


@pytest.mark.parametrize("name", FLOAT32_ONLY)
def test_no_float64_where_the_contract_has_float32(name: str) -> None:
    assert float64_values(compiled(name)) == []


@pytest.mark.parametrize("name", WITH_FLOAT64)
def test_float64_and_fma_where_the_contract_has_them(name: str) -> None:
    assert float64_values(compiled(name))
    if not host_has_fma():
        pytest.skip("this processor has no fma instruction: the C library's is called")
    assert fma_instructions(compiled(name))


@pytest.mark.parametrize("name", [*FLOAT32_ONLY, *WITH_FLOAT64])
def test_nothing_may_be_contracted(name: str) -> None:
    assert fast_math_lines(compiled(name)) == []


@pytest.mark.parametrize("name", [*FLOAT32_ONLY, *WITH_FLOAT64])
def test_results_are_float32(name: str) -> None:
    overloads = compiled(name).overloads.values()
    assert [str(overload.signature.return_type) for overload in overloads] == ["float32"]


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="no elementary function 'tanhf'; known: expf, cosf"):
        map_elementary("tanhf")


def test_one_loop_a_name() -> None:
    assert map_elementary("expf") is map_elementary("expf")
    assert map_elementary("expf") is not map_elementary("cosf")
