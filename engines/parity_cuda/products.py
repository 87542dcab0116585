"""Which op multiplies, by how the matrix is stored. Contract 1.0: storage decides the arithmetic."""

from __future__ import annotations

from parity.variants import variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.ops import Ops
from parity_cuda.weights import Floats, Matrix

FOLD_P = variant_mask(["fold_p"])


class Products:
    """Matrix products on one backend."""

    def __init__(self, ops: Ops) -> None:
        self.ops = ops

    def embedding(self, out: Buffer, matrix: Matrix, tokens: Buffer) -> None:
        """out: (M, hidden) f32; tokens: (M,) int32."""
        if isinstance(matrix, Floats):
            self.ops.embed_f32(out, matrix.w, tokens)
        else:
            self.ops.embed(out, matrix.d, matrix.qs, tokens)

    def matvec(self, out: Buffer, matrix: Matrix, x: Buffer, variants: int) -> None:
        """out: (M, rows) f32; x: (M, cols) f32."""
        if isinstance(matrix, Floats):
            self.ops.f32_matvec(out, matrix.w, x, variants)
        else:
            self.ops.q4_matvec(out, matrix.d, matrix.qs, x, variants)

    def experts(
        self,
        out: Buffer,
        matrix: Matrix,
        ids: Buffer,
        probs: Buffer,
        given: ExpertInput,
        variants: int,
    ) -> None:
        """out: (M, k, rows) f32; ids: (M, k) int32; probs: (M, k) f32, read by fold_p alone."""
        if isinstance(matrix, Floats):
            self.ops.expert_f32_matvec(out, matrix.w, ids, given.x, variants)
        else:
            arrays = (matrix.d, matrix.qs, ids, probs, given.q, given.scale)
            self.ops.expert_matvec(out, *arrays, variants)

    def quantise(self, given: ExpertInput, matrix: Matrix, variants: int) -> None:
        """Fill the int16 form where the experts are Q4_0 (contract 1.4)."""
        if not isinstance(matrix, Floats):
            rows = given.x.shape[0] * given.x.shape[1]
            flat = [buffer.reshape(rows, -1) for buffer in (given.q, given.scale, given.x)]
            self.ops.quant16(*flat, variants)


class ExpertInput:
    """The input of chosen experts, x: (M, G, n) f32, with room for its int16 form q and scale."""

    def __init__(self, x: Buffer, q: Buffer, scale: Buffer) -> None:
        self.x, self.q, self.scale = x, q, scale


def folds(matrix: Matrix, variants: int) -> int:
    """The mask for down and combine: fold_p means something for Q4_0 experts alone."""
    return variants & ~FOLD_P if isinstance(matrix, Floats) else variants
