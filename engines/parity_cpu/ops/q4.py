"""q4: reading Q4_0 blocks. Contract 1.0, 1.3, 1.4."""

from __future__ import annotations

import numpy as np

from parity_cpu.intrinsics import f32_of_bits, fma32
from parity_cpu.jit import jit_inside, jit_part
from parity_cpu.lanes import (
    eight_weights,
    every,
    high_nibbles,
    high_weights,
    low_nibbles,
    low_weights,
    pair_dot,
    spread,
)

f32 = np.float32
i32 = np.int32
u32 = np.uint32
TWO_112 = np.float32(2.0**112)


@jit_part
def half_to_f32(bits):  # type: ignore[no-untyped-def]
    """The float32 with the value of a finite f16 given by its bits; exact, subnormals too."""
    # step 1: exponent and mantissa into place, then an exact scaling by 2^112
    magnitude = f32_of_bits(u32(u32(bits & 0x7FFF) << u32(13))) * TWO_112
    # step 2: the sign
    return -magnitude if bits & 0x8000 else magnitude


@jit_inside
def q4_block(qs, x, to):  # type: ignore[no-untyped-def]
    """Block sums of contract 1.3: sixteen rows' bytes qs, four words each, times x[to:to+32]."""
    # step 1: pairs (e, e + 16), ascending
    s = four_pairs(spread(f32(0.0)), qs[0], x, to)
    s = four_pairs(s, qs[1], x, to + 4)
    s = four_pairs(s, qs[2], x, to + 8)
    return four_pairs(s, qs[3], x, to + 12)


@jit_inside
def four_pairs(s, word, x, to):  # type: ignore[no-untyped-def]
    """s and the four pairs of a word's bytes."""
    w = eight_weights(word)
    s = s + (w[0] * every(x, to) + w[1] * every(x, to + 16))
    s = s + (w[2] * every(x, to + 1) + w[3] * every(x, to + 17))
    s = s + (w[4] * every(x, to + 2) + w[5] * every(x, to + 18))
    return s + (w[6] * every(x, to + 3) + w[7] * every(x, to + 19))


@jit_inside
def q4_block_fused(qs, x, to):  # type: ignore[no-untyped-def]
    """``q4_block`` with fma: the pair's first product fused."""
    s = four_pairs_fused(spread(f32(0.0)), qs[0], x, to)
    s = four_pairs_fused(s, qs[1], x, to + 4)
    s = four_pairs_fused(s, qs[2], x, to + 8)
    return four_pairs_fused(s, qs[3], x, to + 12)


@jit_inside
def four_pairs_fused(s, word, x, to):  # type: ignore[no-untyped-def]
    """``four_pairs`` with fma."""
    w = eight_weights(word)
    s = s + fma32(w[0], every(x, to), w[1] * every(x, to + 16))
    s = s + fma32(w[2], every(x, to + 1), w[3] * every(x, to + 17))
    s = s + fma32(w[4], every(x, to + 2), w[5] * every(x, to + 18))
    return s + fma32(w[6], every(x, to + 3), w[7] * every(x, to + 19))


@jit_inside
def two_unpaired(one, other, x, to, after):  # type: ignore[no-untyped-def]
    """Block sums of two blocks, strictly 0 .. 31 in each: four words of each, times x[to:to+32]
    and x[after:after+32]. A product waits for the one before: two chains take the time of one."""
    s = spread(f32(0.0)), spread(f32(0.0))
    s = four_singles(s, low_weights(one[0]), low_weights(other[0]), x, to, after)
    s = four_singles(s, low_weights(one[1]), low_weights(other[1]), x, to + 4, after + 4)
    s = four_singles(s, low_weights(one[2]), low_weights(other[2]), x, to + 8, after + 8)
    s = four_singles(s, low_weights(one[3]), low_weights(other[3]), x, to + 12, after + 12)
    s = four_singles(s, high_weights(one[0]), high_weights(other[0]), x, to + 16, after + 16)
    s = four_singles(s, high_weights(one[1]), high_weights(other[1]), x, to + 20, after + 20)
    s = four_singles(s, high_weights(one[2]), high_weights(other[2]), x, to + 24, after + 24)
    s = four_singles(s, high_weights(one[3]), high_weights(other[3]), x, to + 28, after + 28)
    return s


@jit_inside
def four_singles(sums, v, w, x, to, after):  # type: ignore[no-untyped-def]
    """Both sums with four products one by one."""
    s, t = sums
    s, t = s + v[0] * every(x, to), t + w[0] * every(x, after)
    s, t = s + v[1] * every(x, to + 1), t + w[1] * every(x, after + 1)
    s, t = s + v[2] * every(x, to + 2), t + w[2] * every(x, after + 2)
    s, t = s + v[3] * every(x, to + 3), t + w[3] * every(x, after + 3)
    return s, t


@jit_inside
def two_unpaired_fused(one, other, x, to, after):  # type: ignore[no-untyped-def]
    """``two_unpaired`` with fma."""
    s = spread(f32(0.0)), spread(f32(0.0))
    s = four_fused(s, low_weights(one[0]), low_weights(other[0]), x, to, after)
    s = four_fused(s, low_weights(one[1]), low_weights(other[1]), x, to + 4, after + 4)
    s = four_fused(s, low_weights(one[2]), low_weights(other[2]), x, to + 8, after + 8)
    s = four_fused(s, low_weights(one[3]), low_weights(other[3]), x, to + 12, after + 12)
    s = four_fused(s, high_weights(one[0]), high_weights(other[0]), x, to + 16, after + 16)
    s = four_fused(s, high_weights(one[1]), high_weights(other[1]), x, to + 20, after + 20)
    s = four_fused(s, high_weights(one[2]), high_weights(other[2]), x, to + 24, after + 24)
    s = four_fused(s, high_weights(one[3]), high_weights(other[3]), x, to + 28, after + 28)
    return s


@jit_inside
def four_fused(sums, v, w, x, to, after):  # type: ignore[no-untyped-def]
    """``four_singles`` with fma."""
    s, t = sums
    s, t = fma32(v[0], every(x, to), s), fma32(w[0], every(x, after), t)
    s, t = fma32(v[1], every(x, to + 1), s), fma32(w[1], every(x, after + 1), t)
    s, t = fma32(v[2], every(x, to + 2), s), fma32(w[2], every(x, after + 2), t)
    s, t = fma32(v[3], every(x, to + 3), s), fma32(w[3], every(x, after + 3), t)
    return s, t


@jit_inside
def two_nibbles(one, other, x, to, after):  # type: ignore[no-untyped-def]
    """``two_unpaired`` over the nibbles as they are stored (contract 5, zero_point); 8 * X is not
    yet taken off."""
    s = spread(f32(0.0)), spread(f32(0.0))
    s = four_singles(s, low_nibbles(one[0]), low_nibbles(other[0]), x, to, after)
    s = four_singles(s, low_nibbles(one[1]), low_nibbles(other[1]), x, to + 4, after + 4)
    s = four_singles(s, low_nibbles(one[2]), low_nibbles(other[2]), x, to + 8, after + 8)
    s = four_singles(s, low_nibbles(one[3]), low_nibbles(other[3]), x, to + 12, after + 12)
    s = four_singles(s, high_nibbles(one[0]), high_nibbles(other[0]), x, to + 16, after + 16)
    s = four_singles(s, high_nibbles(one[1]), high_nibbles(other[1]), x, to + 20, after + 20)
    s = four_singles(s, high_nibbles(one[2]), high_nibbles(other[2]), x, to + 24, after + 24)
    s = four_singles(s, high_nibbles(one[3]), high_nibbles(other[3]), x, to + 28, after + 28)
    return s


@jit_inside
def two_nibbles_fused(one, other, x, to, after):  # type: ignore[no-untyped-def]
    """``two_nibbles`` with fma."""
    s = spread(f32(0.0)), spread(f32(0.0))
    s = four_fused(s, low_nibbles(one[0]), low_nibbles(other[0]), x, to, after)
    s = four_fused(s, low_nibbles(one[1]), low_nibbles(other[1]), x, to + 4, after + 4)
    s = four_fused(s, low_nibbles(one[2]), low_nibbles(other[2]), x, to + 8, after + 8)
    s = four_fused(s, low_nibbles(one[3]), low_nibbles(other[3]), x, to + 12, after + 12)
    s = four_fused(s, high_nibbles(one[0]), high_nibbles(other[0]), x, to + 16, after + 16)
    s = four_fused(s, high_nibbles(one[1]), high_nibbles(other[1]), x, to + 20, after + 20)
    s = four_fused(s, high_nibbles(one[2]), high_nibbles(other[2]), x, to + 24, after + 24)
    s = four_fused(s, high_nibbles(one[3]), high_nibbles(other[3]), x, to + 28, after + 28)
    return s


@jit_part
def eight_sums(x, rows):  # type: ignore[no-untyped-def]
    """What zero_point takes off each block's sum, 8 * X: (M, nb) f32; x: (M, nb * 32) f32. rows: so
    many are made, the others are whatever they are."""
    columns = x.shape[1]
    found = np.empty((x.shape[0], columns // 32), np.float32)
    for m in range(rows):
        for b in range(columns // 32):
            total = f32(0.0)
            for j in range(b * 32, b * 32 + 32):
                total = f32(total + x[m, j])
            found[m, b] = f32(total * f32(8.0))
    return found


@jit_inside
def q4_block_int(qs, q, at):  # type: ignore[no-untyped-def]
    """Exact integer dots of contract 1.4: sixteen rows' bytes qs, four words each, times a block
    of pairs of q, which ``paired`` of expert_matvec put at q[at:at+17]."""
    # step 1: low and high nibbles, any order
    dot = four_ints(every(q, at + 16), qs[0], q, at)
    dot = four_ints(dot, qs[1], q, at + 4)
    dot = four_ints(dot, qs[2], q, at + 8)
    return four_ints(dot, qs[3], q, at + 12)


@jit_inside
def four_ints(dot, word, q, at):  # type: ignore[no-untyped-def]
    """dot and a word's eight nibbles times four pairs of q."""
    for nibble in range(4):
        pair = (word >> spread(i32(4 * nibble))) & spread(i32(0x000F000F))
        dot = dot + pair_dot(pair, every(q, at + nibble))
    return dot
