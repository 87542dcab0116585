"""conv_step: one step of the depthwise causal convolution, width 4. Contract 3.2."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_silu

f32 = np.float32


@jit
def conv_step(out, hist, qkv, w, variants):  # type: ignore[no-untyped-def]
    """out, qkv: (conv_dim,) f32; hist: (3, conv_dim) f32, oldest first, in place;
    w: (conv_dim, 4) f32. variants: libm_exp, exp_via_double."""
    for c in range(qkv.shape[0]):
        # step 1: taps over [hist, new], ascending
        acc = f32(0.0)
        for t in range(3):
            acc = f32(acc + f32(w[c, t] * hist[t, c]))
        acc = f32(acc + f32(w[c, 3] * qkv[c]))
        # step 2: silu
        out[c] = any_silu(acc, variants)
        # step 3: hist shifts by the raw qkv
        hist[0, c] = hist[1, c]
        hist[1, c] = hist[2, c]
        hist[2, c] = qkv[c]
