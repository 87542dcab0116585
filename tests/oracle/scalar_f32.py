"""Slow scalar twins of the ops on f32 storage: embedding, experts and the f32 KV cache.

Written as scalar.py is: one np.float32 operation per statement, against contract 1.0, 1.5 and 1.8.
"""

from __future__ import annotations

import numpy as np

from tests.oracle.elementary import expf
from tests.oracle.scalar import ONE, ZERO, Array, F, Row, quiet


def embed_f32(w: Array, tokens: Array) -> Array:
    """Embedding rows of tokens i32[M] from f32[vocab, hidden], as stored (contract 1.0)."""
    out = np.zeros((tokens.shape[0], w.shape[1]), F)
    for m, token in enumerate(tokens):
        for j in range(w.shape[1]):
            out[m, j] = w[token, j]
    return out


def ascending_dot(a: Row, b: Row) -> np.float32:
    """One accumulator from +0.0, index 0 upward (contract 1.5)."""
    acc = ZERO
    for left, right in zip(a, b, strict=True):
        product = F(left * right)
        acc = F(acc + product)
    return acc


@quiet
def expert_f32_matvec(w: Array, ids: Array, x: Array) -> Array:
    """Rows of the chosen experts f32[E, rows, cols] times float inputs, f32[M, k, rows] (1.5).

    x f32[M, G, cols]: G = 1 is one input for all ranks, G = k one each.
    """
    tokens, k = ids.shape
    out = np.zeros((tokens, k, w.shape[1]), F)
    for m in range(tokens):
        for rank in range(k):
            given = list(x[m, rank if x.shape[1] > 1 else 0])
            for j in range(w.shape[1]):
                out[m, rank, j] = ascending_dot(list(w[ids[m, rank], j]), given)
    return out


def _weighted_sum(scores: Row, v: Array) -> list[np.float32]:
    """The running softmax over keys 0, 1, ... of v f32[keys, hd] (contract 1.8, f32 form)."""
    total = ZERO
    acc = [ZERO] * v.shape[1]
    m = scores[0]
    for t, score in enumerate(scores):
        if t == 0:
            c, p = ZERO, ONE
        else:
            new_m = score if score > m else m
            c = expf(F(m - new_m))
            p = expf(F(score - new_m))
            m = new_m
        kept = F(total * c)
        total = F(kept + p)
        for d in range(len(acc)):
            kept = F(acc[d] * c)
            added = F(p * v[t, d])
            acc[d] = F(kept + added)
    return [F(value / total) for value in acc]


@quiet
def attention_f32(q: Array, k: Array, v: Array, sm_scale: np.float32, pos: int) -> Array:
    """Attention of q f32[M, n_q, hd] over an f32 cache k, v [cap, n_kv, hd] (contract 1.8).

    Row m sees keys 0 .. pos + m. Returns f32[M, n_q, hd].
    """
    group = q.shape[1] // k.shape[1]
    out = np.zeros(q.shape, F)
    for m in range(q.shape[0]):
        keys = pos + m + 1
        for h in range(q.shape[1]):
            g = h // group
            query = list(q[m, h])
            scores = []
            for t in range(keys):
                dot = ascending_dot(query, list(k[t, g]))
                scores.append(F(dot * sm_scale))
            out[m, h] = _weighted_sum(scores, v[:keys, g])
    return out
