"""swiglu: silu(gate) * up. Contract 1.9."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_silu

f32 = np.float32


@jit
def swiglu(out, gate, up, variants):  # type: ignore[no-untyped-def]
    """out, gate, up: (R, n) f32. variants: libm_exp, exp_via_double."""
    for r in range(gate.shape[0]):
        for j in range(gate.shape[1]):
            # step 1: silu, then one product
            out[r, j] = f32(any_silu(gate[r, j], variants) * up[r, j])
