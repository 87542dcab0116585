"""expf, cosf, sinf, logf as the x64 UCRT computes them (FMA3 path), and what 1.9 builds on them.

Contract 4 (the four routines) and 1.9 (sigmoid, silu, softplus). Bit for bit for every float32:
the steps below are those of `parity_cuda/kernels/elementary.cuh`, in the same order. expf, cosf and
sinf work in float64 with one last rounding; logf is float32 throughout. An fma stands exactly where
one is written. NaNs are returned by bit operations, so their payloads are equal on both twins.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from parity_cpu.intrinsics import (
    bits_of_f32,
    bits_of_f64,
    clz64,
    f32_of_bits,
    f64_of_bits,
    fma32,
    fma64,
    umul64hi,
)
from parity_cpu.jit import jit, jit_parallel, jit_part
from parity_cpu.ops.elementary_tables import (
    ABS_MASK,
    C4,
    C6,
    C8,
    C10,
    COS_HUGE,
    EXP2,
    EXP_HIGH,
    EXP_LOW,
    EXP_SCALE,
    EXP_STEP,
    F32_INF,
    F32_INVALID,
    F32_MINUS_INF,
    F_HALF,
    F_ONE,
    F_TWO,
    HALF,
    LOG_INVERSE,
    LOG_LEAD,
    LOG_LN2_HIGH,
    LOG_LN2_LOW,
    LOG_NEAR_3,
    LOG_NEAR_5,
    LOG_NEAR_BAND,
    LOG_TAIL,
    LOG_THIRD,
    ONE,
    P1,
    P2,
    PIO2,
    Q1,
    Q2,
    Q3,
    QUIET_BIT,
    ROUND,
    S3,
    S5,
    S7,
    S9,
    SIN_HUGE,
    SIXTH,
    TRIG_DIRECT,
    TRIG_ONE_TERM,
    TRIG_TWO_TERMS,
    TWO_OVER_PI,
    TWO_OVER_PI_WORDS,
)

ELEMENTARY = ("expf", "cosf", "sinf", "logf", "sigmoid", "silu", "softplus")

f32, f64, i32, i64, u32, u64 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64

# Numba turns uint64 with a signed literal into int64 or float64: integers come as typed names.
_0, _1, _3, _6, _7, _8, _10, _12, _15 = (u64(n) for n in (0, 1, 3, 6, 7, 8, 10, 12, 15))
_16, _52, _53, _54, _63 = (u64(n) for n in (16, 52, 53, 54, 63))
_BIAS = u64(1023)
_F1_STEP = u64(116)
_ALL_ONES = u64(0xFFFFFFFFFFFFFFFF)
_SIGNIFICAND = u64(0x000FFFFFFFFFFFFF)
_HIDDEN_BIT = u64(0x0010000000000000)
_HEAD_MASK = u64(0xFFFFFFFFF8000000)
_F32_SIGNIFICAND = u32(0x007FFFFF)
_F32_HIDDEN_BIT = u32(0x00800000)
_LOG_INDEX = u32(0x007F0000)
_LOG_ROUND_BIT = u32(0x00008000)
_U0, _U1, _U16, _U23 = u32(0), u32(1), u32(16), u32(23)
_LOG_BIAS, _LOG_SUBNORMAL_BIAS = i32(127), i32(253)
_ONE_BITS, _HALF_BITS = u32(0x3F800000), u32(0x3F000000)
_SOFTPLUS_LINEAR = f32(20.0)
_POSITIVE_ZERO, _POSITIVE_INF = f32(0.0), f32(np.inf)


@jit
def ucrt_expf(x: np.float32) -> np.float32:
    """e^x, float32 -> float32; expf(-inf) = +0. No branch, so that loops over it vectorise."""
    # step 1: t = x * 64/ln 2
    wide = f64(x)
    t = wide * EXP_SCALE
    # step 2: n = t to the nearest integer, ties to even; e2 * scale = 2^(n/64), scale a power of 2
    shifted = t + ROUND
    n = shifted - ROUND
    word = bits_of_f64(shifted)
    e2 = EXP2[word & _63]
    scale = f64_of_bits(((word >> _6) + _BIAS) << _52)
    # step 3: r = x - n * ln 2/64, rounded once
    r = fma64(-n, EXP_STEP, wide)
    # step 4: q = r + r^2/2 + r^3/6; y = e2 + e2 * q
    q = fma64(r * r, fma64(SIXTH, r, HALF), r)
    y = fma64(q, e2, e2)
    # step 5: y * scale is exact, so this rounding to float32 is the only one, subnormals included
    result = f32(y * scale)
    # step 6: decided on t: overflow to inf, underflow to +0; a NaN loses its sign and is quiet
    if t >= EXP_HIGH:
        result = _POSITIVE_INF
    if t < EXP_LOW:
        result = _POSITIVE_ZERO
    ax = bits_of_f32(x) & ABS_MASK
    if ax > F32_INF:
        result = f32_of_bits(ax | QUIET_BIT)
    return result


@jit_part
def sin_polynomial(r: np.float64) -> np.float64:
    """sin(r) for |r| up to about pi/4, float64 -> float64."""
    # step 1: p = S3 + S5 z + S7 z^2 + S9 z^3 by Horner, z = r^2
    z = r * r
    p = fma64(z, S9, S7)
    p = fma64(z, p, S5)
    p = fma64(z, p, S3)
    # step 2: r + p * r^3
    return fma64(p, r * z, r)


@jit_part
def cos_polynomial(r: np.float64) -> np.float64:
    """cos(r) for |r| up to about pi/4, float64 -> float64."""
    # step 1: p = C4 + C6 z + C8 z^2 + C10 z^3 by Horner, z = r^2
    z = r * r
    p = fma64(z, C10, C8)
    p = fma64(z, p, C6)
    p = fma64(z, p, C4)
    # step 2: (1 - z/2) + p * z^2
    return fma64(p, z * z, ONE - HALF * z)


@jit_part
def reduce_medium(a: np.float64) -> tuple[np.uint64, np.float64]:
    """Quadrant n and angle r of a > 0, a = n * pi/2 + r; a * 2/pi must lie below 2^31."""
    # step 1: n = a * 2/pi + 0.5, rounded once, then cut to an integer
    n = i64(fma64(TWO_OVER_PI, a, HALF))
    # step 2: r = (a - n * P1) - n * P2: the first part rounded once, the second twice
    turns = f64(n)
    head = fma64(-turns, P1, a)
    r = head - turns * P2
    return u64(n), r


@jit
def reduce_huge(ax: np.uint32) -> tuple[np.uint64, np.float64, np.float64]:
    """Quadrant n and fraction f0 + f1 of a quadrant (Payne-Hanek). ax: bits of a float >= 2^24."""
    # step 1: e = exponent, m = significand in 53 bits; the words of 2/pi at byte 15 - e/8
    bits = bits_of_f64(f64(f32_of_bits(ax)))
    e = (bits >> _52) - _BIAS
    m = (bits & _SIGNIFICAND) | _HIDDEN_BIT
    at = _15 - (e >> _3)
    k0, k1, k2 = TWO_OVER_PI_WORDS[at], TWO_OVER_PI_WORDS[at + _8], TWO_OVER_PI_WORDS[at + _16]
    # step 2: w2:w1:w0 = (k2:k1:k0) * m, the low 192 bits
    w0 = k0 * m
    low = k1 * m
    w1 = low + umul64hi(k0, m)
    carry = u64(w1 < low)
    w2 = k2 * m + umul64hi(k1, m) + carry
    # step 3: n = the two integer bits, rounded by the half bit below them
    s = e & _7
    half = (w2 >> (_53 - s)) & _1
    n = ((w2 >> (_54 - s)) + half) & _3
    # step 4: above one half: the one's complement (not two's), and negative
    flip = _0 - half
    w0, w1, w2 = w0 ^ flip, w1 ^ flip, w2 ^ flip
    # step 5: clear the integer bits, then shift the highest set bit up to bit 52
    # (w2 and w1 are never 0: true of every float from 2^24 on)
    w2 = w2 & (_ALL_ONES >> (_10 + s))
    h = _63 - clz64(w2)
    c = _52 - h
    w2 = (w2 << c) | ((w1 >> _1) >> (_63 - c))
    w1 = (w1 << c) | ((w0 >> _1) >> (_63 - c))
    # step 6: f0 = the fraction cut to 53 bits; f1 = the bits after it, cut to 53 bits
    sign = half << _63
    exponent = s + h + _BIAS - _54
    f0 = f64_of_bits(sign | (exponent << _52) | (w2 & _SIGNIFICAND))
    zeros = clz64(w1)
    tail = ((w1 << zeros) << _1) >> _12
    f1 = f64_of_bits(sign | ((exponent + _63 - zeros - _F1_STEP) << _52) | tail)
    return n, f0, f1


@jit
def huge_angle_cos(f0: np.float64, f1: np.float64) -> np.float64:
    """(f0 + f1) * pi/2 with pi/2 in three pieces, as cosf does it."""
    # step 1: c = f0 * pi/2, and what that rounding lost, from the halves of f0
    high = f64_of_bits(bits_of_f64(f0) & _HEAD_MASK)
    low = f0 - high
    c = f0 * PIO2
    d = high * Q1 - c
    d = fma64(low, Q1, d)
    d = fma64(high, Q2, d)
    d = fma64(low, Q2, d)
    # step 2: the third piece, and f1
    u = fma64(f0, Q3, f1 * PIO2)
    return c + (d + u)


@jit
def ucrt_cosf(x: np.float32) -> np.float32:
    """cos(x), float32 -> float32, every argument reduced."""
    bits = bits_of_f32(x)
    ax = bits & ABS_MASK
    wide = f64(x)
    # step 1: a NaN returns itself, quiet; inf returns the NaN of an invalid argument
    if ax >= F32_INF:
        return f32_of_bits(bits | QUIET_BIT if ax > F32_INF else F32_INVALID)
    # step 2: below 2^-13 the result is 1
    if ax < TRIG_ONE_TERM:
        return F_ONE
    # step 3: below 2^-7 two terms: 1 - x^2/2
    if ax < TRIG_TWO_TERMS:
        return f32(fma64(-(wide * HALF), wide, ONE))
    # step 4: up to pi/4 the polynomial of x itself
    if ax <= TRIG_DIRECT:
        return f32(cos_polynomial(wide))
    # step 5: n and r, by Payne-Hanek from 3.3732595e9 on
    if ax < COS_HUGE:
        n, r = reduce_medium(f64(f32_of_bits(ax)))
    else:
        n, f0, f1 = reduce_huge(ax)
        r = huge_angle_cos(f0, f1)
    # step 6: SIN(r) for odd n, else COS(r); negated for n mod 4 = 1 and 2; rounded to float32
    value = sin_polynomial(r) if n & _1 else cos_polynomial(r)
    return f32(-value if (n ^ (n >> _1)) & _1 else value)


@jit
def ucrt_sinf(x: np.float32) -> np.float32:
    """sin(x), float32 -> float32, every argument reduced."""
    bits = bits_of_f32(x)
    ax = bits & ABS_MASK
    wide = f64(x)
    # step 1: a NaN returns itself, quiet; inf returns the NaN of an invalid argument
    if ax >= F32_INF:
        return f32_of_bits(bits | QUIET_BIT if ax > F32_INF else F32_INVALID)
    # step 2: below 2^-13 the argument itself, so that -0 and subnormals stay
    if ax < TRIG_ONE_TERM:
        return x
    # step 3: below 2^-7 two terms: x - x^3/6
    if ax < TRIG_TWO_TERMS:
        return f32(fma64(-((wide * wide) * wide), SIXTH, wide))
    # step 4: up to pi/4 the polynomial of x itself
    if ax <= TRIG_DIRECT:
        return f32(sin_polynomial(wide))
    # step 5: n and r, by Payne-Hanek from 16779436 on
    if ax < SIN_HUGE:
        n, r = reduce_medium(f64(f32_of_bits(ax)))
    else:
        n, f0, _ = reduce_huge(ax)
        r = f0 * PIO2
    # step 6: COS(r) for odd n, else SIN(r); negated when n mod 4 >= 2 or x < 0, not both; rounded
    value = cos_polynomial(r) if n & _1 else sin_polynomial(r)
    negative = (n >> _1) & _1 != u64(bits >> u32(31))
    return f32(-value if negative else value)


@jit
def log_special(bits: np.uint32) -> np.float32:
    """logf where it is no finite number: bits of a zero, a negative, an inf or a NaN."""
    ax = bits & ABS_MASK
    # step 1: a NaN returns itself, quiet; a zero of either sign -inf
    if ax > F32_INF:
        return f32_of_bits(bits | QUIET_BIT)
    if ax == _U0:
        return f32_of_bits(F32_MINUS_INF)
    # step 2: +inf returns itself; the negative ones the NaN of an invalid argument
    return f32_of_bits(bits if bits == ax else F32_INVALID)


@jit
def log_near_one(d: np.float32) -> np.float32:
    """log(1 + d) for |d| < 0.0625, float32 -> float32."""
    # step 1: u = d/(d + 2), w = 2u, v = w^2
    u = d / (d + F_TWO)
    k = d * u
    w = u + u
    v = w * w
    w3 = w * v
    # step 2: d + (w^3/12 + w^5/80 - d * u)
    p = fma32(v, LOG_NEAR_5, LOG_NEAR_3)
    return d + fma32(p, w3, -k)


@jit
def ucrt_logf(x: np.float32) -> np.float32:
    """log(x), float32 -> float32, in float32 arithmetic."""
    bits = bits_of_f32(x)
    ax = bits & ABS_MASK
    # step 1: zero, negative, inf and NaN
    if ax == _U0 or bits >= F32_INF:
        return log_special(bits)
    # step 2: within 0.0625 of one, the series
    d = x - F_ONE
    if abs(d) < LOG_NEAR_BAND:
        return log_near_one(d)
    # step 3: e = exponent, f = significand bits; a subnormal is scaled by taking 1 off 1.f
    e = i32(bits >> _U23) - _LOG_BIAS
    f = bits & _F32_SIGNIFICAND
    if bits < _F32_HIDDEN_BIT:
        scaled = bits_of_f32(f32_of_bits(f | _ONE_BITS) - F_ONE)
        e = i32(scaled >> _U23) - _LOG_SUBNORMAL_BIAS
        f = scaled & _F32_SIGNIFICAND
    # step 4: y = significand in [0.5, 1), near = y to 7 bits, i = its index
    index = (f & _LOG_INDEX) + ((f & _LOG_ROUND_BIT) << _U1)
    i = index >> _U16
    y = f32_of_bits(f | _HALF_BITS)
    near = f32_of_bits(index | _HALF_BITS)
    # step 5: r = (near - y) / near by the table, p = r + r^2/2 + r^3/3
    r = (near - y) * LOG_INVERSE[i]
    q = fma32(r, LOG_THIRD, F_HALF)
    p = fma32(q, r * r, r)
    # step 6: e * ln 2 + log(near) - p, the small parts first
    low = fma32(f32(e), LOG_LN2_LOW, -p) + LOG_TAIL[i]
    high = fma32(f32(e), LOG_LN2_HIGH, LOG_LEAD[i])
    return high + low


@jit
def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + expf(-x)), float32 -> float32. Contract 1.9."""
    # step 1: expf, addition and division, each rounded
    return F_ONE / (F_ONE + ucrt_expf(-x))


@jit
def silu(x: np.float32) -> np.float32:
    """x * sigmoid(x), float32 -> float32. Contract 1.9."""
    # step 1: the product is rounded once more
    return x * sigmoid(x)


@jit
def softplus(x: np.float32) -> np.float32:
    """x above 20, else logf(1 + expf(x)), float32 -> float32. Contract 1.9."""
    # step 1: 20 itself still goes through the logarithm
    if x > _SOFTPLUS_LINEAR:
        return x
    return ucrt_logf(F_ONE + ucrt_expf(x))


@functools.cache
def map_elementary(fn_name: str) -> Callable[[Any, Any], None]:
    """The compiled loop `(out, x)` of one function of ELEMENTARY, rows of x spread over threads.

    out, x: (n,) float32 of equal length. Raises ValueError for a name that is not in ELEMENTARY.
    """
    if fn_name not in ELEMENTARY:
        raise ValueError(f"no elementary function {fn_name!r}; known: {', '.join(ELEMENTARY)}")
    which = ELEMENTARY.index(fn_name)

    # The closure is over a number, which the cache can key; the other branches are compiled away.
    @jit_parallel
    def elementary_loop(out: Any, x: Any) -> None:
        for i in prange(x.size):
            if which == 0:
                out[i] = ucrt_expf(x[i])
            elif which == 1:
                out[i] = ucrt_cosf(x[i])
            elif which == 2:
                out[i] = ucrt_sinf(x[i])
            elif which == 3:
                out[i] = ucrt_logf(x[i])
            elif which == 4:
                out[i] = sigmoid(x[i])
            elif which == 5:
                out[i] = silu(x[i])
            else:
                out[i] = softplus(x[i])

    return elementary_loop
