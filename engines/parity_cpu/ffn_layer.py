"""The FFN and its residual on the CPU: experts behind a router, or dense. Contract 2, 3.3."""

from __future__ import annotations

import numpy as np

from parity_cpu.ops.add import add
from parity_cpu.ops.combine import combine
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.router_topk import router_topk
from parity_cpu.ops.router_tree import router_tree
from parity_cpu.ops.swiglu import swiglu
from parity_cpu.products import ExpertInput, experts, folds
from parity_cpu.rows import Rows, f32
from parity_cpu.variants import FOLD_P, ROUTER_TREE
from parity_cpu.weights import Ffn


def ffn_layer(
    rows: Rows, number: int, weights: Ffn, ores: np.ndarray, fnrm: np.ndarray
) -> np.ndarray:
    """x = ores + FFN(fnrm), all (M, hidden)."""
    if weights.router is None:
        return _dense(rows, number, weights, ores, fnrm)
    return _moe(rows, number, weights, weights.router, ores, fnrm)


def _dense(rows: Rows, number: int, weights: Ffn, ores: np.ndarray, fnrm: np.ndarray) -> np.ndarray:
    """swiglu by storage."""
    config = rows.config
    gate = rows.matvec(weights.gate, fnrm, config.inter)
    rows.show(number, "gate", gate)
    up = rows.matvec(weights.up, fnrm, config.inter)
    rows.show(number, "up", up)
    act, x = np.empty_like(gate), np.empty_like(ores)
    rows.call(swiglu, act, gate, up, rows.variants)
    rows.show(number, "act", act)
    down = rows.matvec(weights.down, act, config.hidden)
    rows.show(number, "down", down)
    rows.call(add, x, ores, down)
    return x


def _moe(
    rows: Rows,
    number: int,
    weights: Ffn,
    router: np.ndarray,
    ores: np.ndarray,
    fnrm: np.ndarray,
) -> np.ndarray:
    """Router, chosen experts, combine; every row is routed by itself."""
    config, variants, count = rows.config, rows.variants, rows.count
    ids, probs = _route(rows, number, router, fnrm)
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
    rows.call(combine, x, ores, down, probs, folded)
    return x


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
