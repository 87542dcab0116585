"""Which op multiplies, by how the matrix is stored. Contract 1.0: storage decides."""

from __future__ import annotations

import numpy as np

from parity.model.layers import Floats
from parity_cpu.calls import Calls
from parity_cpu.ops.embed import embed
from parity_cpu.ops.embed_f32 import embed_f32
from parity_cpu.ops.expert_f32_matvec import expert_f32_matvec
from parity_cpu.ops.expert_matvec import expert_matvec
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.q4_matvec import q4_matvec
from parity_cpu.ops.quant16 import quant16
from parity_cpu.variants import FOLD_P
from parity_cpu.weights import Matrix


def embedding(call: Calls, out: np.ndarray, matrix: Matrix, tokens: np.ndarray) -> None:
    """out: (M, hidden) f32; tokens: (M,) int32."""
    if isinstance(matrix, Floats):
        call(embed_f32, out, matrix.w, tokens)
    else:
        call(embed, out, matrix.d, matrix.qs, tokens)


def matvec(call: Calls, out: np.ndarray, matrix: Matrix, x: np.ndarray, variants: int) -> None:
    """out: (M, rows) f32; x: (M, cols) f32. Each weight row is read once for all M rows."""
    if isinstance(matrix, Floats):
        call(f32_matvec, out, matrix.w, x, variants)
    else:
        call(q4_matvec, out, matrix.d, matrix.qs, x, variants)


class ExpertInput:
    """The input of chosen experts, (M, G, n) f32, and its int16 form, made once for Q4_0."""

    def __init__(self, call: Calls, x: np.ndarray, variants: int) -> None:
        self.call, self.x, self.variants = call, x, variants
        self._quantised: tuple[np.ndarray, np.ndarray] | None = None

    def int16(self) -> tuple[np.ndarray, np.ndarray]:
        """q: (M, G, n) int16; scale: (M, G, n / 32) f32."""
        if self._quantised is None:
            shape = self.x.shape
            q, scale = np.empty(shape, np.int16), np.empty((*shape[:2], shape[2] // 32), np.float32)
            rows = shape[0] * shape[1]
            flat = (q.reshape(rows, -1), scale.reshape(rows, -1), self.x.reshape(rows, -1))
            self.call(quant16, *flat, self.variants)
            self._quantised = (q, scale)
        return self._quantised


def experts(
    out: np.ndarray,
    matrix: Matrix,
    ids: np.ndarray,
    probs: np.ndarray,
    given: ExpertInput,
    variants: int,
) -> None:
    """out: (M, k, rows) f32; ids: (M, k) int32; probs: (M, k) f32, read by fold_p alone."""
    if isinstance(matrix, Floats):
        given.call(expert_f32_matvec, out, matrix.w, ids, given.x, variants)
    else:
        arrays = (matrix.d, matrix.qs, ids, probs, *given.int16())
        given.call(expert_matvec, out, *arrays, variants)


def folds(matrix: Matrix, variants: int) -> int:
    """The mask for down and combine: fold_p means something for Q4_0 experts alone."""
    return variants & ~FOLD_P if isinstance(matrix, Floats) else variants
