"""Gated DeltaNet on the device: from nrm to the input of the residual. Contract 3.2.

Projections, norms and gates run on M rows at once; the convolution and the recurrence go row by
row, in place.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.rows import Rows
from parity_cuda.state import Parts
from parity_cuda.weights import Gdn


def gdn_layer(rows: Rows, number: int, weights: Gdn, nrm: Buffer, parts: Parts) -> Buffer:
    """Advances s and hist of ``parts`` by M rows; returns out_proj's output (M, hidden)."""
    config, count, ops = rows.config, rows.count, rows.ops
    key_heads, value_heads, key_width, value_width = config.gdn
    qkv = rows.matvec("qkv", weights.qkv_proj, nrm, config.conv_dim)
    rows.show(number, "qkv", qkv)
    z = rows.matvec("z", weights.z_proj, nrm, value_heads * value_width)
    z = z.reshape(count, value_heads, value_width)
    rows.show(number, "z", z)
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
    for m in range(count):
        values = conv[m, 2 * at :]
        ops.delta_step(o[m], parts["s"], qn[m], kn[m], values, beta[m], g[m])
        rows.tap(rows.pos + m, number, "s", parts["s"])
        rows.tap(rows.pos + m, number, "o", o[m])
    gn = rows.f32("gn", value_heads, value_width)
    normed = rows.headnorm("gdn_normed", o, weights.norm)
    ops.silu_gate(gn, normed, z, rows.variants)
    rows.show(number, "gn", gn)
    return rows.matvec("mixed", weights.out_proj, gn, config.hidden)


def _convolve(rows: Rows, number: int, weights: Gdn, qkv: Buffer, hist: Buffer) -> Buffer:
    conv = rows.f32("conv", qkv.shape[1])
    for m in range(rows.count):
        rows.ops.conv_step(conv[m], hist, qkv[m], weights.conv, rows.variants)
        rows.tap(rows.pos + m, number, "conv", conv[m])
        rows.tap(rows.pos + m, number, "hist", hist)
    return conv


def _gates(rows: Rows, number: int, weights: Gdn, nrm: Buffer) -> tuple[Buffer, Buffer]:
    heads = rows.config.gdn[1]
    a = rows.matvec("a", weights.a_proj, nrm, heads)
    b = rows.matvec("b", weights.b_proj, nrm, heads)
    beta, g = rows.f32("beta", heads), rows.f32("g", heads)
    rows.ops.delta_gates(beta, g, a, b, weights.rates, weights.dt_bias, rows.variants)
    rows.show(number, "beta", beta)
    rows.show(number, "g", g)
    return beta, g
