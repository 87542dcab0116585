"""What the device engine needs of a device: memory, copies and launches.

Buffers are arrays of the backend's own kind with ``shape``, ``dtype``, ``nbytes``, views by slicing
and ``reshape``; they are C-contiguous wherever a kernel sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Buffer = Any


class Backend(Protocol):
    """One device, opened, with the kernels loaded. ``counts``: launches by kernel name."""

    counts: Counter[str]

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
    ) -> None:
        """Launch one kernel; arrays pass their address, NumPy scalars their value."""
        ...
