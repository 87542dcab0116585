"""A second, vectorised writing of contract 3's own ops, with named faults to plant."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.elementary import expf, logf
from tests.oracle.hybrid_scalar import NORM_EPS
from tests.oracle.twin_products import Array, F, Fault, fused
from tests.oracle.twin_rows import each, exponential

_EXP = ("correctly rounded exp", "platform's exp")
FAULTS: dict[str, tuple[str, ...]] = {
    "split_gate": ("gate first", "halves of the whole row", "every second element"),
    "sigmoid_gate": ("silu of the gate", "x and gate swapped", "gate not squashed", *_EXP),
    "silu_gate": ("sigmoid of z", "x and z swapped", "x times z first", *_EXP),
    "decay_rates": ("sign lost", "not exponentiated", *_EXP),
    "conv_step": (
        "taps descending",
        "summed from the newest",
        "starts from the first product",
        "fused",
        "silu left out",
        "hist shifted by the output",
        "hist not shifted",
        "newest kept first",
        *_EXP,
    ),
    "l2norm": (
        "squares descending",
        "eps left out",
        "eps outside the root",
        "mean of the squares",
        "scale joins the root",
        "divided by the root",
        "reciprocal root by way of binary64",
        "scale left out",
        "fused",
    ),
    "delta_gates": (
        "beta after sigmoid twice",
        "a and b swapped",
        "bias left out",
        "bound of softplus left out",
        "bound of softplus at 10",
        "one exponential with log1p",
        "g before expf",
        "rates applied inside softplus",
        *_EXP,
    ),
    "delta_step": (
        "delta before decay",
        "decay after the update",
        "value head reads key head h mod kh",
        "o from the old S",
        "beta on the value alone",
        "k times beta first",
        "sums descending",
        "fused",
        "q and k swapped",
    ),
}


def _sigmoid(x: Array, fault: Fault) -> Array:
    return F(1.0) / (F(1.0) + each(exponential(fault), -x))


def split_gate(both: Array, fault: Fault = None) -> tuple[Array, Array]:
    """Query and gate of [q, gate] per head."""
    rows, heads, twice = both.shape
    if fault == "halves of the whole row":
        halves = both.reshape(rows, 2, heads, twice // 2)
        return halves[:, 0].copy(), halves[:, 1].copy()
    if fault == "every second element":
        return both[..., ::2].copy(), both[..., 1::2].copy()
    query, gate = both[..., : twice // 2].copy(), both[..., twice // 2 :].copy()
    return (gate, query) if fault == "gate first" else (query, gate)


def sigmoid_gate(x: Array, gate: Array, fault: Fault = None) -> Array:
    """x * sigmoid(gate)."""
    if fault == "x and gate swapped":
        x, gate = gate, x
    if fault == "gate not squashed":
        return x * gate
    s = _sigmoid(gate, fault)
    return x * (gate * s) if fault == "silu of the gate" else x * s


def silu_gate(x: Array, z: Array, fault: Fault = None) -> Array:
    """x * silu(z)."""
    if fault == "x and z swapped":
        x, z = z, x
    s = _sigmoid(z, fault)
    if fault == "sigmoid of z":
        return x * s
    return (x * z) * s if fault == "x times z first" else x * (z * s)


def decay_rates(a_log: Array, fault: Fault = None) -> Array:
    """-expf(A_log)."""
    if fault == "not exponentiated":
        return -a_log
    e = each(exponential(fault), a_log)
    return e if fault == "sign lost" else -e


def _tap_sum(w: Array, rows: Array, fault: Fault) -> Array:
    """Products of w f32[C, 4] and rows f32[4, C], one after the other."""
    order = [3, 2, 1, 0] if fault == "summed from the newest" else [0, 1, 2, 3]
    acc = np.zeros(len(w), F)
    for at, t in enumerate(order):
        if fault == "fused":
            acc = fused(w[:, t], rows[t], acc)
        elif fault == "starts from the first product" and at == 0:
            acc = w[:, t] * rows[t]
        else:
            acc = acc + w[:, t] * rows[t]
    return acc


def conv_step(hist: Array, qkv: Array, w: Array, fault: Fault = None) -> tuple[Array, Array]:
    """The convolution's row after silu, and hist after it."""
    rows = np.concatenate([hist, qkv[None]])
    acc = _tap_sum(w[:, ::-1] if fault == "taps descending" else w, rows, fault)
    out = acc if fault == "silu left out" else acc * _sigmoid(acc, fault)
    if fault == "hist not shifted":
        return out, hist.copy()
    if fault == "newest kept first":
        return out, np.concatenate([qkv[None], hist[:2]])
    if fault == "hist shifted by the output":
        rows = np.concatenate([hist, out[None]])
    return out, rows[1:].copy()


def _root(ss: Array, width: int, fault: Fault) -> Array:
    if fault == "mean of the squares":
        ss = ss / F(width)
    if fault == "eps left out":
        return np.sqrt(ss)
    if fault == "eps outside the root":
        return np.sqrt(ss) + NORM_EPS
    return np.sqrt(ss + NORM_EPS)


def l2norm(x: Array, scale: np.float32, fault: Fault = None) -> Array:
    """x over the root of its square sum, times scale."""
    ss = np.zeros(x.shape[:2], F)
    width = x.shape[2]
    for j in range(width):
        value = x[:, :, width - 1 - j if fault == "squares descending" else j]
        ss = fused(value, value, ss) if fault == "fused" else ss + value * value
    root = _root(ss, width, fault)[..., None]
    r = F(1.0) / root
    if fault == "reciprocal root by way of binary64":
        r = (1.0 / np.sqrt(np.float64(ss + NORM_EPS))).astype(F)[..., None]
    if fault == "scale joins the root":
        return x * (r * scale)
    unit = x / root if fault == "divided by the root" else x * r
    return unit if fault == "scale left out" else unit * scale


def _softplus(x: Array, fault: Fault) -> Array:
    if fault == "one exponential with log1p":
        soft = np.log1p(np.exp(x.astype(np.float64))).astype(F)
    else:
        soft = each(logf, F(1.0) + each(exponential(fault), x))
    if fault == "bound of softplus left out":
        return soft
    bound = F(10.0) if fault == "bound of softplus at 10" else F(20.0)
    return np.where(x > bound, x, soft)


def delta_gates(
    a: Array, b: Array, rates: Array, dt_bias: Array, fault: Fault = None
) -> tuple[Array, Array]:
    """beta and g."""
    if fault == "a and b swapped":
        a, b = b, a
    beta = _sigmoid(b, fault)
    if fault == "beta after sigmoid twice":
        beta = _sigmoid(beta, fault)
    shifted = a if fault == "bias left out" else a + dt_bias
    if fault == "rates applied inside softplus":
        return beta, each(expf, -_softplus(-rates * shifted, fault))
    power = rates * _softplus(shifted, fault)
    return beta, power if fault == "g before expf" else each(exponential(fault), power)


def _contracted(s: Array, x: Array, fault: Fault) -> Array:
    """Sum over i of S[h][i][j] * x[h][i], f32[vh, vd]."""
    acc = np.zeros((s.shape[0], s.shape[2]), F)
    width = s.shape[1]
    for i in range(width):
        at = width - 1 - i if fault == "sums descending" else i
        value = x[:, at, None]
        acc = fused(s[:, at], value, acc) if fault == "fused" else acc + s[:, at] * value
    return acc


def _heads(rows: Array, value_heads: int, fault: Fault) -> Array:
    """Rows of the key heads, one a value head."""
    at = np.arange(value_heads)
    if fault == "value head reads key head h mod kh":
        return rows[at % len(rows)]
    return rows[at // (value_heads // len(rows))]


def _delta(v: Array, mem: Array, beta: Array, fault: Fault) -> Array:
    if fault == "beta on the value alone":
        return v * beta[:, None] - mem
    missing = v - mem
    return missing if fault == "k times beta first" else missing * beta[:, None]


def delta_step(
    s: Array, q: Array, k: Array, v: Array, beta: Array, g: Array, fault: Fault = None
) -> tuple[Array, Array]:
    """o and S after one row of the gated delta rule."""
    if fault == "q and k swapped":
        q, k = k, q
    queries, keys = (_heads(rows, len(s), fault) for rows in (q, k))
    decay = g[:, None, None]
    decayed = s if fault == "decay after the update" else s * decay
    mem = _contracted(s if fault == "delta before decay" else decayed, keys, fault)
    delta = _delta(v, mem, beta, fault)
    if fault == "k times beta first":
        keys = keys * beta[:, None]
    after = decayed + keys[:, :, None] * delta[:, None]
    if fault == "decay after the update":
        after = after * decay
    o = _contracted(s if fault == "o from the old S" else after, queries, fault)
    return o, after


_OPS: dict[str, Any] = {
    op.__name__: op
    for op in (
        *(split_gate, sigmoid_gate, silu_gate, decay_rates),
        *(conv_step, l2norm, delta_gates, delta_step),
    )
}


def run(op_name: str, args: tuple[Any, ...], fault: Fault = None) -> tuple[Array, ...]:
    """The op's outputs as a tuple, right or with one named fault."""
    if fault is not None and fault not in FAULTS[op_name]:
        raise KeyError(f"{op_name} has no fault {fault!r}; it has {FAULTS[op_name]}")
    with np.errstate(all="ignore"):
        result = _OPS[op_name](*args, fault=fault)
    return result if isinstance(result, tuple) else (result,)
