"""Pairs of results made and counted on the device: of a sweep, only counts come to the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.elementary.functions import ResidentImplementation
from parity.elementary.tally import COLUMNS, KEEP, LISTS, ROWS, SIZE, Tally
from parity_cuda.backend import Buffer

BLOCK = 256
GRID = 1024  # at most; further pairs are taken in strides
LARGEST_CHUNK = 1 << 31  # counts of one block are 32 bits wide
LISTED = len(LISTS) * KEEP


class DevicePairs:
    """A ``parity.elementary.tally.PairSource`` on the backend that both implementations share.

    A chunk of n inputs takes 12 n bytes of device memory.
    """

    where = "device"
    chunk = 1 << 26

    def __init__(
        self,
        function: str,
        ref: ResidentImplementation,
        dut: ResidentImplementation,
        bounded: bool,
    ) -> None:
        self._function, self._sides, self._bounded = function, (ref, dut), bounded
        self._backend = ref.backend
        self._part = Tally()
        self._buffers: list[Buffer] = []
        self._room = 0

    def add_range(self, start: int, count: int) -> None:
        """Count the inputs of ``count`` bit patterns from ``start`` on."""
        for at in range(start, start + count, LARGEST_CHUNK):
            self._add(at, min(LARGEST_CHUNK, start + count - at))

    def move_to(self, total: Tally) -> None:
        """Add what was counted to ``total``, and start again from nothing."""
        total.add([self._part.words])
        self._part = Tally()

    def _add(self, start: int, count: int) -> None:
        x, ref, dut = (buffer[:count] for buffer in self._arrays(count))
        first, n = np.uint32(start), np.int64(count)
        self._launch("tally_inputs", count, [x, first, n])
        for side, out in zip(self._sides, (ref, dut), strict=True):
            side.evaluate_into(self._function, out, x)
        counts = self._backend.upload(np.zeros(ROWS, np.uint64))
        keys = self._backend.upload(np.full(LISTED, np.iinfo(np.uint64).max))
        rows = self._backend.empty((LISTED * COLUMNS,), np.int64)
        bounded = np.int32(self._bounded)
        self._launch("tally_pairs", count, [counts, keys, ref, dut, first, bounded, n])
        self._launch("tally_rows", LISTED, [rows, keys, ref, dut, first])
        words = np.empty(SIZE, np.int64)
        words[:ROWS] = self._backend.download(counts).view(np.int64)
        words[ROWS:] = self._backend.download(rows)
        self._part.add([words])

    def _arrays(self, count: int) -> Sequence[Buffer]:
        """Inputs and both results; kept from chunk to chunk."""
        if self._room < count:
            self._buffers = []  # given back before more is asked for
            kinds = (np.uint32, np.float32, np.float32)
            self._buffers = [self._backend.empty((count,), kind) for kind in kinds]
            self._room = count
        return self._buffers

    def _launch(self, kernel: str, count: int, arguments: list[object]) -> None:
        grid = max(1, min(GRID, -(-count // BLOCK)))
        self._backend.launch(kernel, (grid,), BLOCK, arguments)
