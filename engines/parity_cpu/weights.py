"""Weights as the CPU engine holds them: the stored arrays, named as the ops take them."""

from __future__ import annotations

import numpy as np

from parity.model import layers
from parity_cpu.ops.decay_rates import decay_rates

Tensors = dict[str, np.ndarray]
Matrix = layers.Q4[np.ndarray] | layers.Floats[np.ndarray]
Attention = layers.Attention[np.ndarray]
Gdn = layers.Gdn[np.ndarray]
Dense = layers.Dense[np.ndarray]
Experts = layers.Experts[np.ndarray]


def rates(a_log: np.ndarray) -> np.ndarray:
    """nA of a layer, (vh,) f32 (contract 3.2)."""
    made = np.empty_like(a_log)
    decay_rates(made, a_log)
    return made
