"""Engines that the variant table and the ladder must notice: each breaks one promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.protocol import EngineSettings, Plan, Step
from parity_cpu.engine import Engine

PROMPT = 32  # tokens of the default prompt


class Deaf(Engine):
    """Takes every variant and computes the exact tier."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(replace(settings, variants=frozenset()))


class Mistaken(Engine):
    """Computes router_tree where scale_assoc is asked for."""

    def __init__(self, settings: EngineSettings) -> None:
        swap = {"scale_assoc": "router_tree"}
        names = frozenset(swap.get(name, name) for name in settings.variants)
        super().__init__(replace(settings, variants=names))


class Leaking(Engine):
    """Changes the products too when two_pass is asked for."""

    def __init__(self, settings: EngineSettings) -> None:
        added = {"fma"} if "two_pass" in settings.variants else set()
        super().__init__(replace(settings, variants=settings.variants | added))


class Wandering(Engine):
    """Chooses other tokens in steps that nobody taps: no key shows it."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if plan is not None or self.length <= PROMPT:
            return step
        return replace(step, logits=np.roll(step.logits, 1))


class Unmoved(Engine):
    """Loses the element that a control asks it to move."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        return super().step(token, plan and replace(plan, inject=None))
