"""quant16: int16 activations of the experts, one scale a block of 32. Contract 1.4."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import quotient, zero_scale

f32 = np.float32


@jit
def quant16(q, scale, x, variants):  # type: ignore[no-untyped-def]
    """q: (R, n) int16; scale: (R, n / 32) f32; x: (R, n) f32.
    variants: div_by_inverse.
    """
    for r in range(x.shape[0]):
        for b in range(scale.shape[1]):
            at = b * 32
            # step 1: largest magnitude, any order
            amax = f32(0.0)
            for j in range(32):
                amax = max(amax, abs(x[r, at + j]))
            # step 2: the scale
            s = f32(amax / f32(32767.0))
            scale[r, b] = s
            # step 3: divide, round to even, clamp as float; a zero scale gives zeros
            for j in range(32):
                t = f32(0.0)
                if not zero_scale(s, variants):
                    t = f32(np.rint(quotient(x[r, at + j], s, variants)))
                    t = min(max(t, f32(-32767.0)), f32(32767.0))
                q[r, at + j] = np.int16(t)
