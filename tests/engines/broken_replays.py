"""Engines that break the promises of ``replay`` and ``trace``: the reference engine, changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

import parity_cpu.engine
import parity_cpu.tap
from parity.fnv import fnv1a64_array
from parity.inject import move_element
from parity.keys import Key
from parity.protocol import Call, Plan, Replace, Step
from parity_cpu import Engine
from tests.engines.broken_engines import with_plan, with_step

Reader = Callable[[], np.ndarray]


def asking(ask: Callable[[Replace, Key, Reader], np.ndarray | None]) -> type[Engine]:
    """An engine that puts ``ask`` between itself and a plan's ``replace``."""

    def changed(plan: Plan) -> Plan:
        wanted = plan.replace
        if wanted is None:
            return plan
        return replace(plan, replace=lambda key, read: ask(wanted, key, read))

    return with_plan(changed)


def not_of_down(wanted: Replace, key: Key, read: Reader) -> np.ndarray | None:
    return None if key.field == "down" else wanted(key, read)


def twice_of_x(wanted: Replace, key: Key, read: Reader) -> np.ndarray | None:
    if key.field == "x":
        wanted(key, read)
    return wanted(key, read)


def stale_attn(wanted: Replace, key: Key, read: Reader) -> np.ndarray | None:
    """Shows what the buffer of ``attn`` held before the op ran."""
    return wanted(key, lambda: np.zeros_like(read()) if key.field == "attn" else read())


def never(wanted: Replace, key: Key, read: Reader) -> np.ndarray | None:
    """Asks, and goes on with its own value."""
    wanted(key, read)
    return None


def moved_when_given(wanted: Replace, key: Key, read: Reader) -> np.ndarray | None:
    """Reads a replacement of ``logits`` with one element off."""
    given = wanted(key, read)
    if given is not None and key.field == "logits":
        given = given.copy()
        move_element(given, 0)
    return given


class LendsItsBuffer(Engine):
    """``replace`` is shown the buffer itself, not a copy: who writes there changes the step."""

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        with mock.patch.object(parity_cpu.engine, "Tap", _LendingTap):
            return super()._forward(tokens, plan)


class _LendingTap(parity_cpu.tap.Tap):
    def __call__(self, pos: int, layer: int | None, field: str, buffer: np.ndarray) -> None:
        wanted = None if self.plan is None else self.plan.replace
        if self.plan is None or wanted is None:
            return super().__call__(pos, layer, field, buffer)
        kept = self.plan
        self.plan = replace(kept, replace=lambda key, _: wanted(key, lambda: buffer))
        super().__call__(pos, layer, field, buffer)
        self.plan = kept
        return None


class ReportsTheGiven(Engine):
    """The digest of a replaced value is that of the replacement."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        wanted = None if plan is None else plan.replace
        if plan is None or wanted is None:
            return super().step(token, plan)
        taken: dict[Key, np.ndarray] = {}

        def noted(key: Key, read: Reader) -> np.ndarray | None:
            given = wanted(key, read)
            if given is not None:
                taken[key] = given
            return given

        step = super().step(token, replace(plan, replace=noted))
        entries = [
            replace(entry, digest=fnv1a64_array(taken[entry.key])) if entry.key in taken else entry
            for entry in step.entries
        ]
        return replace(step, entries=entries)


class KeepsItsRow(Engine):
    """Attention reads a replaced K row; the cache keeps the one that was made."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        wanted = None if plan is None else plan.replace
        if plan is None or wanted is None:
            return super().step(token, plan)
        made: dict[str, np.ndarray] = {}

        def noted(key: Key, read: Reader) -> np.ndarray | None:
            if key.field == "k":
                made[f"l{key.layer}_k"] = read()
            return wanted(key, read)

        step = super().step(token, replace(plan, replace=noted))
        state = self.read_state()
        for name, row in made.items():
            state[name][-1] = row
        self.write_state(state)
        return step


def untraced(plan: Plan) -> Plan:
    return replace(plan, trace=frozenset())


def with_calls(change: Callable[[dict[Key, Any]], dict[Key, Any]]) -> type[Engine]:
    """An engine whose calls are changed, where a plan traces any."""

    def changed(step: Step, plan: Plan | None) -> Step:
        return replace(step, calls=change(dict(step.calls))) if step.calls else step

    return with_step(changed)


def one_more(calls: dict[Key, Any]) -> dict[Key, Any]:
    first = next(iter(calls))
    return {**calls, first._replace(field="kraw"): calls[first]}


def last_silent(calls: dict[Key, Any]) -> dict[Key, Any]:
    """Nothing ran for the last traced key."""
    return {**calls, list(calls)[-1]: ()}


def first_unnamed(calls: dict[Key, Any]) -> dict[Key, Any]:
    """A call without a name."""
    return {**calls, next(iter(calls)): (Call(""),)}


def moved_by_trace(step: Step, plan: Plan | None) -> Step:
    """Other ops run while a plan traces."""
    if plan is not None and plan.trace:
        move_element(step.logits, 5)
    return step
