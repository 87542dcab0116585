"""delta_step: one step of the gated delta rule. Contract 3.2."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel, jit_part

f32 = np.float32


@jit_parallel
def delta_step(o, s, q, k, v, beta, g):  # type: ignore[no-untyped-def]
    """o, v: (vh, vd) f32; s: (vh, kd, vd) f32, in place; q, k: (kh, kd) f32; beta, g: (vh,) f32.

    Value head h uses key head h / (vh / kh). Heads run in parallel; columns stand apart.
    """
    group = s.shape[0] // q.shape[0]
    for h in prange(s.shape[0]):
        delta = np.empty(s.shape[2], np.float32)
        head_step(o[h], s[h], q[h // group], k[h // group], v[h], beta[h], g[h], delta)


@jit_part
def head_step(o, s, q, k, v, beta, g, delta):  # type: ignore[no-untyped-def]
    """One head; delta: (vd,) f32 scratch, mem first. Columns go side by side: they stand apart."""
    # step 1: S = S * g; mem = sum of S * k, ascending
    delta[:] = f32(0.0)
    for i in range(s.shape[0]):
        row = s[i]
        for j in range(row.shape[0]):
            row[j] = f32(row[j] * g)
            delta[j] = f32(delta[j] + f32(row[j] * k[i]))
    # step 2: delta = (v - mem) * beta
    for j in range(v.shape[0]):
        delta[j] = f32(f32(v[j] - delta[j]) * beta)
    # step 3: S = S + k * delta; o = sum of S * q, ascending
    o[:] = f32(0.0)
    for i in range(s.shape[0]):
        row = s[i]
        for j in range(row.shape[0]):
            row[j] = f32(row[j] + f32(k[i] * delta[j]))
            o[j] = f32(o[j] + f32(row[j] * q[i]))
