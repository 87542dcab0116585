"""The kernels as sums whose order can be revealed: ``emu.rmsnorm``, ``cuda.q4_matvec``, ..."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from parity.errors import InputError
from parity.order.own.asked import Launch, asked_of
from parity.order.own.table import OWN, OwnOp, make_own
from parity.order.sums import Ask
from parity.protocol import EngineSettings
from parity_cuda.backend import Backend
from parity_cuda.ops import Ops, scratch_width

TOLD = ("device", "driver", "compiler", "kernels")


class KernelSums:
    """The family of one backend. M: rows of one forward."""

    family: ClassVar[str]
    devices: ClassVar[tuple[str, ...]]

    def backend(self) -> Backend:
        """The device, opened once."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """The sums of the contract."""
        return tuple(OWN)

    def make(self, name: str, ask: Ask, M: int) -> OwnOp:
        """As ``parity.order.sums.SumFamily.make``."""
        if ask.device not in self.devices:
            raise InputError(f"{self.family}.{name}: --device {ask.device}", f"write cuda.{name}")
        backend = self.backend()
        asked = asked_of(self.family, name, ask, M, key_of(backend))
        return make_own(asked, launcher(Ops(backend)))


class EmuSums(KernelSums):
    """Family ``emu``: the kernels' text, compiled for the CPU."""

    family = "emu"
    devices = ("cpu",)

    def backend(self) -> Backend:
        """The emulator, built on first use."""
        return _emulated()


class CudaSums(KernelSums):
    """Family ``cuda``: device 0, whichever --device says."""

    family = "cuda"
    devices = ("cpu", "cuda")

    def backend(self) -> Backend:
        """Device 0 through CuPy."""
        return _device()


@functools.cache
def _emulated() -> Backend:
    from parity_cuda.emu_backend import EmuBackend

    return EmuBackend(EngineSettings())


@functools.cache
def _device() -> Backend:
    from parity_cuda.cupy_backend import CupyBackend

    return CupyBackend(EngineSettings())


def key_of(backend: Backend) -> dict[str, str]:
    """What an order of these kernels holds for, beside the op's shape and flags."""
    info = backend.info()
    return {field: info[field] for field in TOLD if field in info}


def launcher(ops: Ops) -> Launch:
    """Launches by the op's name, its arguments by name."""
    backend = ops.backend

    def launch(op: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
        names = _arguments(op)
        given = {**given, **_added(names, given)}
        sent = {name: _sent(backend, given[name]) for name in names}
        getattr(ops, op)(**sent)
        return {
            name: backend.download(sent[name])
            for name in names
            if isinstance(given[name], np.ndarray)
        }

    return launch


@functools.cache
def _arguments(op: str) -> tuple[str, ...]:
    """Names of the arguments of a launch method."""
    return tuple(inspect.signature(getattr(Ops, op)).parameters)[1:]


def _added(names: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What kernels read on the device, and memory that they cannot make for themselves."""
    added: dict[str, Any] = {}
    if "pos" in names:
        added["pos"] = np.array([given["pos"]], np.int32)
    if "scratch" in names:
        rows, heads, _ = given["q"].shape
        width = scratch_width(given["pos"] + rows)
        added["scratch"] = np.full((rows, heads, width), np.nan, np.float32)
    return added


def _sent(backend: Backend, value: Any) -> Any:
    return backend.upload(value) if isinstance(value, np.ndarray) else value
