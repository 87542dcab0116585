"""What the device engine needs of a device: memory, copies and launches.

Buffers are arrays of the backend's own kind with ``shape``, ``dtype``, ``nbytes``, views by slicing
and ``reshape``; they are C-contiguous wherever a kernel sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Buffer = Any
Recorded = Any  # what a backend makes of a record; only that backend can replay it


class Backend(Protocol):
    """One device, opened, with the kernels loaded. ``counts``: launches by kernel name, those of a
    replay included. ``graph``: whether steps are recorded and replayed. ``fuse``: whether steps of
    one row are fused launches where they can be. ``processors``: blocks that run side by side, or
    so."""

    counts: Counter[str]
    graph: bool
    fuse: bool
    processors: int

    def info(self) -> Mapping[str, str]:
        """Header values: device, driver, compiler, options, kernels, emulated."""
        ...

    def free_bytes(self) -> int | None:
        """Free memory of the device, or None where it is not known."""
        ...

    def empty(self, shape: Sequence[int], dtype: type) -> Buffer:
        """Plain device memory, not initialised."""
        ...

    def upload(self, array: np.ndarray) -> Buffer:
        """A device copy of a host array."""
        ...

    def download(self, buffer: Buffer) -> np.ndarray:
        """A host copy of a buffer, after all launches before it."""
        ...

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Copy bytes on the device, in launch order; both contiguous and of one size."""
        ...

    def write(self, target: Buffer, array: np.ndarray) -> None:
        """Copy a host array of the same size into a buffer."""
        ...

    def zero(self, target: Buffer) -> None:
        """Fill a buffer with zero bytes."""
        ...

    def address(self, buffer: Buffer) -> int:
        """Device address of the first byte."""
        ...

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: int | tuple[int, ...],
        args: Sequence[Any],
        shared: int = 0,
        *,
        overlap: bool = False,
    ) -> None:
        """Launch one kernel; arrays pass their address, NumPy scalars their value. ``overlap``: it
        may start before the launch ahead has ended (``overlap.cuh``: it waits by itself)."""
        ...

    def record(self, run: Callable[[], None]) -> Recorded:
        """What ``run`` launches, copies and zeroes on the device, with the arguments of now; none
        of it is done yet. It may not make memory, nor move bytes from or to the host."""
        ...

    def replay(self, recorded: Recorded) -> None:
        """Do what was recorded, in order, in what the buffers hold by now."""
        ...
