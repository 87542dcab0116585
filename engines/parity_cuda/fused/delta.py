"""Launches of a Gated DeltaNet step between its projections and out_proj. Contract 3.2.

Two, for M rows: what the delta rule reads, then the rule with the gated norm behind it. Rows follow
each other inside a launch; hist and s are those after the last row. Both know every variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.ops import Ops, padded
from parity_cuda.weights import Gdn

THREADS = 128  # fused_delta_inputs.cu
STEP_THREADS = 256  # fused_delta.cu
WIDE, NARROW = 128, 32  # columns of S that a block takes at once
OWN = (128, 128)  # DELTA_OWN: S of this shape is in registers, else in shared memory
MOST_ROWS_WIDE = 128  # of those, 64 KiB: any device from sm_80 on has these
MOST_ROWS = 16  # rows of a launch: what of them is in shared memory leaves room for S


@dataclass(frozen=True)
class Read:
    """What the delta rule reads, all f32: q, k (M, kh, kd), conv (M, conv_dim), beta and g
    (M, vh)."""

    q: Buffer
    k: Buffer
    conv: Buffer
    beta: Buffer
    g: Buffer


@dataclass(frozen=True)
class Projected:
    """The projections it comes from: qkv (M, conv_dim), z (M, vh, vd), a and b (M, vh)."""

    qkv: Buffer
    z: Buffer
    a: Buffer
    b: Buffer


def inputs(
    ops: Ops, out: Read, hist: Buffer, given: Projected, weights: Gdn, variants: int
) -> None:
    """conv_step with its history, l2norm of q and k, delta_gates; hist (3, conv_dim) moves on."""
    rows, key_heads, key_width = out.q.shape
    heads, channels = out.g.shape[1], hist.shape[1]
    value_blocks = -(-(channels - 2 * key_heads * key_width) // THREADS)
    grid = (2 * key_heads + value_blocks + -(-heads // THREADS),)
    buffers = [out.conv, hist, out.q, out.k, out.beta, out.g, given.qkv, given.a, given.b]
    buffers += [weights.conv, weights.rates, weights.dt_bias]
    sizes = (variants, rows, key_heads, key_width, heads, channels, value_blocks)
    args = [*buffers, np.float32(1.0 / sqrt(key_width)), *map(np.int32, sizes)]
    shared = 4 * rows * (2 * (_fours(key_width) + 4) + 1)
    ops.backend.launch("fused_delta_inputs", grid, THREADS, args, shared=shared, overlap=True)


def step(
    ops: Ops,
    o: Buffer,
    gn: Buffer,
    s: Buffer,
    read: Read,
    z: Buffer,
    norm: tuple[Buffer, np.float32],
    variants: int,
) -> None:
    """delta_step, then the head norm of o (weights and eps in ``norm``) times silu(z); o, gn and z
    (M, vh, vd), s (vh, kd, vd) moves on. z is not of the launch just before this one."""
    rows, (heads, key_width, value_width) = o.shape[0], s.shape
    key_heads, channels = read.q.shape[1], read.conv.shape[1]
    tile = WIDE if key_width <= MOST_ROWS_WIDE else NARROW
    v = read.conv.reshape(-1)[2 * key_heads * key_width :]
    sizes = (variants, rows, channels, key_heads, key_width, value_width, tile)
    args = [o, gn, s, read.q, read.k, v, read.beta, read.g, z, *norm, *map(np.int32, sizes)]
    row = 2 * _fours(key_width) + 3 * _fours(value_width) + _fours(padded(value_width)) + 4
    floats = rows * row + _fours(3 * rows)
    if (key_width, value_width) != OWN:
        floats += _fours(key_width) * tile
    ops.backend.launch("fused_delta", (heads,), STEP_THREADS, args, shared=4 * floats, overlap=True)


def _fours(count: int) -> int:
    """Rounded up to four."""
    return -(-count // 4) * 4
