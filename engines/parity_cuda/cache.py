"""The KV cache of the device engine: one set of rows per layer, by position."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.model.config import ModelConfig
from parity_cuda.backend import Backend


class KVCache:
    """K and V of every layer, [layers, positions, n_kv, hd], int8 with f32 scales
    [layers, positions, n_kv], or f32 without (contract 1.0). ``parts``: names in dump order.

    What the rows hold does not matter until they are written.
    """

    def __init__(self, backend: Backend, config: ModelConfig, positions: int) -> None:
        self.backend, self.layers = backend, config.layers
        scales = (config.layers, positions, config.n_kv)
        rows = (*scales, config.head_dim)
        self.int8 = config.kv == "int8"
        dtype = np.int8 if self.int8 else np.float32
        self.k, self.v = backend.empty(rows, dtype), backend.empty(rows, dtype)
        if self.int8:
            self.ks, self.vs = backend.empty(scales, np.float32), backend.empty(scales, np.float32)
        self.parts = ("k", "ks", "v", "vs") if self.int8 else ("k", "v")

    def read(self, length: int) -> dict[str, np.ndarray]:
        """Copies of rows 0 .. length - 1 of every part, by name."""
        return {
            f"l{layer}_{part}": self.backend.download(getattr(self, part)[layer, :length])
            for layer in range(self.layers)
            for part in self.parts
        }

    def write(self, state: Mapping[str, np.ndarray], length: int) -> None:
        """Take over rows 0 .. length - 1 of every part."""
        for layer in range(self.layers):
            for part in self.parts:
                rows = getattr(self, part)[layer, :length]
                self.backend.write(rows, state[f"l{layer}_{part}"])
