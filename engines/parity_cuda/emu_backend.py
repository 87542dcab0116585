"""The emulated device: the same kernels, compiled for the CPU. Memory is the host's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.builds.provenance import COMPILED, PACKAGES, packages
from parity.errors import InputError
from parity.model.checks import check_options
from parity.model.memory import free_bytes
from parity.protocol import EngineSettings
from parity_cuda.emu import EmuModule, Schedule, build_module, find_compiler
from parity_cuda.sources import kernel_sources, sources_digest

BUILDING = "building the emulated kernels (first run on this machine, about 10 s)"
OPTIONS = ("ascending", "descending", "shuffled", "threads")


class EmuBackend:
    """Kernels as host code, one launch after the other."""

    def __init__(self, settings: EngineSettings, sources: Mapping[str, str] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._schedule = schedule_of(settings.options)
        texts = kernel_sources() if sources is None else dict(sources)
        compiler = find_compiler()
        notes = settings.notes

        def announce() -> None:
            if notes is not None:
                notes.note(BUILDING)

        self._built = build_module(texts, compiler=compiler, announce=announce)
        self._module = EmuModule(self._built)
        self._digest = sources_digest(texts)

    def info(self) -> Mapping[str, str]:
        """How the kernels were built and in which order they run."""
        return {
            "device": "CPU (emulated CUDA)",
            "driver": "none",
            "compiler": self._built.compiler,
            "options": " ".join(self._built.flags),
            "kernels": self._digest,
            COMPILED: self._built.code[:16],
            PACKAGES: packages(),
            "emulated": "yes",
            "schedule": f"{self._schedule.order} seed {self._schedule.seed}",
        }

    def free_bytes(self) -> int | None:
        """Free memory of the host."""
        return free_bytes()

    def empty(self, shape: Sequence[int], dtype: type) -> np.ndarray:
        """Host memory, not initialised."""
        return np.empty(tuple(shape), dtype)

    def upload(self, array: np.ndarray) -> np.ndarray:
        """A copy, as a device would make one."""
        return np.array(array, order="C", copy=True)

    def download(self, buffer: np.ndarray) -> np.ndarray:
        """A copy."""
        return buffer.copy()

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        """Copy bytes."""
        target.reshape(-1).view(np.uint8)[:] = source.reshape(-1).view(np.uint8)

    def write(self, target: np.ndarray, array: np.ndarray) -> None:
        """Copy bytes from the host."""
        self.copy(target, np.ascontiguousarray(array))

    def zero(self, target: np.ndarray) -> None:
        """Fill with zero bytes."""
        target.reshape(-1).view(np.uint8)[:] = 0

    def address(self, buffer: np.ndarray) -> int:
        """Address of the first byte."""
        return int(buffer.ctypes.data)

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: int | tuple[int, ...],
        args: Sequence[Any],
        shared: int = 0,
    ) -> None:
        """Run all blocks of one launch."""
        self.counts[kernel] += 1
        shape = block if isinstance(block, tuple) else (block,)
        self._module.launch(
            kernel, tuple(grid), shape, args, shared_bytes=shared, schedule=self._schedule
        )


def schedule_of(options: Mapping[str, str]) -> Schedule:
    """The schedule asked for by ``emu@shuffled=SEED``, ``emu@descending``, ``emu@threads=N``."""
    check_options("emu", options, OPTIONS)
    threads = _number("threads", options.get("threads", "1"))
    if "shuffled" in options:
        seed = _number("shuffled", options["shuffled"] or "2")
        return Schedule(order="shuffled", seed=seed, threads=threads)
    if "descending" in options:
        return Schedule(order="descending", threads=threads)
    return Schedule(order="ascending", threads=threads)


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"emu@{name}={text}: not a number", f"write emu@{name}=7")
    return int(text)
