"""decay_rates: nA = -expf(A_log), made once at load. Contract 3.2."""

from __future__ import annotations

from parity_cpu.jit import jit
from parity_cpu.ops.elementary import ucrt_expf


@jit
def decay_rates(out, a_log):  # type: ignore[no-untyped-def]
    """out, a_log: (vh,) f32."""
    for h in range(a_log.shape[0]):
        # step 1: the negated exponential
        out[h] = -ucrt_expf(a_log[h])
