"""Attention's sum over the keys: P V with equal weights. Contract 1.8."""

from __future__ import annotations

import numpy as np

from parity.order.adapters.called import CalledOp, Floats
from parity.order.own.asked import Array, Asked, Launch, unwritten


def attention_f32(asked: Asked, launch: Launch) -> CalledOp:
    """Contract 1.8, f32: the sum of p * v over the keys, N dimensions. All scores are 0, so each p
    is 1, each c too, and l counts the keys: K times the output is the sum."""
    heads, row, batch = keys_of(asked)
    shape = (asked.K, heads, asked.N // heads)

    def call(_: Floats | None, w: Floats) -> Array:
        queries = (asked.M, 2 * heads, asked.N // heads)
        given = {
            "out": unwritten(*queries),
            "q": np.zeros(queries, np.float32),
            "k": np.zeros(shape, np.float32),
            "v": np.ascontiguousarray(w.T.reshape(shape)),
            "sm_scale": np.float32(1.0),
            "pos": asked.K - asked.M,
            "variants": asked.mask,
        }
        return heads_of(launch("attention_f32", given)["out"][row], asked).reshape(-1)

    return asked.called("values", asked.N, call, batch)


def keys_of(asked: Asked) -> tuple[int, int, str]:
    """KV heads, the row of M that sees K keys, and what the key of the order says of the batch."""
    asked.require(asked.K >= asked.M, "the last of M rows sees K keys: K is M or more")
    asked.require(not asked.K & (asked.K - 1), "the sum is divided by K: a power of two keeps it")
    row = asked.M - 1
    batch = "1" if asked.M == 1 else f"{asked.M}, row {row}, the only one that sees K keys"
    return 2 if asked.N % 2 == 0 else 1, row, batch


def heads_of(out: Array, asked: Asked) -> Array:
    """The sums of each KV head, from one of its two query heads, the first and the second in turn:
    (query heads, width) to (KV heads, width)."""
    heads = np.arange(len(out) // 2)
    sums: Array = out[heads * 2 + heads % 2] * np.float32(asked.K)
    return sums
