"""attention_int8: softmax over an int8 KV cache, keys ascending. Contract 1.8."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit, jit_parallel, jit_part
from parity_cpu.ops.attention import divide, softmax
from parity_cpu.ops.attention_parts import PART, add_part
from parity_cpu.variants import SPLIT_KEYS

f32 = np.float32


@jit_part
def dot_int8(a, b):  # type: ignore[no-untyped-def]
    """Exact dot of two int8 rows, an int32."""
    dot = np.int32(0)
    for j in range(a.shape[0]):
        dot = np.int32(dot + np.int32(a[j]) * np.int32(b[j]))
    return dot


@jit
def scores_int8(s, q, q_scale, k, k_scale, sm_scale, g):  # type: ignore[no-untyped-def]
    """Fill s: (keys,) f32 for one query head q: (hd,) over the first keys of KV head ``g``."""
    # step 1: score
    for t in range(s.shape[0]):
        dot = dot_int8(q, k[t, g])
        s[t] = f32(f32(f32(dot) * f32(q_scale * k_scale[t, g])) * sm_scale)


@jit_part
def add_int8(acc, p, c, v, v_scale, g, begin, end):  # type: ignore[no-untyped-def]
    """acc: (hd,) f32 of keys ``begin`` to ``end`` with weights p, corrections c: (keys,) f32."""
    # step 4: acc = acc * c + (p * vs) * v
    acc[:] = f32(0.0)
    for t in range(begin, end):
        w = f32(p[t] * v_scale[t, g])
        for j in range(acc.shape[0]):
            acc[j] = f32(f32(acc[j] * c[t]) + f32(w * f32(v[t, g, j])))


@jit
def weigh_int8(out, p, c, total, v, v_scale, g, variants):  # type: ignore[no-untyped-def]
    """out: (hd,) f32 by the weights p, the corrections c: (keys,) f32 and their sum ``total``."""
    if variants & SPLIT_KEYS:
        acc = np.empty_like(out)
        out[:] = f32(0.0)
        for begin in range(0, p.shape[0], PART):
            add_int8(acc, p, c, v, v_scale, g, begin, min(begin + PART, p.shape[0]))
            add_part(out, acc)
    else:
        add_int8(out, p, c, v, v_scale, g, 0, p.shape[0])
    divide(out, total)


@jit_part
def head_int8(out, q, q_scale, k, k_scale, v, v_scale, sm_scale, keys, g, variants):  # type: ignore[no-untyped-def]
    """One query head over ``keys`` rows of KV head ``g``; out, q: (hd,)."""
    s = np.empty(keys, np.float32)
    c = np.empty(keys, np.float32)
    scores_int8(s, q, q_scale, k, k_scale, sm_scale, g)
    total = softmax(s, c, variants)
    weigh_int8(out, s, c, total, v, v_scale, g, variants)


@jit_parallel
def attention_int8(out, q, q_scale, k, k_scale, v, v_scale, sm_scale, pos, variants):  # type: ignore[no-untyped-def]
    """out: (M, n_q, hd) f32; q: (M, n_q, hd) int8; q_scale: (M, n_q) f32;
    k, v: (cap, n_kv, hd) int8; k_scale, v_scale: (cap, n_kv) f32.

    Row m sees keys 0 .. pos + m. Heads run in parallel; the keys of one head are serial.
    variants: libm_exp, exp_via_double, two_pass, split_keys.
    """
    heads = q.shape[1]
    group = heads // k.shape[1]
    for job in prange(q.shape[0] * heads):
        m = job // heads
        h = job % heads
        row = (out[m, h], q[m, h], q_scale[m, h], k, k_scale, v, v_scale)
        head_int8(*row, sm_scale, pos + m + 1, h // group, variants)
