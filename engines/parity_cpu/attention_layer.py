"""Full attention on the CPU: from nrm to the input of the residual. Contract 2, 3.1."""

from __future__ import annotations

import numpy as np

from parity_cpu.ops.attention_f32 import attention_f32
from parity_cpu.ops.attention_int8 import attention_int8
from parity_cpu.ops.quant8 import quant8
from parity_cpu.ops.rope import rope
from parity_cpu.ops.sigmoid_gate import sigmoid_gate
from parity_cpu.ops.split_gate import split_gate
from parity_cpu.rows import Rows, f32
from parity_cpu.weights import Attention

Parts = dict[str, np.ndarray]


def attention_layer(
    rows: Rows, number: int, weights: Attention, nrm: np.ndarray, parts: Parts, freq: np.ndarray
) -> np.ndarray:
    """Writes rows pos .. pos + M - 1 of ``parts``; returns O(attn) (M, hidden)."""
    config = rows.config
    heads = (rows.count, config.n_kv, config.head_dim)
    narrow = config.n_kv * config.head_dim
    # K's chain: projection, head norm, RoPE, then the cache's rows.
    kraw = rows.matvec(weights.k_proj, nrm, narrow).reshape(heads)
    rows.show(number, "kraw", kraw)
    knorm = rows.headnorm(kraw, weights.k_norm)
    rows.show(number, "knorm", knorm)
    _store(rows, number, "k", _turn(rows, knorm, freq), parts)
    # V's chain: projection, then the cache's rows.
    value = rows.matvec(weights.v_proj, nrm, narrow).reshape(heads)
    _store(rows, number, "v", value, parts)
    # Q's chain: projection, head norm, RoPE.
    query, gate = _query(rows, weights, nrm)
    turned = _turn(rows, rows.headnorm(query, weights.q_norm), freq)
    rows.show(number, "qrope", turned)
    attn = _attend(rows, turned, parts)
    rows.show(number, "attn", attn)
    if gate is not None:
        attn, plain = np.empty_like(attn), attn
        flat = [array.reshape(rows.count, -1) for array in (attn, plain, gate)]
        rows.call(sigmoid_gate, *flat, rows.variants)
        rows.show(number, "gated", attn)
    return rows.matvec(weights.o_proj, attn, config.hidden)


def _query(rows: Rows, weights: Attention, nrm: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The query (M, n_q, hd) and, in a hybrid, its gate."""
    config = rows.config
    shape = (rows.count, config.n_q, config.head_dim)
    wide = config.n_q * config.head_dim
    if config.family != "hybrid":
        return rows.matvec(weights.q_proj, nrm, wide).reshape(shape), None
    both = rows.matvec(weights.q_proj, nrm, 2 * wide)
    query, gate = f32(*shape), f32(*shape)
    rows.call(split_gate, query, gate, both.reshape(rows.count, config.n_q, -1))
    return query, gate


def _turn(rows: Rows, x: np.ndarray, freq: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    rows.call(rope, out, x, freq, rows.pos, rows.variants)
    return out


def _store(rows: Rows, number: int, part: str, x: np.ndarray, parts: Parts) -> None:
    """Append M rows to K or V: int8 with their scales, or f32 as they are (contract 1.6)."""
    target = parts[part][rows.pos : rows.pos + rows.count]
    if f"{part}s" not in parts:
        target[...] = x
        rows.show(number, part, target)
        return
    scales = parts[f"{part}s"][rows.pos : rows.pos + rows.count]
    rows.call(quant8, target, scales, x, rows.variants)
    rows.show(number, part, target)
    rows.show(number, f"{part}s", scales)


def _attend(rows: Rows, q: np.ndarray, parts: Parts) -> np.ndarray:
    """Row m of the query over rows 0 .. pos + m of the cache (contract 1.8)."""
    out, scale = np.empty_like(q), np.float32(rows.config.sm_scale)
    last = (scale, rows.pos, rows.variants)
    if "ks" not in parts:
        rows.call(attention_f32, out, q, parts["k"], parts["v"], *last)
        return out
    q8, q_scale = np.empty(q.shape, np.int8), f32(*q.shape[:2])
    rows.call(quant8, q8, q_scale, q, rows.variants)
    cached = (parts["k"], parts["ks"], parts["v"], parts["vs"])
    rows.call(attention_int8, out, q8, q_scale, *cached, *last)
    return out
