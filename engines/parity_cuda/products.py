"""Which op multiplies, by how the matrix is stored. Contract 1.0: storage decides."""

from __future__ import annotations

from dataclasses import dataclass

from parity.model.layers import Floats
from parity.variants import variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.ops import Ops
from parity_cuda.weights import Matrix

FOLD_P = variant_mask(["fold_p"])


def embedding(ops: Ops, out: Buffer, matrix: Matrix, tokens: Buffer) -> None:
    """out: (M, hidden) f32; tokens: (M,) int32."""
    if isinstance(matrix, Floats):
        ops.embed_f32(out, matrix.w, tokens)
    else:
        ops.embed(out, matrix.d, matrix.qs, tokens)


def matvec(ops: Ops, out: Buffer, matrix: Matrix, x: Buffer, variants: int) -> None:
    """out: (M, rows) f32; x: (M, cols) f32. Each weight is read once for all M rows."""
    if isinstance(matrix, Floats):
        ops.f32_matvec(out, matrix.w, x, variants)
    else:
        ops.q4_matvec(out, matrix.d, matrix.qs, x, variants)


@dataclass
class ExpertInput:
    """The input of chosen experts, x: (M, G, n) f32, with room for its int16 form q and scale,
    which is made once for Q4_0."""

    ops: Ops
    x: Buffer
    q: Buffer
    scale: Buffer
    variants: int
    made: bool = False

    def int16(self) -> tuple[Buffer, Buffer]:
        """q: (M, G, n) int16; scale: (M, G, n / 32) f32."""
        if not self.made:
            self.ops.quant16(self.q, self.scale, self.x, self.variants)
            self.made = True
        return self.q, self.scale


def experts(
    out: Buffer, matrix: Matrix, ids: Buffer, probs: Buffer, given: ExpertInput, variants: int
) -> None:
    """out: (M, k, rows) f32; ids: (M, k) int32; probs: (M, k) f32, read by fold_p alone."""
    if isinstance(matrix, Floats):
        given.ops.expert_f32_matvec(out, matrix.w, ids, given.x, variants)
    else:
        arrays = (matrix.d, matrix.qs, ids, probs, *given.int16())
        given.ops.expert_matvec(out, *arrays, variants)


def folds(matrix: Matrix, variants: int) -> int:
    """The mask for down and combine: fold_p means something for Q4_0 experts alone."""
    return variants & ~FOLD_P if isinstance(matrix, Floats) else variants
