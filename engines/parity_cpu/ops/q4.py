"""q4: reading Q4_0 blocks. Contract 1.0, 1.3, 1.4."""

from __future__ import annotations

import numpy as np

from parity_cpu.intrinsics import f32_of_bits
from parity_cpu.jit import jit
from parity_cpu.ops.variants import product_sum
from parity_cpu.variants import UNPAIRED

f32 = np.float32
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
def q4_block(qs, x, at, to):  # type: ignore[no-untyped-def]
    """Block sum of contract 1.3: weights of the 16 bytes from ``qs[at]`` times ``x[to:to+32]``."""
    # step 1: pairs (e, e + 16), ascending
    s = f32(0.0)
    for e in range(16):
        byte = qs[at + e]
        low = f32(np.int32(byte & 15) - np.int32(8))
        high = f32(np.int32(byte >> 4) - np.int32(8))
        s = f32(s + f32(f32(low * x[to + e]) + f32(high * x[to + e + 16])))
    return s


@jit
def q4_block_variant(qs, x, at, to, variants):  # type: ignore[no-untyped-def]
    """Block sum with fma (the pair's first product fused) or unpaired (strictly 0 .. 31)."""
    s = f32(0.0)
    for e in range(16):
        byte = qs[at + e]
        low = f32(np.int32(byte & 15) - np.int32(8))
        high = f32(np.int32(byte >> 4) - np.int32(8))
        if variants & UNPAIRED:
            s = product_sum(low, x[to + e], s, variants)
        else:
            pair = product_sum(low, x[to + e], f32(high * x[to + e + 16]), variants)
            s = f32(s + pair)
    if variants & UNPAIRED:
        for e in range(16):
            high = f32(np.int32(qs[at + e] >> 4) - np.int32(8))
            s = product_sum(high, x[to + e + 16], s, variants)
    return s


@jit
def q4_block_int(qs, q, at, to):  # type: ignore[no-untyped-def]
    """Exact integer dot of contract 1.4: 32 weights times ``q[to:to+32]``, an int32."""
    # step 1: low and high nibbles, any order
    dot = np.int32(0)
    for e in range(16):
        byte = qs[at + e]
        low = np.int32(byte & 15) - np.int32(8)
        high = np.int32(byte >> 4) - np.int32(8)
        dot = np.int32(dot + low * np.int32(q[to + e]) + high * np.int32(q[to + e + 16]))
    return dot
