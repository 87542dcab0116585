"""attention_f32: softmax over an f32 KV cache, keys ascending. Contract 1.8 (f32 form)."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit, jit_parallel, jit_part
from parity_cpu.lanes import LANES, as_floats, column, every, four_words, spread
from parity_cpu.ops.attention import divide, softmax
from parity_cpu.ops.attention_parts import PART, add_part
from parity_cpu.tiles import put
from parity_cpu.variants import SPLIT_KEYS

f32 = np.float32


@jit
def scores_f32(s, q, k, sm_scale, g):  # type: ignore[no-untyped-def]
    """Fill s: (keys,) f32 for one query head q: (hd,) over the first keys of KV head ``g``."""
    # step 1: score, the dot ascending
    for first in range(0, s.shape[0], LANES):
        count = min(LANES, s.shape[0] - first)
        dot = dots_f32(q, k, first, count, g)
        put(s, first, dot * spread(sm_scale), count)


@jit_part
def dots_f32(q, k, first, count, g):  # type: ignore[no-untyped-def]
    """q times ``count`` keys of KV head ``g`` from ``first`` on, a key in each lane."""
    stride = k.shape[1] * k.shape[2]
    start = first * stride + g * k.shape[2]
    whole = q.shape[0] - q.shape[0] % 4
    dot = spread(f32(0.0))
    for j in range(0, whole, 4):
        words = four_words(k, (start + j) * 4, stride * 4, count)
        for i in range(4):
            dot = dot + every(q, j + i) * as_floats(words[i])
    for j in range(whole, q.shape[0]):
        dot = dot + every(q, j) * as_floats(column(k, start + j, stride, count))
    return dot


@jit_part
def add_f32(acc, p, c, v, g, begin, end):  # type: ignore[no-untyped-def]
    """acc: (hd,) f32 of keys ``begin`` to ``end`` with weights p, corrections c: (keys,) f32."""
    # step 4: acc = acc * c + p * v
    acc[:] = f32(0.0)
    for t in range(begin, end):
        for j in range(acc.shape[0]):
            acc[j] = f32(f32(acc[j] * c[t]) + f32(p[t] * v[t, g, j]))


@jit
def weigh_f32(out, p, c, total, v, g, variants):  # type: ignore[no-untyped-def]
    """out: (hd,) f32 by the weights p, the corrections c: (keys,) f32 and their sum ``total``."""
    if variants & SPLIT_KEYS:
        acc = np.empty_like(out)
        out[:] = f32(0.0)
        for begin in range(0, p.shape[0], PART):
            add_f32(acc, p, c, v, g, begin, min(begin + PART, p.shape[0]))
            add_part(out, acc)
    else:
        add_f32(out, p, c, v, g, 0, p.shape[0])
    divide(out, total)


@jit_part
def head_f32(out, q, k, v, sm_scale, keys, g, variants):  # type: ignore[no-untyped-def]
    """One query head over ``keys`` rows of KV head ``g``; out, q: (hd,)."""
    s = np.empty(keys, np.float32)
    c = np.empty(keys, np.float32)
    scores_f32(s, q, k, sm_scale, g)
    total = softmax(s, c, variants)
    weigh_f32(out, s, c, total, v, g, variants)


@jit_parallel
def attention_f32(out, q, k, v, sm_scale, pos, variants):  # type: ignore[no-untyped-def]
    """out, q: (M, n_q, hd) f32; k, v: (cap, n_kv, hd) f32. Row m sees keys 0 .. pos + m.

    Heads run in parallel; the keys of one head are serial.
    variants: libm_exp, exp_via_double, two_pass, split_keys.
    """
    heads = q.shape[1]
    group = heads // k.shape[1]
    for job in prange(q.shape[0] * heads):
        m = job // heads
        h = job % heads
        head_f32(out[m, h], q[m, h], k, v, sm_scale, pos + m + 1, h // group, variants)
