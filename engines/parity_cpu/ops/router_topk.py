"""router_topk: softmax over all experts, then the k most probable. Contract 2 (FFN)."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit, jit_part
from parity_cpu.ops.variants import any_expf

f32 = np.float32


@jit
def largest(logits):  # type: ignore[no-untyped-def]
    """The largest of logits: (E,) f32, the first among equals."""
    # step 1: maximum, any order
    top = logits[0]
    for i in range(1, logits.shape[0]):
        top = logits[i] if logits[i] > top else top
    return top


@jit_part
def router_row(ids, probs, logits, soft, norm, variants):  # type: ignore[no-untyped-def]
    """One row: ids, probs: (k,); logits, soft: (E,), soft is scratch."""
    top = largest(logits)
    # step 2: exponentials and their sum, ascending
    total = f32(0.0)
    for i in range(logits.shape[0]):
        soft[i] = any_expf(f32(logits[i] - top), variants)
        total = f32(total + soft[i])
    choose(ids, probs, soft, total, norm)


@jit
def choose(ids, probs, soft, total, norm):  # type: ignore[no-untyped-def]
    """ids, probs: (k,) of the exponentials soft: (E,) f32, overwritten, and their sum ``total``."""
    experts = soft.shape[0]
    # step 3: probabilities
    for i in range(experts):
        soft[i] = f32(soft[i] / total)
    # step 4: the k largest, ties to the lower id; a chosen one is marked with -1
    chosen = f32(0.0)
    for r in range(ids.shape[0]):
        best = 0
        for i in range(1, experts):
            best = i if soft[i] > soft[best] else best
        ids[r] = best
        probs[r] = soft[best]
        chosen = f32(chosen + soft[best])
        soft[best] = f32(-1.0)
    # step 5: divide by the sum over the ranks
    if norm:
        for r in range(ids.shape[0]):
            probs[r] = f32(probs[r] / chosen)


@jit
def router_topk(ids, probs, logits, norm, variants):  # type: ignore[no-untyped-def]
    """ids: (M, k) int32; probs: (M, k) f32; logits: (M, E) f32; norm: norm_topk_prob.
    variants: libm_exp, exp_via_double.
    """
    soft = np.empty(logits.shape[1], np.float32)
    for m in range(logits.shape[0]):
        router_row(ids[m], probs[m], logits[m], soft, norm, variants)
