"""q4_matvec: Q4_0 rows times float rows. Contract 1.3."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_inside, jit_parallel, jit_part
from parity_cpu.lanes import LANES, every, fetch, four_words, load, spread
from parity_cpu.ops.q4 import (
    eight_sums,
    q4_block,
    q4_block_fused,
    two_nibbles,
    two_nibbles_fused,
    two_unpaired,
    two_unpaired_fused,
)
from parity_cpu.ops.variants import product_sum
from parity_cpu.tiles import AHEAD, put, scales, tiles
from parity_cpu.variants import FMA, SPLIT_K, UNPAIRED, ZERO_POINT

f32 = np.float32


@jit_part
def tile_exact(d, qs, x, start, count):  # type: ignore[no-untyped-def]
    """``count`` rows of the exact tier. d: their scales (nb * 16,) f32; x: (nb * 32,) f32;
    start: the first row's byte of qs."""
    nb = d.shape[0] // LANES
    acc = spread(f32(0.0))
    words = four_words(qs, start, nb * 16, count)
    for b in range(nb):
        fetch(qs, start + (AHEAD * nb + b) * 16 * LANES)
        # Turned while the chain of this block waits for itself.
        following = four_words(qs, start + min(b + 1, nb - 1) * 16, nb * 16, count)
        # step 2: d * s, blocks ascending
        acc = acc + load(d, b * LANES) * q4_block(words, x, b * 32)
        words = following
    return acc


@jit_inside
def two_blocks(one, other, x, to, after, variants):  # type: ignore[no-untyped-def]
    """The block sums of two blocks by fma, unpaired and zero_point, or none of them; asked once,
    not at every product. With zero_point 8 * X is not yet taken off."""
    if variants & ZERO_POINT:
        if variants & FMA:
            return two_nibbles_fused(one, other, x, to, after)
        return two_nibbles(one, other, x, to, after)
    if variants & UNPAIRED:
        if variants & FMA:
            return two_unpaired_fused(one, other, x, to, after)
        return two_unpaired(one, other, x, to, after)
    if variants & FMA:
        return q4_block_fused(one, x, to), q4_block_fused(other, x, after)
    return q4_block(one, x, to), q4_block(other, x, after)


@jit_part
def tile_variant(d, qs, x, eights, start, count, variants):  # type: ignore[no-untyped-def]
    """The same with fma, split_k, unpaired or zero_point: block b adds to partial b mod 4, or all
    to one. eights: (nb,) f32, with zero_point ``eight_sums`` of x."""
    nb = d.shape[0] // LANES
    zero = spread(f32(0.0))
    one, two, three, four = zero, zero, zero, zero
    for b in range(0, nb, 2):
        last = min(b + 1, nb - 1)  # of an odd number b itself, whose second sum is left out
        fetch(qs, start + (nb + b) * 16 * LANES)
        fetch(qs, start + (nb + last) * 16 * LANES)
        words = four_words(qs, start + b * 16, nb * 16, count)
        others = four_words(qs, start + last * 16, nb * 16, count)
        s, t = two_blocks(words, others, x, b * 32, last * 32, variants)
        if variants & ZERO_POINT:
            s, t = s - every(eights, b), t - every(eights, last)
        one = product_sum(load(d, b * LANES), s, one, variants)
        if variants & SPLIT_K:
            one, two, three, four = two, three, four, one
        if last > b:
            one = product_sum(load(d, last * LANES), t, one, variants)
            if variants & SPLIT_K:
                one, two, three, four = two, three, four, one
    if not variants & SPLIT_K:
        return one
    for _ in range(-nb % 4):  # until partial 0 comes first again
        one, two, three, four = two, three, four, one
    return zero + one + two + three + four


@jit_parallel
def q4_matvec(out, d, qs, x, variants):  # type: ignore[no-untyped-def]
    """out: (M, rows) f32; d: (rows, nb) u16; qs: (rows, nb * 16) u8; x: (M, nb * 32) f32.

    Tiles of weight rows run in parallel; the chain of one row is serial.
    variants: fma, split_k, unpaired, zero_point.
    """
    rows, nb = d.shape
    eights = eight_sums(x, x.shape[0] if variants & ZERO_POINT else 0)
    for tile in prange(tiles(rows)):
        first = tile * LANES
        count = min(LANES, rows - first)
        start, scale = first * nb * 16, scales(d, first * nb, nb, count)
        for m in range(x.shape[0]):
            if variants & (FMA | SPLIT_K | UNPAIRED | ZERO_POINT):
                acc = tile_variant(scale, qs, x[m], eights[m], start, count, variants)
            else:
                acc = tile_exact(scale, qs, x[m], start, count)
            put(out[m], first, acc, count)
