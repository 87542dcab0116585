"""l2norm: q and k of a Gated DeltaNet head. Contract 3.2."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit

f32 = np.float32
EPS = np.float32(1e-6)


@jit
def l2norm(out, x, scale):  # type: ignore[no-untyped-def]
    """out, x: (M, heads, w) f32; scale: f32 (1 for k, f32(1/sqrt(kd)) for q)."""
    for m in range(x.shape[0]):
        for h in range(x.shape[1]):
            # step 1: squares, ascending
            ss = f32(0.0)
            for j in range(x.shape[2]):
                ss = f32(ss + f32(x[m, h, j] * x[m, h, j]))
            # step 2: root, reciprocal, each rounded
            r = f32(f32(1.0) / f32(np.sqrt(f32(ss + EPS))))
            # step 3: (x * r) * scale
            for j in range(x.shape[2]):
                out[m, h, j] = f32(f32(x[m, h, j] * r) * scale)
