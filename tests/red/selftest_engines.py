"""Engines in which no fault can be planted, or only seems to be: ``tests.red.selftest_engines``."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from parity.errors import NotRunError
from parity.protocol import EngineSettings, Plan, Step
from parity_cpu.engine import Engine


class _Planning(Engine):
    """Runs every step under another plan."""

    def other(self, plan: Plan) -> Plan:
        """The plan in the place of ``plan``."""
        raise NotImplementedError

    def step(self, token: int, plan: Plan | None = None) -> Step:
        return super().step(token, None if plan is None else self.other(plan))


class Unchanging(_Planning):
    """Shows what would have been computed without any change."""

    def other(self, plan: Plan) -> Plan:
        return replace(plan, inject=None)


class OneElement(_Planning):
    """Knows no change but that of one element."""

    def other(self, plan: Plan) -> Plan:
        inject = None if plan.inject is None else replace(plan.inject, change=None)
        return replace(plan, inject=inject)


class OtherChange(_Planning):
    """Asks for the change, and puts something else there: a comparison finds that too."""

    def other(self, plan: Plan) -> Plan:
        if plan.inject is None or plan.inject.change is None:
            return plan
        change = plan.inject.change

        def zeros(value: np.ndarray) -> np.ndarray:
            return np.zeros_like(change(value))

        return replace(plan, inject=replace(plan.inject, change=zeros))


class NoInject(Engine):
    """Cannot plant anything in itself."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"inject"}


class Absent(Engine):
    """Works on no machine."""

    def __init__(self, settings: EngineSettings) -> None:
        raise NotRunError("absent: no device", "use --engine cpu")


class Tight(Engine):
    """No model fits."""

    def load(self, model: object, positions: int) -> None:
        raise NotRunError("tight: no memory", "use a smaller model")
