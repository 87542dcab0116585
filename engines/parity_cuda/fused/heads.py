"""The heads of K, V and Q of one row in one launch, from their projections to the cache.

Contract 1.2, 1.6, 1.7, 3.1. Heads never share a sum: a block each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.ops import WARP, Ops, padded
from parity_cuda.state import Parts

MOST_WIDTH = 1024  # a thread an element
Int8 = tuple[Buffer, Buffer]  # (1, heads, hd) int8 and its scales (1, heads) f32


@dataclass(frozen=True)
class Heads:
    """What the projections gave, and the weights. kraw, value: (1, n_kv * hd) f32; query: (1, n_q *
    hd), or twice as wide where each head is [q, gate]; k_norm, q_norm: (hd,) f32; freq: (rot / 2,)
    f32; place: the position, int32[1], on the device."""

    kraw: Buffer
    value: Buffer
    query: Buffer
    k_norm: Buffer
    q_norm: Buffer
    freq: Buffer
    place: Buffer
    eps: np.float32
    variants: int


def knows(hd: int) -> bool:
    """Whether heads of this width fit a block."""
    return hd <= MOST_WIDTH


def heads_int8(
    ops: Ops, knorm: Buffer, k: Int8, v: Int8, qrope: Buffer, q: Int8, parts: Parts, given: Heads
) -> None:
    """knorm (1, n_kv, hd), qrope (1, n_q, hd) f32; k, v and q by contract 1.6; k and v also to row
    ``place`` of ``parts``."""
    cache = (parts["k"], parts["ks"], parts["v"], parts["vs"])
    _launch(ops, "fused_heads_int8", [knorm, *k, *v, qrope, *q, *cache], given, qrope)


def heads_f32(
    ops: Ops, knorm: Buffer, k: Buffer, qrope: Buffer, gate: Buffer | None, parts: Parts,
    given: Heads,
) -> None:  # fmt: skip
    """The same with an f32 cache: k (1, n_kv, hd) f32 after the rotation; v is ``given.value``.
    gate: (1, n_q, hd) f32, the second half of each head of the query; None where it has none."""
    hd = qrope.shape[2]
    width = hd if gate is None else 2 * hd
    second = qrope if gate is None else gate  # never written without a gate
    outs = [knorm, k, qrope, second, parts["k"], parts["v"]]
    _launch(ops, "fused_heads_f32", outs, given, qrope, [np.int32(width)])


def _launch(
    ops: Ops, kernel: str, outs: list[Buffer], given: Heads, qrope: Buffer, more: Sequence[Any] = ()
) -> None:
    _, heads, hd = qrope.shape
    n_kv, half = given.kraw.shape[1] // hd, given.freq.shape[0]
    threads = -(-hd // WARP) * WARP
    inputs = [given.kraw, given.value, given.query, given.k_norm, given.q_norm, given.freq]
    sizes = [np.int32(size) for size in (given.variants, half, n_kv, hd)]
    args = [*outs, *inputs, given.place, given.eps, *sizes, *more]
    shared = 4 * (max(padded(hd), 4) + threads)
    ops.backend.launch(kernel, (2 * n_kv + heads,), threads, args, shared=shared, overlap=True)
