"""One row times several matrices in one launch, with what is done element by element around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.errors import ParityBug
from parity.model.layers import Floats
from parity.variants import variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.ops import Ops
from parity_cuda.products import matvec
from parity_cuda.row_shapes import MOST_SHARED, RowShape, fits_row
from parity_cuda.weights import Matrix

Q4_MATRICES, F32_MATRICES = 3, 4  # project.cuh
WITH_NORM, WITH_ACT, WITH_TOTAL = 1, 2, 4
NORM_TREE = variant_mask(["norm_tree"])
Outs = Sequence[tuple[Buffer, Matrix]]


@dataclass(frozen=True)
class Norm:
    """The norm of a row before it is multiplied (contract 1.1). ``w``: (cols,) f32; ``out``: (1,
    cols) f32, where the normed row is put."""

    out: Buffer
    w: Buffer
    eps: np.float32


def project(
    ops: Ops,
    x: Buffer,
    outs: Outs,
    variants: int,
    *,
    norm: Norm | None = None,
    act: Buffer | None = None,
    total: tuple[Buffer, Buffer] | None = None,
) -> None:
    """Each of ``outs``, (1, rows) f32, is its matrix times x (1, cols) f32, first normed.

    act: (1, rows) f32, swiglu of two ``outs``, gate and up (contract 1.9). total: (sum, base), both
    (1, rows) f32: sum = base + the one of ``outs`` (contract 2).
    """
    _check(outs, act, total)
    floats = [isinstance(matrix, Floats) for _, matrix in outs]
    joined = act is not None and not any(floats)
    asked = _Asked(norm, act if joined else None, total)
    shape = _shape(ops, int(x.shape[1]), outs, floats, variants, asked)
    if shape is None:
        by_ops(ops, x, outs, variants, norm=norm, act=act, total=total)
        return
    _launch(ops, x, outs, variants, asked, shape)
    if act is not None and not joined:
        ops.swiglu(act, outs[0][0], outs[1][0], variants)


@dataclass(frozen=True)
class _Asked:
    """What one launch does besides multiplying."""

    norm: Norm | None
    act: Buffer | None
    total: tuple[Buffer, Buffer] | None

    def uses(self) -> int:
        asked = (self.norm, WITH_NORM), (self.act, WITH_ACT), (self.total, WITH_TOTAL)
        return sum(bit for what, bit in asked if what is not None)


def _check(outs: Outs, act: Buffer | None, total: tuple[Buffer, Buffer] | None) -> None:
    kept = sum(not isinstance(matrix, Floats) for _, matrix in outs)
    wrong = not outs or kept > Q4_MATRICES or len(outs) - kept > F32_MATRICES
    wrong |= act is not None and (len(outs) != 2 or outs[0][0].shape != outs[1][0].shape)
    wrong |= total is not None and (len(outs) != 1 or act is not None)
    if wrong:
        raise ParityBug(f"project: {len(outs)} matrices, act {act is not None}")


def _shape(
    ops: Ops, cols: int, outs: Outs, floats: Sequence[bool], variants: int, asked: _Asked
) -> RowShape | None:
    """How the launch is cut up; None where a block of threads has no room for such rows."""
    rows = [(int(out.shape[1]), plain) for (out, _), plain in zip(outs, floats, strict=True)]
    q4, f32 = ([n for n, plain in rows if plain is kind] for kind in (False, True))
    if q4 and not fits_row(cols // 32):
        return None
    given = {"norm": asked.norm is not None, "pairs": asked.act is not None}
    shape = ops.tuning.project(q4, f32, cols, variants, **given)
    return shape if shape.shared <= MOST_SHARED else None


def _launch(
    ops: Ops,
    x: Buffer,
    outs: Outs,
    variants: int,
    asked: _Asked,
    shape: RowShape,
) -> None:
    # what is not asked for is given all the same, and never touched
    norm = asked.norm or Norm(x, x, np.float32(0))
    made, base = (asked.act, x) if asked.act is not None else asked.total or (outs[0][0], x)
    args: list[Any] = [x, norm.w, norm.out, norm.eps, made, base]
    q4 = [(out, matrix.d, matrix.qs) for out, matrix in outs if not isinstance(matrix, Floats)]
    f32 = [(out, matrix.w) for out, matrix in outs if isinstance(matrix, Floats)]
    args += _slots(q4, Q4_MATRICES, (x, x.view(np.uint16), x.view(np.uint8)))
    args += _slots(f32, F32_MATRICES, (x, x))
    last = (
        *(asked.uses(), variants, x.shape[1], shape.f32_blocks, shape.f32_tile),
        *(shape.tile, shape.kept, shape.across, shape.ring),
    )
    args += [np.int32(value) for value in last]
    block, shared = shape.threads, shape.shared
    kernel = "fused_project_few" if shape.few else "fused_project"
    ops.backend.launch(kernel, (shape.blocks,), block, args, shared=shared, overlap=True)


def _slots(given: Sequence[tuple[Buffer, ...]], slots: int, none: tuple[Buffer, ...]) -> list[Any]:
    """Arrays and rows of each matrix; those of none after them."""
    args: list[Any] = []
    for i in range(slots):
        arrays = given[i] if i < len(given) else none
        args += [*arrays, np.int32(arrays[0].shape[1] if i < len(given) else 0)]
    return args


def by_ops(
    ops: Ops,
    x: Buffer,
    outs: Outs,
    variants: int,
    *,
    norm: Norm | None = None,
    act: Buffer | None = None,
    total: tuple[Buffer, Buffer] | None = None,
) -> None:
    """What ``project`` does, op by op; for rows of more columns than a launch has room for."""
    if norm is not None:
        op = ops.norm_tree if variants & NORM_TREE else ops.rmsnorm
        op(norm.out, x, norm.w, norm.eps, variants)
        x = norm.out
    for out, matrix in outs:
        matvec(ops, out, matrix, x, variants)
    if act is not None:
        ops.swiglu(act, outs[0][0], outs[1][0], variants)
    if total is not None:
        ops.add(total[0], total[1], outs[0][0])
