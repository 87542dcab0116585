"""Gated DeltaNet on the CPU: from nrm to the input of the residual. Contract 3.2.

Projections, norms and gates run on M rows at once; the convolution and the recurrence go row by
row, in place.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from parity_cpu.ops.conv_step import conv_step
from parity_cpu.ops.delta_gates import delta_gates
from parity_cpu.ops.delta_step import delta_step
from parity_cpu.ops.l2norm import l2norm
from parity_cpu.ops.silu_gate import silu_gate
from parity_cpu.rows import Rows, f32
from parity_cpu.weights import Gdn

Parts = dict[str, np.ndarray]


def gdn_layer(rows: Rows, number: int, weights: Gdn, nrm: np.ndarray, parts: Parts) -> np.ndarray:
    """Advances s and hist of ``parts`` by M rows; returns out_proj's output (M, hidden)."""
    config, count = rows.config, rows.count
    key_heads, value_heads, key_width, value_width = config.gdn
    qkv = rows.matvec(weights.qkv_proj, nrm, config.conv_dim)
    rows.show(number, "qkv", qkv)
    z = rows.matvec(weights.z_proj, nrm, value_heads * value_width)
    z = z.reshape(count, value_heads, value_width)
    rows.show(number, "z", z)
    conv = _convolve(rows, number, weights, qkv, parts["hist"])
    at = key_heads * key_width
    shape = (count, key_heads, key_width)
    qn, kn = f32(*shape), f32(*shape)
    queries = np.ascontiguousarray(conv[:, :at]).reshape(shape)
    keys = np.ascontiguousarray(conv[:, at : 2 * at]).reshape(shape)
    rows.call(l2norm, qn, queries, np.float32(1.0 / sqrt(key_width)))
    rows.show(number, "qn", qn)
    rows.call(l2norm, kn, keys, np.float32(1.0))
    rows.show(number, "kn", kn)
    beta, g = _gates(rows, number, weights, nrm)
    values = np.ascontiguousarray(conv[:, 2 * at :]).reshape(z.shape)
    o = f32(*z.shape)
    for m in range(count):
        rows.call(delta_step, o[m], parts["s"], qn[m], kn[m], values[m], beta[m], g[m])
        rows.tap(rows.pos + m, number, "s", parts["s"])
        rows.tap(rows.pos + m, number, "o", o[m])
    gn = f32(*z.shape)
    normed = rows.headnorm(o, weights.norm)
    flat = [array.reshape(count, -1) for array in (gn, normed, z)]
    rows.call(silu_gate, *flat, rows.variants)
    rows.show(number, "gn", gn)
    return rows.matvec(weights.out_proj, gn, config.hidden)


def _convolve(
    rows: Rows, number: int, weights: Gdn, qkv: np.ndarray, hist: np.ndarray
) -> np.ndarray:
    conv = np.empty_like(qkv)
    for m in range(rows.count):
        rows.call(conv_step, conv[m], hist, qkv[m], weights.conv, rows.variants)
        rows.tap(rows.pos + m, number, "conv", conv[m])
        rows.tap(rows.pos + m, number, "hist", hist)
    return conv


def _gates(rows: Rows, number: int, weights: Gdn, nrm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heads = rows.config.gdn[1]
    a, b = rows.matvec(weights.a_proj, nrm, heads), rows.matvec(weights.b_proj, nrm, heads)
    beta, g = np.empty_like(a), np.empty_like(a)
    rows.call(delta_gates, beta, g, a, b, weights.rates, weights.dt_bias, rows.variants)
    rows.show(number, "beta", beta)
    rows.show(number, "g", g)
    return beta, g
