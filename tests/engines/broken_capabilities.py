"""Engines that break a promise of an optional capability: the reference engine, changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from parity.errors import InputError
from parity.inject import move_element
from parity.keys import Key
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity_cpu import Engine
from tests.engines.broken_engines import with_step


def with_state(change: Callable[[dict[str, Any]], dict[str, Any]]) -> type[Engine]:
    """An engine whose state is changed before it is given out."""

    class States(Engine):
        def read_state(self) -> dict[str, np.ndarray]:
            return change(super().read_state())

    return States


def with_tensors(change: Callable[[dict[Key, Any]], dict[Key, Any]]) -> type[Engine]:
    def changed(step: Step, plan: Plan | None) -> Step:
        return replace(step, tensors=change(step.tensors)) if len(step.tensors) > 1 else step

    return with_step(changed)


class SharedTensors(Engine):
    """Hands out the buffers that the next step writes into."""

    _held: ClassVar[dict[int, np.ndarray]] = {}

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        for array in self._held.values():
            array.reshape(-1).view(np.uint8)[...] = 0
        self._held.update({id(array): array for array in step.tensors.values()})
        return step


def without_first(tensors: dict[Key, Any]) -> dict[Key, Any]:
    return dict([*tensors.items()][1:])


def flat(tensors: dict[Key, Any]) -> dict[Key, Any]:
    return {key: array.reshape(-1) for key, array in tensors.items()}


def flipped(tensors: dict[Key, Any]) -> dict[Key, Any]:
    first = next(iter(tensors))
    tensors[first].reshape(-1).view(np.uint8)[0] ^= 1
    return tensors


class ForgetsScales(Engine):
    """``write_state`` leaves a scale as it was."""

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().write_state({**state, "l1_ks": np.ones_like(state["l1_ks"])})


class KeepsGiven(Engine):
    """``write_state`` copies late: at the next step."""

    _given: Mapping[str, np.ndarray] | None = None

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().write_state(state)
        self._given = state

    def read_state(self) -> dict[str, np.ndarray]:
        if self._given is not None:
            super().write_state({**self._given, "lengths": np.array([self.length])})
        return super().read_state()

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._given = None
        return super().step(token, plan)


class SharedState(Engine):
    """``read_state`` gives the same arrays every time."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._shared: dict[str, np.ndarray] = {}

    def read_state(self) -> dict[str, np.ndarray]:
        self._shared = super().read_state()
        return self._shared

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        for name, array in self._shared.items():
            if name == "lengths":
                array += 1
        return step


class TakesTooMuch(Engine):
    """Cuts a state that is too long instead of refusing it."""

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        rows = self.positions
        cut = {n: (np.minimum(a, rows) if n == "lengths" else a[:rows]) for n, a in state.items()}
        super().write_state(cut)


class RefusesLate(Engine):
    """Refuses a state that is too long after taking its length."""

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        try:
            super().write_state(state)
        except InputError:
            self.length = self.positions
            raise


class Ungrateful(Engine):
    """Raises something else than a ParityError."""

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        try:
            super().write_state(state)
        except InputError as error:
            raise ValueError(str(error)) from error


def without_inject(plan: Plan) -> Plan:
    return replace(plan, inject=None)


def any_position(plan: Plan) -> Plan:
    if plan.inject is None:
        return plan
    return replace(plan, inject=replace(plan.inject, key=plan.inject.key._replace(pos=1)))


def next_element(plan: Plan) -> Plan:
    """The neighbour of the element asked for, in one field."""
    if plan.inject is None or plan.inject.key.field != "kraw":
        return plan
    return replace(plan, inject=replace(plan.inject, index=plan.inject.index ^ 1))


def without_change(plan: Plan) -> Plan:
    """Moves an element, and knows no other change."""
    if plan.inject is None or plan.inject.change is None:
        return plan
    return replace(plan, inject=replace(plan.inject, change=None))


def changed_twice(plan: Plan) -> Plan:
    """The change is put to its own result."""
    if plan.inject is None or plan.inject.change is None:
        return plan
    change = plan.inject.change
    return replace(plan, inject=replace(plan.inject, change=lambda value: change(change(value))))


def one_layer_late(plan: Plan) -> Plan:
    if plan.inject is None or plan.inject.key.layer is None:
        return plan
    key = plan.inject.key
    return replace(plan, inject=Injection(key._replace(layer=key.layer + 1), plan.inject.index))


class HashedOnly(Engine):
    """Moves the value for its digest and computes on with the old one."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is None or plan.inject is None or plan.inject.key.layer is None:
            return super().step(token, plan)
        state = self.read_state()
        moved = super().step(token, plan)
        self.write_state(state)
        step = super().step(token, replace(plan, inject=None))
        taken = {entry.key: entry for entry in moved.entries}
        key = plan.inject.key
        entries = [taken[key] if entry.key == key else entry for entry in step.entries]
        return replace(step, entries=entries)


def unmoved_logits(step: Step, plan: Plan | None) -> Step:
    """The digest is of the moved logits; those that are returned are not."""
    if plan is not None and plan.inject is not None and plan.inject.key.layer is None:
        bits = step.logits.view(np.uint32)
        bits[plan.inject.index] -= np.uint32(1)
    return step


# --- rows, rollback, counters ---------------------------------------------------------------------


def with_rows(change: Callable[[list[Step]], list[Step]]) -> type[Engine]:
    """An engine whose rows are changed before they are given out."""

    class Rows(Engine):
        def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
            return change(super().step_rows(tokens, plan))

    return Rows


def one_position(steps: list[Step]) -> list[Step]:
    """Every row under the position of the first."""
    pos = steps[0].entries[0].key.pos if steps[0].entries else 0
    return [
        replace(s, entries=[replace(e, key=e.key._replace(pos=pos)) for e in s.entries])
        for s in steps
    ]


def split_by_rows(steps: list[Step]) -> list[Step]:
    """Other bits for more than one row, as a split along the reduced axis would give them."""
    if len(steps) > 1:
        move_element(steps[-1].logits, 11)
    return steps


class LosesARow(Engine):
    """The last of several rows is computed, but not counted."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        self.length -= len(tokens) > 1
        return steps


class NoRowsAreFine(Engine):
    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().step_rows(tokens, plan) if tokens else []


class RowsHalfFed(Engine):
    """Rows are single steps: those before the bad token are fed."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if not tokens:
            raise InputError("no rows")
        return [self.step(token, plan) for token in tokens]


class StaysWhereItIs(Engine):
    def rollback(self) -> None:
        length = self.length
        super().rollback()
        self.length = length


class RollsBackTwice(Engine):
    def rollback(self) -> None:
        super().rollback()
        self.mark()


class Shrugs(Engine):
    """Without a mark there is nothing to do."""

    def rollback(self) -> None:
        with contextlib.suppress(InputError):
            super().rollback()


class StartsOver(Engine):
    """Without a mark it goes back to the start, and says so."""

    def rollback(self) -> None:
        try:
            super().rollback()
        except InputError:
            self.length = max(self.length - 1, 0)
            raise


class FirstMarkStays(Engine):
    _set = False

    def mark(self) -> None:
        if not self._set:
            super().mark()
        self._set = True

    def rollback(self) -> None:
        super().rollback()
        self._set = False

    def reset(self) -> None:
        super().reset()
        self._set = False


class RememberedByReset(Engine):
    """A mark that a reset (or, with ``by_load``, a load) does not drop."""

    by_load: ClassVar[bool] = False
    _loading = False
    _kept = False

    def load(self, model: Any, positions: int) -> None:
        self._loading = True
        super().load(model, positions)
        self._loading = False
        if self._kept and self.by_load:
            self.mark()

    def reset(self) -> None:
        super().reset()
        if self._kept and not self.by_load and not self._loading:
            self.mark()

    def mark(self) -> None:
        super().mark()
        self._kept = True

    def rollback(self) -> None:
        super().rollback()
        self._kept = False


class RememberedByLoad(RememberedByReset):
    by_load = True


class LengthAlone(Engine):
    """Rolls attention back, but not what is recurrent: see the hybrid family."""

    def rollback(self) -> None:
        recurrent = {n: a for n, a in self.read_state().items() if n.endswith(("_s", "_hist"))}
        super().rollback()
        self.write_state({**self.read_state(), **recurrent})


def with_counters(change: Callable[[dict[str, Any]], Any]) -> type[Engine]:
    """An engine whose counters are changed before they are told."""

    class Counters(Engine):
        def counters(self) -> Any:
            return change(dict(super().counters()))

    return Counters


class LiveCounters(Engine):
    """Hands out what it goes on counting in."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._live: dict[str, int] = {}

    def counters(self) -> Mapping[str, int]:
        self._live.update(super().counters())
        return self._live

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        self._live.update(super().counters())
        return step
