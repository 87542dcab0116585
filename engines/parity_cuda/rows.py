"""One forward of M rows on the device: what every layer needs to know, and the tap by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.model.config import ModelConfig
from parity.variants import variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.ops import Ops
from parity_cuda.pool import Pool
from parity_cuda.products import matvec
from parity_cuda.tap import Tap
from parity_cuda.weights import Matrix

NORM_TREE = variant_mask(["norm_tree"])


@dataclass(frozen=True)
class Rows:
    """M rows at positions pos .. pos + M - 1. ``variants``: mask, 0 is the exact tier. ``place``:
    pos on the device, int32[1], where kernels read it: a recorded step runs at any position."""

    config: ModelConfig
    variants: int
    ops: Ops
    pool: Pool
    tap: Tap
    pos: int
    place: Buffer
    count: int
    positions: int

    def f32(self, name: str, *shape: int) -> Buffer:
        """A named float32 buffer (M, *shape) of the pool."""
        return self.pool.take(name, self.count, shape, np.float32)

    def show(self, number: int | None, field: str, values: Buffer) -> None:
        """Offer row m of ``values`` under position pos + m (contract 6)."""
        for m in range(self.count):
            self.tap(self.pos + m, number, field, values[m])

    def matvec(self, name: str, matrix: Matrix, x: Buffer, rows: int) -> Buffer:
        """``matrix`` times x (M, cols), as (M, rows) f32 in buffer ``name``."""
        out = self.f32(name, rows)
        matvec(self.ops, out, matrix, x.reshape(self.count, -1), self.variants)
        return out

    def norm(self, name: str, x: Buffer, w: Buffer) -> Buffer:
        """Contract 1.1 on rows (M, d), or by tree."""
        out = self.f32(name, x.shape[1])
        op = self.ops.norm_tree if self.variants & NORM_TREE else self.ops.rmsnorm
        op(out, x, w, np.float32(self.config.eps), self.variants)
        return out

    def headnorm(self, name: str, x: Buffer, w: Buffer) -> Buffer:
        """Contract 1.2 on heads (M, heads, hd), or by tree."""
        out, eps = self.f32(name, *x.shape[1:]), np.float32(self.config.eps)
        if self.variants & NORM_TREE:
            heads = (out.reshape(-1, x.shape[2]), x.reshape(-1, x.shape[2]))
            self.ops.norm_tree(*heads, w, eps, self.variants)
        else:
            self.ops.headnorm(out, x, w, eps, self.variants)
        return out
