"""embed_f32: rows of an f32 embedding. Contract 1.0."""

from __future__ import annotations

from parity_cpu.jit import jit


@jit
def embed_f32(out, w, tokens):  # type: ignore[no-untyped-def]
    """out: (M, hidden) f32; w: (vocab, hidden) f32; tokens: (M,) int32."""
    for m in range(out.shape[0]):
        for j in range(out.shape[1]):
            # step 1: the stored row
            out[m, j] = w[tokens[m], j]
