"""add: the residual. Contract 2 (ores = x + O(attn))."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit

f32 = np.float32


@jit
def add(out, a, b):  # type: ignore[no-untyped-def]
    """out, a, b: (M, n) f32."""
    for m in range(a.shape[0]):
        for j in range(a.shape[1]):
            # step 1: one addition
            out[m, j] = f32(a[m, j] + b[m, j])
