"""Twins of the variants of 1.4, 1.6 to 1.9 and the router (contract 5).

Scalar but for attention: there the accumulators of keys, and of elements, stand side by side in
arrays, each with its own serial chain.
"""

from __future__ import annotations

import numpy as np

from tests.oracle import platform_math
from tests.oracle.elementary import cosf, sinf
from tests.oracle.scalar import ONE, ZERO, Array, F, Row
from tests.oracle.storage import BLOCK
from tests.oracle.variants_shared import Names, exponential, tree_sum

# --- quantising ----------------------------------------------------------------------------------


def _code(x: np.float32, scale: np.float32, top: np.float32, names: Names) -> int:
    if "div_by_inverse" in names:
        inverse = F(ONE / scale)
        ratio = F(x * inverse)
    else:
        ratio = F(x / scale)
    nearest = F(np.rint(ratio))
    clamped = min(max(nearest, F(-top)), top)
    # Not compared where x is no number (1.10).
    return 0 if np.isnan(clamped) else int(clamped)


def _quantise(x: Row, limit: int, names: Names) -> tuple[list[int], np.float32]:
    top = F(limit)
    amax = ZERO
    for value in x:
        amax = max(amax, F(abs(value)))
    scale = F(amax / top)
    none = scale == ZERO
    if "div_by_inverse" in names and not none:
        none = bool(np.isposinf(F(ONE / scale)))
    return [0 if none else _code(value, scale, top, names) for value in x], scale


def quant8(x: Array, names: Names) -> tuple[Array, Array]:
    """1.6 with div_by_inverse."""
    q, scale = np.zeros(x.shape, np.int8), np.zeros(x.shape[:2], F)
    for m, h in np.ndindex(scale.shape):
        q[m, h], scale[m, h] = _quantise(list(x[m, h]), 127, names)
    return q, scale


def quant16(x: Array, names: Names) -> tuple[Array, Array]:
    """1.4 with div_by_inverse."""
    q, scale = np.zeros(x.shape, np.int16), np.zeros((x.shape[0], x.shape[1] // BLOCK), F)
    for r, b in np.ndindex(scale.shape):
        part = slice(b * BLOCK, (b + 1) * BLOCK)
        q[r, part], scale[r, b] = _quantise(list(x[r, part]), 32767, names)
    return q, scale


# --- RoPE, attention, swiglu, router -------------------------------------------------------------


def rope(x: Array, inv_freq: Array, pos: int, names: Names) -> Array:
    """1.7 with libm_sincos."""
    library = "libm_sincos" in names
    cosine, sine = (platform_math.cosf, platform_math.sinf) if library else (cosf, sinf)
    out, half = x.copy(), len(inv_freq)
    for m, h, i in np.ndindex(x.shape[0], x.shape[1], half):
        angle = F(F(pos + m) * inv_freq[i])
        c, s = cosine(angle), sine(angle)
        x1, x2 = x[m, h, i], x[m, h, i + half]
        out[m, h, i] = F(F(x1 * c) - F(x2 * s))
        out[m, h, i + half] = F(F(x2 * c) + F(x1 * s))
    return out


def _weights(scores: Row, names: Names) -> tuple[list[np.float32], list[np.float32], np.float32]:
    """p, c and l of 1.8; two_pass and split_keys have no correction, their c is 1."""
    exp = exponential(names)
    if names & {"two_pass", "split_keys"}:
        m = scores[0]
        for score in scores:
            m = score if score > m else m
        p = [exp(F(score - m)) for score in scores]
        return p, [ONE] * len(p), _by_parts(p) if "split_keys" in names else tree_sum(p)
    p, c, total, m = [ONE], [ZERO], ONE, scores[0]
    for score in scores[1:]:
        new_m = score if score > m else m
        c.append(exp(F(m - new_m)))
        p.append(exp(F(score - new_m)))
        total = F(F(total * c[-1]) + p[-1])
        m = new_m
    return p, c, total


PART = 128  # keys of a part, split_keys


def _by_parts(p: Row) -> np.float32:
    """l of split_keys: a sum of each part, then their sum."""
    parts, total = [ZERO] * -(-len(p) // PART), ZERO
    for t, weight in enumerate(p):
        parts[t // PART] = F(parts[t // PART] + weight)
    for part in parts:
        total = F(total + part)
    return total


def _values(
    v: Array, p: Row, c: Row, v_scale: Row | None, total: np.float32, names: Names
) -> Array:
    """The accumulators side by side: each element of v has its own, key after key; with split_keys
    one of each part."""
    split = "split_keys" in names
    parts = [np.zeros(v.shape[1], F) for _ in range(-(-len(p) // PART) if split else 1)]
    for t in range(len(p)):
        weight = p[t] if v_scale is None else F(p[t] * v_scale[t])
        added = weight * v[t].astype(F)
        i = t // PART if split else 0
        parts[i] = parts[i] * c[t]
        parts[i] = parts[i] + added
    acc = np.zeros(v.shape[1], F) if split else parts.pop()
    for part in parts:
        acc = acc + part
    return acc / total


def attention_int8(
    q: Array,
    q_scale: Array,
    k: Array,
    k_scale: Array,
    v: Array,
    v_scale: Array,
    sm_scale: np.float32,
    pos: int,
    names: Names,
) -> Array:
    """1.8 on int8 rows with libm_exp, exp_via_double, two_pass, split_keys."""
    out, group = np.zeros(q.shape, F), q.shape[1] // k.shape[1]
    for m, h in np.ndindex(q.shape[:2]):
        g, scores = h // group, []
        dots = k[: pos + m + 1, g].astype(np.int32) @ q[m, h].astype(np.int32)
        for t, dot in enumerate(dots):
            scale = F(q_scale[m, h] * k_scale[t, g])
            scores.append(F(F(F(dot) * scale) * sm_scale))
        p, c, total = _weights(scores, names)
        out[m, h] = _values(v[:, g], p, c, list(v_scale[:, g]), total, names)
    return out


def _dots(q: Array, k: Array) -> Array:
    """q f32[hd] with each row of k f32[keys, hd]: one accumulator a key, ascending."""
    acc = np.zeros(k.shape[0], F)
    for j in range(len(q)):
        products = q[j] * k[:, j]
        acc = acc + products
    return acc


def attention_f32(
    q: Array, k: Array, v: Array, sm_scale: np.float32, pos: int, names: Names
) -> Array:
    """1.8 on f32 rows with libm_exp, exp_via_double, two_pass, split_keys."""
    out, group = np.zeros(q.shape, F), q.shape[1] // k.shape[1]
    for m, h in np.ndindex(q.shape[:2]):
        g = h // group
        scores = _dots(q[m, h], k[: pos + m + 1, g]) * sm_scale
        p, c, total = _weights(list(scores), names)
        out[m, h] = _values(v[:, g], p, c, None, total, names)
    return out


def swiglu(gate: Array, up: Array, names: Names) -> Array:
    """1.9 with libm_exp, exp_via_double."""
    exp, out = exponential(names), np.zeros(gate.shape, F)
    for index in np.ndindex(gate.shape):
        below = F(ONE + exp(F(-gate[index])))
        silu = F(gate[index] * F(ONE / below))
        out[index] = F(silu * up[index])
    return out


def shared_gate(x: Array, names: Names) -> Array:
    """The sigmoid of 1.9 with libm_exp, exp_via_double."""
    exp, out = exponential(names), np.zeros(x.shape, F)
    for index in np.ndindex(x.shape):
        out[index] = F(ONE / F(ONE + exp(F(-x[index]))))
    return out


def router_topk(logits: Array, k: int, norm: bool, names: Names) -> tuple[Array, Array]:
    """Softmax, top-k, renormalising with libm_exp, exp_via_double."""
    exp, rows = exponential(names), logits.shape[0]
    ids, probs = np.zeros((rows, k), np.int32), np.zeros((rows, k), F)
    for m in range(rows):
        top = max(logits[m])
        e = [exp(F(value - top)) for value in logits[m]]
        total = ZERO
        for value in e:
            total = F(total + value)
        p = [F(value / total) for value in e]
        # Stable: equal probabilities keep the order of their ids.
        ranked = sorted(range(len(p)), key=lambda i: -p[i])[:k]
        chosen, total = [p[i] for i in ranked], ZERO
        for value in chosen:
            total = F(total + value)
        ids[m] = ranked
        probs[m] = [F(value / total) for value in chosen] if norm else chosen
    return ids, probs
