"""The KV cache of the CPU engine: one set of rows per layer, by position."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.model.config import ModelConfig


class KVCache:
    """K and V of every layer, [layers, positions, n_kv, hd], int8 with f32 scales
    [layers, positions, n_kv], or f32 without (contract 1.0). ``parts``: names in dump order."""

    def __init__(self, config: ModelConfig, positions: int) -> None:
        self.layers = config.layers
        scales = (config.layers, positions, config.n_kv)
        rows = (*scales, config.head_dim)
        self.int8 = config.kv == "int8"
        dtype = np.int8 if self.int8 else np.float32
        self.k, self.v = np.zeros(rows, dtype), np.zeros(rows, dtype)
        if self.int8:
            self.ks, self.vs = np.zeros(scales, np.float32), np.zeros(scales, np.float32)
        self.parts = ("k", "ks", "v", "vs") if self.int8 else ("k", "v")

    def read(self, length: int) -> dict[str, np.ndarray]:
        """Copies of rows 0 .. length - 1 of every part, by name."""
        return {
            f"l{layer}_{part}": getattr(self, part)[layer, :length].copy()
            for layer in range(self.layers)
            for part in self.parts
        }

    def write(self, state: Mapping[str, np.ndarray], length: int) -> None:
        """Take over rows 0 .. length - 1 of every part."""
        for layer in range(self.layers):
            for part in self.parts:
                getattr(self, part)[layer, :length] = state[f"l{layer}_{part}"]
