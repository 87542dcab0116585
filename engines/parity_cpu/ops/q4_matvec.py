"""q4_matvec: Q4_0 rows times float rows. Contract 1.3."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit, jit_parallel
from parity_cpu.ops.q4 import half_to_f32, q4_block, q4_block_variant
from parity_cpu.ops.variants import product_sum
from parity_cpu.variants import FMA, SPLIT_K, UNPAIRED

f32 = np.float32


@jit
def row_exact(d, qs, x):  # type: ignore[no-untyped-def]
    """One row of the exact tier: d: (nb,), qs: (nb * 16,), x: (nb * 32,)."""
    acc = f32(0.0)
    for b in range(d.shape[0]):
        s = q4_block(qs, x, b * 16, b * 32)
        # step 2: d * s, blocks ascending
        acc = f32(acc + f32(half_to_f32(d[b]) * s))
    return acc


@jit
def row_variant(d, qs, x, variants):  # type: ignore[no-untyped-def]
    """One row with fma, split_k or unpaired: block b adds to partial b mod 4, or all to one."""
    part = np.zeros(4, np.float32)
    for b in range(d.shape[0]):
        s = q4_block_variant(qs, x, b * 16, b * 32, variants)
        at = b % 4 if variants & SPLIT_K else 0
        part[at] = product_sum(half_to_f32(d[b]), s, part[at], variants)
    acc = f32(0.0)
    for at in range(4):
        acc = f32(acc + part[at])
    return acc if variants & SPLIT_K else part[0]


@jit_parallel
def q4_matvec(out, d, qs, x, variants):  # type: ignore[no-untyped-def]
    """out: (M, rows) f32; d: (rows, nb) u16; qs: (rows, nb * 16) u8; x: (M, nb * 32) f32.

    Weight rows run in parallel; the chain of one row is serial. variants: fma, split_k, unpaired.
    """
    for r in prange(d.shape[0]):
        for m in range(x.shape[0]):
            if variants & (FMA | SPLIT_K | UNPAIRED):
                out[m, r] = row_variant(d[r], qs[r], x[m], variants)
            else:
                out[m, r] = row_exact(d[r], qs[r], x[m])
