"""attention_parts: keys in parts of PART, each summed by itself. Contract 5, split_keys."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit, jit_part

f32 = np.float32
PART = 128


@jit
def parts_total(p):  # type: ignore[no-untyped-def]
    """l of the weights p: (keys,)."""
    total = f32(0.0)
    for begin in range(0, p.shape[0], PART):
        part = f32(0.0)
        # step 3: l of a part, keys ascending; then parts ascending
        for t in range(begin, min(begin + PART, p.shape[0])):
            part = f32(part + p[t])
        total = f32(total + part)
    return total


@jit_part
def add_part(out, acc):  # type: ignore[no-untyped-def]
    """Add the accumulators acc: (hd,) of a part to those of all parts before, out: (hd,)."""
    # step 4: acc of a part, keys ascending; then parts ascending
    for j in range(out.shape[0]):
        out[j] = f32(out[j] + acc[j])
