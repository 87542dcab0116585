"""The UCRT routines in NumPy, array at a time, with details that can be changed one by one.

A second implementation of contract 4, without Numba and without a processor's fma (both fma's are
built from error-free sums here). `changed` names the one detail that is done differently, so that
a test can show which golden points notice it; "" is the contract. Specials (NaN, inf, zeros and
negatives of logf) are not here: arguments must be finite, for logf positive.
"""

from decimal import Decimal, localcontext
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from parity_cpu.ops import elementary_tables as tables

Doubles: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.float32]
f32, f64 = np.float32, np.float64

LN2_STEP_HIGH = np.uint64(0x3F862E42F8000000).view(f64)
with localcontext() as _context:
    _context.prec = 50
    LN2_STEP_LOW = f64(Decimal(2).ln() / 64 - Decimal(float(LN2_STEP_HIGH)))
C8_NEAREST = f64(1.0 / 40320.0)
WORD = (1 << 64) - 1


# --- one rounding for a * b + c -----------------------------------------------------------------


def _two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    def halves(v: Doubles) -> tuple[Doubles, Doubles]:
        high = v * 134217729.0
        high = high - (high - v)
        return high, v - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _odd_sum(a: Doubles, b: Doubles) -> Doubles:
    """a + b rounded to odd: inexact results get an odd last bit, so a later rounding is right."""
    total, rest = _two_sum(a, b)
    bits = total.view(np.int64)
    step = np.where((rest > 0) == (total > 0), 1, -1)
    return np.where((rest != 0) & (bits & 1 == 0), bits + step, bits).view(f64)


def fma64(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """a * b + c rounded once, for values far from overflow and underflow (Boldo and Melquiond)."""
    a, b, c = np.broadcast_arrays(*(np.asarray(v, f64) for v in (a, b, c)))
    high, low = _two_product(a, b)
    tail_high, tail_low = _two_sum(c, low)
    head, rest = _two_sum(high, tail_high)
    return head + _odd_sum(tail_low, rest)


def fma32(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c rounded once: the product is exact in float64, the sum rounded to odd there."""
    return _odd_sum(f64(a) * f64(b), f64(c) + np.zeros(np.shape(a))).astype(f32)


# --- expf ---------------------------------------------------------------------------------------


def expf(x: Floats, changed: str = "") -> Floats:
    """Changes: see `EXPF_CHANGES`."""
    if changed == "correctly rounded":
        return np.exp(f64(x)).astype(f32)
    wide = f64(x)
    t = wide * tables.EXP_SCALE
    inside = np.clip(t, -9600.0, 8192.0)
    n = np.floor(inside) if changed == "floor instead of nearest n" else np.rint(inside)
    j = n.astype(np.int64) & 63
    m = ((n - j) / 64).astype(np.int32)
    q = _expf_series(_expf_rest(n, np.clip(wide, -104.0, 89.0), changed), changed)
    e2 = tables.EXP2[j]
    y = e2 * (1.0 + q) if changed == "T*(1+q)" else fma64(q, e2, e2)
    if changed == "rounded to float, then scaled":
        result = np.ldexp(y.astype(f32), m)
    else:
        result = np.ldexp(y, m).astype(f32)
    if changed == "subnormal results flushed":
        result = np.where(result < np.finfo(f32).tiny, f32(0), result)
    return np.where(t >= 8192.0, f32(np.inf), np.where(t < -9600.0, f32(0), result))


def _expf_rest(n: Doubles, wide: Doubles, changed: str) -> Doubles:
    if changed == "r without fma":
        return wide - n * tables.EXP_STEP
    if changed == "ln 2/64 in two pieces":
        return fma64(-n, LN2_STEP_LOW, fma64(-n, LN2_STEP_HIGH, wide))
    return fma64(-n, tables.EXP_STEP, wide)


def _expf_series(r: Doubles, changed: str) -> Doubles:
    if changed == "q as r * (1 + ...)":
        return r * (1.0 + r * (0.5 + r * tables.SIXTH))
    inner = fma64(tables.SIXTH, r, f64(0.5))
    if changed == "one more Taylor term":
        inner = fma64(r * r, f64(1.0 / 24.0), inner)
    return fma64(r * r, inner, r)


# --- cosf and sinf ------------------------------------------------------------------------------


def _fma_as_231(z: Doubles, p: Doubles, c: Doubles) -> Doubles:
    """z * c + p: a disassembled vfmadd213 (z * p + c) read as if it were a vfmadd231."""
    return fma64(z, c, p)


def sin_polynomial(r: Doubles, changed: str = "") -> Doubles:
    z = r * r
    if changed == "fma operands as 231":
        return _polynomial_as_231(z, (tables.S9, tables.S7, tables.S5, tables.S3), r * z, r)
    if changed == "polynomials without fma":
        p = tables.S3 + z * (tables.S5 + z * (tables.S7 + z * tables.S9))
        return r + p * (r * z)
    p = fma64(z, fma64(z, fma64(z, tables.S9, tables.S7), tables.S5), tables.S3)
    return fma64(p, r * z, r)


def _polynomial_as_231(
    z: Doubles, terms: tuple[np.float64, ...], last: Doubles, rest: Doubles
) -> Doubles:
    p, *others = terms
    for term in others:
        p = _fma_as_231(z, p, term)
    return _fma_as_231(last, p, rest)


def cos_polynomial(r: Doubles, changed: str = "") -> Doubles:
    z = r * r
    if changed == "fma operands as 231":
        terms = (tables.C10, tables.C8, tables.C6, tables.C4)
        return _polynomial_as_231(z, terms, z * z, 1.0 - 0.5 * z)
    if changed == "polynomials without fma":
        p = tables.C4 + z * (tables.C6 + z * (tables.C8 + z * tables.C10))
        return (1.0 - 0.5 * z) + p * (z * z)
    c8 = C8_NEAREST if changed == "c8 nearest to 1/8!" else tables.C8
    p = fma64(z, fma64(z, fma64(z, tables.C10, c8), tables.C6), tables.C4)
    return fma64(p, z * z, 1.0 - 0.5 * z)


def _reduce_medium(a: Doubles, changed: str) -> tuple[npt.NDArray[np.int64], Doubles]:
    if changed == "n without fma":
        n = np.trunc(a * tables.TWO_OVER_PI + 0.5)
    else:
        n = np.trunc(fma64(tables.TWO_OVER_PI, a, f64(0.5)))
    head = fma64(-n, tables.P1, a)
    if changed == "fused tail product":
        return n.astype(np.int64), fma64(-n, tables.P2, head)
    return n.astype(np.int64), head - n * tables.P2


def huge_parts(ax: int) -> tuple[int, float, float]:
    """Quadrant, f0 and f1 of one huge float (bits without the sign), by Python's integers."""
    e, significand = (ax >> 23) - 127, ((ax & 0x7FFFFF) | 0x800000) << 29
    s = e & 7
    words = sum(int(tables.TWO_OVER_PI_WORDS[15 - (e >> 3) + 8 * k]) << 64 * k for k in range(3))
    product = words * significand % (1 << 192)
    half = product >> (181 - s) & 1
    n = ((product >> (182 - s)) + half) & 3
    if half:
        product ^= (1 << 192) - 1
    product %= 1 << (182 - s)
    length = product.bit_length() - 128
    product = product << (53 - length) & ((1 << 192) - 1)
    exponent = s - 54 + length - 1
    second = product >> 64 & WORD
    g = second.bit_length() - 1
    below = ((second << (63 - g)) & WORD) >> 11
    sign = -1.0 if half else 1.0
    f0 = np.ldexp(float(product >> 128), exponent - 52)
    f1 = np.ldexp(float(below), exponent - 116 + g - 52)
    return n, float(sign * f0), float(sign * f1)


def huge_angle_cos(f0: Doubles, f1: Doubles) -> Doubles:
    high = (f0.view(np.uint64) & np.uint64(0xFFFFFFFFF8000000)).view(f64)
    low = f0 - high
    c = f0 * tables.PIO2
    d = high * tables.Q1 - c
    for part, piece in ((low, tables.Q1), (high, tables.Q2), (low, tables.Q2)):
        d = fma64(part, piece, d)
    return c + (d + fma64(f0, tables.Q3, f1 * tables.PIO2))


def _reduce_huge(
    ax: npt.NDArray[np.uint32], three_pieces: bool
) -> tuple[npt.NDArray[np.int64], Doubles]:
    parts = [huge_parts(int(bits)) for bits in ax]
    n, f0, f1 = (np.array([part[k] for part in parts], f64) for k in range(3))
    return n.astype(np.int64), huge_angle_cos(f0, f1) if three_pieces else f0 * tables.PIO2


def cosf(x: Floats, changed: str = "") -> Floats:
    """Changes: see `TRIG_CHANGES`."""
    return _trig(x, changed, is_cos=True)


def sinf(x: Floats, changed: str = "") -> Floats:
    """Changes: see `TRIG_CHANGES`."""
    return _trig(x, changed, is_cos=False)


def _trig(x: Floats, changed: str, is_cos: bool) -> Floats:
    if changed == "correctly rounded":
        return (np.cos(f64(x)) if is_cos else np.sin(f64(x))).astype(f32)
    ax = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    direct = ax <= tables.TRIG_DIRECT
    result = np.empty(x.shape, f32)
    result[direct] = _trig_direct(x[direct], changed, is_cos)
    result[~direct] = _trig_reduced(x[~direct], changed, is_cos)
    return result


def _trig_direct(x: Floats, changed: str, is_cos: bool) -> Floats:
    ax = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    wide = f64(x)
    if is_cos:
        one, few = np.ones(x.shape, f32), fma64(-(wide * 0.5), wide, f64(1.0))
        full = cos_polynomial(wide, changed)
    else:
        one, few = x, _sin_two_terms(wide)
        full = sin_polynomial(wide, changed)
    if changed == "no 2^-7 branch":
        few = full
    result = np.where(ax < tables.TRIG_TWO_TERMS, few.astype(f32), full.astype(f32))
    if changed == "no 2^-13 branch":
        return result
    return np.where(ax < tables.TRIG_ONE_TERM, one, result)


def _sin_two_terms(wide: Doubles) -> Doubles:
    # A zero's sign is the processor's business, not that of the error-free sums.
    return np.where(
        wide == 0.0, wide - wide**3 / 6, fma64(-((wide * wide) * wide), tables.SIXTH, wide)
    )


def _trig_reduced(x: Floats, changed: str, is_cos: bool) -> Floats:
    ax = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    cos_bound = is_cos != (changed == "the other function's bound")
    huge = ax >= (tables.COS_HUGE if cos_bound else tables.SIN_HUGE)
    three_pieces = is_cos != (changed == "the other function's huge reduction")
    n, r = np.empty(x.shape, np.int64), np.empty(x.shape, f64)
    n[~huge], r[~huge] = _reduce_medium(np.abs(f64(x[~huge])), changed)
    n[huge], r[huge] = _reduce_huge(ax[huge], three_pieces)
    n &= 3
    use_sin = (n & 1 == 1) == is_cos
    value = np.where(use_sin, sin_polynomial(r, changed), cos_polynomial(r, changed))
    negative = (n == 1) | (n == 2) if is_cos else (n >= 2) != (x < 0)
    return np.where(negative, -value, value).astype(f32)


# --- logf ---------------------------------------------------------------------------------------


def logf(x: Floats, changed: str = "") -> Floats:
    """x > 0. Changes: see `LOGF_CHANGES`."""
    if changed == "correctly rounded":
        return np.log(f64(x)).astype(f32)
    d = x - f32(1)
    near = np.abs(d) < f32(0.0625)
    result = np.empty(x.shape, f32)
    result[near] = _log_near_one(d[near], changed)
    result[~near] = _log_far(x[~near], changed)
    return result


def _multiply_add(a: Floats, b: Floats, c: Floats, changed: str) -> Floats:
    return f32(a * b) + c if changed == "everything without fma" else fma32(a, b, c)


def _log_near_one(d: Floats, changed: str) -> Floats:
    u = d / (d + f32(2))
    k = d * u
    w = u + u
    v = w * w
    p = _multiply_add(v, tables.LOG_NEAR_5, tables.LOG_NEAR_3, changed)
    return d + _multiply_add(p, w * v, -k, changed)


def _log_far(x: Floats, changed: str) -> Floats:
    significand, exponent = np.frexp(x)
    f = significand.view(np.uint32) & np.uint32(0x7FFFFF)
    index = (f & np.uint32(0x7F0000)) + ((f & np.uint32(0x8000)) << np.uint32(1))
    i = index >> np.uint32(16)
    rounded = (index | np.uint32(0x3F000000)).view(f32)
    r = (rounded - significand) * tables.LOG_INVERSE[i]
    q = _multiply_add(r, tables.LOG_THIRD, f32(0.5), changed)
    p = _multiply_add(q, r * r, r, changed)
    e = (exponent - 1).astype(f32)
    low = _multiply_add(e, tables.LOG_LN2_LOW, -p, changed) + tables.LOG_TAIL[i]
    return _multiply_add(e, tables.LOG_LN2_HIGH, tables.LOG_LEAD[i], changed) + low
