"""Slow scalar twins of contract sections 1.1 to 1.9 and of section 2's FFN.

One np.float32 operation per statement, Python loops, no vectorised arithmetic: this file is
meant to be read against the contract, not to be fast. All functions take and return arrays and
change none of their arguments. M rows are M independent rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracle.elementary import cosf, expf, logf, sinf
from tests.oracle.rounding import float32_from_fraction
from tests.oracle.storage import BLOCK, HALF_BLOCK, block_weights, widen_f16

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Row = Sequence[np.float32]
ZERO = F(0.0)
ONE = F(1.0)
# Overflow to infinity and 0 * inf are results here, not accidents worth a warning.
quiet = np.errstate(all="ignore")


# --- 1.0 embedding --------------------------------------------------------------------------


@quiet
def embed(d_bits: Array, qs: Array, tokens: Array) -> Array:
    """Embedding rows of tokens i32[M], f32[M, hidden] (contract 1.0: d * (nibble - 8))."""
    blocks = d_bits.shape[1]
    out = np.zeros((tokens.shape[0], blocks * BLOCK), F)
    for m, token in enumerate(tokens):
        for b in range(blocks):
            d = widen_f16(int(d_bits[token, b]))
            packed = qs[token, b * HALF_BLOCK : (b + 1) * HALF_BLOCK]
            for e, weight in enumerate(block_weights(packed)):
                out[m, b * BLOCK + e] = F(d * weight)
    return out


# --- 1.1, 1.2 norms --------------------------------------------------------------------------


def _inverse_root(ss: np.float32, d: int, eps: np.float32) -> np.float32:
    mean = F(ss / F(d))
    shifted = F(mean + eps)
    root = F(np.sqrt(shifted))
    return F(ONE / root)


def _scale_row(x: Row, w: Row, r: np.float32) -> list[np.float32]:
    out = []
    for value, weight in zip(x, w, strict=True):
        scaled = F(value * r)
        out.append(F(scaled * weight))
    return out


def _square_sum_by_blocks(x: Row) -> np.float32:
    """Contract 1.1: blocks of 8, then the tail, one after the other."""
    ss = ZERO
    whole = len(x) - len(x) % 8
    for start in range(0, whole, 8):
        lo = [F(x[start + k] * x[start + k]) for k in range(4)]
        hi = [F(x[start + 4 + k] * x[start + 4 + k]) for k in range(4)]
        for k in range(4):
            lo[k] = F(lo[k] + hi[k])
        s01 = F(lo[0] + lo[1])
        s23 = F(lo[2] + lo[3])
        both = F(s01 + s23)
        ss = F(ss + both)
    for j in range(whole, len(x)):
        square = F(x[j] * x[j])
        ss = F(ss + square)
    return ss


def _square_sum_ascending(x: Row) -> np.float32:
    """Contract 1.2: strictly ascending."""
    ss = ZERO
    for value in x:
        square = F(value * value)
        ss = F(ss + square)
    return ss


@quiet
def rmsnorm(x: Array, w: Array, eps: np.float32) -> Array:
    """RMSNorm of x f32[M, d] with weights f32[d] (contract 1.1)."""
    out = np.zeros(x.shape, F)
    for m in range(x.shape[0]):
        row = list(x[m])
        ss = _square_sum_by_blocks(row)
        r = _inverse_root(ss, len(row), eps)
        out[m] = _scale_row(row, list(w), r)
    return out


@quiet
def headnorm(x: Array, w: Array, eps: np.float32) -> Array:
    """QK-norm of x f32[M, heads, hd] with weights f32[hd] (contract 1.2)."""
    out = np.zeros(x.shape, F)
    for m in range(x.shape[0]):
        for h in range(x.shape[1]):
            row = list(x[m, h])
            ss = _square_sum_ascending(row)
            r = _inverse_root(ss, len(row), eps)
            out[m, h] = _scale_row(row, list(w), r)
    return out


# --- 1.3, 1.5 products with float activations ------------------------------------------------


def _q4_row(d_bits: Array, qs: Array, x: Row) -> np.float32:
    acc = ZERO
    for b in range(len(d_bits)):
        w = block_weights(qs[b * HALF_BLOCK : (b + 1) * HALF_BLOCK])
        first = b * BLOCK
        s = ZERO
        for e in range(HALF_BLOCK):
            low = F(w[e] * x[first + e])
            high = F(w[e + 16] * x[first + e + 16])
            pair = F(low + high)
            s = F(s + pair)
        term = F(widen_f16(int(d_bits[b])) * s)
        acc = F(acc + term)
    return acc


@quiet
def q4_matvec(d_bits: Array, qs: Array, x: Array) -> Array:
    """Q4_0 matrix times x f32[M, cols], f32[M, rows] (contract 1.3)."""
    out = np.zeros((x.shape[0], d_bits.shape[0]), F)
    for m in range(x.shape[0]):
        row = list(x[m])
        for j in range(d_bits.shape[0]):
            out[m, j] = _q4_row(d_bits[j], qs[j], row)
    return out


@quiet
def f32_matvec(w: Array, x: Array) -> Array:
    """f32[rows, cols] times x f32[M, cols], f32[M, rows] (contract 1.5)."""
    out = np.zeros((x.shape[0], w.shape[0]), F)
    for m in range(x.shape[0]):
        row = list(x[m])
        for i in range(w.shape[0]):
            acc = ZERO
            for weight, value in zip(list(w[i]), row, strict=True):
                product = F(weight * value)
                acc = F(acc + product)
            out[m, i] = acc
    return out


# --- 1.4, 1.6 quantising ---------------------------------------------------------------------


def _quantise(x: Row, limit: int) -> tuple[list[int], np.float32]:
    """Codes and scale of one group: scale = max|x| / limit (contract 1.4, 1.6)."""
    amax = ZERO
    for value in x:
        size = F(abs(value))
        if size > amax:
            amax = size
    top = F(limit)
    scale = F(amax / top)
    if scale == ZERO:
        return [0] * len(x), scale
    codes = []
    for value in x:
        ratio = F(value / scale)
        nearest = F(np.rint(ratio))
        # Clamped as float, before conversion.
        if nearest > top:
            nearest = top
        if nearest < F(-top):
            nearest = F(-top)
        # The code of a NaN is not defined (1.10); any will do, for it is not compared.
        codes.append(0 if np.isnan(nearest) else int(nearest))
    return codes, scale


@quiet
def quant8(x: Array) -> tuple[Array, Array]:
    """int8 codes and f32[M, heads] scales of x f32[M, heads, hd] (contract 1.6)."""
    q = np.zeros(x.shape, np.int8)
    scale = np.zeros(x.shape[:2], F)
    for m in range(x.shape[0]):
        for h in range(x.shape[1]):
            q[m, h], scale[m, h] = _quantise(list(x[m, h]), 127)
    return q, scale


@quiet
def quant16(x: Array) -> tuple[Array, Array]:
    """int16 codes and f32[R, n/32] scales of x f32[R, n] (contract 1.4)."""
    rows, n = x.shape
    q = np.zeros(x.shape, np.int16)
    scale = np.zeros((rows, n // BLOCK), F)
    for r in range(rows):
        for b in range(n // BLOCK):
            part = slice(b * BLOCK, (b + 1) * BLOCK)
            q[r, part], scale[r, b] = _quantise(list(x[r, part]), 32767)
    return q, scale


# --- 1.7 RoPE --------------------------------------------------------------------------------


def inv_freq(theta: float, rot_dim: int) -> Array:
    """f32[rot_dim/2]: the f32 nearest to theta^(-2i/rot_dim), by 40-digit decimals (1.7)."""
    out = np.zeros(rot_dim // 2, F)
    with localcontext() as context:
        context.prec = 40
        for i in range(rot_dim // 2):
            power = Decimal(theta) ** (Decimal(-2 * i) / Decimal(rot_dim))
            # Straight from the decimal: by way of binary64 it could be rounded twice.
            out[i] = float32_from_fraction(Fraction(power))
    return out


@quiet
def rope(x: Array, inv_freq: Array, pos: int) -> Array:
    """Rotary embedding of x f32[M, heads, hd]; row m stands at pos + m (contract 1.7)."""
    out = x.copy()
    half = inv_freq.shape[0]
    for m in range(x.shape[0]):
        position = F(pos + m)
        for i in range(half):
            angle = F(position * inv_freq[i])
            c = cosf(angle)
            s = sinf(angle)
            for h in range(x.shape[1]):
                x1, x2 = x[m, h, i], x[m, h, i + half]
                left = F(x1 * c)
                right = F(x2 * s)
                out[m, h, i] = F(left - right)
                left = F(x2 * c)
                right = F(x1 * s)
                out[m, h, i + half] = F(left + right)
    return out


# --- 1.8 attention ---------------------------------------------------------------------------


def _int_dot(a: Array, b: Array) -> int:
    total = 0
    for left, right in zip(a, b, strict=True):
        total += int(left) * int(right)
    return total


def _scores(
    q: Array, q_scale: np.float32, k: Array, k_scale: Array, sm_scale: np.float32
) -> list[np.float32]:
    """One score a key: (f32(dot) * (q_scale * k_scale_t)) * sm_scale."""
    scores = []
    for t in range(k.shape[0]):
        scale = F(q_scale * k_scale[t])
        scaled = F(F(_int_dot(q, k[t])) * scale)
        scores.append(F(scaled * sm_scale))
    return scores


def _weighted_sum(scores: Row, v: Array, v_scale: Array) -> list[np.float32]:
    """The running softmax over keys 0, 1, ... of v int8[keys, hd] (contract 1.8)."""
    total = ZERO
    acc = [ZERO] * v.shape[1]
    m = scores[0]
    for t, score in enumerate(scores):
        if t == 0:
            c, p = ZERO, ONE
        else:
            new_m = score if score > m else m
            c = expf(F(m - new_m))
            p = expf(F(score - new_m))
            m = new_m
        kept = F(total * c)
        total = F(kept + p)
        weight = F(p * v_scale[t])
        for d in range(len(acc)):
            kept = F(acc[d] * c)
            added = F(weight * F(v[t, d]))
            acc[d] = F(kept + added)
    return [F(value / total) for value in acc]


@quiet
def attention_int8(
    q: Array,
    q_scale: Array,
    k: Array,
    k_scale: Array,
    v: Array,
    v_scale: Array,
    sm_scale: np.float32,
    pos: int,
) -> Array:
    """Attention of q int8[M, n_q, hd] over an int8 cache k, v [cap, n_kv, hd] (contract 1.8).

    Row m sees keys 0 .. pos + m. Returns f32[M, n_q, hd].
    """
    rows, n_q, _ = q.shape
    group = n_q // k.shape[1]
    out = np.zeros(q.shape, F)
    for m in range(rows):
        keys = pos + m + 1
        for h in range(n_q):
            g = h // group
            scores = _scores(q[m, h], q_scale[m, h], k[:keys, g], k_scale[:keys, g], sm_scale)
            out[m, h] = _weighted_sum(scores, v[:keys, g], v_scale[:keys, g])
    return out


# --- 1.9 activations, and the residual sum ---------------------------------------------------


def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + expf(-x)), one value (contract 1.9)."""
    e = expf(F(-x))
    below = F(ONE + e)
    return F(ONE / below)


def silu(x: np.float32) -> np.float32:
    """x * sigmoid(x), one value (contract 1.9)."""
    return F(x * sigmoid(x))


def softplus(x: np.float32) -> np.float32:
    """x above 20, else logf(1 + expf(x)), one value (contract 1.9)."""
    if x > F(20.0):
        return x
    return logf(F(ONE + expf(x)))


@quiet
def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) * up, elementwise, f32 (contract 1.9)."""
    out = np.zeros(gate.shape, F)
    for index in np.ndindex(gate.shape):
        out[index] = F(silu(gate[index]) * up[index])
    return out


@quiet
def add(a: Array, b: Array) -> Array:
    """a + b, elementwise, f32: the residual sum (contract 2)."""
    out = np.zeros(a.shape, F)
    for index in np.ndindex(a.shape):
        out[index] = F(a[index] + b[index])
    return out


# --- 2 the FFN of the MoE family -------------------------------------------------------------


def _softmax(logits: Row) -> list[np.float32]:
    """Softmax over all experts: max, expf, sum ascending, divide (contract 2)."""
    top = logits[0]
    for value in logits:
        if value > top:
            top = value
    e = [expf(F(value - top)) for value in logits]
    total = ZERO
    for value in e:
        total = F(total + value)
    return [F(value / total) for value in e]


def _top(probs: Row, k: int) -> list[int]:
    """The k most probable experts, ties to the lower id."""
    chosen: list[int] = []
    for _ in range(k):
        best = -1
        for i, p in enumerate(probs):
            if i not in chosen and (best < 0 or p > probs[best]):
                best = i
        chosen.append(best)
    return chosen


@quiet
def router_topk(logits: Array, k: int, norm: bool) -> tuple[Array, Array]:
    """ids i32[M, k] and probabilities f32[M, k] by rank, from logits f32[M, E] (contract 2)."""
    rows = logits.shape[0]
    ids = np.zeros((rows, k), np.int32)
    probs = np.zeros((rows, k), F)
    for m in range(rows):
        p = _softmax(list(logits[m]))
        chosen = _top(p, k)
        picked = [p[i] for i in chosen]
        if norm:
            total = ZERO
            for value in picked:
                total = F(total + value)
            picked = [F(value / total) for value in picked]
        ids[m] = chosen
        probs[m] = picked
    return ids, probs


def _expert_row(d_bits: Array, qs: Array, q: Array, s_a: Array) -> np.float32:
    """One Q4_0 row times int16 activations (contract 1.4)."""
    acc = ZERO
    for b in range(len(d_bits)):
        w = block_weights(qs[b * HALF_BLOCK : (b + 1) * HALF_BLOCK])
        dot = 0
        for e in range(BLOCK):
            dot += int(w[e]) * int(q[b * BLOCK + e])
        scaled = F(F(dot) * widen_f16(int(d_bits[b])))
        term = F(scaled * s_a[b])
        acc = F(acc + term)
    return acc


@quiet
def expert_matvec(d_bits: Array, qs: Array, ids: Array, q: Array, s_a: Array) -> Array:
    """Rows of the chosen experts times int16 inputs, f32[M, k, rows] (contract 1.4).

    q int16[M, G, n] and s_a f32[M, G, n/32]: G = 1 is one input for all ranks, G = k one each.
    """
    tokens, k = ids.shape
    out = np.zeros((tokens, k, d_bits.shape[1]), F)
    for m in range(tokens):
        for rank in range(k):
            expert = ids[m, rank]
            g = rank if q.shape[1] > 1 else 0
            for j in range(d_bits.shape[1]):
                out[m, rank, j] = _expert_row(d_bits[expert, j], qs[expert, j], q[m, g], s_a[m, g])
    return out


@quiet
def combine(ores: Array, down: Array, probs: Array) -> Array:
    """x = ores + ffn, where ffn = ffn + p * down in rank order from +0.0 (contract 2)."""
    out = np.zeros(ores.shape, F)
    for m in range(ores.shape[0]):
        for i in range(ores.shape[1]):
            ffn = ZERO
            for rank in range(probs.shape[1]):
                product = F(probs[m, rank] * down[m, rank, i])
                ffn = F(ffn + product)
            out[m, i] = F(ores[m, i] + ffn)
    return out


# --- the digest ------------------------------------------------------------------------------

FNV_BASIS = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def fnv1a64(data: bytes, basis: int = FNV_BASIS) -> int:
    """FNV-1a-64 of the bytes, folded into basis."""
    value = basis
    for byte in data:
        value ^= byte
        value = (value * FNV_PRIME) % (1 << 64)
    return value
