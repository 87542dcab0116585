"""attention: what the attention ops of both storages share, the softmax. Contract 1.8, 5."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit_part
from parity_cpu.ops.attention_parts import parts_total
from parity_cpu.ops.tree import power_of_two, tree_sum
from parity_cpu.ops.variants import any_expf
from parity_cpu.variants import SPLIT_KEYS, TWO_PASS

f32 = np.float32


@jit_part
def online_softmax(s, c, variants):  # type: ignore[no-untyped-def]
    """Turn scores s into weights p in place, fill the corrections c, return l. Keys ascending."""
    best = s[0]
    total = f32(0.0)
    for t in range(s.shape[0]):
        # step 2: running maximum, correction, weight; the first key by definition
        top = s[t] if s[t] > best else best
        c[t] = any_expf(f32(best - top), variants) if t > 0 else f32(0.0)
        s[t] = any_expf(f32(s[t] - top), variants) if t > 0 else f32(1.0)
        best = top
        # step 3: l = l * c + p
        total = f32(f32(total * c[t]) + s[t])
    return total


@jit_part
def two_pass_softmax(s, c, variants):  # type: ignore[no-untyped-def]
    """The same with the maximum first: p = expf(s - max), l = tree or parts of p, no correction."""
    top = s[0]
    # step 2: maximum, any order, then weights
    for t in range(s.shape[0]):
        top = s[t] if s[t] > top else top
    for t in range(s.shape[0]):
        s[t] = any_expf(f32(s[t] - top), variants)
        c[t] = f32(1.0)
    if variants & SPLIT_KEYS:
        return parts_total(s)
    part = np.zeros(power_of_two(s.shape[0]), np.float32)
    part[: s.shape[0]] = s
    # step 3: l by tree
    return tree_sum(part)


@jit_part
def softmax(s, c, variants):  # type: ignore[no-untyped-def]
    """s: (keys,) scores to weights; c: (keys,) corrections; returns l."""
    if variants & (TWO_PASS | SPLIT_KEYS):
        return two_pass_softmax(s, c, variants)
    return online_softmax(s, c, variants)


@jit_part
def divide(out, total):  # type: ignore[no-untyped-def]
    """Turn the accumulators out: (hd,) into the output, in place."""
    # step 5: acc / l
    for j in range(out.shape[0]):
        out[j] = f32(out[j] / total)
