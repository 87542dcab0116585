"""Engines that are right and hide a fault that is planted in them: ``tests.red.control_faults``.

Every check of ``isodiff`` and ``rollback`` passes on them. Only the control tells that it would
pass on a wrong engine too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from parity.model.model import Model
from parity.protocol import Plan, Step
from parity_cpu.engine import Engine


class RememberedRows(Engine):
    """Gives for rows what it gave for the same rows before, whatever is planted in them."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.given: dict[tuple[int, ...], list[Step]] = {}

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if plan is None:
            return steps
        return self.given.setdefault((self.length, *tokens), steps)


class DeadSecondLoad(Engine):
    """Its tap is honest with the first model and shows no injection with a later one."""

    loads = 0

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        type(self).loads += 1

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and self.loads > 1:
            plan = replace(plan, inject=None)
        return super().step_rows(tokens, plan)


class OtherRow(Engine):
    """Moves the element in another row than the one asked for."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and plan.inject is not None:
            key, first = plan.inject.key, self.length
            other = key._replace(pos=first + (key.pos - first + 1) % len(tokens))
            plan = replace(plan, inject=replace(plan.inject, key=other))
        return super().step_rows(tokens, plan)


class RememberedState(Engine):
    """From a rollback to the next token it tells the state that stood at the mark, unread."""

    seen: Mapping[str, np.ndarray] | None = None
    marked: Mapping[str, np.ndarray] | None = None

    def mark(self) -> None:
        super().mark()
        self.marked = super().read_state()

    def rollback(self) -> None:
        super().rollback()
        self.seen = self.marked

    def read_state(self) -> dict[str, np.ndarray]:
        state = super().read_state()
        if self.seen is None or not same_length(self.seen, state):
            return state
        return {name: array.copy() for name, array in self.seen.items()}

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self.seen = None
        return super()._forward(tokens, plan)


def same_length(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return np.array_equal(one["lengths"], other["lengths"])


class ForgetsS(RememberedState):
    """The fault that such a state hides: one S is not restored, and no read tells it."""

    def rollback(self) -> None:
        kept = self._state.layers[1]["s"].copy()
        super().rollback()
        self._state.layers[1]["s"][...] = kept


class DeadAfterRollback(Engine):
    """Its tap shows no injection in the steps after a rollback."""

    back = False

    def rollback(self) -> None:
        super().rollback()
        self.back = True

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if self.back and plan is not None:
            plan = replace(plan, inject=None)
        return super().step(token, plan)


class TwoRows(Engine):
    """Writing another state over one that came back moves a row of K too."""

    told: Mapping[str, np.ndarray] | None = None

    def rollback(self) -> None:
        super().rollback()
        self.told = self.read_state()

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().write_state(state)
        if self.told is None or not same_length(self.told, state):
            return
        if any(state[name].tobytes() != array.tobytes() for name, array in self.told.items()):
            self._state.layers[0]["k"][0, 0, 0] += np.int8(1)

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self.told = None
        return super()._forward(tokens, plan)
