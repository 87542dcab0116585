"""delta_step: one step of the gated delta rule. Contract 3.2."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel

f32 = np.float32


@jit_parallel
def delta_step(o, s, q, k, v, beta, g):  # type: ignore[no-untyped-def]
    """o, v: (vh, vd) f32; s: (vh, kd, vd) f32, in place; q, k: (kh, kd) f32; beta, g: (vh,) f32.

    Value head h uses key head h / (vh / kh). Heads run in parallel; columns stand apart.
    """
    group = s.shape[0] // q.shape[0]
    for h in prange(s.shape[0]):
        at = h // group
        for j in range(s.shape[2]):
            # step 1: S = S * g; mem = sum of S * k, ascending
            mem = f32(0.0)
            for i in range(s.shape[1]):
                s[h, i, j] = f32(s[h, i, j] * g[h])
                mem = f32(mem + f32(s[h, i, j] * k[at, i]))
            # step 2: delta = (v - mem) * beta
            delta = f32(f32(v[h, j] - mem) * beta[h])
            # step 3: S = S + k * delta; o = sum of S * q, ascending
            acc = f32(0.0)
            for i in range(s.shape[1]):
                s[h, i, j] = f32(s[h, i, j] + f32(k[at, i] * delta))
                acc = f32(acc + f32(s[h, i, j] * q[at, i]))
            o[h, j] = acc
