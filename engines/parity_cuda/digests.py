"""Digests of many buffers in one launch: which block or warp hashes what (parity_dump.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity_cuda.backend import Backend, Buffer

JOB = np.dtype([("data", "<u8"), ("bytes", "<u8"), ("size", "<i4"), ("exponent", "<i4")])
RESULT = np.dtype([("hash", "<u8"), ("nonfinite", "<u8"), ("first", "<u8")])
PART = np.dtype([("job", "<u4"), ("tile", "<u4")])
# Of parity_dump.cuh and parity_slice.cuh.
THREADS = 256
WARPS = THREADS // 32
WARP_BYTES = 32 * 64
TILE = WARPS * WARP_BYTES
ROUNDS = 4
BORDER = 16  # a buffer is hashed from the border before it on
SUM_BYTES = 32  # ParitySum
TICKET_BYTES = 16
F32_EXPONENT = 0x7F80


@dataclass(frozen=True)
class Table:
    """Jobs by the size of what does them, and the parts of those that blocks share.

    ``order``: int64[n], the index of the value that each job, and so each result, belongs to.
    ``text``: the jobs, then the parts, as the kernel reads them.
    """

    order: np.ndarray
    text: bytes
    parts: int
    single: int
    small: int

    @property
    def work_bytes(self) -> int:
        """Bytes that must be zero before a launch, and are afterwards."""
        return TICKET_BYTES + SUM_BYTES * self.order.size + 4 * ROUNDS * self.parts

    @property
    def blocks(self) -> int:
        """Blocks of a launch."""
        return self.parts + self.single + -(-self.small // WARPS)

    def results(self, found: np.ndarray) -> tuple[np.ndarray, dict[int, tuple[int, int]]]:
        """Of RESULT[n] in the order of the jobs: hashes uint64[n] in the order of the values, a
        copy; and by value (count, flat index of the first) of what is not finite, where any is."""
        hashes = np.empty(found.size, np.uint64)
        hashes[self.order] = found["hash"]
        if not found["nonfinite"].any():
            return hashes, {}
        bad = np.flatnonzero(found["nonfinite"])
        pairs = zip(*(found[name][bad].tolist() for name in ("nonfinite", "first")), strict=True)
        return hashes, dict(zip(self.order[bad].tolist(), pairs, strict=True))


def make_table(addresses: Sequence[int], sizes: Sequence[int], floats: Sequence[bool]) -> Table:
    """The table for values at device ``addresses``, of ``sizes`` bytes, float32 or not."""
    jobs = np.zeros(len(addresses), JOB)
    jobs["data"], jobs["bytes"] = addresses, sizes
    jobs["size"] = np.where(floats, 4, 1)
    jobs["exponent"] = np.where(floats, F32_EXPONENT, 0)
    span = jobs["data"] % np.uint64(BORDER) + jobs["bytes"]
    kind = np.where(span > TILE, 0, np.where(span > WARP_BYTES, 1, 2))
    order = np.argsort(kind, kind="stable")
    tiles = -(-span[order][kind[order] == 0].astype(np.int64) // TILE)
    parts = np.zeros(int(tiles.sum()), PART)
    parts["job"] = np.repeat(np.arange(tiles.size), tiles)
    parts["tile"] = np.arange(parts.size) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    text = jobs[order].tobytes() + parts.tobytes()
    single, small = int((kind == 1).sum()), int((kind == 2).sum())
    return Table(order, text, parts.size, single, small)


def launch_digests(
    backend: Backend, results: Buffer, table: Table, text: Buffer, work: Buffer, basis: int
) -> None:
    """results: n RESULT; text: at least ``table.text``, on the device; work: its zeros."""
    n = table.order.size
    counts = (np.uint32(count) for count in (n, table.parts, table.single, table.small))
    parts, words = text[n * JOB.itemsize :], work.view(np.uint32)
    args = [results, text, parts, words, np.uint64(basis), *counts]
    backend.launch("digest", (table.blocks,), THREADS, args)


def zeros(backend: Backend, count: int) -> Buffer:
    """``count`` zero bytes on the device."""
    buffer = backend.empty((count,), np.uint8)
    backend.zero(buffer)
    return buffer


def digest_once(
    backend: Backend, buffers: Sequence[Buffer], floats: Sequence[bool], basis: int
) -> np.ndarray:
    """RESULT[n] of ``buffers``, each hashed where it lies."""
    addresses = [backend.address(buffer) for buffer in buffers]
    table = make_table(addresses, [int(buffer.nbytes) for buffer in buffers], floats)
    found = np.zeros(len(buffers), RESULT)
    if buffers:
        results = backend.empty((found.nbytes,), np.uint8)
        # One part more than there are: the view of no part at all would have no address.
        text = backend.upload(np.frombuffer(table.text + bytes(PART.itemsize), np.uint8))
        work = zeros(backend, table.work_bytes)
        launch_digests(backend, results, table, text, work, basis)
        found[table.order] = backend.download(results).view(RESULT)
    return found
