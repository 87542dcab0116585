"""Engines that keep most of a promise and break its last part: the reference engine, changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.inject import move_element
from parity.protocol import Plan, Step
from parity_cpu import Engine
from tests.engines.broken_capabilities import with_state
from tests.engines.broken_engines import with_plan, with_step
from tests.engines.broken_promises import Broken


def flipped_row(engine: Engine) -> None:
    """Turn one bit of the last K row: what follows has other bits."""
    state = engine.read_state()
    state["l0_k"][-1:].view(np.uint8)[...] ^= 1
    engine.write_state(state)


class Nameless(Engine):
    name: ClassVar[str] = ""


class Unversioned(Engine):
    version: ClassVar[Any] = None


def lookalike(step: Step, plan: Plan | None) -> Any:
    return SimpleNamespace(logits=step.logits, entries=step.entries, tensors=step.tensors)


class LastRowOff(Engine):
    """A prefill of several tokens, without a plan, leaves another row behind."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().prefill(tokens, plan)
        if plan is None and len(tokens) == 3:
            flipped_row(self)
        return steps


class CutsPrefill(Engine):
    """Takes the tokens that there is room for."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().prefill(tokens[: self.positions - self.length], plan)


class DropsBadTokens(Engine):
    """Leaves out what is no token, in a prefill."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().prefill([t for t in tokens if 0 <= t < self.model.config.vocab], plan)


class SpoilsARow(Engine):
    """A prefill that runs past the cache is refused, with a row written over."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        try:
            return super().prefill(tokens, plan)
        except InputError:
            if self.length + len(tokens) > self.positions:
                flipped_row(self)
            raise


class Resentful(Engine):
    """Once it was full, its logits are others, whatever is reset."""

    _was_full = False

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._was_full = self._was_full or self.length >= self.positions
        step = super().step(token, plan)
        if self._was_full:
            move_element(step.logits, 3)
        return step


class StateByPlan(Engine):
    """The state that is read after a step shows whether ``asked`` held for its plan."""

    asked: ClassVar[Callable[[Plan | None], bool]] = staticmethod(lambda plan: plan is not None)
    _asked = False

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._asked = self.asked(plan)
        return super().step(token, plan)

    def read_state(self) -> dict[str, np.ndarray]:
        state = super().read_state()
        if self._asked:
            state["l0_v"].view(np.uint8)[...] ^= 1
        return state


class StateByBorrowing(StateByPlan):
    asked = staticmethod(lambda plan: plan is not None and plan.borrow is not None)


class StateByRows(Engine):
    """The state tells that rows were fed."""

    _rows = False

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        self._rows = True
        return steps

    def read_state(self) -> dict[str, np.ndarray]:
        state = super().read_state()
        if self._rows:
            state["l0_k"].view(np.uint8)[...] ^= 1
        return state


class TellsItsAge(Engine):
    """A state part counts every step since the engine was made; what is written holds until the
    next step."""

    _lived = 0
    _age = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._lived += 1
        self._age = self._lived
        return super().step(token, plan)

    def read_state(self) -> dict[str, np.ndarray]:
        return {**super().read_state(), "l0_age": np.array([self._age], np.int32)}

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        own = {name: array for name, array in state.items() if name != "l0_age"}
        super().write_state(own)
        self._age = int(state["l0_age"][0])


class WarmAfterWriting(Engine):
    """The first step from a state that was written has other logits."""

    _written = False

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().write_state(state)
        self._written = True

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self._written:
            move_element(step.logits, 7)
        self._written = False
        return step


def changed_late(plan: Plan) -> Plan:
    """A change is put to the value of the next layer."""
    if plan.inject is None or plan.inject.change is None:
        return plan
    key = plan.inject.key
    later = key._replace(layer=(key.layer or 0) + 1)
    return replace(plan, inject=replace(plan.inject, key=later))


def changed_and_moved(plan: Plan) -> Plan:
    """What the change gave is moved before it is hashed and used."""
    if plan.inject is None or plan.inject.change is None:
        return plan
    change = plan.inject.change

    def moved(value: np.ndarray) -> np.ndarray:
        changed = np.array(change(value))
        move_element(changed, 0)
        return changed

    return replace(plan, inject=replace(plan.inject, change=moved))


class HashesTheChange(Engine):
    """The value that a change gives is hashed, and computed with it is not."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is None or plan.inject is None or plan.inject.change is None:
            return super().step(token, plan)
        key, change = plan.inject.key, plan.inject.change
        if key.pos != self.length:
            return super().step(token, plan)
        kept = replace(plan, inject=None, tensors=plan.tensors | {key})
        step = super().step(token, kept)
        digest = fnv1a64_array(change(step.tensors[key]))
        entries = [replace(e, digest=digest) if e.key == key else e for e in step.entries]
        return replace(step, entries=entries)


def old_digest(step: Step, plan: Plan | None) -> Step:
    """Of moved logits another digest is told."""
    if plan is None or plan.inject is None or plan.inject.key.field != "logits":
        return step
    *others, last = step.entries
    return replace(step, entries=[*others, replace(last, digest=last.digest ^ 1)])


class RowsSpoilARow(Engine):
    """Rows that are refused leave another row behind."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        try:
            return super().step_rows(tokens, plan)
        except InputError:
            flipped_row(self)
            raise


class QuietRowsDiffer(Engine):
    """Without a tap rows run another kernel, which rounds otherwise."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if plan is None and len(steps) > 2:
            move_element(steps[0].logits, 2)
        return steps


class MarkOutlastsLoad(Engine):
    """A load that finds a mark leaves something behind."""

    _had_mark = False
    _odd = False

    def mark(self) -> None:
        super().mark()
        self._had_mark = True

    def load(self, model: Any, positions: int) -> None:
        self._odd = self._had_mark
        super().load(model, positions)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self._odd:
            move_element(step.logits, 1)
        return step


class OneBasis(Engine):
    """Hashes all but the logits from one basis, whichever was asked for."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is None or plan.basis == BASES["fnv1a64"]:
            return super().step(token, plan)
        step = super().step(token, replace(plan, basis=BASES["fnv1a64"]))
        *others, logits = step.entries
        digest = fnv1a64_array(step.logits, plan.basis)
        return replace(step, entries=[*others, replace(logits, digest=digest)])


BROKEN = (
    Broken("no name", "members", Nameless, "name is ''"),
    Broken("no version", "members", Unversioned, "version is None"),
    Broken("no Step", "shapes", with_step(lookalike), "a SimpleNamespace, not a Step"),
    Broken(
        "one basis for all but the logits",
        "entries_are_typed",
        OneBasis,
        "t0_l0_nrm: one digest from two bases, which no bytes have",
    ),
    Broken(
        "a prefill that leaves another row",
        "prefill_equals_steps",
        LastRowOff,
        "after prefill of 1 and 3, step 0: other logits",
    ),
    Broken(
        "a state that tells of the tap",
        "tap_changes_nothing",
        StateByPlan,
        "with a tap on everything: state part l0_v differs",
    ),
    Broken(
        "a state that ages",
        "state_round_trip",
        TellsItsAge,
        "after continuing: state part l0_age differs",
    ),
    Broken(
        "a step that knows of the writing",
        "state_round_trip",
        WarmAfterWriting,
        "a fresh engine, continued, step 0: other logits",
    ),
    Broken(
        "a state of nothing",
        "state_round_trip",
        with_state(lambda state: {"lengths": state["lengths"]}),
        "no part but lengths",
    ),
    Broken(
        "changed one layer late",
        "inject_moves_one_key",
        with_plan(changed_late),
        "changed t1_l0_nrm, and found t1_l1_nrm",
    ),
    Broken(
        "a change that is changed",
        "inject_moves_one_key",
        with_plan(changed_and_moved),
        "t1_l0_nrm: not the digest of the value that was put there",
    ),
    Broken(
        "a change for the digest alone",
        "inject_moves_one_key",
        HashesTheChange,
        "nothing after t1_l0_nrm differs: the value put there was not used",
    ),
    Broken(
        "moved logits under the old digest",
        "inject_moves_one_key",
        with_step(old_digest),
        "t1_logits is not the digest of the logits it gave",
    ),
    Broken(
        "refused rows that leave another row",
        "rows_equal_steps",
        RowsSpoilARow,
        "after 3 rows and the refusals, step 0: other logits",
    ),
    Broken(
        "a state that tells of rows",
        "rows_equal_steps",
        StateByRows,
        "after 3 rows: state part l0_k differs",
    ),
    Broken(
        "rows without a tap have other bits",
        "rows_equal_steps",
        QuietRowsDiffer,
        "3 rows without a plan, step 0: other logits",
    ),
    Broken(
        "a mark that a load remembers",
        "rollback_restores",
        MarkOutlastsLoad,
        "after load, step 0: other logits",
    ),
    Broken(
        "a state that tells of borrowing",
        "borrow_computes_with_what_is_given",
        StateByBorrowing,
        "with the engine's own functions: state part l0_v differs",
    ),
    Broken(
        "bad tokens are left out",
        "bad_token_is_refused",
        DropsBadTokens,
        "was not refused",
    ),
    Broken(
        "a prefill that is cut",
        "full_cache_is_refused",
        CutsPrefill,
        "prefill past the cache was not refused",
    ),
    Broken(
        "a refused prefill that writes a row",
        "full_cache_is_refused",
        SpoilsARow,
        "after the refusal, step 0: other logits",
    ),
    Broken(
        "full for good",
        "full_cache_is_refused",
        Resentful,
        "after a reset, step 0: other logits",
    ),
)
