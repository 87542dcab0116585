"""Engines for ``parity isolate``: variants that act together, and sides that lack something."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

from parity.keys import Key
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity.variants import VARIANTS
from parity_cpu.engine import Engine


class Acting(Engine):
    """The CPU engine with variants of its own, which move an element of the value behind a key.

    ``idle`` does nothing, ``early`` moves the first layer's attention, ``late`` the last layer's x;
    ``up`` and ``down`` move layer 1's ores unless both are on, ``left`` and ``right`` layer 2's
    when both are; ``shield`` undoes ``early``.
    """

    OWN = ("idle", "early", "late", "up", "down", "left", "right", "shield")
    variants: ClassVar[tuple[str, ...]] = (*VARIANTS, *OWN)

    def __init__(self, settings: EngineSettings) -> None:
        self.own = settings.variants & set(self.OWN)
        super().__init__(replace(settings, variants=settings.variants - self.own))

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None:
            place = moved(self.own)
            key = Key(self.length, *place) if place else None
            plan = replace(plan, inject=Injection(key, 0)) if key else plan
        return super().step(token, plan)


def moved(own: Collection[str]) -> tuple[int, str] | None:
    """(layer, field) that the variants move: the first one, for a plan has room for one."""
    if "early" in own and "shield" not in own:
        return 0, "attn"
    if ("up" in own) != ("down" in own):
        return 1, "ores"
    if {"left", "right"} <= set(own):
        return 2, "ores"
    return (3, "x") if "late" in own else None


class NoReplay(Engine):
    """Cannot go on with given values."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"replay"}


class Silent(Engine):
    """Does not offer layer 1's knorm to whoever would replace it."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.replace is not None:
            asked = plan.replace
            plan = replace(
                plan,
                replace=lambda key, read: (
                    None if (key.layer, key.field) == (1, "knorm") else asked(key, read)
                ),
            )
        return super().step(token, plan)


class DeafToPlants(Engine):
    """Plants no fault where values are given: a placement shows nothing."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.replace is not None:
            plan = replace(plan, inject=None)
        return super().step(token, plan)


class Shaky(Engine):
    """Moves the first layer's x in the first step that is dumped, and never again."""

    seen = False

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and not self.seen:
            self.seen = True
            plan = replace(plan, inject=Injection(Key(self.length, 0, "x"), 0))
        return super().step(token, plan)
