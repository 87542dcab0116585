"""silu_gate: normed * silu(z), the end of the gated norm. Contract 3.2."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_silu

f32 = np.float32


@jit
def silu_gate(out, x, z, variants):  # type: ignore[no-untyped-def]
    """out, x, z: (R, n) f32. variants: libm_exp, exp_via_double."""
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            # step 1: silu, then one product
            out[r, j] = f32(x[r, j] * any_silu(z[r, j], variants))
