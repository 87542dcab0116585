"""router_tree: the router's products summed by tree. Contract 5."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.tree import power_of_two, tree_sum

f32 = np.float32


@jit
def router_tree(out, w, x):  # type: ignore[no-untyped-def]
    """out: (M, rows) f32; w: (rows, cols) f32; x: (M, cols) f32."""
    cols = w.shape[1]
    part = np.empty(power_of_two(cols), np.float32)
    for m in range(x.shape[0]):
        for r in range(w.shape[0]):
            # step 1: products, padded with +0.0, summed by tree
            for j in range(part.shape[0]):
                part[j] = f32(w[r, j] * x[m, j]) if j < cols else f32(0.0)
            out[m, r] = tree_sum(part)
