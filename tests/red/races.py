"""Engines that do not repeat: ``tests.red.races:NAME``.

``EmuRace`` and ``CudaRace`` multiply with a kernel of ``unordered_matvec.cu``, chosen by
``@kernel=NAME``. On a device the blocks come as they like. The emulator runs them in an order that
a seed decides; ``EmuRace`` takes the next seed at each reset, so that a run can be told in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity_cpu.engine import Engine
from parity_cuda.backend import Backend, Buffer
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.emu.launch import Schedule
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import CudaEngine, DeviceEngine, EmuEngine
from parity_cuda.ops import THREADS, Ops
from parity_cuda.sources import kernel_sources

KERNEL = Path(__file__).with_name("unordered_matvec.cu")


def racing_sources() -> dict[str, str]:
    """The kernels, and those that race."""
    return {**kernel_sources(), KERNEL.name: KERNEL.read_text()}


class UnorderedOps(Ops):
    """Q4_0 products of one row by the kernel called ``name``."""

    def __init__(self, backend: Backend, name: str) -> None:
        super().__init__(backend)
        self._name = name

    def q4_matvec(self, out: Buffer, d: Buffer, qs: Buffer, x: Buffer, variants: int) -> None:
        if x.shape[0] > 1:
            super().q4_matvec(out, d, qs, x, variants)
            return
        rows, nb = d.shape
        self.backend.zero(out)
        grid = (-(-rows // THREADS), nb)
        self.backend.launch(
            self._name, grid, THREADS, [out, d, qs, x, np.int32(rows), np.int32(nb)]
        )


def race(engine: DeviceEngine) -> None:
    """Let a loaded engine multiply in no order."""
    name = engine.settings.options.get("kernel", "atomic_matvec")
    engine._decoder.ops = UnorderedOps(engine.backend, name)


class EmuRace(EmuEngine):
    """``emu`` whose blocks come in another order after each reset; with ``@late`` only its decode
    steps race."""

    runs = 0

    def open(self, settings: EngineSettings) -> Backend:
        return EmuBackend(replace(settings, options={"fuse": "off"}), racing_sources())

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        race(self)

    def reset(self) -> None:
        super().reset()
        self.runs += 1
        self._shuffle(self.runs)

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if "late" not in self.settings.options:
            return super().prefill(tokens, plan)
        self._shuffle(0)
        steps = super().prefill(tokens, plan)
        self._shuffle(self.runs)
        return steps

    def _shuffle(self, seed: int) -> None:
        self.backend._schedule = Schedule(order="shuffled", seed=seed)  # type: ignore[attr-defined]


class EmuRaceInOrder(EmuRace):
    """The same, and the blocks always come in the same order."""

    def _shuffle(self, seed: int) -> None:
        self.backend._schedule = Schedule(order="descending")  # type: ignore[attr-defined]


class CudaRace(CudaEngine):
    """``cuda`` with the same kernels."""

    def open(self, settings: EngineSettings) -> Backend:
        return CupyBackend(replace(settings, options={"fuse": "off"}), racing_sources())

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        race(self)


class Rare(Engine):
    """Moves the last layer's attention at its ``@pos=N`` in run ``@run=K`` alone."""

    options = ("pos", "run")
    runs = -1  # the load resets once

    def reset(self) -> None:
        super().reset()
        self.runs += 1

    def step(self, token: int, plan: Plan | None = None) -> Step:
        options = self.settings.options
        if plan is not None and self.runs == int(options["run"]):
            plan = replace(plan, inject=Injection(Key(int(options["pos"]), 3, "attn"), 0))
        return super().step(token, plan)


class Drifting(Rare):
    """Moves an element at position 36 - K in run K: the latest run differs earliest."""

    options = ()

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and self.runs > 1:
            plan = replace(plan, inject=Injection(Key(36 - self.runs, 1, "kraw"), 0))
        return Engine.step(self, token, plan)


class SecondLoad(Engine):
    """The second engine of a process has one bit of one weight wrong; see ``opened``."""

    opened: ClassVar[int] = 0

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        type(self).opened += 1
        if self.opened == 2:
            self._tensors["layers.2.q_proj.qs"][7, 3] ^= np.uint8(0x04)


class LateRow(Engine):
    """Overwrites a row after the last step of its third run: only the end state shows it."""

    runs = -1

    def reset(self) -> None:
        super().reset()
        self.runs += 1

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.runs == 3 and self.length == self.positions:
            self._state.layers[-1]["v"][2, 0, 0] += np.int8(1)
        return step


class OtherChoice(Engine):
    """Gives other logits than those it hashed in its second run, in one position."""

    runs = -1

    def reset(self) -> None:
        super().reset()
        self.runs += 1

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.runs == 2 and self.length == self.positions - 1:
            return replace(step, logits=np.negative(step.logits))
        return step
