"""Slow scalar twins of contract 3: the output gate of 3.1 and every step of 3.2.

Written as scalar.py is: one np.float32 operation per statement, against the contract alone. What
the family shares with the others (norms, products, RoPE on a part of a head, attention over an f32
cache) is in scalar.py and scalar_f32.py. ``exp`` is expf of section 4, or another exponential for
the variants libm_exp and exp_via_double of section 5.
"""

from __future__ import annotations

import math

import numpy as np

from tests.oracle.elementary import Float32Function, expf, logf
from tests.oracle.scalar import ONE, ZERO, Array, F, Row, quiet

TAPS = 4
NORM_EPS = F(1e-6)
SOFTPLUS_BOUND = F(20.0)


def query_scale(key_width: int) -> np.float32:
    """1/sqrt(kd) in binary64, then rounded to binary32 once (contract, preamble)."""
    return F(1.0 / math.sqrt(key_width))


# --- 1.9 ------------------------------------------------------------------------------------------


def sigmoid(x: np.float32, exp: Float32Function = expf) -> np.float32:
    """1 / (1 + expf(-x))."""
    e = exp(F(-x))
    below = F(ONE + e)
    return F(ONE / below)


def silu(x: np.float32, exp: Float32Function = expf) -> np.float32:
    """x * sigmoid(x)."""
    return F(x * sigmoid(x, exp))


def softplus(x: np.float32, exp: Float32Function = expf) -> np.float32:
    """x above 20, else logf(1 + expf(x))."""
    if x > SOFTPLUS_BOUND:
        return x
    e = exp(x)
    return logf(F(ONE + e))


# --- 3.1 ------------------------------------------------------------------------------------------


def split_gate(both: Array) -> tuple[Array, Array]:
    """Query and gate f32[M, n_q, hd] from q_proj's [q, gate] per head, f32[M, n_q, 2 * hd]."""
    rows, heads, twice = both.shape
    hd = twice // 2
    query, gate = np.zeros((rows, heads, hd), F), np.zeros((rows, heads, hd), F)
    for m, h, d in np.ndindex(query.shape):
        query[m, h, d] = both[m, h, d]
        gate[m, h, d] = both[m, h, hd + d]
    return query, gate


@quiet
def sigmoid_gate(x: Array, gate: Array, exp: Float32Function = expf) -> Array:
    """x * sigmoid(gate), elementwise: ``gated`` of 3.1."""
    out = np.zeros(x.shape, F)
    for index in np.ndindex(x.shape):
        out[index] = F(x[index] * sigmoid(gate[index], exp))
    return out


# --- 3.2 ------------------------------------------------------------------------------------------


@quiet
def silu_gate(x: Array, z: Array, exp: Float32Function = expf) -> Array:
    """x * silu(z), elementwise: what follows the norm in ``gn``."""
    out = np.zeros(x.shape, F)
    for index in np.ndindex(x.shape):
        out[index] = F(x[index] * silu(z[index], exp))
    return out


@quiet
def decay_rates(a_log: Array) -> Array:
    """nA = -expf(A_log), f32[vh]; made at load, so no variant of expf reaches it."""
    out = np.zeros(a_log.shape, F)
    for h in range(a_log.shape[0]):
        e = expf(a_log[h])
        out[h] = F(-e)
    return out


@quiet
def conv_step(
    hist: Array, qkv: Array, w: Array, exp: Float32Function = expf
) -> tuple[Array, Array]:
    """One row f32[C] through the causal convolution w f32[C, 4], then silu.

    hist f32[3, C], the oldest row first. Returns (out f32[C], hist after the row).
    """
    out, after = np.zeros(qkv.shape, F), np.zeros(hist.shape, F)
    for c in range(qkv.shape[0]):
        taps = [hist[0, c], hist[1, c], hist[2, c], qkv[c]]
        acc = ZERO
        for t in range(TAPS):
            product = F(w[c, t] * taps[t])
            acc = F(acc + product)
        out[c] = silu(acc, exp)
        # The raw qkv, not what came out.
        after[0, c], after[1, c], after[2, c] = taps[1], taps[2], taps[3]
    return out, after


@quiet
def l2norm(x: Array, scale: np.float32) -> Array:
    """x f32[M, heads, width] times 1/sqrt(ss + 1e-6) per head, then times scale.

    The scale is ``query_scale`` for q and 1 for k, where the product is exact.
    """
    out = np.zeros(x.shape, F)
    for m, h in np.ndindex(x.shape[:2]):
        ss = ZERO
        for value in x[m, h]:
            square = F(value * value)
            ss = F(ss + square)
        root = F(np.sqrt(F(ss + NORM_EPS)))
        r = F(ONE / root)
        for j in range(x.shape[2]):
            unit = F(x[m, h, j] * r)
            out[m, h, j] = F(unit * scale)
    return out


@quiet
def delta_gates(
    a: Array, b: Array, rates: Array, dt_bias: Array, exp: Float32Function = expf
) -> tuple[Array, Array]:
    """beta = sigmoid(b), g = expf(nA * softplus(a + dt_bias)); a, b f32[M, vh], rates = nA."""
    beta, g = np.zeros(b.shape, F), np.zeros(a.shape, F)
    for m, h in np.ndindex(a.shape):
        beta[m, h] = sigmoid(b[m, h], exp)
        shifted = F(a[m, h] + dt_bias[h])
        power = F(rates[h] * softplus(shifted, exp))
        g[m, h] = exp(power)
    return beta, g


def _column(
    s: Row, k: Row, q: Row, v: np.float32, beta: np.float32, g: np.float32
) -> list[np.float32]:
    """One column of S, f32[kd], after the row; its last element more is o."""
    decayed = [F(value * g) for value in s]
    mem = ZERO
    for value, key in zip(decayed, k, strict=True):
        product = F(value * key)
        mem = F(mem + product)
    missing = F(v - mem)
    delta = F(missing * beta)
    after = []
    for value, key in zip(decayed, k, strict=True):
        product = F(key * delta)
        after.append(F(value + product))
    o = ZERO
    for value, query in zip(after, q, strict=True):
        product = F(value * query)
        o = F(o + product)
    return [*after, o]


@quiet
def delta_step(
    s: Array, q: Array, k: Array, v: Array, beta: Array, g: Array
) -> tuple[Array, Array]:
    """One row of the gated delta rule: (o f32[vh, vd], S f32[vh, kd, vd] after it).

    q, k f32[kh, kd]; v f32[vh, vd]; beta, g f32[vh]. Value head h uses key head h / (vh/kh).
    """
    value_heads, _, width = s.shape
    group = value_heads // q.shape[0]
    o, after = np.zeros((value_heads, width), F), np.zeros(s.shape, F)
    for h in range(value_heads):
        keys, queries = list(k[h // group]), list(q[h // group])
        for j in range(width):
            column = _column(list(s[h, :, j]), keys, queries, v[h, j], beta[h], g[h])
            after[h, :, j], o[h, j] = column[:-1], column[-1]
    return o, after
