"""sigmoid_gate: attn * sigmoid(gate). Contract 3.1."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_sigmoid

f32 = np.float32


@jit
def sigmoid_gate(out, x, gate, variants):  # type: ignore[no-untyped-def]
    """out, x, gate: (R, n) f32. variants: libm_exp, exp_via_double."""
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            # step 1: sigmoid, then one product
            out[r, j] = f32(x[r, j] * any_sigmoid(gate[r, j], variants))
