"""rope: rotary embedding, pairs (i, i + rot/2). Contract 1.7."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_cosf, any_sinf

f32 = np.float32


@jit
def rope(out, x, inv_freq, pos, variants):  # type: ignore[no-untyped-def]
    """out, x: (M, heads, hd) f32; inv_freq: (rot / 2,) f32; row m stands at position pos + m.
    variants: libm_sincos.
    """
    half = inv_freq.shape[0]
    for m in range(x.shape[0]):
        for i in range(half):
            # step 1: angle, cosine, sine
            angle = f32(f32(pos + m) * inv_freq[i])
            c = any_cosf(angle, variants)
            s = any_sinf(angle, variants)
            for h in range(x.shape[1]):
                x1 = x[m, h, i]
                x2 = x[m, h, i + half]
                # step 2: the rotation, each operation rounded
                out[m, h, i] = f32(f32(x1 * c) - f32(x2 * s))
                out[m, h, i + half] = f32(f32(x2 * c) + f32(x1 * s))
        # step 3: the rest passes unchanged
        for h in range(x.shape[1]):
            for j in range(2 * half, x.shape[2]):
                out[m, h, j] = x[m, h, j]
