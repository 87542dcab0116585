"""Engines that a repro folder must tell apart: ``tests.red.repro_faults:NAME``."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from parity.keys import Key
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity_cpu.engine import Engine
from parity_cuda.backend import Backend
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.engine import CudaEngine
from parity_cuda.sources import kernel_sources
from tests.red.faults import Moved, Patched


class Mended(Engine):
    """Moves the value behind ``@key=TAG`` by 1 ULP until ``mended`` is set."""

    options = ("key",)
    mended: ClassVar[bool] = False

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None and not self.mended:
            plan = replace(plan, inject=Injection(Key.parse(self.settings.options["key"]), 0))
        return super().step(token, plan)


class Flaky(Engine):
    """Moves the value behind ``@key=TAG`` in every other step that is looked at."""

    options = ("key",)
    looked = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None:
            self.looked += 1
            if self.looked % 2:
                plan = replace(plan, inject=Injection(Key.parse(self.settings.options["key"]), 0))
        return super().step(token, plan)


class NoReplay(Moved):
    """Cannot go on with given values."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"state", "capture", "inject"})


class Plain(Engine):
    """A ref that can give its state and its values, and nothing else."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"state", "capture"})


class CudaPatched(CudaEngine):
    """``cuda`` with one piece of kernel text replaced: ``@fault=NAME`` of ``Patched.patches``."""

    def open(self, settings: EngineSettings) -> Backend:
        file, old, new = Patched.patches[settings.options["fault"]]
        sources = kernel_sources()
        assert old in sources[file], f"{file} no longer holds the text to patch"
        sources[file] = sources[file].replace(old, new)
        return CupyBackend(replace(settings, options={"fuse": "off"}), sources)
