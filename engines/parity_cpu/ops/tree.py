"""tree: sums by halving. Contract 5 (norm_tree, router_tree, two_pass)."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit

f32 = np.float32


@jit
def power_of_two(count):  # type: ignore[no-untyped-def]
    """The smallest power of two that is not below ``count``."""
    n = 1
    while n < count:
        n *= 2
    return n


@jit
def tree_sum(x):  # type: ignore[no-untyped-def]
    """Sum of x (a power of two elements, padded with +0.0), by halving, in place."""
    n = x.shape[0]
    # step 1: x[i] = x[i] + x[i + n / 2], halving n
    while n > 1:
        n //= 2
        for i in range(n):
            x[i] = f32(x[i] + x[i + n])
    return x[0]
