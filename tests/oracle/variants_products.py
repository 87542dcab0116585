"""Scalar twins of the variants of norms and matrix products (contract 5 on 1.1 to 1.5 and 2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.oracle import platform_math
from tests.oracle.scalar import ONE, ZERO, Array, F, Row
from tests.oracle.storage import BLOCK, HALF_BLOCK, block_weights, widen_f16
from tests.oracle.variants_shared import Names, fma32, product_sum, tree_sum

EIGHT = F(8.0)

# --- norms -----------------------------------------------------------------------------------


def _block_sum(x: Row) -> np.float32:
    """Contract 1.1."""
    ss = ZERO
    whole = 8 * (len(x) // 8)
    for start in range(0, whole, 8):
        square = [F(value * value) for value in x[start : start + 8]]
        pair = [F(square[k] + square[4 + k]) for k in range(4)]
        left = F(pair[0] + pair[1])
        right = F(pair[2] + pair[3])
        ss = F(ss + F(left + right))
    for value in x[whole:]:
        ss = F(ss + F(value * value))
    return ss


def _ascending_sum(x: Row) -> np.float32:
    """Contract 1.2."""
    ss = ZERO
    for value in x:
        ss = F(ss + F(value * value))
    return ss


def _by_tree(x: Row) -> np.float32:
    return tree_sum([F(value * value) for value in x])


def _norm_row(x: Row, w: Row, eps: np.float32, ss: np.float32, names: Names) -> list[np.float32]:
    mean = F(ss / F(len(x)))
    shifted = F(mean + eps)
    if "rsqrt" in names:
        r = platform_math.reciprocal_root(shifted)
    else:
        root = F(np.sqrt(shifted))
        r = F(ONE / root)
    return [F(F(value * r) * weight) for value, weight in zip(x, w, strict=True)]


def _norm(
    x: Array, w: Array, eps: np.float32, names: Names, sum_of: Callable[[Row], np.float32]
) -> Array:
    rows = x.reshape(-1, x.shape[-1])
    out = np.zeros(rows.shape, F)
    for m, row in enumerate(rows):
        values = list(row)
        out[m] = _norm_row(values, list(w), eps, sum_of(values), names)
    return out.reshape(x.shape)


def rmsnorm(x: Array, w: Array, eps: np.float32, names: Names) -> Array:
    """1.1 with rsqrt."""
    return _norm(x, w, eps, names, _block_sum)


def headnorm(x: Array, w: Array, eps: np.float32, names: Names) -> Array:
    """1.2 with rsqrt."""
    return _norm(x, w, eps, names, _ascending_sum)


def norm_tree(x: Array, w: Array, eps: np.float32, names: Names) -> Array:
    """1.1 and 1.2 with the squares of x f32[R, d] summed by tree; rsqrt."""
    return _norm(x, w, eps, names, _by_tree)


# --- products ----------------------------------------------------------------------------------


def _nibble_block(w: Row, x: Row, names: Names) -> np.float32:
    """s of one block with zero_point: nibbles as stored, then 8 times the inputs' sum taken off."""
    s = ZERO
    total = ZERO
    for weight, value in zip(w, x, strict=True):
        nibble = F(weight + EIGHT)
        s = product_sum(nibble, value, s, names)
        total = F(total + value)
    offset = F(EIGHT * total)
    return F(s - offset)


def _q4_block(w: Row, x: Row, names: Names) -> np.float32:
    """s of one block."""
    if "zero_point" in names:
        return _nibble_block(w, x, names)
    s = ZERO
    if "unpaired" in names:
        for weight, value in zip(w, x, strict=True):
            s = product_sum(weight, value, s, names)
        return s
    for e in range(HALF_BLOCK):
        high = F(w[e + 16] * x[e + 16])
        if "fma" in names:
            pair = fma32(w[e], x[e], high)
        else:
            low = F(w[e] * x[e])
            pair = F(low + high)
        s = F(s + pair)
    return s


def _q4_row(d_bits: Array, qs: Array, x: Row, names: Names) -> np.float32:
    partial = [ZERO] * 4
    for b in range(len(d_bits)):
        w = block_weights(qs[b * HALF_BLOCK : (b + 1) * HALF_BLOCK])
        s = _q4_block(w, x[b * BLOCK : (b + 1) * BLOCK], names)
        at = b % 4 if "split_k" in names else 0
        partial[at] = product_sum(widen_f16(int(d_bits[b])), s, partial[at], names)
    if "split_k" not in names:
        return partial[0]
    acc = ZERO
    for value in partial:
        acc = F(acc + value)
    return acc


def q4_matvec(d_bits: Array, qs: Array, x: Array, names: Names) -> Array:
    """1.3 with fma, split_k, unpaired, zero_point."""
    out = np.zeros((x.shape[0], d_bits.shape[0]), F)
    for m, j in np.ndindex(out.shape):
        out[m, j] = _q4_row(d_bits[j], qs[j], list(x[m]), names)
    return out


def _f32_row(w: Row, x: Row, names: Names) -> np.float32:
    acc = ZERO
    for weight, value in zip(w, x, strict=True):
        acc = product_sum(weight, value, acc, names)
    return acc


def f32_matvec(w: Array, x: Array, names: Names) -> Array:
    """1.5 with fma."""
    out = np.zeros((x.shape[0], w.shape[0]), F)
    for m, j in np.ndindex(out.shape):
        out[m, j] = _f32_row(list(w[j]), list(x[m]), names)
    return out


def router_tree(w: Array, x: Array, names: Names) -> Array:
    """The router's products f32[E, cols] times x f32[M, cols], summed by tree."""
    out = np.zeros((x.shape[0], w.shape[0]), F)
    for m, j in np.ndindex(out.shape):
        products = [F(a * b) for a, b in zip(w[j], x[m], strict=True)]
        out[m, j] = tree_sum(products)
    return out


def expert_f32_matvec(w: Array, ids: Array, x: Array, names: Names) -> Array:
    """1.5 of chosen experts with fma."""
    out = np.zeros((*ids.shape, w.shape[1]), F)
    for m, rank, j in np.ndindex(out.shape):
        given = x[m, rank if x.shape[1] > 1 else 0]
        out[m, rank, j] = _f32_row(list(w[ids[m, rank], j]), list(given), names)
    return out


def _expert_row(
    d_bits: Array, qs: Array, q: Array, s_a: Array, p: np.float32, names: Names
) -> np.float32:
    acc = ZERO
    for b in range(len(d_bits)):
        w = block_weights(qs[b * HALF_BLOCK : (b + 1) * HALF_BLOCK])
        codes = q[b * BLOCK : (b + 1) * BLOCK]
        dot = F(sum(int(weight) * int(code) for weight, code in zip(w, codes, strict=True)))
        s_w = widen_f16(int(d_bits[b]))
        if "scale_assoc" in names:
            both = F(s_w * s_a[b])
            term = F(both * dot)
        else:
            scaled = F(dot * s_w)
            term = F(scaled * s_a[b])
        if "fold_p" in names:
            term = F(term * p)
        acc = F(acc + term)
    return acc


def expert_matvec(
    d_bits: Array, qs: Array, ids: Array, q: Array, s_a: Array, probs: Array, names: Names
) -> Array:
    """1.4 of chosen experts with scale_assoc, fold_p."""
    out = np.zeros((*ids.shape, d_bits.shape[1]), F)
    for m, rank, j in np.ndindex(out.shape):
        g, expert = (rank if q.shape[1] > 1 else 0), ids[m, rank]
        row = (d_bits[expert, j], qs[expert, j], q[m, g], s_a[m, g])
        out[m, rank, j] = _expert_row(*row, probs[m, rank], names)
    return out


def combine(ores: Array, down: Array, probs: Array, names: Names) -> Array:
    """The sum over experts; with fold_p down holds p already."""
    out = np.zeros(ores.shape, F)
    for m, i in np.ndindex(out.shape):
        ffn = ZERO
        for rank in range(probs.shape[1]):
            term = down[m, rank, i]
            if "fold_p" not in names:
                term = F(probs[m, rank] * term)
            ffn = F(ffn + term)
        out[m, i] = F(ores[m, i] + ffn)
    return out


def combine_shared(
    ores: Array, down: Array, probs: Array, gs: Array, sh: Array, names: Names
) -> Array:
    """The same and the shared expert, which has no p to fold."""
    out = np.zeros(ores.shape, F)
    for m, i in np.ndindex(out.shape):
        ffn = ZERO
        for rank in range(probs.shape[1]):
            term = down[m, rank, i]
            if "fold_p" not in names:
                term = F(probs[m, rank] * term)
            ffn = F(ffn + term)
        ffn = F(ffn + F(gs[m, 0] * sh[m, i]))
        out[m, i] = F(ores[m, i] + ffn)
    return out
