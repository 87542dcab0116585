"""q4: reading Q4_0 blocks. Contract 1.0, 1.3, 1.4."""

from __future__ import annotations

import numpy as np

from parity_cpu.intrinsics import f32_of_bits
from parity_cpu.jit import jit
from parity_cpu.lanes import eight_weights, every, pair_dot, spread
from parity_cpu.ops.variants import product_sum
from parity_cpu.variants import UNPAIRED

f32 = np.float32
i32 = np.int32
u32 = np.uint32
TWO_112 = np.float32(2.0**112)


@jit
def half_to_f32(bits):  # type: ignore[no-untyped-def]
    """The float32 with the value of a finite f16 given by its bits; exact, subnormals too."""
    # step 1: exponent and mantissa into place, then an exact scaling by 2^112
    magnitude = f32_of_bits(u32(u32(bits & 0x7FFF) << u32(13))) * TWO_112
    # step 2: the sign
    return -magnitude if bits & 0x8000 else magnitude


@jit
def q4_block(qs, x, to):  # type: ignore[no-untyped-def]
    """Block sums of contract 1.3: sixteen rows' bytes qs, four words each, times x[to:to+32]."""
    # step 1: pairs (e, e + 16), ascending
    s = four_pairs(spread(f32(0.0)), qs[0], x, to)
    s = four_pairs(s, qs[1], x, to + 4)
    s = four_pairs(s, qs[2], x, to + 8)
    return four_pairs(s, qs[3], x, to + 12)


@jit
def four_pairs(s, word, x, to):  # type: ignore[no-untyped-def]
    """s and the four pairs of a word's bytes."""
    w = eight_weights(word)
    s = s + (w[0] * every(x, to) + w[1] * every(x, to + 16))
    s = s + (w[2] * every(x, to + 1) + w[3] * every(x, to + 17))
    s = s + (w[4] * every(x, to + 2) + w[5] * every(x, to + 18))
    return s + (w[6] * every(x, to + 3) + w[7] * every(x, to + 19))


@jit
def q4_block_variant(qs, x, to, variants):  # type: ignore[no-untyped-def]
    """Block sums with fma (the pair's first product fused) or unpaired (strictly 0 .. 31)."""
    s = spread(f32(0.0))
    if variants & UNPAIRED:
        for half in range(2):
            for i in range(4):
                s = four_single(s, qs[i], half, x, to + 16 * half + 4 * i, variants)
        return s
    for i in range(4):
        s = four_variant(s, qs[i], x, to + 4 * i, variants)
    return s


@jit
def four_variant(s, word, x, to, variants):  # type: ignore[no-untyped-def]
    """``four_pairs`` with fma: the pair's first product fused."""
    w = eight_weights(word)
    s = s + product_sum(w[0], every(x, to), w[1] * every(x, to + 16), variants)
    s = s + product_sum(w[2], every(x, to + 1), w[3] * every(x, to + 17), variants)
    s = s + product_sum(w[4], every(x, to + 2), w[5] * every(x, to + 18), variants)
    return s + product_sum(w[6], every(x, to + 3), w[7] * every(x, to + 19), variants)


@jit
def four_single(s, word, half, x, to, variants):  # type: ignore[no-untyped-def]
    """s and four products one by one: of a word's low nibbles, or of its high ones."""
    w = eight_weights(word)
    chosen = (w[1], w[3], w[5], w[7]) if half else (w[0], w[2], w[4], w[6])
    s = product_sum(chosen[0], every(x, to), s, variants)
    s = product_sum(chosen[1], every(x, to + 1), s, variants)
    s = product_sum(chosen[2], every(x, to + 2), s, variants)
    return product_sum(chosen[3], every(x, to + 3), s, variants)


@jit
def q4_block_int(qs, q, at):  # type: ignore[no-untyped-def]
    """Exact integer dots of contract 1.4: sixteen rows' bytes qs, four words each, times a block
    of pairs of q, which ``paired`` of expert_matvec put at q[at:at+17]."""
    # step 1: low and high nibbles, any order
    dot = four_ints(every(q, at + 16), qs[0], q, at)
    dot = four_ints(dot, qs[1], q, at + 4)
    dot = four_ints(dot, qs[2], q, at + 8)
    return four_ints(dot, qs[3], q, at + 12)


@jit
def four_ints(dot, word, q, at):  # type: ignore[no-untyped-def]
    """dot and a word's eight nibbles times four pairs of q."""
    for nibble in range(4):
        pair = (word >> spread(i32(4 * nibble))) & spread(i32(0x000F000F))
        dot = dot + pair_dot(pair, every(q, at + nibble))
    return dot
