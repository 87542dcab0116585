"""Engines that break one promise each: the reference engine with one thing changed from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from parity.dump import Entry, TensorType
from parity.errors import InputError
from parity.inject import move_element
from parity.keys import Key
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity_cpu import Engine


@dataclass(frozen=True)
class Broken:
    """One planted fault: what it is, the promise it breaks, and a part of what must be said."""

    what: str
    promise: str
    engine: type[Any]
    said: str


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


def with_state(change: Callable[[dict[str, Any]], dict[str, Any]]) -> type[Engine]:
    """An engine whose state is changed before it is given out."""

    class States(Engine):
        def read_state(self) -> dict[str, np.ndarray]:
            return change(super().read_state())

    return States


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


# --- capabilities --------------------------------------------------------------------------------


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


BROKEN = (
    Broken("a required member is missing", "members", NoStep, "lacks step(self, token"),
    Broken("a capability lacks its member", "members", NoReadState, "lacks read_state"),
    Broken("an unknown capability", "members", Misspelt, "unknown capabilities ['captures']"),
    Broken("no tier", "members", NoTier, "tiers is empty"),
    Broken("no device named", "members", described(device=""), "describe()['device'] is None"),
    Broken("two lines", "members", described(driver="a\nb"), "not one line of text"),
    Broken("emulated?", "members", described(emulated="maybe"), "neither yes nor no"),
    Broken(
        "a tensor without digest",
        "weights",
        with_weights(lambda told: dict([*told.items()][:-1])),
        "no digest of inv_freq",
    ),
    Broken(
        "digests in another order",
        "weights",
        with_weights(lambda told: dict(reversed(told.items()))),
        "another order",
    ),
    Broken(
        "one wrong digest",
        "weights",
        with_weights(lambda told: {**told, "final_norm": (told["final_norm"][0], 1)}),
        "final_norm: not the digest",
    ),
    Broken(
        "one wrong type",
        "weights",
        with_weights(lambda told: {**told, "inv_freq": (TensorType("f16", (16,)), 0)}),
        "told as f16[16]",
    ),
    Broken(
        "float64 logits",
        "shapes",
        with_step(lambda step, plan: replace(step, logits=step.logits.astype(np.float64))),
        "logits are float64[48], not float32[48]",
    ),
    Broken(
        "logits with a row axis",
        "shapes",
        with_step(lambda step, plan: replace(step, logits=step.logits[None])),
        "logits are float32[1, 48]",
    ),
    Broken(
        "logits that are a list",
        "shapes",
        with_step(lambda step, plan: replace(step, logits=step.logits.tolist())),
        "logits are <class 'list'>",
    ),
    Broken("prefill gives all steps", "shapes", WholePrefill, "gave 2 steps, not the last"),
    Broken("prefill gives the last alone", "shapes", LastOnly, "with a plan gave 1 steps"),
    Broken(
        "entries that nobody asked for",
        "shapes",
        with_step(lambda step, plan: replace(step, entries=[Entry(Key(0, None, "logits"), 0)])),
        "without a plan",
    ),
    Broken("logits in one buffer", "logits_are_a_copy", ReusedLogits, "the next step wrote into"),
    Broken("logits read back", "logits_are_a_copy", FedBack, "after the caller wrote into them"),
    Broken("read-only logits", "logits_are_a_copy", with_step(read_only), "cannot be written"),
    Broken(
        "prefill rounds a scale", "prefill_equals_steps", RoundedPrefill, "prefill of 4, step 4"
    ),
    Broken("prefill of 3 is odd", "prefill_equals_steps", OddPrefill, "other logits than 4 steps"),
    Broken("reset keeps a sum", "reset_forgets", StaleReset, "after reset, step 0: other logits"),
    Broken("load keeps the position", "reset_forgets", LoadKeeps, "after load"),
    Broken(
        "a tap moves a logit",
        "tap_changes_nothing",
        with_step(disturbed),
        "with a tap on two fields, step 0 has other logits",
    ),
    Broken("a tap moves the state", "tap_changes_nothing", DisturbedState, "a tap on one place"),
    Broken(
        "a key is missing",
        "entries_are_typed",
        with_entries(lambda entries: entries[1:]),
        "1 keys are missing, first t0_l0_nrm",
    ),
    Broken("an unknown key", "entries_are_typed", with_entries(renamed), "t0_l0_norm is no key"),
    Broken(
        "a key twice", "entries_are_typed", with_entries(doubled), "t0_l0_nrm is reported twice"
    ),
    Broken(
        "keys out of order",
        "entries_are_typed",
        with_entries(swapped),
        "t0_l0_kraw stands where t0_l0_nrm belongs",
    ),
    Broken(
        "another dtype",
        "entries_are_typed",
        with_entries(entry_at(0, type=TensorType("f16", (32,)))),
        "t0_l0_nrm is f32[32], reported f16[32]",
    ),
    Broken(
        "no dtype",
        "entries_are_typed",
        with_entries(entry_at(-2, type=None)),
        "t0_final_normed is f32[32], reported None",
    ),
    Broken(
        "nonfinite where all is finite",
        "entries_are_typed",
        with_entries(entry_at(0, nonfinite=(1, 0))),
        "nonfinite (1, 0)",
    ),
    Broken(
        "a digest of something else",
        "entries_are_typed",
        with_entries(lambda entries: [*entries[:-1], replace(entries[-1], digest=1)]),
        "t0_logits is not the digest of the logits it gave",
    ),
    Broken(
        "the basis is not followed",
        "entries_are_typed",
        with_plan(lambda plan: replace(plan, basis=Plan(()).basis)),
        "t0_logits is not the digest",
    ),
    Broken(
        "the places are not followed",
        "entries_are_typed",
        with_plan(lambda plan: replace(plan, places=None)),
        "at a position that was not asked for",
    ),
    Broken(
        "a digest that depends on the plan",
        "entries_are_typed",
        with_entries(narrowed),
        "with fields and places: t1_l0_nrm was",
    ),
    Broken(
        "a tensor is missing",
        "capture_matches_digests",
        with_tensors(without_first),
        "not alike: ['t1_l0_nrm']",
    ),
    Broken("flat tensors", "capture_matches_digests", with_tensors(flat), "captured int8[32]"),
    Broken(
        "a tensor of other bytes",
        "capture_matches_digests",
        with_tensors(flipped),
        "t1_l0_nrm: the tensor does not have the digest",
    ),
    Broken("tensors that are no copies", "capture_matches_digests", SharedTensors, "the digest"),
    Broken(
        "a scale is not restored",
        "state_round_trip",
        ForgetsScales,
        "a fresh engine, read back: state part l1_ks differs",
    ),
    Broken("a state that is kept", "state_round_trip", KeepsGiven, "read back: state part l0_k"),
    Broken("a state that is shared", "state_round_trip", SharedState, "a step wrote into what"),
    Broken(
        "a length of 64 bits",
        "state_round_trip",
        with_state(lambda state: {**state, "lengths": state["lengths"].astype(np.int64)}),
        "lengths is int64[4], not int32[4]",
    ),
    Broken(
        "no length",
        "state_round_trip",
        with_state(lambda state: {n: a for n, a in state.items() if n != "lengths"}),
        "not int32[4]",
    ),
    Broken(
        "rows that were not written",
        "state_round_trip",
        with_state(lambda state: {**state, "l0_v": np.zeros((8, 1, 32), np.int8)}),
        "l0_v has 8 rows, 4 were written",
    ),
    Broken(
        "a part without layer",
        "state_round_trip",
        with_state(lambda state: {**state, "k": state["l0_k"]}),
        "a part is named 'k'",
    ),
    Broken("a longer state is cut", "state_round_trip", TakesTooMuch, "was not refused"),
    Broken("a longer state half taken", "state_round_trip", RefusesLate, "after the refusal"),
    Broken("a longer state, ValueError", "state_round_trip", Ungrateful, "raised ValueError, not"),
    Broken(
        "nothing is moved",
        "inject_moves_one_key",
        with_plan(without_inject),
        "moved t1_l0_nrm, and found nothing",
    ),
    Broken(
        "moved one layer late",
        "inject_moves_one_key",
        with_plan(one_layer_late),
        "moved t1_l0_nrm, and found t1_l1_nrm",
    ),
    Broken("moved for the digest alone", "inject_moves_one_key", HashedOnly, "it was not used"),
    Broken("unmoved logits", "inject_moves_one_key", with_step(unmoved_logits), "others were"),
    Broken(
        "moved at every position",
        "inject_moves_one_key",
        with_plan(any_position),
        "a key of another position",
    ),
    Broken(
        "another element is moved",
        "inject_moves_one_key",
        with_plan(next_element),
        "t1_l0_kraw: not the value with its element 1 moved",
    ),
    Broken("any token is taken", "bad_token_is_refused", TakesAnyToken, "step(-1) was not refused"),
    Broken("another error", "bad_token_is_refused", WrongError, "step(-1) raised IndexError"),
    Broken("refused too late", "bad_token_is_refused", CountsFirst, "after the refusals, step 0"),
    Broken("a prefill half fed", "bad_token_is_refused", FeedsThenRefuses, "after the refusals"),
    Broken("a ring", "full_cache_is_refused", Overwrites, "a step past the cache was not refused"),
    Broken("a prefill that fills", "full_cache_is_refused", FillsThenRefuses, "position 3 is past"),
)
