"""Rounding, widening, constants and the digest: small parts with exact answers."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from tests.oracle import exact, model, rounding, scalar, storage
from tests.oracle.elementary import bits32, float32
from tests.oracle.exact import Exact

F = np.float32


def _random_fraction(rng: random.Random) -> Fraction:
    """Values over the whole range, half of them at or beside a tie."""
    bits = rng.randrange(0, exact.LARGEST)
    low, high = exact.magnitude(bits), exact.magnitude(bits + 1)
    offset = rng.choice([Fraction(0), Fraction(1, 2), Fraction(rng.random()), Fraction(1, 3)])
    nudge = rng.choice([0, 0, 1, -1]) * Fraction(1, 1 << 400)
    return (low + (high - low) * offset + nudge) * rng.choice([1, -1])


def test_rounding_agrees_with_the_search() -> None:
    """Two unrelated ways to round a fraction to binary32, ties and subnormals included."""
    rng = random.Random(20)
    for _ in range(2000):
        value = _random_fraction(rng)
        got = bits32(rounding.float32_from_fraction(value))
        if value == 0 or exact.magnitude(got & 0x7FFFFFFF) == 0:
            assert got & 0x7FFFFFFF == Exact(value).bits & 0x7FFFFFFF
        else:
            assert got == Exact(value).bits


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (Fraction(2**128 - 2**103 - 1), 0x7F7FFFFF),
        (Fraction(2**128 - 2**103), 0x7F800000),
        (-Fraction(2**200), 0xFF800000),
        (Fraction(1, 2**150), 0x00000000),
        (Fraction(3, 2**150), 0x00000002),
        (Fraction(1, 2**150) + Fraction(1, 2**300), 0x00000001),
        # Rounded to binary64 first this would become a tie, and then 1.
        (1 + Fraction(1, 2**24) + Fraction(1, 2**60), 0x3F800001),
    ],
)
def test_rounding_at_the_edges(value: Fraction, bits: int) -> None:
    """Overflow, underflow, and the double-rounding trap."""
    assert bits32(rounding.float32_from_fraction(value)) == bits


def test_double_rounding_would_be_noticed() -> None:
    """The planted way by binary64 gives another float at the trap."""
    trap = 1 + Fraction(1, 2**24) + Fraction(1, 2**60)
    assert bits32(F(float(trap))) != bits32(rounding.float32_from_fraction(trap))


def test_fma32_rounds_once() -> None:
    """Against exact fractions; the product rounded first must differ somewhere."""
    rng = np.random.Generator(np.random.PCG64(7))
    unlike = 0
    for a, b, c in rng.standard_normal((500, 3)).astype(F):
        value = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        got = rounding.fma32(a, b, c)
        assert bits32(got) == Exact(value).bits
        unlike += bits32(F(F(a * b) + c)) != bits32(got)
    assert unlike > 50


def test_fma32_beside_infinity() -> None:
    """The product of two finite floats is finite before it is rounded."""
    top, inf = np.finfo(F).max, F(np.inf)
    assert rounding.fma32(-top, top, inf) == inf
    assert rounding.fma32(top, top, F(0)) == inf
    with np.errstate(invalid="ignore"):
        assert np.isnan(rounding.fma32(-inf, top, inf))


def test_fma64_rounds_once() -> None:
    """(1 + 2^-52)^2 - 1 keeps its last bit only when the product is not rounded."""
    a = 1.0 + 2.0**-52
    assert rounding.fma64(a, a, -1.0) == 2.0**-51 + 2.0**-104
    assert a * a - 1.0 == 2.0**-51
    assert np.float64(rounding.fma64(-0.0, 1.0, -0.0)).view(np.uint64) == 1 << 63
    assert np.float64(rounding.fma64(1.0, 1.0, -1.0)).view(np.uint64) == 0


def test_every_finite_binary16_widens_exactly() -> None:
    """All 63,488 of them against NumPy's conversion; the rest are refused."""
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    finite = bits[np.isfinite(bits.view(np.float16))]
    widened = np.array([storage.widen_f16(int(b)) for b in finite], F)
    assert finite.size == 63488
    assert widened.tobytes() == finite.view(np.float16).astype(F).tobytes()
    with pytest.raises(ValueError, match="7c00 is not finite"):
        storage.widen_f16(0x7C00)


@pytest.mark.parametrize("head_dim", [1, 2, 8, 13, 32, 64, 80, 96, 112, 128, 192, 256])
def test_softmax_scale_is_the_nearest_float(head_dim: int) -> None:
    """By way of binary64 it is still the nearest binary32 to 1/sqrt(head_dim)."""
    with localcontext() as context:
        context.prec = 60
        nearest = Exact(Fraction(1 / Decimal(head_dim).sqrt()))
    assert bits32(model.softmax_scale(head_dim)) == nearest.bits


@pytest.mark.parametrize(("theta", "rot_dim"), [(1e4, 8), (1e6, 96), (1e6, 128), (1e7, 64)])
def test_inv_freq_is_the_nearest_float(theta: float, rot_dim: int) -> None:
    """f / 2 on either side of f, raised to rot_dim, encloses theta^(-2i): no root is taken."""
    for i, f in enumerate(scalar.inv_freq(theta, rot_dim)):
        bits = bits32(f)
        below = (exact.magnitude(bits - 1) + exact.magnitude(bits)) / 2
        above = (exact.magnitude(bits) + exact.magnitude(bits + 1)) / 2
        target = Fraction(1) / Fraction(theta) ** (2 * i)
        assert below**rot_dim <= target <= above**rot_dim


def _trap_theta() -> float:
    """A theta whose theta^(-1/2) lies just above the middle between 1 and the next float."""
    middle = 1 + Fraction(1, 2**24)
    theta = float(1 / middle**2)
    # theta itself is rounded; step down until the power is surely above the middle.
    while Fraction(theta) * middle**2 >= 1:
        theta = float(np.nextafter(theta, 0.0))
    return theta


def test_inv_freq_is_not_rounded_twice() -> None:
    """Binary64 would turn that power into an exact tie, and the tie into 1."""
    theta = _trap_theta()
    assert bits32(F(theta**-0.5)) == 0x3F800000
    assert bits32(scalar.inv_freq(theta, 4)[1]) == 0x3F800001


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
        (b"\xff" * 16, 0xD6607508F5A1E855),
        (np.float32(0.0).tobytes(), 0x4D25767F9DCE13F5),
        (np.float32(-0.0).tobytes(), 0x4D24F67F9DCD3A75),
        (np.float32(1.0).tobytes(), 0x4B72477F9C5C2F98),
        (np.arange(16, dtype=F).tobytes(), 0x13FDF84D829C1708),
    ],
)
def test_fnv1a64(data: bytes, digest: int) -> None:
    """Published values; the variant that multiplies first differs."""
    assert scalar.fnv1a64(data) == digest
    assert scalar.fnv1a64(data[1:], scalar.fnv1a64(data[:1])) == digest
    swapped = scalar.FNV_BASIS
    for byte in data:
        swapped = ((swapped * scalar.FNV_PRIME) % (1 << 64)) ^ byte
    # A zero byte changes nothing by xor, so only other bytes can tell the two orders apart.
    assert (swapped != digest) == (data.strip(b"\0") != b"")


def test_arithmetic_keeps_subnormals() -> None:
    """The oracle's own machine does not flush: the smallest subnormal survives a product."""
    assert bits32(F(float32(1) * F(1.0))) == 1
    assert bits32(F(float32(0x00800000) * F(0.5))) == 0x00400000
