"""combine_shared: the experts' outputs by rank, the shared one's, then the residual. Contract 2."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.variants import FOLD_P

f32 = np.float32


@jit
def combine_shared(out, ores, down, probs, gs, sh, variants):  # type: ignore[no-untyped-def]
    """out, ores, sh: (M, hidden) f32; down: (M, k, hidden) f32; probs: (M, k) f32; gs: (M, 1) f32.

    variants: fold_p (down holds p already; the shared expert has no p).
    """
    for m in range(ores.shape[0]):
        for j in range(ores.shape[1]):
            # step 1: ffn = ffn + p * down, in rank order
            ffn = f32(0.0)
            for r in range(probs.shape[1]):
                term = down[m, r, j]
                if not variants & FOLD_P:
                    term = f32(probs[m, r] * term)
                ffn = f32(ffn + term)
            # step 2: ffn = ffn + gs * sh, after the chosen experts
            ffn = f32(ffn + f32(gs[m, 0] * sh[m, j]))
            # step 3: x = ores + ffn
            out[m, j] = f32(ores[m, j] + ffn)
