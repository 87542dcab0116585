"""An engine with a fault in one fused launch, given as ``tests.red.fused_faults:Fused``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parity.protocol import EngineSettings, Plan, Step
from parity_cuda.backend import Backend
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine


class OneWrong(EmuBackend):
    """One bit of what one launch of a step leaves is turned over, in the middle of an element; the
    ops are right."""

    fault: tuple[str, int, int] = ("", 0, 0)
    seen = 0

    def launch(self, kernel: str, grid: Any, block: Any, args: Sequence[Any], shared: int = 0,
               *, overlap: bool = False) -> None:  # fmt: skip
        super().launch(kernel, grid, block, args, shared, overlap=overlap)
        name, number, argument = self.fault
        if kernel == name:
            if self.seen == number:
                array = args[argument].reshape(-1)
                array.view(np.uint8)[array.itemsize // 2] ^= 0x20
            self.seen += 1


class Fused(EmuEngine):
    """``@fault=KERNEL.N.ARGUMENT``: the first element behind an argument of a kernel's launch N in
    each step of one row."""

    options = ("fault",)

    def open(self, settings: EngineSettings) -> Backend:
        backend = OneWrong(EngineSettings())
        kernel, number, argument = settings.options["fault"].split(".")
        backend.fault = (kernel, int(number), int(argument))
        return backend

    def step(self, token: int, plan: Plan | None = None) -> Step:
        backend: Any = self.backend
        backend.seen = 0
        return super().step(token, plan)
