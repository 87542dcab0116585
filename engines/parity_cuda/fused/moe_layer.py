"""The MoE FFN of one row as fused launches: from ores to x. Contract 2."""

from __future__ import annotations

import numpy as np

from parity.errors import ParityBug
from parity.model.layers import Q4, Dense
from parity_cuda.backend import Buffer
from parity_cuda.fused.experts import (
    Acts,
    Routing,
    Shared,
    Weights,
    down,
    fits,
    gate_up,
    guesses,
    route,
)
from parity_cuda.fused.project import project
from parity_cuda.rows import Rows
from parity_cuda.weights import Experts


def knows(weights: Experts, variants: int, ranks: int) -> bool:
    """Whether these weights under this mask can be run so: all masks can, with Q4_0 experts that
    fit a block's memory."""
    del variants
    kept = _kept(weights)
    if kept is None:
        return False
    experts, hidden = (int(size) for size in weights.router.shape)
    return fits(experts, ranks, 32 * int(kept.down.d.shape[2]), hidden)


def moe_layer(rows: Rows, number: int, norm: Buffer, weights: Experts, ores: Buffer) -> Buffer:
    """norm: (hidden,) f32, of the norm before the FFN. Returns x (1, hidden)."""
    config, variants, ranks = rows.config, rows.variants, rows.config.top_k
    kept = _kept(weights)
    if kept is None:
        raise ParityBug(f"layer {number}: experts that are not Q4_0 among fused launches")
    routing, acts = _routing(rows), _acts(rows)
    route(rows.ops, routing, ores, norm, weights.router, np.float32(config.eps), variants)
    shared = _shared(rows, weights, routing.fnrm)
    gate_up(rows.ops, acts, routing, kept, shared, variants)
    x, product = rows.f32("x", config.hidden), rows.f32("down", ranks, config.hidden)
    ids = rows.pool.take("ids", rows.count, (ranks,), np.int32)
    outs = (x, product, ids, rows.f32("probs", ranks))
    given = (ores, acts, routing, kept, shared)
    down(rows.ops, outs, *given, config.norm_topk_prob, variants)
    shown = {"fnrm": routing.fnrm, "rlogits": routing.rlogits, "topk": ids, "topp": outs[3],
             "gate": acts.gate, "up": acts.up, "act": acts.act, "down": product}  # fmt: skip
    if shared is not None:
        shown |= {"gs": shared.gs, "sh": shared.sh}
    for field, values in {**shown, "x": x}.items():
        rows.show(number, field, values)
    return x


def _kept(weights: Experts) -> Weights | None:
    """The experts as the launches take them: Q4_0 all of them."""
    gate, up, product = weights.gate, weights.up, weights.down
    if isinstance(gate, Q4) and isinstance(up, Q4) and isinstance(product, Q4):
        return Weights(weights.router, gate, up, product)
    return None


def _routing(rows: Rows) -> Routing:
    config = rows.config
    fnrm, rlogits = rows.f32("fnrm", config.hidden), rows.f32("rlogits", config.experts)
    guess = rows.f32("guess", config.experts) if guesses(rows.variants) else None
    return Routing(fnrm, *_int16(rows, "in16", 1, config.hidden), rlogits, guess)


def _acts(rows: Rows) -> Acts:
    ranks, inter = rows.config.top_k, rows.config.inter
    gate, up, act = (rows.f32(name, ranks, inter) for name in ("gate", "up", "act"))
    return Acts(gate, up, act, *_int16(rows, "act16", ranks, inter))


def _int16(rows: Rows, name: str, groups: int, width: int) -> tuple[Buffer, Buffer]:
    q = rows.pool.take(name, rows.count, (groups, width), np.int16)
    return q, rows.f32(f"{name}_scale", groups, width // 32)


def _shared(rows: Rows, weights: Experts, fnrm: Buffer) -> Shared | None:
    """sh is made here; the gate's logit and gs beside the chosen experts."""
    if weights.shared is None or weights.shared_gate is None:
        return None
    config, inter = rows.config, rows.config.shared_inter
    dense: Dense[Buffer] = weights.shared
    gate, up = rows.f32("shared_gate", inter), rows.f32("shared_up", inter)
    act, sh = rows.f32("shared_act", inter), rows.f32("sh", config.hidden)
    outs = [(gate, dense.gate), (up, dense.up)]
    project(rows.ops, fnrm, outs, rows.variants, act=act)
    project(rows.ops, act, [(sh, dense.down)], rows.variants)
    return Shared(weights.shared_gate, rows.f32("shared_logit", 1), rows.f32("gs", 1), sh)
