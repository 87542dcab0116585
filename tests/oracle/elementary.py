"""expf, cosf, sinf, logf of the UCRT, step by step in exact arithmetic (contract 4).

Each takes and returns one np.float32. Binary64 steps are Python floats; each fma is an exact
rational rounded once. The tables are derived from their definitions, not typed in.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, wraps

import numpy as np

from tests.oracle.rounding import float32_from_fraction, fma32, fma64

F = np.float32
Float32Function = Callable[[np.float32], np.float32]


def bits32(x: np.float32) -> int:
    """The bit pattern of one binary32."""
    return int(x.view(np.uint32))


def float32(bits: int) -> np.float32:
    """The binary32 with this bit pattern."""
    return np.uint32(bits).view(np.float32)


def float64(bits: int) -> float:
    """The binary64 with this bit pattern."""
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def _by_bits(function: Float32Function) -> Float32Function:
    """Remember results by bit pattern, so that -0, +0 and NaN payloads stay apart."""

    @lru_cache(maxsize=1 << 17)
    def remembered(bits: int) -> np.float32:
        with np.errstate(all="ignore"):
            return function(float32(bits))

    @wraps(function)
    def call(x: np.float32) -> np.float32:
        return remembered(bits32(F(x)))

    return call


# --- expf ------------------------------------------------------------------------------------

EXP_K = float64(0x40571547652B82FE)
EXP_C = float64(0x3F862E42FEFA39EF)
EXP_S = float64(0x3FC5555555555555)


def _power_table() -> list[float]:
    """RN53(2^(j/64)) for j = 0..63."""
    with localcontext() as context:
        context.prec = 60
        return [float(Fraction(Decimal(2) ** (Decimal(j) / 64))) for j in range(64)]


EXP_T = _power_table()


@_by_bits
def expf(x: np.float32) -> np.float32:
    """exp(x): one binary64 evaluation, one rounding; expf(-inf) = +0."""
    bits = bits32(x)
    size = bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return float32(size | 0x00400000)
    if size == 0x7F800000:
        return F(math.inf) if bits == size else F(0.0)
    wide = float(x)
    t = wide * EXP_K
    if t >= 8192.0:
        return F(math.inf)
    if t < -9600.0:
        return F(0.0)
    # round() of a Python float: ties to even.
    n = round(t)
    j = n & 63
    m = (n - j) // 64
    r = fma64(-float(n), EXP_C, wide)
    inner = fma64(EXP_S, r, 0.5)
    q = fma64(r * r, inner, r)
    y = fma64(q, EXP_T[j], EXP_T[j])
    return F(y * math.ldexp(1.0, m))


# --- cosf and sinf ---------------------------------------------------------------------------

SIN_3 = float64(0xBFC5555555555555)
SIN_5 = float64(0x3F81111111111111)
SIN_7 = float64(0xBF2A01A01A01A01A)
SIN_9 = float64(0x3EC71DE3A556C734)
COS_4 = float64(0x3FA5555555555555)
COS_6 = float64(0xBF56C16C16C16C16)
COS_8 = float64(0x3EFA01A01A01A019)
COS_10 = float64(0xBE927E4FB7789F5C)
SIXTH = float64(0x3FC5555555555555)
TWO_OVER_PI = float64(0x3FE45F306DC9C883)
HALF_PI_HIGH = float64(0x3FF921FB54400000)
HALF_PI_LOW = float64(0x3DD0B4611A626331)
HALF_PI = float64(0x3FF921FB54442D18)
HALF_PI_1 = float64(0x3FF921FB50000000)
HALF_PI_2 = float64(0x3E5110B460000000)
HALF_PI_3 = float64(0x3C91A62633145C06)
# floor(2/pi * 2^250), read as little-endian bytes.
TWO_OVER_PI_BITS = int("28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef15", 16)
MASK64 = (1 << 64) - 1
MASK192 = (1 << 192) - 1


def sin_polynomial(r: float) -> float:
    """SIN(r), odd, degree 9."""
    z = r * r
    p = fma64(z, SIN_9, SIN_7)
    p = fma64(z, p, SIN_5)
    p = fma64(z, p, SIN_3)
    return fma64(p, r * z, r)


def cos_polynomial(r: float) -> float:
    """COS(r), even, degree 10."""
    z = r * r
    p = fma64(z, COS_10, COS_8)
    p = fma64(z, p, COS_6)
    p = fma64(z, p, COS_4)
    half = 0.5 * z
    return fma64(p, z * z, 1.0 - half)


def _medium(size: float) -> tuple[int, float]:
    """Quadrant and remainder of a medium |x|, by a two-part pi/2."""
    n = math.trunc(fma64(TWO_OVER_PI, size, 0.5))
    head = fma64(-float(n), HALF_PI_HIGH, size)
    product = float(n) * HALF_PI_LOW
    return n, head - product


def _huge_product(size: float) -> tuple[int, int]:
    """The low 192 bits of |x| * 2/pi at the byte offset its exponent picks, and the shift s."""
    mantissa, exponent = math.frexp(size)
    significand = int(math.ldexp(mantissa, 53))
    unbiased = exponent - 1
    offset = 15 - (unbiased >> 3)
    window = (TWO_OVER_PI_BITS >> (8 * offset)) & MASK192
    return (window * significand) & MASK192, unbiased & 7


def _huge(size: float) -> tuple[int, float, float]:
    """Region, f0 and f1 of a huge |x| (Payne-Hanek, fraction truncated to two doubles)."""
    product, shift = _huge_product(size)
    top = product >> 128
    half = (top >> (53 - shift)) & 1
    region = ((top >> (54 - shift)) + half) & 3
    sign = 1.0
    if half:
        # One's complement, as the routine does it, not two's.
        product ^= MASK192
        sign = -1.0
    product &= (1 << (192 - 10 - shift)) - 1
    h = (product >> 128).bit_length() - 1
    product = (product << (52 - h)) & MASK192
    exponent0 = shift - 54 + h
    f0 = sign * math.ldexp(float(product >> 128), exponent0 - 52)
    word1 = (product >> 64) & MASK64
    g = word1.bit_length() - 1
    below = word1 & ((1 << g) - 1)
    fraction = below << (52 - g) if g <= 52 else below >> (g - 52)
    exponent1 = exponent0 - 116 + g
    f1 = sign * math.ldexp(float((1 << 52) | fraction), exponent1 - 52)
    return region, f0, f1


def _huge_sin(size: float) -> tuple[int, float]:
    region, f0, _ = _huge(size)
    return region, f0 * HALF_PI


def _huge_cos(size: float) -> tuple[int, float]:
    region, f0, f1 = _huge(size)
    raw = struct.unpack("<Q", struct.pack("<d", f0))[0]
    high = float64(raw & 0xFFFFFFFFF8000000)
    low = f0 - high
    c = f0 * HALF_PI
    d = high * HALF_PI_1
    d = d - c
    d = fma64(low, HALF_PI_1, d)
    d = fma64(high, HALF_PI_2, d)
    d = fma64(low, HALF_PI_2, d)
    tail = f1 * HALF_PI
    u = fma64(f0, HALF_PI_3, tail)
    correction = d + u
    return region, c + correction


def _quiet_or_invalid(x: np.float32) -> np.float32:
    """NaN: itself, quieted. Infinity: the invalid result."""
    bits = bits32(x)
    if bits & 0x7FFFFFFF > 0x7F800000:
        return float32(bits | 0x00400000)
    return float32(0xFFC00000)


@_by_bits
def cosf(x: np.float32) -> np.float32:
    """cos(x)."""
    size_bits = bits32(x) & 0x7FFFFFFF
    if size_bits >= 0x7F800000:
        return _quiet_or_invalid(x)
    wide = float(x)
    if size_bits < 0x39000000:
        return F(1.0)
    if size_bits < 0x3C000000:
        half = wide * 0.5
        return F(fma64(-half, wide, 1.0))
    if size_bits <= 0x3F490FDA:
        return F(cos_polynomial(wide))
    n, r = _medium(abs(wide)) if size_bits < 0x4F490FDB else _huge_cos(abs(wide))
    n &= 3
    value = sin_polynomial(r) if n & 1 else cos_polynomial(r)
    return F(-value) if n in (1, 2) else F(value)


@_by_bits
def sinf(x: np.float32) -> np.float32:
    """sin(x)."""
    size_bits = bits32(x) & 0x7FFFFFFF
    if size_bits >= 0x7F800000:
        return _quiet_or_invalid(x)
    wide = float(x)
    if size_bits < 0x39000000:
        return x
    if size_bits < 0x3C000000:
        square = wide * wide
        return F(fma64(-(square * wide), SIXTH, wide))
    if size_bits <= 0x3F490FDA:
        return F(sin_polynomial(wide))
    n, r = _medium(abs(wide)) if size_bits < 0x4B800456 else _huge_sin(abs(wide))
    n &= 3
    value = cos_polynomial(r) if n & 1 else sin_polynomial(r)
    return F(-value) if (n >= 2) != (wide < 0.0) else F(value)


# --- logf ------------------------------------------------------------------------------------


def _truncated(value: Fraction, digits: int) -> Fraction:
    """A positive value cut (not rounded) to so many significant bits."""
    if value == 0:
        return value
    exponent = math.frexp(float(value))[1]
    unit = Fraction(2) ** (exponent - digits)
    return (value // unit) * unit


def _log_tables() -> tuple[list[np.float32], list[np.float32], list[np.float32]]:
    """LEAD, TAIL and FINV for i = 0..128."""
    lead, tail, inverse = [], [], []
    with localcontext() as context:
        context.prec = 60
        context.rounding = ROUND_DOWN
        for i in range(129):
            exact = Fraction((Decimal(128 + i) / 128).ln())
            head = _truncated(exact, 12)
            lead.append(float32_from_fraction(head))
            tail.append(float32_from_fraction(_truncated(exact - head, 24)))
            inverse.append(float32_from_fraction(Fraction(256, 128 + i)))
    return lead, tail, inverse


LOG_LEAD, LOG_TAIL, LOG_FINV = _log_tables()
ONE = F(1.0)
THIRD = float32(0x3EAAAAAB)
EIGHTIETH = float32(0x3C4CCCCD)
TWELFTH = float32(0x3DAAAAAB)
LN2_HIGH = float32(0x3F317000)
LN2_LOW = float32(0x3805FDF4)


def _log_special(x: np.float32) -> np.float32 | None:
    """The result for NaN, infinities, zeros and negative arguments; None for the others."""
    bits = bits32(x)
    if bits & 0x7FFFFFFF > 0x7F800000:
        return float32(bits | 0x00400000)
    if bits == 0x7F800000:
        return x
    if bits & 0x7FFFFFFF == 0:
        return float32(0xFF800000)
    if bits >> 31:
        return float32(0xFFC00000)
    return None


def _log_near_one(d: np.float32) -> np.float32:
    two = F(2.0)
    u = F(d / F(d + two))
    k = F(d * u)
    w = F(u + u)
    v = F(w * w)
    w3 = F(w * v)
    p = fma32(v, EIGHTIETH, TWELFTH)
    return F(d + fma32(p, w3, F(-k)))


def _log_parts(bits: int) -> tuple[np.float32, int]:
    """Exponent (as binary32) and the 23 significand bits of a positive argument."""
    if bits < 0x00800000:
        t = F(float32(bits | 0x3F800000) - ONE)
        return F((bits32(t) >> 23) - 253), bits32(t) & 0x7FFFFF
    return F((bits >> 23) - 127), bits & 0x7FFFFF


@_by_bits
def logf(x: np.float32) -> np.float32:
    """log(x); binary32 throughout."""
    special = _log_special(x)
    if special is not None:
        return special
    d = F(x - ONE)
    if abs(d) < F(0.0625):
        return _log_near_one(d)
    e, f = _log_parts(bits32(x))
    index_bits = (f & 0x7F0000) + ((f & 0x8000) << 1)
    i = index_bits >> 16
    y = float32(f | 0x3F000000)
    # i = 128: the carry runs into the exponent, and F becomes 1.
    centre = float32(index_bits | 0x3F000000) if i < 128 else ONE
    r = F(F(centre - y) * LOG_FINV[i])
    q = fma32(r, THIRD, F(0.5))
    p = fma32(q, F(r * r), r)
    low = F(fma32(e, LN2_LOW, F(-p)) + LOG_TAIL[i])
    high = fma32(e, LN2_HIGH, LOG_LEAD[i])
    return F(high + low)
