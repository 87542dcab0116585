"""Which compiled code a launch runs: that of its own mask, where one was compiled for it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.errors import ParityBug
from parity_cuda.sources import Unit, kernels_of

FREE_SHARED = 48 * 1024  # bytes of dynamic shared memory that a kernel gets without asking
# Percent of an SM's first cache that kernels which overlap ask for as shared memory: blocks of two
# launches are on one SM only where both ask for the same split of it. -1: as the driver likes.
SHARED_SPLIT = 100


@dataclass
class Code:
    """One kernel of one unit. ``function``: CuPy's; ``shared``: dynamic bytes it may be given;
    ``split``: of the first cache, as it was asked for."""

    function: Any
    shared: int = FREE_SHARED
    split: int | None = None

    def allow(self, shared: int, *, overlap: bool) -> None:
        """Ask for what a launch takes, once."""
        if shared > self.shared:
            # Two backends of a process share what CuPy loaded from one path: none may take away.
            self.shared = max(shared, self.function.max_dynamic_shared_size_bytes)
            self.function.max_dynamic_shared_size_bytes = self.shared
        if overlap and self.split != SHARED_SPLIT:
            self.function.preferred_shared_memory_carveout = self.split = SHARED_SPLIT


class Modules:
    """The loaded units of one device."""

    def __init__(self, sources: Mapping[str, str], units: Mapping[Unit, Any]) -> None:
        """``units``: what each was loaded as."""
        self._kernels = kernels_of(sources)
        self._loaded = {(file, unit.mask): it for unit, it in units.items() for file in unit.files}
        self._known = next((unit.mask for unit in units if unit.mask is not None), None)
        self._codes: dict[tuple[str, int | None], Code] = {}

    def code(self, kernel: str, args: Sequence[Any]) -> Code:
        """The code for a launch with these arguments."""
        text = self._kernels.get(kernel)
        if text is None:
            raise ParityBug(f"cuda: no text defines the kernel {kernel}")
        # What takes no mask is the same code in every unit: beside the others of a step, if it can.
        asked = self._known if text.mask is None else int(args[text.mask])
        mask = asked if (text.file, asked) in self._loaded else None
        found = self._codes.get((kernel, mask))
        if found is None:
            function = self._loaded[text.file, mask].get_function(kernel)
            found = self._codes[kernel, mask] = Code(function)
        return found
