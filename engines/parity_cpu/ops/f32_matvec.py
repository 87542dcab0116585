"""f32_matvec: f32 rows times float rows (the router). Contract 1.5."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel
from parity_cpu.ops.variants import product_sum

f32 = np.float32


@jit_parallel
def f32_matvec(out, w, x, variants):  # type: ignore[no-untyped-def]
    """out: (M, rows) f32; w: (rows, cols) f32; x: (M, cols) f32. Rows run in parallel.
    variants: fma.
    """
    for r in prange(w.shape[0]):
        for m in range(x.shape[0]):
            # step 1: one accumulator, ascending
            acc = f32(0.0)
            for j in range(w.shape[1]):
                acc = product_sum(w[r, j], x[m, j], acc, variants)
            out[m, r] = acc
