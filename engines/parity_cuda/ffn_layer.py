"""The FFN and its residual on the device: experts behind a router, or dense. Contract 2, 3.3."""

from __future__ import annotations

import numpy as np

from parity.model import layers
from parity.variants import variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.products import FOLD_P, ExpertInput, experts, folds
from parity_cuda.rows import Rows
from parity_cuda.weights import Dense, Experts

ROUTER_TREE = variant_mask(["router_tree"])


def ffn_layer(
    rows: Rows, number: int, weights: Experts | Dense, ores: Buffer, fnrm: Buffer
) -> Buffer:
    """x = ores + FFN(fnrm), all (M, hidden)."""
    if isinstance(weights, layers.Dense):
        return _dense(rows, number, weights, ores, fnrm)
    return _moe(rows, number, weights, ores, fnrm)


def _dense(rows: Rows, number: int, weights: Dense, ores: Buffer, fnrm: Buffer) -> Buffer:
    """swiglu by storage."""
    config, inter = rows.config, rows.config.ffn_inter(number)
    gate = rows.matvec("dense_gate", weights.gate, fnrm, inter)
    rows.show(number, "gate", gate)
    up = rows.matvec("dense_up", weights.up, fnrm, inter)
    rows.show(number, "up", up)
    act, x = rows.f32("dense_act", inter), rows.f32("x", config.hidden)
    rows.ops.swiglu(act, gate, up, rows.variants)
    rows.show(number, "act", act)
    down = rows.matvec("dense_down", weights.down, act, config.hidden)
    rows.show(number, "down", down)
    rows.ops.add(x, ores, down)
    return x


def _moe(rows: Rows, number: int, weights: Experts, ores: Buffer, fnrm: Buffer) -> Buffer:
    """Router, chosen experts, the shared one, combine; every row is routed by itself."""
    config, variants, ranks = rows.config, rows.variants, rows.config.top_k
    ids, probs = _route(rows, number, weights.router, fnrm)
    gate, up, act = (rows.f32(name, ranks, config.inter) for name in ("gate", "up", "act"))
    given = _input(rows, "in16", fnrm.reshape(rows.count, 1, -1))
    experts(gate, weights.gate, ids, probs, given, variants & ~FOLD_P)
    rows.show(number, "gate", gate)
    experts(up, weights.up, ids, probs, given, variants & ~FOLD_P)
    rows.show(number, "up", up)
    rows.ops.swiglu(act, gate, up, variants)
    rows.show(number, "act", act)
    down, x = rows.f32("down", ranks, config.hidden), rows.f32("x", config.hidden)
    folded = folds(weights.down, variants)
    experts(down, weights.down, ids, probs, _input(rows, "act16", act), folded)
    rows.show(number, "down", down)
    if weights.shared is None or weights.shared_gate is None:
        rows.ops.combine(x, ores, down, probs, folded)
        return x
    gs, sh = _shared(rows, number, weights.shared_gate, weights.shared, fnrm)
    rows.ops.combine_shared(x, ores, down, probs, gs, sh, folded)
    return x


def _shared(
    rows: Rows, number: int, gate: Buffer, weights: Dense, fnrm: Buffer
) -> tuple[Buffer, Buffer]:
    """gs (M, 1) and sh (M, hidden): the shared expert's gate, and what it makes of every row."""
    config, inter = rows.config, rows.config.shared_inter
    logit, gs = rows.f32("shared_logit", 1), rows.f32("gs", 1)
    rows.ops.f32_matvec(logit, gate, fnrm, rows.variants)
    rows.ops.shared_gate(gs, logit, rows.variants)
    rows.show(number, "gs", gs)
    wide = rows.matvec("shared_gate", weights.gate, fnrm, inter)
    up = rows.matvec("shared_up", weights.up, fnrm, inter)
    act = rows.f32("shared_act", inter)
    rows.ops.swiglu(act, wide, up, rows.variants)
    sh = rows.matvec("sh", weights.down, act, config.hidden)
    rows.show(number, "sh", sh)
    return gs, sh


def _input(rows: Rows, name: str, x: Buffer) -> ExpertInput:
    _, groups, width = x.shape
    q = rows.pool.take(name, rows.count, (groups, width), np.int16)
    scale = rows.f32(f"{name}_scale", groups, -(-width // 32))
    return ExpertInput(rows.ops, x, q, scale, rows.variants)


def _route(rows: Rows, number: int, router: Buffer, fnrm: Buffer) -> tuple[Buffer, Buffer]:
    """ids (M, k) int32 and probs (M, k) f32 of the chosen experts."""
    config = rows.config
    rlogits = rows.f32("rlogits", config.experts)
    if rows.variants & ROUTER_TREE:
        rows.ops.router_tree(rlogits, router, fnrm)
    else:
        rows.ops.f32_matvec(rlogits, router, fnrm, rows.variants)
    rows.show(number, "rlogits", rlogits)
    ids = rows.pool.take("ids", rows.count, (config.top_k,), np.int32)
    probs = rows.f32("probs", config.top_k)
    rows.ops.router_topk(ids, probs, rlogits, config.norm_topk_prob, rows.variants)
    rows.show(number, "topk", ids)
    rows.show(number, "topp", probs)
    return ids, probs
