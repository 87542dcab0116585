"""expert_matvec: rows of the chosen Q4_0 experts times int16 rows. Contract 1.4."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel
from parity_cpu.ops.q4 import half_to_f32, q4_block_int
from parity_cpu.ops.variants import scaled_dot
from parity_cpu.variants import FOLD_P

f32 = np.float32


@jit_parallel
def expert_matvec(out, d, qs, ids, probs, q, s_a, variants):  # type: ignore[no-untyped-def]
    """out: (M, k, rows) f32; d: (E, rows, nb) u16; qs: (E, rows, nb * 16) u8; ids: (M, k) int32;
    probs: (M, k) f32; q: (M, G, n) int16; s_a: (M, G, n / 32) f32.

    G = 1: one input for all ranks; G = k: each its own.
    variants: scale_assoc, fold_p (which alone reads probs).
    """
    ranks = ids.shape[1]
    rows = d.shape[1]
    for job in prange(ids.shape[0] * ranks * rows):
        r = job % rows
        rank = job // rows % ranks
        m = job // (rows * ranks)
        expert = ids[m, rank]
        g = rank if q.shape[1] > 1 else 0
        acc = f32(0.0)
        for b in range(d.shape[2]):
            dot = q4_block_int(qs[expert, r], q[m, g], b * 16, b * 32)
            # step 2: (dot * s_w) * s_a, blocks ascending
            term = scaled_dot(dot, half_to_f32(d[expert, r, b]), s_a[m, g, b], variants)
            if variants & FOLD_P:
                term = f32(term * probs[m, rank])
            acc = f32(acc + term)
        out[m, rank, r] = acc
