"""rmsnorm: root mean square norm of whole rows. Contract 1.1."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import inverse_root

f32 = np.float32


@jit
def squares_by_blocks(x):  # type: ignore[no-untyped-def]
    """The sum of the squares of x: (d,) f32."""
    d = x.shape[0]
    whole = d - d % 8
    ss = f32(0.0)
    # step 1: blocks of 8, ascending
    for b in range(0, whole, 8):
        lo0 = f32(f32(x[b] * x[b]) + f32(x[b + 4] * x[b + 4]))
        lo1 = f32(f32(x[b + 1] * x[b + 1]) + f32(x[b + 5] * x[b + 5]))
        lo2 = f32(f32(x[b + 2] * x[b + 2]) + f32(x[b + 6] * x[b + 6]))
        lo3 = f32(f32(x[b + 3] * x[b + 3]) + f32(x[b + 7] * x[b + 7]))
        ss = f32(ss + f32(f32(lo0 + lo1) + f32(lo2 + lo3)))
    # step 2: tail, ascending
    for j in range(whole, d):
        ss = f32(ss + f32(x[j] * x[j]))
    return ss


@jit
def rmsnorm(out, x, w, eps, variants):  # type: ignore[no-untyped-def]
    """out, x: (M, d) f32; w: (d,) f32; eps: f32; variants: rsqrt."""
    d = x.shape[1]
    for m in range(x.shape[0]):
        ss = squares_by_blocks(x[m])
        # step 3: mean, root, reciprocal, each rounded
        r = inverse_root(f32(f32(ss / f32(d)) + eps), variants)
        # step 4: (x * r) * w
        for j in range(d):
            out[m, j] = f32(f32(x[m, j] * r) * w[j])
