"""digest: FNV-1a-64 and the count of non-finite values. docs/dump-format.md, contract 1.10.

The hash is a serial chain, h = (h ^ byte) * P, but the xor touches its low byte alone. With the low
byte at the start of a piece the piece is a polynomial in P, and pieces add up:

    h after n bytes = P^n * h before + (the piece's own hash from its low byte - P^n * low byte)

The low bytes go their own way, low' = 0xb3 * u mod 256 with u = low ^ byte, and bit k of 0xb3 * u
is bit k of u xor what its lower bits give. So bit k of the low byte at a place is the xor of that
over all places before it: the planes of the eight bits are found one after the other, for 1024
bytes at once. A zero byte does nothing but multiply by P.
"""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit, jit_part
from parity_cpu.planes import (
    EIGHT,
    RUN,
    RUNS,
    bytes_apart,
    eight,
    eight_words,
    filled,
    keep_words,
    planes,
    tops,
    wide,
    xor_upto,
)

u64 = np.uint64
PRIME = u64(0x100000001B3)
BLOCK = RUN * RUNS  # bytes whose low bytes are found together


def _power(exponent: int) -> np.uint64:
    return u64(pow(int(PRIME), exponent, 1 << 64))


POWER_8, POWER_64, POWER_BLOCK = _power(8), _power(RUN), _power(BLOCK)
LANE_POWERS = np.array([_power(56 - 8 * lane) for lane in range(EIGHT)])


@jit
def serial_bytes(data, basis):  # type: ignore[no-untyped-def]
    """data: (n,) u8; basis: u64. All steps in u64: a signed literal would turn into f64."""
    h = basis
    for i in range(data.shape[0]):
        h = (h ^ np.uint64(data[i])) * PRIME
    return h


@jit_part
def most(a, b, c):  # type: ignore[no-untyped-def]
    """The carries of a + b + c, bit by bit."""
    return (a & b) ^ (c & (a ^ b))


@jit_part
def settled(plane, low, k, changes, found):  # type: ignore[no-untyped-def]
    """Bit k of u, and ``found`` with that of the low byte before each eighth byte.

    plane: bit k of the bytes; low: as in ``starts_of``; changes: what the bits below give at each
    byte."""
    # step 1: within the runs, the xor of all places up to each
    own = plane ^ changes
    upto = xor_upto(own)
    # step 2: of the runs before each
    runs = tops(upto)
    runs ^= runs << u64(1)
    runs ^= runs << u64(2)
    runs ^= runs << u64(4)
    runs ^= runs << u64(8)
    runs = (runs << u64(1)) ^ (low[k] * u64((2 << RUNS) - 1))
    low[k] = (runs >> u64(RUNS)) & u64(1)
    before = upto ^ own ^ filled(runs)
    places = before & wide(u64(0x0101010101010101))
    return plane ^ before, found ^ (places << wide(k))


@jit_part
def starts_of(bits, low, starts):  # type: ignore[no-untyped-def]
    """Low bytes within a block. bits: its eight planes; low: (8,) u64, the bits of the low byte
    before the block, then of the one after it, apart so that the next block's lower bits need not
    wait for this one's upper bits; starts: (16,) u64, of each run the low bytes before its bytes
    0, 8, .. 56."""
    # step 1: bit k of u; c: the carry of 3 * u = u + 2 * u into it; t: its bit of 3 * u; d: the
    # carry of 17 * (3 * u) into it. The product 0xb3 * u has u0 in its bit 7 beside that.
    u0, found = settled(bits[0], low, u64(0), wide(u64(0)), wide(u64(0)))
    u1, found = settled(bits[1], low, u64(1), u0, found)
    c2, t1 = u1 & u0, u1 ^ u0
    u2, found = settled(bits[2], low, u64(2), u1 ^ c2, found)
    c3, t2 = most(u2, u1, c2), u2 ^ u1 ^ c2
    u3, found = settled(bits[3], low, u64(3), u2 ^ c3, found)
    c4, t3 = most(u3, u2, c3), u3 ^ u2 ^ c3
    u4, found = settled(bits[4], low, u64(4), u3 ^ c4 ^ u0, found)
    c5, t4 = most(u4, u3, c4), u4 ^ u3 ^ c4
    d5 = t4 & u0
    u5, found = settled(bits[5], low, u64(5), u4 ^ c5 ^ t1 ^ d5, found)
    c6, t5 = most(u5, u4, c5), u5 ^ u4 ^ c5
    d6 = most(t5, t1, d5)
    u6, found = settled(bits[6], low, u64(6), u5 ^ c6 ^ t2 ^ d6, found)
    c7, t6 = most(u6, u5, c6), u6 ^ u5 ^ c6
    d7 = most(t6, t2, d6)
    _, found = settled(bits[7], low, u64(7), u6 ^ c7 ^ t3 ^ d7 ^ u0, found)
    keep_words(starts, 0, found)


@jit_part
def run_sum(total, data, at, low):  # type: ignore[no-untyped-def]
    """total * P^64 and the polynomials of 64 bytes, eight in a lane; low: the bytes before each."""
    words, start, byte = eight_words(data, at), bytes_apart(low), eight(u64(0xFF))
    prime, places = eight(PRIME), eight(u64(8))
    h = start
    for _ in range(8):
        h = (h ^ (words & byte)) * prime
        words = words >> places
    return total * eight(POWER_64) + h - start * eight(POWER_8)


@jit_part
def parallel_bytes(data, basis):  # type: ignore[no-untyped-def]
    """``serial_bytes`` of any length, 1024 bytes at a time; the rest is as fast by itself."""
    blocks = data.shape[0] // BLOCK
    low, starts = np.empty(8, np.uint64), np.empty(RUNS, np.uint64)
    for k in range(8):
        low[k] = (basis >> u64(k)) & u64(1)
    total, h = eight(u64(0)), basis
    for block in range(blocks):
        at = BLOCK * block
        starts_of(planes(data, at), low, starts)
        for run in range(RUNS):
            total = run_sum(total, data, at + RUN * run, starts[run])
        h *= POWER_BLOCK
    keep_words(starts, 0, total * eight_words(LANE_POWERS, 0))
    for lane in range(EIGHT):
        h += starts[lane]
    return serial_bytes(data[BLOCK * blocks :], h)


@jit
def count_nonfinite(bits):  # type: ignore[no-untyped-def]
    """bits: (n,) u32 of float32 values; returns (count, flat index of the first or -1)."""
    largest = np.uint32(0)
    for i in range(bits.shape[0]):
        largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
    count, first = 0, -1
    if largest < np.uint32(0x7F800000):
        return count, first
    for i in range(bits.shape[0]):
        if (bits[i] & np.uint32(0x7F800000)) == np.uint32(0x7F800000):
            if count == 0:
                first = i
            count += 1
    return count, first


@jit
def digest(data, basis, floats):  # type: ignore[no-untyped-def]
    """data: (n,) u8; basis: u64; floats: whether these are float32 values.

    Returns (digest, count of values that are not finite, flat index of the first or -1)."""
    found = parallel_bytes(data, basis)
    if floats:
        count, first = count_nonfinite(data.view(np.uint32))
        return found, count, first
    return found, 0, -1
