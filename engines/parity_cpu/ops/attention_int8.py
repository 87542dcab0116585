"""attention_int8: online softmax over an int8 KV cache, keys ascending. Contract 1.8."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit, jit_parallel
from parity_cpu.ops.elementary import ucrt_expf

f32 = np.float32


@jit
def dot_int8(a, b):  # type: ignore[no-untyped-def]
    """Exact dot of two int8 rows, an int32."""
    dot = np.int32(0)
    for j in range(a.shape[0]):
        dot = np.int32(dot + np.int32(a[j]) * np.int32(b[j]))
    return dot


@jit
def attention_head(out, q, q_scale, k, k_scale, v, v_scale, sm_scale, keys, g):  # type: ignore[no-untyped-def]
    """One query head over ``keys`` rows of KV head ``g``; out, q: (hd,)."""
    hd = out.shape[0]
    best = f32(0.0)
    total = f32(0.0)
    for j in range(hd):
        out[j] = f32(0.0)
    for t in range(keys):
        # step 1: score
        dot = dot_int8(q, k[t, g])
        s = f32(f32(f32(dot) * f32(q_scale * k_scale[t, g])) * sm_scale)
        # step 2: running maximum, correction, weight; the first key by definition
        if t == 0:
            top = s
            c = f32(0.0)
            p = f32(1.0)
        else:
            top = s if s > best else best
            c = ucrt_expf(f32(best - top))
            p = ucrt_expf(f32(s - top))
        best = top
        # step 3: l = l * c + p
        total = f32(f32(total * c) + p)
        # step 4: acc = acc * c + (p * vs) * v
        w = f32(p * v_scale[t, g])
        for j in range(hd):
            out[j] = f32(f32(out[j] * c) + f32(w * f32(v[t, g, j])))
    # step 5: acc / l
    for j in range(hd):
        out[j] = f32(out[j] / total)


@jit_parallel
def attention_int8(out, q, q_scale, k, k_scale, v, v_scale, sm_scale, pos):  # type: ignore[no-untyped-def]
    """out: (M, n_q, hd) f32; q: (M, n_q, hd) int8; q_scale: (M, n_q) f32;
    k, v: (cap, n_kv, hd) int8; k_scale, v_scale: (cap, n_kv) f32.

    Row m sees keys 0 .. pos + m. Heads run in parallel; the keys of one head are serial.
    """
    heads = q.shape[1]
    group = heads // k.shape[1]
    for job in prange(q.shape[0] * heads):
        m = job // heads
        h = job % heads
        attention_head(
            out[m, h],
            q[m, h],
            q_scale[m, h],
            k,
            k_scale,
            v,
            v_scale,
            sm_scale,
            pos + m + 1,
            h // group,
        )
