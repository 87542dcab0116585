"""Gated DeltaNet on the device: from nrm to the input of the residual. Contract 3.2.

Projections, norms and gates run on M rows at once. The convolution and the recurrence go row by
row, in place; where nobody asks for the states between the rows, inside two launches for all rows.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.fused.delta import MOST_ROWS, Projected
from parity_cuda.fused.gdn_layer import recurrence
from parity_cuda.products import matvec
from parity_cuda.rows import Rows
from parity_cuda.state import Parts
from parity_cuda.weights import Gdn

HISTORY = 3  # rows of hist


def gdn_layer(rows: Rows, number: int, weights: Gdn, nrm: Buffer, parts: Parts) -> Buffer:
    """Advances s and hist of ``parts`` by M rows; returns out_proj's output (M, hidden)."""
    config, count = rows.config, rows.count
    _, value_heads, _, value_width = config.gdn
    at_once = _at_once(rows)
    seen = _seen(rows, HISTORY if at_once else 0)
    qkv = seen[-count:]
    matvec(rows.ops, qkv, weights.qkv_proj, nrm, rows.variants)
    rows.show(number, "qkv", qkv)
    z = rows.matvec("z", weights.z_proj, nrm, value_heads * value_width)
    z = z.reshape(count, value_heads, value_width)
    rows.show(number, "z", z)
    if at_once:
        if rows.tap.asks("hist"):
            rows.ops.backend.copy(seen[:HISTORY], parts["hist"])
        given = Projected(qkv, z, *_gate_inputs(rows, weights, nrm))
        gn = recurrence(rows, number, given, weights, parts, seen)
    else:
        gn = _row_by_row(rows, number, weights, nrm, qkv, z, parts)
    return rows.matvec("mixed", weights.out_proj, gn, config.hidden)


def _at_once(rows: Rows) -> bool:
    """Whether the rows can follow each other inside a launch: s is seen after the last alone."""
    fits = 1 < rows.count <= MOST_ROWS
    return fits and rows.ops.backend.fuse and not rows.tap.asks("s")


def _seen(rows: Rows, before: int) -> Buffer:
    """Room for qkv of M rows, with ``before`` rows ahead of them."""
    channels = (rows.config.conv_dim,)
    return rows.pool.take("qkv", before + rows.count, channels, np.float32)


def _row_by_row(
    rows: Rows, number: int, weights: Gdn, nrm: Buffer, qkv: Buffer, z: Buffer, parts: Parts
) -> Buffer:
    """The same op by op, each state shown."""
    config, ops = rows.config, rows.ops
    key_heads, value_heads, key_width, value_width = config.gdn
    conv = _convolve(rows, number, weights, qkv, parts["hist"])
    at = key_heads * key_width
    qn, kn = (rows.f32(name, key_heads, key_width) for name in ("qn", "kn"))
    channels = conv.reshape(-1)
    ops.l2norm(qn, channels, np.float32(1.0 / sqrt(key_width)), config.conv_dim)
    rows.show(number, "qn", qn)
    ops.l2norm(kn, channels[at:], np.float32(1.0), config.conv_dim)
    rows.show(number, "kn", kn)
    beta, g = _gates(rows, number, weights, nrm)
    o = rows.f32("o", value_heads, value_width)
    for m in range(rows.count):
        values = conv[m, 2 * at :]
        ops.delta_step(o[m], parts["s"], qn[m], kn[m], values, beta[m], g[m])
        rows.tap(rows.pos + m, number, "s", parts["s"], passing=True)
        rows.tap(rows.pos + m, number, "o", o[m])
    gn = rows.f32("gn", value_heads, value_width)
    normed = rows.headnorm("gdn_normed", o, weights.norm)
    ops.silu_gate(gn, normed, z, rows.variants)
    rows.show(number, "gn", gn)
    return gn


def _convolve(rows: Rows, number: int, weights: Gdn, qkv: Buffer, hist: Buffer) -> Buffer:
    conv = rows.f32("conv", qkv.shape[1])
    for m in range(rows.count):
        rows.ops.conv_step(conv[m], hist, qkv[m], weights.conv, rows.variants)
        rows.tap(rows.pos + m, number, "conv", conv[m])
        rows.tap(rows.pos + m, number, "hist", hist, passing=True)
    return conv


def _gate_inputs(rows: Rows, weights: Gdn, nrm: Buffer) -> tuple[Buffer, Buffer]:
    heads = rows.config.gdn[1]
    a = rows.matvec("a", weights.a_proj, nrm, heads)
    return a, rows.matvec("b", weights.b_proj, nrm, heads)


def _gates(rows: Rows, number: int, weights: Gdn, nrm: Buffer) -> tuple[Buffer, Buffer]:
    heads = rows.config.gdn[1]
    a, b = _gate_inputs(rows, weights, nrm)
    beta, g = rows.f32("beta", heads), rows.f32("g", heads)
    rows.ops.delta_gates(beta, g, a, b, weights.rates, weights.dt_bias, rows.variants)
    rows.show(number, "beta", beta)
    rows.show(number, "g", g)
    return beta, g
