"""Full attention of one row as fused launches: from x to ores. Contract 2, 3.1."""

from __future__ import annotations

import numpy as np

from parity_cuda.attention_layer import attend, query8
from parity_cuda.backend import Buffer
from parity_cuda.fused import heads
from parity_cuda.fused.heads import Heads, Int8, heads_f32, heads_int8
from parity_cuda.fused.project import Norm, project
from parity_cuda.rows import Rows
from parity_cuda.state import Parts
from parity_cuda.weights import Attention


def knows(weights: Attention, variants: int) -> bool:
    """Whether these weights under this mask can be run so: all masks can."""
    del variants
    return heads.knows(int(weights.k_norm.shape[0]))


def attention_layer(
    rows: Rows, number: int, norm: Buffer, weights: Attention, x: Buffer, parts: Parts, freq: Buffer
) -> Buffer:
    """Writes row pos of ``parts``; norm: (hidden,) f32, of the norm before the layer. Returns ores
    (1, hidden)."""
    config = rows.config
    nrm, ores = rows.f32("nrm", config.hidden), rows.f32("ores", config.hidden)
    given = _projected(rows, norm, weights, x, nrm, freq)
    rows.show(number, "nrm", nrm)
    rows.show(number, "kraw", given.kraw)
    attn = _attended(rows, number, given, parts)
    mixed = rows.f32("mixed", config.hidden)
    flat = attn.reshape(1, -1)
    project(rows.ops, flat, [(mixed, weights.o_proj)], rows.variants, total=(ores, x))
    rows.show(number, "ores", ores)
    return ores


def _projected(
    rows: Rows, norm: Buffer, weights: Attention, x: Buffer, nrm: Buffer, freq: Buffer
) -> Heads:
    """nrm and the three projections of it, in one launch."""
    config, eps = rows.config, np.float32(rows.config.eps)
    narrow, wide = config.n_kv * config.head_dim, config.n_q * config.head_dim
    kraw, value = rows.f32("kraw", narrow), rows.f32("value", narrow)
    gated = config.family == "hybrid"
    query = rows.f32("both", 2 * wide) if gated else rows.f32("query", wide)
    outs = [(kraw, weights.k_proj), (value, weights.v_proj), (query, weights.q_proj)]
    project(rows.ops, x, outs, rows.variants, norm=Norm(nrm, norm, eps))
    norms = (weights.k_norm, weights.q_norm)
    return Heads(kraw, value, query, *norms, freq, rows.place, eps, rows.variants)


def _attended(rows: Rows, number: int, given: Heads, parts: Parts) -> Buffer:
    """The input of o_proj, (1, n_q, hd)."""
    config = rows.config
    shape = (config.n_q, config.head_dim)
    qrope, knorm = rows.f32("qturned", *shape), rows.f32("knorm", config.n_kv, config.head_dim)
    gate = rows.f32("query_gate", *shape) if config.family == "hybrid" else None
    q8 = None if "ks" not in parts else query8(rows)
    if q8 is None:
        k = rows.f32("kturned", config.n_kv, config.head_dim)
        heads_f32(rows.ops, knorm, k, qrope, gate, parts, given)
        shown = {"knorm": knorm, "k": k, "v": given.value}
    else:
        made = [_int8(rows, part) for part in ("k", "v")]
        heads_int8(rows.ops, knorm, made[0], made[1], qrope, q8, parts, given)
        pairs = zip(("k", "ks", "v", "vs"), (*made[0], *made[1]), strict=True)
        shown = {"knorm": knorm, **dict(pairs)}
    for field, values in {**shown, "qrope": qrope}.items():
        rows.show(number, field, values)
    attn = attend(rows, qrope, q8, parts)
    rows.show(number, "attn", attn)
    if gate is None:
        return attn
    gated = rows.f32("gated", *shape)
    rows.ops.sigmoid_gate(gated, attn, gate, rows.variants)
    rows.show(number, "gated", gated)
    return gated


def _int8(rows: Rows, part: str) -> Int8:
    config = rows.config
    made = rows.pool.take(f"{part}8", rows.count, (config.n_kv, config.head_dim), np.int8)
    return made, rows.f32(f"{part}8_scale", config.n_kv)
