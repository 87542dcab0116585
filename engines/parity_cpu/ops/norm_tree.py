"""norm_tree: the norms of 1.1 and 1.2 with the squares summed by tree. Contract 5."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit
from parity_cpu.ops.tree import power_of_two, tree_sum
from parity_cpu.ops.variants import inverse_root

f32 = np.float32


@jit
def squares_by_tree(x, part):  # type: ignore[no-untyped-def]
    """The sum of the squares of x: (d,) f32; part: f32 scratch, d padded to a power of two."""
    # step 1: squares, padded with +0.0, summed by tree
    for j in range(part.shape[0]):
        part[j] = f32(x[j] * x[j]) if j < x.shape[0] else f32(0.0)
    return tree_sum(part)


@jit
def norm_tree(out, x, w, eps, variants):  # type: ignore[no-untyped-def]
    """out, x: (R, d) f32; w: (d,) f32; eps: f32; variants: rsqrt."""
    d = x.shape[1]
    part = np.empty(power_of_two(d), np.float32)
    for m in range(x.shape[0]):
        ss = squares_by_tree(x[m], part)
        # step 2: mean, root, reciprocal, each rounded
        r = inverse_root(f32(f32(ss / f32(d)) + eps), variants)
        # step 3: (x * r) * w
        for j in range(d):
            out[m, j] = f32(f32(x[m, j] * r) * w[j])
