"""digest: FNV-1a-64 and the count of non-finite values. docs/dump-format.md, contract 1.10.

``digests_of`` hashes many buffers, those of one length at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from parity_cpu.jit import jit

PRIME = np.uint64(0x100000001B3)
LINE = 8  # words that are read from one buffer before the next: a line of the cache


@jit
def serial_bytes(data, basis):  # type: ignore[no-untyped-def]
    """data: (n,) u8; basis: u64. All steps in u64: a signed literal would turn into f64."""
    h = basis
    for i in range(data.shape[0]):
        h = (h ^ np.uint64(data[i])) * PRIME
    return h


@jit
def interleaved_bytes(hashes, words, ends):  # type: ignore[no-untyped-def]
    """Buffers of one length side by side: a loop over one waits for its multiplication at every
    byte. hashes: (m,) u64, the basis in each, then the digests; words: (m, n / 8) u64, little
    endian; ends: (n mod 8, m) u8, the bytes after them."""
    m, count = words.shape
    block = np.empty((LINE, m), np.uint64)
    for start in range(0, count, LINE):
        here = min(LINE, count - start)
        for each in range(m):
            for i in range(here):
                block[i, each] = words[each, start + i]
        for i in range(here):
            rest = block[i]
            for _ in range(8):
                for each in range(m):
                    hashes[each] = (hashes[each] ^ (rest[each] & np.uint64(0xFF))) * PRIME
                    rest[each] >>= np.uint64(8)
    for i in range(ends.shape[0]):
        for each in range(m):
            hashes[each] = (hashes[each] ^ np.uint64(ends[i, each])) * PRIME


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


FEW = 4  # below that many buffers of a length, one after the other is as fast


def digests_of(buffers: Sequence[np.ndarray], basis: int) -> list[int]:
    """FNV-1a-64 over the bytes of each C-contiguous array, in the order given."""
    found = [0] * len(buffers)
    lengths: dict[int, list[int]] = defaultdict(list)
    for at, buffer in enumerate(buffers):
        lengths[buffer.nbytes].append(at)
    for count, places in lengths.items():
        flat = [buffers[at].reshape(-1).view(np.uint8) for at in places]
        if len(places) < FEW:
            digests = [int(serial_bytes(data, np.uint64(basis))) for data in flat]
        else:
            digests = _side_by_side(np.stack(flat), count, basis).tolist()
        for at, digest in zip(places, digests, strict=True):
            found[at] = digest
    return found


def _side_by_side(rows: np.ndarray, count: int, basis: int) -> np.ndarray:
    """rows: (m, count) u8; returns u64[m]."""
    whole = count // 8 * 8
    words = np.ascontiguousarray(rows[:, :whole]).view("<u8").astype(np.uint64, copy=False)
    hashes = np.full(rows.shape[0], basis, np.uint64)
    ends = np.ascontiguousarray(rows[:, whole:].T)
    interleaved_bytes(hashes, words, ends)
    return hashes
