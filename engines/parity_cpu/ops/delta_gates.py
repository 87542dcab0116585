"""delta_gates: beta and g of each value head. Contract 3.2."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_expf, any_sigmoid, any_softplus

f32 = np.float32


@jit
def delta_gates(beta, g, a, b, rates, dt_bias, variants):  # type: ignore[no-untyped-def]
    """beta, g, a, b: (M, vh) f32; rates (nA), dt_bias: (vh,) f32.

    variants: libm_exp, exp_via_double.
    """
    for m in range(a.shape[0]):
        for h in range(a.shape[1]):
            # step 1: beta = sigmoid(b)
            beta[m, h] = any_sigmoid(b[m, h], variants)
            # step 2: g = expf(nA * softplus(a + dt_bias))
            soft = any_softplus(f32(a[m, h] + dt_bias[h]), variants)
            g[m, h] = any_expf(f32(rates[h] * soft), variants)
