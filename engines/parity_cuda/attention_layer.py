"""Full attention on the device: from nrm to the input of the residual. Contract 2, 3.1."""

from __future__ import annotations

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.ops import scratch_width
from parity_cuda.rows import Rows
from parity_cuda.state import Parts, append_rows
from parity_cuda.weights import Attention


def attention_layer(
    rows: Rows, number: int, weights: Attention, nrm: Buffer, parts: Parts, freq: Buffer
) -> Buffer:
    """Writes rows pos .. pos + M - 1 of ``parts``; returns O(attn) (M, hidden)."""
    config = rows.config
    heads = (rows.count, config.n_kv, config.head_dim)
    narrow = config.n_kv * config.head_dim
    # K's chain: projection, head norm, RoPE, then the cache's rows.
    kraw = rows.matvec("kraw", weights.k_proj, nrm, narrow).reshape(heads)
    rows.show(number, "kraw", kraw)
    knorm = rows.headnorm("knorm", kraw, weights.k_norm)
    rows.show(number, "knorm", knorm)
    _store(rows, number, "k", _turn(rows, "kturned", knorm, freq), parts)
    # V's chain: projection, then the cache's rows.
    value = rows.matvec("value", weights.v_proj, nrm, narrow).reshape(heads)
    _store(rows, number, "v", value, parts)
    # Q's chain: projection, head norm, RoPE.
    query, gate = _query(rows, weights, nrm)
    normed = rows.headnorm("qnorm", query, weights.q_norm)
    turned = _turn(rows, "qturned", normed, freq)
    rows.show(number, "qrope", turned)
    attn = attend(rows, turned, _query8(rows, turned, parts), parts)
    rows.show(number, "attn", attn)
    if gate is not None:
        plain, attn = attn, rows.f32("gated", config.n_q, config.head_dim)
        rows.ops.sigmoid_gate(attn, plain, gate, rows.variants)
        rows.show(number, "gated", attn)
    return rows.matvec("mixed", weights.o_proj, attn, config.hidden)


def _query(rows: Rows, weights: Attention, nrm: Buffer) -> tuple[Buffer, Buffer | None]:
    """The query (M, n_q, hd) and, in a hybrid, its gate."""
    config = rows.config
    shape = (config.n_q, config.head_dim)
    wide = config.n_q * config.head_dim
    if config.family != "hybrid":
        query = rows.matvec("query", weights.q_proj, nrm, wide)
        return query.reshape(rows.count, *shape), None
    both = rows.matvec("both", weights.q_proj, nrm, 2 * wide)
    query, gate = rows.f32("query", *shape), rows.f32("query_gate", *shape)
    rows.ops.split_gate(query, gate, both.reshape(rows.count, config.n_q, -1))
    return query, gate


def _turn(rows: Rows, name: str, x: Buffer, freq: Buffer) -> Buffer:
    out = rows.f32(name, *x.shape[1:])
    rows.ops.rope(out, x, freq, rows.place, rows.variants)
    return out


def _store(rows: Rows, number: int, part: str, x: Buffer, parts: Parts) -> None:
    """Append M rows to K or V: int8 with their scales, or f32 as they are (contract 1.6)."""
    if f"{part}s" not in parts:
        rows.show(number, part, x)
        append_rows(rows.ops.backend, parts[part], x, rows.place)
        return
    made = rows.pool.take(f"{part}8", rows.count, x.shape[1:], np.int8)
    scales = rows.f32(f"{part}8_scale", rows.config.n_kv)
    rows.ops.quant8(made, scales, x, rows.variants)
    rows.show(number, part, made)
    rows.show(number, f"{part}s", scales)
    append_rows(rows.ops.backend, parts[part], made, rows.place)
    append_rows(rows.ops.backend, parts[f"{part}s"], scales, rows.place)


def attend(rows: Rows, q: Buffer, q8: tuple[Buffer, Buffer] | None, parts: Parts) -> Buffer:
    """Row m of the query over rows 0 .. pos + m of the cache (contract 1.8). q: (M, n_q, hd) f32;
    q8: its int8 form and scales, None where the cache is f32."""
    config = rows.config
    out, scale = rows.f32("attn", *q.shape[1:]), np.float32(config.sm_scale)
    room = (config.n_q, scratch_width(rows.positions))
    scores = rows.pool.take_shared("scores", rows.count, room, np.float32)
    last = (scale, rows.place, rows.variants, scores)
    if q8 is None:
        rows.ops.attention_f32(out, q, parts["k"], parts["v"], *last)
    else:
        cached = (parts["k"], parts["ks"], parts["v"], parts["vs"])
        rows.ops.attention_int8(out, q8[0], q8[1], *cached, *last)
    return out


def query8(rows: Rows) -> tuple[Buffer, Buffer]:
    """Room for the query's int8 form (M, n_q, hd) and its scales (M, n_q)."""
    config = rows.config
    q8 = rows.pool.take("q8", rows.count, (config.n_q, config.head_dim), np.int8)
    return q8, rows.f32("q_scale", config.n_q)


def _query8(rows: Rows, q: Buffer, parts: Parts) -> tuple[Buffer, Buffer] | None:
    if "ks" not in parts:
        return None
    q8, scale = query8(rows)
    rows.ops.quant8(q8, scale, q, rows.variants)
    return q8, scale
