"""expert_matvec: rows of the chosen Q4_0 experts times int16 rows. Contract 1.4."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel, jit_part
from parity_cpu.lanes import LANES, every, fetch, four_words, load, spread
from parity_cpu.ops.q4 import q4_block_int
from parity_cpu.ops.variants import scaled_dot
from parity_cpu.tiles import AHEAD, put, scales, tiles
from parity_cpu.variants import FOLD_P

f32 = np.float32
i32 = np.int32
PAIRED = 17  # int32 of a block: sixteen pairs, and what the nibbles' offset of 8 takes off


@jit_part
def paired(out, q):  # type: ignore[no-untyped-def]
    """out: (nb * 17,) int32; q: (nb * 32,) int16, two in a word as a word of nibbles has them:
    nibble n of a word beside nibble n + 4; then -8 times their sum."""
    for b in range(q.shape[0] // 32):
        total = i32(0)
        for j in range(32):
            total = i32(total + i32(q[b * 32 + j]))
        out[b * PAIRED + 16] = i32(total * i32(-8))
        for nibble in range(16):
            at = b * 32 + nibble // 4 * 4 + nibble % 4 // 2 + nibble % 2 * 16
            low, high = i32(q[at]) & i32(0xFFFF), i32(i32(q[at + 2]) << i32(16))
            out[b * PAIRED + nibble] = i32(low | high)


@jit_part
def tile_int(d, qs, pairs, s_a, p, start, count, variants):  # type: ignore[no-untyped-def]
    """``count`` rows. d: their scales (nb * 16,) f32; pairs: (nb * 17,); s_a: (nb,);
    start: the first row's byte of qs."""
    nb = s_a.shape[0]
    acc = spread(f32(0.0))
    words = four_words(qs, start, nb * 16, count)
    for b in range(nb):
        fetch(qs, start + (AHEAD * nb + b) * 16 * LANES)
        # Turned while the sums of this block wait for each other.
        following = four_words(qs, start + min(b + 1, nb - 1) * 16, nb * 16, count)
        dot = q4_block_int(words, pairs, b * PAIRED)
        # step 2: (dot * s_w) * s_a, blocks ascending
        term = scaled_dot(dot, load(d, b * LANES), every(s_a, b), variants)
        if variants & FOLD_P:
            term = term * spread(p)
        acc = acc + term
        words = following
    return acc


@jit_parallel
def expert_matvec(out, d, qs, ids, probs, q, s_a, variants):  # type: ignore[no-untyped-def]
    """out: (M, k, rows) f32; d: (E, rows, nb) u16; qs: (E, rows, nb * 16) u8; ids: (M, k) int32;
    probs: (M, k) f32; q: (M, G, n) int16; s_a: (M, G, n / 32) f32.

    G = 1: one input for all ranks; G = k: each its own.
    variants: scale_assoc, fold_p (which alone reads probs).
    """
    ranks, rows, nb = ids.shape[1], d.shape[1], d.shape[2]
    pairs = np.empty((q.shape[0], q.shape[1], nb * PAIRED), np.int32)
    for m in range(q.shape[0]):
        for g in range(q.shape[1]):
            paired(pairs[m, g], q[m, g])
    jobs = ranks * tiles(rows)
    for job in prange(ids.shape[0] * jobs):
        m, rank, first = job // jobs, job % jobs // tiles(rows), job % tiles(rows) * LANES
        g = rank if q.shape[1] > 1 else 0
        start, count = (ids[m, rank] * rows + first) * nb, min(LANES, rows - first)
        given = (pairs[m, g], s_a[m, g], probs[m, rank])
        acc = tile_int(scales(d, start, nb, count), qs, *given, start * 16, count, variants)
        put(out[m, rank], first, acc, count)
