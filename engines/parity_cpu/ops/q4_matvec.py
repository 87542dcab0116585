"""q4_matvec: Q4_0 rows times float rows. Contract 1.3."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel
from parity_cpu.ops.q4 import half_to_f32, q4_block

f32 = np.float32


@jit_parallel
def q4_matvec(out, d, qs, x):  # type: ignore[no-untyped-def]
    """out: (M, rows) f32; d: (rows, nb) u16; qs: (rows, nb * 16) u8; x: (M, nb * 32) f32.

    Weight rows run in parallel; the chain of one row is serial.
    """
    for r in prange(d.shape[0]):
        for m in range(x.shape[0]):
            acc = f32(0.0)
            for b in range(d.shape[1]):
                s = q4_block(qs[r], x[m], b * 16, b * 32)
                # step 2: d * s, blocks ascending
                acc = f32(acc + f32(half_to_f32(d[r, b]) * s))
            out[m, r] = acc
