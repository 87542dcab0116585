"""digest: FNV-1a-64 and the count of non-finite values. docs/dump-format.md, contract 1.10."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit

PRIME = np.uint64(0x100000001B3)


@jit
def fnv1a64_bytes(data, basis):  # type: ignore[no-untyped-def]
    """data: (n,) u8; basis: u64. All steps in u64: a signed literal would turn into f64."""
    h = basis
    for i in range(data.shape[0]):
        h = (h ^ np.uint64(data[i])) * PRIME
    return h


@jit
def count_nonfinite(bits):  # type: ignore[no-untyped-def]
    """bits: (n,) u32 of float32 values; returns (count, flat index of the first or -1)."""
    count = 0
    first = -1
    for i in range(bits.shape[0]):
        if (bits[i] & np.uint32(0x7F800000)) == np.uint32(0x7F800000):
            if count == 0:
                first = i
            count += 1
    return count, first
