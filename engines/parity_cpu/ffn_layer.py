"""The FFN and its residual on the CPU: experts behind a router, or dense. Contract 2, 3.3."""

from __future__ import annotations

import numpy as np

from parity.model import layers
from parity_cpu.ops.add import add
from parity_cpu.ops.combine import combine
from parity_cpu.ops.combine_shared import combine_shared
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.router_topk import router_topk
from parity_cpu.ops.router_tree import router_tree
from parity_cpu.ops.shared_gate import shared_gate
from parity_cpu.ops.swiglu import swiglu
from parity_cpu.products import ExpertInput, experts, folds
from parity_cpu.rows import Rows, f32
from parity_cpu.variants import FOLD_P, ROUTER_TREE
from parity_cpu.weights import Dense, Experts


def ffn_layer(
    rows: Rows, number: int, weights: Experts | Dense, ores: np.ndarray, fnrm: np.ndarray
) -> np.ndarray:
    """x = ores + FFN(fnrm), all (M, hidden)."""
    if isinstance(weights, layers.Dense):
        return _dense(rows, number, weights, ores, fnrm)
    return _moe(rows, number, weights, ores, fnrm)


def _dense(
    rows: Rows, number: int, weights: Dense, ores: np.ndarray, fnrm: np.ndarray
) -> np.ndarray:
    """swiglu by storage."""
    inter = rows.config.ffn_inter(number)
    gate = rows.matvec(weights.gate, fnrm, inter)
    rows.show(number, "gate", gate)
    up = rows.matvec(weights.up, fnrm, inter)
    rows.show(number, "up", up)
    act, x = np.empty_like(gate), np.empty_like(ores)
    rows.call(swiglu, act, gate, up, rows.variants)
    rows.show(number, "act", act)
    down = rows.matvec(weights.down, act, rows.config.hidden)
    rows.show(number, "down", down)
    rows.call(add, x, ores, down)
    return x


def _moe(
    rows: Rows, number: int, weights: Experts, ores: np.ndarray, fnrm: np.ndarray
) -> np.ndarray:
    """Router, chosen experts, the shared one, combine; every row is routed by itself."""
    config, variants, count = rows.config, rows.variants, rows.count
    ids, probs = _route(rows, number, weights.router, fnrm)
    gate, up, act = (f32(count, config.top_k, config.inter) for _ in range(3))
    given = ExpertInput(rows.call, fnrm.reshape(count, 1, -1), variants)
    experts(gate, weights.gate, ids, probs, given, variants & ~FOLD_P)
    rows.show(number, "gate", gate)
    experts(up, weights.up, ids, probs, given, variants & ~FOLD_P)
    rows.show(number, "up", up)
    flat = [array.reshape(-1, config.inter) for array in (act, gate, up)]
    rows.call(swiglu, *flat, variants)
    rows.show(number, "act", act)
    down, x = f32(count, config.top_k, config.hidden), np.empty_like(ores)
    folded = folds(weights.down, variants)
    experts(down, weights.down, ids, probs, ExpertInput(rows.call, act, variants), folded)
    rows.show(number, "down", down)
    if weights.shared is None or weights.shared_gate is None:
        rows.call(combine, x, ores, down, probs, folded)
        return x
    gs, sh = _shared(rows, number, weights.shared_gate, weights.shared, fnrm)
    rows.call(combine_shared, x, ores, down, probs, gs, sh, folded)
    return x


def _shared(
    rows: Rows, number: int, gate: np.ndarray, weights: Dense, fnrm: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """gs (M, 1) and sh (M, hidden): the shared expert's gate, and what it makes of every row."""
    config, inter = rows.config, rows.config.shared_inter
    logit, gs = f32(rows.count, 1), f32(rows.count, 1)
    rows.call(f32_matvec, logit, gate, fnrm, rows.variants)
    rows.call(shared_gate, gs, logit, rows.variants)
    rows.show(number, "gs", gs)
    wide = rows.matvec(weights.gate, fnrm, inter)
    up = rows.matvec(weights.up, fnrm, inter)
    act = np.empty_like(wide)
    rows.call(swiglu, act, wide, up, rows.variants)
    sh = rows.matvec(weights.down, act, config.hidden)
    rows.show(number, "sh", sh)
    return gs, sh


def _route(
    rows: Rows, number: int, router: np.ndarray, fnrm: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """ids (M, k) int32 and probs (M, k) f32 of the chosen experts."""
    config, count = rows.config, rows.count
    rlogits = f32(count, config.experts)
    if rows.variants & ROUTER_TREE:
        rows.call(router_tree, rlogits, router, fnrm)
    else:
        rows.call(f32_matvec, rlogits, router, fnrm, rows.variants)
    rows.show(number, "rlogits", rlogits)
    ids, probs = np.empty((count, config.top_k), np.int32), f32(count, config.top_k)
    rows.call(router_topk, ids, probs, rlogits, config.norm_topk_prob, rows.variants)
    rows.show(number, "topk", ids)
    rows.show(number, "topp", probs)
    return ids, probs
