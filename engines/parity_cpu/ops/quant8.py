"""quant8: int8 rows of K, V and the query, one scale a head. Contract 1.6."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import quotient, zero_scale

f32 = np.float32


@jit
def quant8(q, scale, x, variants):  # type: ignore[no-untyped-def]
    """q: (M, heads, hd) int8; scale: (M, heads) f32; x: (M, heads, hd) f32.
    variants: div_by_inverse.
    """
    for m in range(x.shape[0]):
        for h in range(x.shape[1]):
            # step 1: largest magnitude, any order
            amax = f32(0.0)
            for j in range(x.shape[2]):
                amax = max(amax, abs(x[m, h, j]))
            # step 2: the scale, stored as computed
            s = f32(amax / f32(127.0))
            scale[m, h] = s
            # step 3: divide, round to even, clamp as float; a zero scale gives zeros
            for j in range(x.shape[2]):
                t = f32(0.0)
                if not zero_scale(s, variants):
                    t = f32(np.rint(quotient(x[m, h, j], s, variants)))
                    t = min(max(t, f32(-127.0)), f32(127.0))
                q[m, h, j] = np.int8(t)
