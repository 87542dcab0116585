"""headnorm: norm of each head (QK-norm). Contract 1.2."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import inverse_root

f32 = np.float32


@jit
def squares_ascending(x):  # type: ignore[no-untyped-def]
    """The sum of the squares of x: (hd,) f32."""
    ss = f32(0.0)
    # step 1: squares, strictly ascending
    for j in range(x.shape[0]):
        ss = f32(ss + f32(x[j] * x[j]))
    return ss


@jit
def headnorm(out, x, w, eps, variants):  # type: ignore[no-untyped-def]
    """out, x: (M, heads, hd) f32; w: (hd,) f32; eps: f32; variants: rsqrt."""
    hd = x.shape[2]
    for m in range(x.shape[0]):
        for h in range(x.shape[1]):
            ss = squares_ascending(x[m, h])
            # step 2: mean, root, reciprocal, each rounded
            r = inverse_root(f32(f32(ss / f32(hd)) + eps), variants)
            # step 3: (x * r) * w
            for j in range(hd):
                out[m, h, j] = f32(f32(x[m, h, j] * r) * w[j])
