"""The emulated device: the same kernels, compiled for the CPU. Memory is the host's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from parity.builds.provenance import COMPILED, PACKAGES, packages
from parity.errors import InputError, ParityBug
from parity.model.checks import check_options
from parity.model.memory import free_bytes
from parity.protocol import EngineSettings
from parity_cuda.emu import EmuModule, Schedule, build_module, find_compiler
from parity_cuda.graph import FUSE, GRAPH, LAUNCHES, launches, switch
from parity_cuda.sources import kernel_sources, sources_digest

BUILDING = "building the emulated kernels (first run on this machine, about 10 s)"
OPTIONS = ("ascending", "descending", "shuffled", "threads", GRAPH, FUSE)
Work = list[tuple[str, Callable[[], None]]]  # the kernel's name, or nothing, and what to do


class EmuBackend:
    """Kernels as host code, one launch after the other."""

    _recording: Work | None = None

    def __init__(self, settings: EngineSettings, sources: Mapping[str, str] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._schedule = schedule_of(settings.options)
        self.graph = switch("emu", settings.options, GRAPH, default=False)
        self.fuse = switch("emu", settings.options, FUSE, default=True)
        # A block has to be paid for thread by thread: few that do much, as on a tiny device.
        self.processors = 1
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
            LAUNCHES: launches(self.fuse),
            "schedule": f"{self._schedule.order} seed {self._schedule.seed}",
        }

    def free_bytes(self) -> int | None:
        """Free memory of the host."""
        return free_bytes()

    def empty(self, shape: Sequence[int], dtype: type) -> np.ndarray:
        """Host memory, not initialised."""
        self._refuse_in_record("memory")
        return np.empty(tuple(shape), dtype)

    def upload(self, array: np.ndarray) -> np.ndarray:
        """A copy, as a device would make one."""
        self._refuse_in_record("an upload")
        return np.array(array, order="C", copy=True)

    def download(self, buffer: np.ndarray) -> np.ndarray:
        """A copy."""
        self._refuse_in_record("a download")
        return buffer.copy()

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        """Copy bytes."""
        self._do("", partial(_copy, target, source))

    def write(self, target: np.ndarray, array: np.ndarray) -> None:
        """Copy bytes from the host."""
        self._refuse_in_record("a write")
        _copy(target, np.ascontiguousarray(array))

    def zero(self, target: np.ndarray) -> None:
        """Fill with zero bytes."""
        self._do("", partial(target.reshape(-1).view(np.uint8).fill, 0))

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
        *,
        overlap: bool = False,
    ) -> None:
        """Run all blocks of one launch: nothing overlaps here."""
        shape = block if isinstance(block, tuple) else (block,)
        given = (kernel, tuple(grid), shape, tuple(args), shared)
        self._do(kernel, partial(self._module.launch, *given, schedule=self._schedule))

    def record(self, run: Callable[[], None]) -> Work:
        """A list of launches and copies with their arguments, as a graph holds them."""
        work: Work = []
        self._recording = work
        try:
            run()
        finally:
            self._recording = None
        return work

    def replay(self, recorded: Work) -> None:
        """One after the other."""
        for kernel, run in recorded:
            self._do(kernel, run)

    def _do(self, kernel: str, run: Callable[[], None]) -> None:
        if self._recording is not None:
            self._recording.append((kernel, run))
            return
        if kernel:
            self.counts[kernel] += 1
        run()

    def _refuse_in_record(self, what: str) -> None:
        if self._recording is not None:
            raise ParityBug(f"emu: {what} is asked for while a step is recorded")


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    target.reshape(-1).view(np.uint8)[:] = source.reshape(-1).view(np.uint8)


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
