"""split_gate: q_proj of a gated attention gives [q, gate] per head. Contract 3.1."""

from __future__ import annotations

from parity_cpu.jit import jit


@jit
def split_gate(query, gate, both):  # type: ignore[no-untyped-def]
    """query, gate: (M, heads, hd) f32; both: (M, heads, 2 * hd) f32."""
    hd = query.shape[2]
    for m in range(both.shape[0]):
        for h in range(both.shape[1]):
            for j in range(hd):
                # step 1: the head's first half, then its second
                query[m, h, j] = both[m, h, j]
                gate[m, h, j] = both[m, h, hd + j]
