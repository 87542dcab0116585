"""shared_gate: the gate of the shared expert. Contract 1.9, 2."""

from __future__ import annotations

from parity_cpu.jit import jit
from parity_cpu.ops.variants import any_sigmoid


@jit
def shared_gate(out, x, variants):  # type: ignore[no-untyped-def]
    """out, x: (R, n) f32. variants: libm_exp, exp_via_double."""
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            # step 1: sigmoid
            out[r, j] = any_sigmoid(x[r, j], variants)
