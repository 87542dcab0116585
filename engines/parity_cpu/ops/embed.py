"""embed: rows of a Q4_0 embedding, widened. Contract 1.0."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.q4 import half_to_f32

f32 = np.float32


@jit
def embed(out, d, qs, tokens):  # type: ignore[no-untyped-def]
    """out: (M, hidden) f32; d: (vocab, nb) u16 f16 bits; qs: (vocab, nb * 16) u8; tokens: (M,)."""
    for m in range(out.shape[0]):
        row = tokens[m]
        for b in range(d.shape[1]):
            scale = half_to_f32(d[row, b])
            for e in range(16):
                byte = qs[row, b * 16 + e]
                # step 1: d * (nibble - 8), low nibbles first
                out[m, b * 32 + e] = scale * f32(np.int32(byte & 15) - np.int32(8))
                out[m, b * 32 + e + 16] = scale * f32(np.int32(byte >> 4) - np.int32(8))
