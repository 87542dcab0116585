"""What the scalar twins of the variants share: the tree, the fused product sum (contract 5)."""

from __future__ import annotations

import math

import numpy as np

from tests.oracle import platform_math
from tests.oracle.elementary import Float32Function, expf
from tests.oracle.scalar import ZERO, F, Row

Names = frozenset[str]


def tree_sum(values: Row) -> np.float32:
    """Padded with +0.0 to a power of two n; x[i] = x[i] + x[i + n/2], halving n."""
    x = list(values)
    n = 1
    while n < len(x):
        n = 2 * n
    x += [ZERO] * (n - len(x))
    while n > 1:
        n = n // 2
        for i in range(n):
            x[i] = F(x[i] + x[i + n])
    return x[0]


def fma32(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c rounded once: the exact product plus c, rounded to odd in binary64 on the way.

    Much quicker than rounding.fma32, which the tests hold it against.
    """
    product, addend = float(a) * float(b), float(c)
    near = product + addend
    if not math.isfinite(near):
        return F(near)
    # What binary64 rounded away, exactly (Knuth's two-sum).
    back = near - product
    error = (product - (near - back)) + (addend - back)
    if error != 0.0 and _even(near):
        near = math.nextafter(near, math.inf if error > 0.0 else -math.inf)
    return F(near)


def _even(x: float) -> bool:
    return int(np.float64(x).view(np.uint64)) & 1 == 0


def product_sum(w: np.float32, x: np.float32, acc: np.float32, names: Names) -> np.float32:
    if "fma" in names:
        return fma32(w, x, acc)
    product = F(w * x)
    return F(acc + product)


def exponential(names: Names) -> Float32Function:
    if "libm_exp" in names:
        return platform_math.expf
    return platform_math.exp_via_double if "exp_via_double" in names else expf
