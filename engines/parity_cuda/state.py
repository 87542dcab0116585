"""The state of the device engine: KV rows by position, and a Gated DeltaNet layer's recurrence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parity.model.config import ModelConfig
from parity_cuda.backend import Backend, Buffer

ROWS = ("k", "ks", "v", "vs")  # by position; the other parts are whole
APPEND_THREADS = 128
Parts = dict[str, Buffer]


class State:
    """One dict of parts per layer. Full attention: k, v [positions, n_kv, hd], int8 with f32
    scales ks, vs [positions, n_kv], or f32 without (contract 1.0). Gated DeltaNet: s f32[vh,kd,vd]
    and hist f32[3,conv_dim] (contract 3.2). What KV rows hold does not matter until written."""

    def __init__(self, backend: Backend, config: ModelConfig, positions: int) -> None:
        self.backend = backend
        self.int8 = config.kv == "int8"
        self.layers = [
            self._gdn(config) if config.is_gdn(layer) else self._kv(config, positions)
            for layer in range(config.layers)
        ]

    def _kv(self, config: ModelConfig, positions: int) -> Parts:
        empty = self.backend.empty
        rows = (positions, config.n_kv, config.head_dim)
        if not self.int8:
            return {"k": empty(rows, np.float32), "v": empty(rows, np.float32)}
        scales = rows[:2]
        return {
            "k": empty(rows, np.int8),
            "ks": empty(scales, np.float32),
            "v": empty(rows, np.int8),
            "vs": empty(scales, np.float32),
        }

    def _gdn(self, config: ModelConfig) -> Parts:
        return {
            "s": self.backend.empty(config.gdn[1:], np.float32),
            "hist": self.backend.empty((3, config.conv_dim), np.float32),
        }

    def recurrent(self) -> Iterator[Buffer]:
        """S and hist of every layer that has them: what going back must copy."""
        for layer in self.layers:
            yield from (buffer for part, buffer in layer.items() if part not in ROWS)

    def reset(self) -> None:
        """S and hist start at +0.0; rows past the length are never read."""
        for buffer in self.recurrent():
            self.backend.zero(buffer)

    def read(self, length: int) -> dict[str, np.ndarray]:
        """Copies of every part by name, rows 0 .. length - 1 where it has rows."""
        return {
            f"l{number}_{part}": self.backend.download(buffer[:length] if part in ROWS else buffer)
            for number, layer in enumerate(self.layers)
            for part, buffer in layer.items()
        }

    def write(self, state: Mapping[str, np.ndarray], length: int) -> None:
        """Take over every part."""
        for number, layer in enumerate(self.layers):
            for part, buffer in layer.items():
                target = buffer[:length] if part in ROWS else buffer
                self.backend.write(target, state[f"l{number}_{part}"])


def append_rows(backend: Backend, cache: Buffer, rows: Buffer, place: Buffer) -> None:
    """Copy M rows to rows place[0] .. place[0] + M - 1 of a cache; place: int32[1], device."""
    last = [np.int64(rows.nbytes // rows.shape[0]), np.int64(rows.nbytes)]
    grid = (-(-rows.nbytes // APPEND_THREADS),)
    backend.launch("append_rows", grid, APPEND_THREADS, [cache, rows, place, *last])
