"""A CuPy of no device: enough for ``CupyBackend`` to open, and for a test to see which function of
which cubin each launch called. The self-test kernel is computed; any other only noted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from parity_cuda.selftest import CHECKS

ARCH = "90"


@dataclass
class Function:
    """One kernel of one cubin. ``known``: the mask that its unit knows."""

    path: str
    name: str
    known: int | None
    launches: list[tuple[tuple[int, ...], tuple[int, ...], int]] = field(default_factory=list)
    max_dynamic_shared_size_bytes: int = 48 * 1024
    preferred_shared_memory_carveout: int = -1

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, *, shared_mem: int
    ) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        self.launches.append((grid, block, shared_mem))
        if self.name == "selftest":
            mask = int(args[2]) if self.known is None else self.known
            args[0].array[:] = [*(bits for _, bits in CHECKS), mask]


class Buffer:
    """Device memory, on the host."""

    def __init__(self, shape: tuple[int, ...], dtype: type) -> None:
        self.array = np.zeros(shape, dtype)

    def set(self, array: np.ndarray) -> None:
        """Host to device."""
        self.array[...] = array

    def get(self) -> np.ndarray:
        """Device to host."""
        return self.array


class FakeCupy:
    """``known``: the mask that each cubin's code knows, by its path, as a compiler put it there."""

    __version__ = "0"

    def __init__(self, known: dict[str, int | None]) -> None:
        self.known = known
        self.functions: dict[tuple[str, str], Function] = {}
        self.loaded: list[str] = []
        device = SimpleNamespace(
            compute_capability=ARCH, attributes={"MultiProcessorCount": 132}, id=0
        )
        self.cuda = SimpleNamespace(
            Device=lambda: device,
            Stream=lambda: SimpleNamespace(use=lambda: None, ptr=0),
            runtime=SimpleNamespace(
                getDeviceProperties=lambda _: {"name": b"none"}, driverGetVersion=lambda: 13000
            ),
        )

    def RawModule(self, *, path: str) -> Any:
        """A cubin, to be loaded by ``compile``."""
        return SimpleNamespace(
            compile=lambda: self.loaded.append(Path(path).name),
            get_function=lambda name: self._function(path, name),
        )

    def _function(self, path: str, name: str) -> Function:
        made = Function(path, name, self.known[Path(path).name])
        return self.functions.setdefault((Path(path).name, name), made)

    def empty(self, shape: tuple[int, ...], dtype: type) -> Buffer:
        """Device memory."""
        return Buffer(shape, dtype)
