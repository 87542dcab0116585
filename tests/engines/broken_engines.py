"""Engines that break one promise each: the reference engine with one thing changed from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from parity.dump import Entry
from parity.errors import InputError
from parity.inject import move_element
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step
from parity_cpu import Engine


def described(**changes: str) -> type[Engine]:
    """An engine whose ``describe`` has other values; an empty one is left out."""

    class Described(Engine):
        def describe(self) -> Mapping[str, str]:
            told = {**super().describe(), **changes}
            return {name: text for name, text in told.items() if text}

    return Described


def with_weights(change: Callable[[dict[str, Any]], Any]) -> type[Engine]:
    """An engine whose weight digests are changed before they are told."""

    class Weights(Engine):
        def weights(self) -> Any:
            return change(dict(super().weights()))

    return Weights


def with_step(change: Callable[[Step, Plan | None], Any]) -> type[Engine]:
    """An engine whose steps are changed before they are given out."""

    class Steps(Engine):
        def step(self, token: int, plan: Plan | None = None) -> Any:
            return change(super().step(token, plan), plan)

    return Steps


def with_entries(change: Callable[[list[Entry]], list[Entry]]) -> type[Engine]:
    """An engine whose entries are changed, where a plan asks for any."""

    def changed(step: Step, plan: Plan | None) -> Step:
        return replace(step, entries=change(step.entries)) if step.entries else step

    return with_step(changed)


def with_plan(change: Callable[[Plan], Plan]) -> type[Engine]:
    """An engine that follows another plan than the one given."""

    class Plans(Engine):
        def step(self, token: int, plan: Plan | None = None) -> Step:
            return super().step(token, None if plan is None else change(plan))

    return Plans


def entry_at(index: int, **changes: Any) -> Callable[[list[Entry]], list[Entry]]:
    """Replace parts of the entry at ``index``."""

    def changed(entries: list[Entry]) -> list[Entry]:
        return [*entries[:index], replace(entries[index], **changes), *entries[index + 1 :]]

    return changed


# --- what the engine says of itself --------------------------------------------------------------


class NoStep:
    """Has everything but ``step``."""

    name: ClassVar[str] = "no_step"
    version: ClassVar[str] = "1"
    tiers: ClassVar[tuple[str, ...]] = ("exact",)
    variants: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[frozenset[str]] = frozenset()
    describe = load = weights = reset = prefill = Engine.reset


class NoReadState(NoStep):
    """Claims a capability without its members."""

    capabilities = frozenset({"state"})
    step = Engine.step


class Misspelt(Engine):
    capabilities = frozenset({"captures"})


class NoTier(Engine):
    tiers = ()


# --- steps ---------------------------------------------------------------------------------------


class WholePrefill(Engine):
    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return [self.step(token, plan) for token in tokens]


class LastOnly(Engine):
    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().prefill(tokens, plan)[-1:]


class ReusedLogits(Engine):
    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._kept: np.ndarray | None = None

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self._kept is None:
            self._kept = step.logits.copy()
        self._kept[...] = step.logits
        return replace(step, logits=self._kept)


class FedBack(Engine):
    """Reads the logits that it gave out before."""

    _last: np.ndarray | None = None

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self._last is not None and np.isnan(self._last[0]):
            step.logits[0] = 0.0
        self._last = step.logits
        return step


def read_only(step: Step, plan: Plan | None) -> Step:
    step.logits.flags.writeable = False
    return step


class RoundedPrefill(Engine):
    """Keeps the last value scale of a prefill with fewer bits."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().prefill(tokens, plan)
        if len(tokens) > 1:
            state = self.read_state()
            state["l0_vs"].view(np.uint32)[-1] &= np.uint32(0xFFFFFF00)
            self.write_state(state)
        return steps


class OddPrefill(Engine):
    """Wrong only where no plan asks for more than the last step."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().prefill(tokens, plan)
        if plan is None and len(tokens) == 3:
            steps[-1].logits[7] += np.float32(1)
        return steps


class StaleReset(Engine):
    """``reset`` goes back, but a running sum stays."""

    _sum = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        self._sum += token
        if self._sum > 10**6:  # only after what came before the reset
            step.logits[0] = 0.0
        return step

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().prefill(tokens, plan)
        self._sum += 10**6 * (len(tokens) == 6)
        return steps


class LoadKeeps(Engine):
    """A second ``load`` does not go back to position 0."""

    def load(self, model: Any, positions: int) -> None:
        length = self.length
        super().load(model, positions)
        self.length = length


# --- the tap -------------------------------------------------------------------------------------


def disturbed(step: Step, plan: Plan | None) -> Step:
    if plan is not None and len(plan.fields) == 2:
        move_element(step.logits, 3)
    return step


class Unrepeatable(Engine):
    """Every other engine has another logit, as with atomics that add in any order."""

    made = 0

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        Unrepeatable.made += 1
        self.odd = Unrepeatable.made % 2

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.odd:
            move_element(step.logits, 3)
        return step


class DisturbedState(Engine):
    """A tap on places writes into the cache."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if plan is not None and plan.places is not None and len(plan.places) == 1:
            state = self.read_state()
            state["l0_k"][0, 0, 0] ^= 1
            self.write_state(state)
        return step


def swapped(entries: list[Entry]) -> list[Entry]:
    return [entries[1], entries[0], *entries[2:]]


def doubled(entries: list[Entry]) -> list[Entry]:
    return [entries[0], *entries]


def renamed(entries: list[Entry]) -> list[Entry]:
    first = entries[0]
    return [*entries, replace(first, key=first.key._replace(field="norm"))]


def narrowed(entries: list[Entry]) -> list[Entry]:
    return entries if len(entries) > 9 else [replace(e, digest=e.digest ^ 1) for e in entries]


# --- refusals ------------------------------------------------------------------------------------


class TakesAnyToken(Engine):
    def step(self, token: int, plan: Plan | None = None) -> Step:
        return super().step(token % self.model.config.vocab, plan)


class WrongError(Engine):
    def step(self, token: int, plan: Plan | None = None) -> Step:
        if not 0 <= token < self.model.config.vocab:
            raise IndexError(token)
        return super().step(token, plan)


class CountsFirst(Engine):
    """Refuses after it has moved on."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if not 0 <= token < self.model.config.vocab:
            super().step(0)
            raise InputError("bad token")
        return super().step(token, plan)


class FeedsThenRefuses(Engine):
    """``prefill`` feeds what comes before the bad token, or before the end of the cache."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return [self.step(token, plan) for token in tokens][-1 if plan is None else 0 :]


class Overwrites(Engine):
    """A ring: the position after the last is the first again."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if self.length == self.positions:
            self.reset()
        return super().step(token, plan)


class FillsThenRefuses(Engine):
    """``prefill`` looks at the tokens first, but not at the room that is left."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if not all(0 <= token < self.model.config.vocab for token in tokens):
            raise InputError("bad token")
        return [self.step(token, plan) for token in tokens][-1 if plan is None else 0 :]
