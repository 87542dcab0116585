"""The state of the CPU engine: KV rows by position, and a Gated DeltaNet layer's recurrence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parity.model.config import ModelConfig

ROWS = ("k", "ks", "v", "vs")  # by position; the other parts are whole


class State:
    """One dict of parts per layer. Full attention: k, v [positions, n_kv, hd], int8 with f32
    scales ks, vs [positions, n_kv], or f32 without (contract 1.0). Gated DeltaNet: s f32[vh,kd,vd]
    and hist f32[3,conv_dim] (contract 3.2)."""

    def __init__(self, config: ModelConfig, positions: int) -> None:
        self.int8 = config.kv == "int8"
        self.layers = [
            self._gdn(config) if config.is_gdn(layer) else self._kv(config, positions)
            for layer in range(config.layers)
        ]

    def _kv(self, config: ModelConfig, positions: int) -> dict[str, np.ndarray]:
        rows = (positions, config.n_kv, config.head_dim)
        if not self.int8:
            return {"k": np.zeros(rows, np.float32), "v": np.zeros(rows, np.float32)}
        scales = rows[:2]
        return {
            "k": np.zeros(rows, np.int8),
            "ks": np.zeros(scales, np.float32),
            "v": np.zeros(rows, np.int8),
            "vs": np.zeros(scales, np.float32),
        }

    @staticmethod
    def _gdn(config: ModelConfig) -> dict[str, np.ndarray]:
        return {
            "s": np.zeros(config.gdn[1:], np.float32),
            "hist": np.zeros((3, config.conv_dim), np.float32),
        }

    def recurrent(self) -> Iterator[np.ndarray]:
        """S and hist of every layer that has them: what going back must copy."""
        for layer in self.layers:
            yield from (array for part, array in layer.items() if part not in ROWS)

    def reset(self) -> None:
        """S and hist start at +0.0; rows past the length are never read."""
        for array in self.recurrent():
            array[...] = 0.0

    def read(self, length: int) -> dict[str, np.ndarray]:
        """Copies of every part by name, rows 0 .. length - 1 where it has rows."""
        return {
            f"l{number}_{part}": (array[:length] if part in ROWS else array).copy()
            for number, layer in enumerate(self.layers)
            for part, array in layer.items()
        }

    def write(self, state: Mapping[str, np.ndarray], length: int) -> None:
        """Take over every part."""
        for number, layer in enumerate(self.layers):
            for part, array in layer.items():
                target = array[:length] if part in ROWS else array
                target[...] = state[f"l{number}_{part}"]
