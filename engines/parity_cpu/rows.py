"""One forward of M rows: what every layer needs to know, and the tap by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.model.config import ModelConfig
from parity_cpu.calls import Calls
from parity_cpu.ops.headnorm import headnorm
from parity_cpu.ops.norm_tree import norm_tree
from parity_cpu.ops.rmsnorm import rmsnorm
from parity_cpu.products import matvec
from parity_cpu.tap import Tap
from parity_cpu.variants import NORM_TREE
from parity_cpu.weights import Matrix


def f32(*shape: int) -> np.ndarray:
    """An uninitialised float32 array."""
    return np.empty(shape, np.float32)


@dataclass(frozen=True)
class Rows:
    """M rows at positions pos .. pos + M - 1. ``variants``: mask, 0 is the exact tier."""

    config: ModelConfig
    variants: int
    call: Calls
    tap: Tap
    pos: int
    count: int

    def show(self, number: int | None, field: str, values: np.ndarray) -> None:
        """Offer row m of ``values`` under position pos + m (contract 6)."""
        for m in range(self.count):
            self.tap(self.pos + m, number, field, values[m])

    def matvec(self, matrix: Matrix, x: np.ndarray, rows: int) -> np.ndarray:
        """``matrix`` times x (M, cols), as (M, rows) f32."""
        out = f32(self.count, rows)
        matvec(self.call, out, matrix, x.reshape(self.count, -1), self.variants)
        return out

    def norm(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Contract 1.1 on rows (M, d), or by tree."""
        out = np.empty_like(x)
        op = norm_tree if self.variants & NORM_TREE else rmsnorm
        self.call(op, out, x, w, np.float32(self.config.eps), self.variants)
        return out

    def headnorm(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Contract 1.2 on heads (M, heads, hd), or by tree."""
        out, eps = np.empty_like(x), np.float32(self.config.eps)
        if self.variants & NORM_TREE:
            heads = (out.reshape(-1, x.shape[2]), x.reshape(-1, x.shape[2]))
            self.call(norm_tree, *heads, w, eps, self.variants)
        else:
            self.call(headnorm, out, x, w, eps, self.variants)
        return out
