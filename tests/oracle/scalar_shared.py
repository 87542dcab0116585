"""Slow scalar twins of the shared expert: its gate, and the sum that it joins (contract 2).

Written as scalar.py is: one np.float32 operation per statement.
"""

from __future__ import annotations

import numpy as np

from tests.oracle.scalar import ZERO, Array, F, quiet, sigmoid


@quiet
def shared_gate(x: Array) -> Array:
    """sigmoid(x), elementwise, f32: ``gs`` of the gate's product (contract 1.9)."""
    out = np.zeros(x.shape, F)
    for index in np.ndindex(x.shape):
        out[index] = sigmoid(x[index])
    return out


@quiet
def combine_shared(ores: Array, down: Array, probs: Array, gs: Array, sh: Array) -> Array:
    """x = ores + ffn: the chosen experts in rank order from +0.0, then gs * sh (contract 2).

    ores, sh f32[M, hidden]; down f32[M, k, hidden]; probs f32[M, k]; gs f32[M, 1].
    """
    out = np.zeros(ores.shape, F)
    for m in range(ores.shape[0]):
        for i in range(ores.shape[1]):
            ffn = ZERO
            for rank in range(probs.shape[1]):
                product = F(probs[m, rank] * down[m, rank, i])
                ffn = F(ffn + product)
            shared = F(gs[m, 0] * sh[m, i])
            ffn = F(ffn + shared)
            out[m, i] = F(ores[m, i] + ffn)
    return out
