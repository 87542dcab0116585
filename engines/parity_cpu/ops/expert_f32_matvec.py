"""expert_f32_matvec: rows of the chosen f32 experts times float rows. Contract 1.5."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel
from parity_cpu.ops.variants import product_sum

f32 = np.float32


@jit_parallel
def expert_f32_matvec(out, w, ids, x, variants):  # type: ignore[no-untyped-def]
    """out: (M, k, rows) f32; w: (E, rows, cols) f32; ids: (M, k) int32; x: (M, G, cols) f32.

    G = 1: one input for all ranks; G = k: each its own. variants: fma.
    """
    ranks = ids.shape[1]
    rows = w.shape[1]
    for job in prange(ids.shape[0] * ranks * rows):
        r = job % rows
        rank = job // rows % ranks
        m = job // (rows * ranks)
        g = rank if x.shape[1] > 1 else 0
        # step 1: one accumulator, ascending
        acc = f32(0.0)
        for j in range(w.shape[2]):
            acc = product_sum(w[ids[m, rank], r, j], x[m, g, j], acc, variants)
        out[m, rank, r] = acc
