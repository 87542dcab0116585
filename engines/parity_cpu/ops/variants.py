"""variants: the functions that variants swap. Contract 5.

The library is this platform's C library; its reciprocal square root is a stand-in, correctly
rounded from f64: no CPU function has the device's bits.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, types

from parity_cpu.intrinsics import fma32
from parity_cpu.jit import jit_part
from parity_cpu.lanes import floats
from parity_cpu.ops.elementary import ucrt_cosf, ucrt_expf, ucrt_logf, ucrt_sinf
from parity_cpu.variants import (
    DIV_BY_INVERSE,
    EXP_VIA_DOUBLE,
    FMA,
    LIBM_EXP,
    LIBM_SINCOS,
    RSQRT,
    SCALE_ASSOC,
)

f32 = np.float32
f64 = np.float64
library_expf = types.ExternalFunction("expf", float32(float32))
library_exp = types.ExternalFunction("exp", float64(float64))
library_cosf = types.ExternalFunction("cosf", float32(float32))
library_sinf = types.ExternalFunction("sinf", float32(float32))
LARGEST = np.float32(3.4028234663852886e38)


@jit_part
def inverse_root(v, variants):  # type: ignore[no-untyped-def]
    """1 / sqrt(v), or the reciprocal square root."""
    if variants & RSQRT:
        return f32(f64(1.0) / np.sqrt(f64(v)))
    return f32(f32(1.0) / f32(np.sqrt(v)))


@jit_part
def product_sum(w, x, acc, variants):  # type: ignore[no-untyped-def]
    """acc + w * x with two roundings, or with one; sixteen rows at once."""
    if variants & FMA:
        return fma32(w, x, acc)
    return acc + w * x


@jit_part
def scaled_dot(dot, s_w, s_a, variants):  # type: ignore[no-untyped-def]
    """(dot * s_w) * s_a, or (s_w * s_a) * dot; sixteen rows at once."""
    if variants & SCALE_ASSOC:
        return (s_w * s_a) * floats(dot)
    return (floats(dot) * s_w) * s_a


@jit_part
def any_expf(x, variants):  # type: ignore[no-untyped-def]
    """expf by the replica, the library, or the library's double exp."""
    if variants & LIBM_EXP:
        return library_expf(x)
    if variants & EXP_VIA_DOUBLE:
        return f32(library_exp(f64(x)))
    return ucrt_expf(x)


@jit_part
def any_cosf(x, variants):  # type: ignore[no-untyped-def]
    """cosf by the replica or the library."""
    return library_cosf(x) if variants & LIBM_SINCOS else ucrt_cosf(x)


@jit_part
def any_sinf(x, variants):  # type: ignore[no-untyped-def]
    """sinf by the replica or the library."""
    return library_sinf(x) if variants & LIBM_SINCOS else ucrt_sinf(x)


@jit_part
def any_sigmoid(x, variants):  # type: ignore[no-untyped-def]
    """sigmoid of contract 1.9 with the exponential asked for."""
    return f32(f32(1.0) / f32(f32(1.0) + any_expf(f32(-x), variants)))


@jit_part
def any_softplus(x, variants):  # type: ignore[no-untyped-def]
    """softplus of contract 1.9 with the exponential asked for."""
    if x > f32(20.0):
        return x
    return ucrt_logf(f32(f32(1.0) + any_expf(x, variants)))


@jit_part
def any_silu(x, variants):  # type: ignore[no-untyped-def]
    """silu of contract 1.9 with the exponential asked for."""
    return f32(x * any_sigmoid(x, variants))


@jit_part
def quotient(x, s, variants):  # type: ignore[no-untyped-def]
    """x / s, or x times the inverse. The caller asks zero_scale first."""
    if variants & DIV_BY_INVERSE:
        return f32(x * f32(f32(1.0) / s))
    return f32(x / s)


@jit_part
def zero_scale(s, variants):  # type: ignore[no-untyped-def]
    """Whether a scale gives zeros: 0, or with the inverse one whose inverse is infinite."""
    if s == f32(0.0):
        return True
    return (variants & DIV_BY_INVERSE) != 0 and f32(f32(1.0) / s) > LARGEST
