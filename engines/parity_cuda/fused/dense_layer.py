"""The dense FFN of one row as fused launches: from ores to x. Contract 2, 3.3."""

from __future__ import annotations

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.fused.project import Norm, project
from parity_cuda.rows import Rows
from parity_cuda.weights import Dense


def knows(weights: Dense, variants: int) -> bool:
    """Whether these weights under this mask can be run so: all can."""
    del weights, variants
    return True


def dense_layer(rows: Rows, number: int, norm: Buffer, weights: Dense, ores: Buffer) -> Buffer:
    """norm: (hidden,) f32, of the norm before the FFN. Returns x (1, hidden)."""
    config, inter = rows.config, rows.config.ffn_inter(number)
    fnrm, act = rows.f32("fnrm", config.hidden), rows.f32("dense_act", inter)
    gate, up = rows.f32("dense_gate", inter), rows.f32("dense_up", inter)
    normed = Norm(fnrm, norm, np.float32(config.eps))
    outs = [(gate, weights.gate), (up, weights.up)]
    project(rows.ops, ores, outs, rows.variants, norm=normed, act=act)
    for field, values in (("fnrm", fnrm), ("gate", gate), ("up", up), ("act", act)):
        rows.show(number, field, values)
    down, x = rows.f32("dense_down", config.hidden), rows.f32("x", config.hidden)
    project(rows.ops, act, [(down, weights.down)], rows.variants, total=(x, ores))
    rows.show(number, "down", down)
    rows.show(number, "x", x)
    return x
