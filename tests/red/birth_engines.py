"""Engines that the naming of births must see through: ``tests.red.birth_engines:NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import Injection, Plan, Step
from parity_cpu.engine import Engine


class Cancelling(Engine):
    """The norm of layer 1 is doubled and its K projection halved: both wrong, the product right."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._tensors["layers.1.attn_norm"] *= np.float32(2.0)
        half = self._tensors["layers.1.k_proj.d"].view(np.float16)
        half[...] = half * np.float16(0.5)


class StaleRow(Engine):
    """After the step at t3 the K row of layer 1 at ``row`` is overwritten: no key shows it."""

    row: ClassVar[int] = 3

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.length == 4:
            self._state.layers[1]["k"][self.row] = np.int8(9)
        return step


class StaleOldRow(StaleRow):
    """The same for a row of the prompt."""

    row: ClassVar[int] = 1


class StaleState(Engine):
    """After the step at t3 an element of S of layer 1 is changed: no key shows it."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.length == 4:
            self._state.layers[1]["s"][0, 5, 6] += np.float32(0.25)
        return step


class Counting(Engine):
    """Wrong in the second step after a state was taken over, whatever the inputs are."""

    steps = 0

    def reset(self) -> None:
        super().reset()
        self.steps = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.steps += 1
        if plan is not None and self.steps == 2:
            plan = replace(plan, inject=Injection(Key(self.length, 1, "attn"), 0))
        return super().step(token, plan)


class Overheard(Engine):
    """Right in its run; wrong in every other step in which values are replaced."""

    replays = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.replace is not None:
            self.replays += 1
            if self.replays % 2:
                plan = replace(plan, inject=Injection(Key(self.length, 3, "attn"), 0))
        elif plan is not None:
            plan = replace(plan, inject=Injection(Key(self.length, 1, "x"), 0))
        return super().step(token, plan)


class _Lacking(Engine):
    """Doubles K's projection of layer 2, and lacks a capability."""

    lacks: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.capabilities = Engine.capabilities - {cls.lacks}

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        half = self._tensors["layers.2.k_proj.d"].view(np.float16)
        half[...] = half * np.float16(2.0)


class NoReplay(_Lacking):
    """No ``replay``."""

    lacks = "replay"


class NoState(_Lacking):
    """No ``state``."""

    lacks = "state"


class Blind(NoState):
    """The attention of layer 1 at t3 is wrong instead, and nobody can look at its state."""

    def load(self, model: Model, positions: int) -> None:
        Engine.load(self, model, positions)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None:
            plan = replace(plan, inject=Injection(Key(3, 1, "attn"), 0))
        return super().step(token, plan)


class NoCapture(_Lacking):
    """No ``capture``."""

    lacks = "capture"


class NoTrace(_Lacking):
    """No ``trace``."""

    lacks = "trace"


class OtherParts(_Lacking):
    """Its state has a part more than the ref's."""

    def read_state(self) -> dict[str, np.ndarray]:
        return {**super().read_state(), "scratch": np.zeros(1, np.float32)}

    def write_state(self, state) -> None:  # type: ignore[no-untyped-def]
        super().write_state({name: part for name, part in state.items() if name != "scratch"})


class Chunked(Engine):
    """A prefill in one piece moves an element at its third token; token by token it does not."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and len(tokens) > 2:
            plan = replace(plan, inject=Injection(Key(self.length + 2, 1, "v"), 0))
        return super().prefill(tokens, plan)


class RacingPrefill(Engine):
    """Each prefill leaves another scale at position 1 of layer 0."""

    prefills = 0

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().prefill(tokens, plan)
        self.prefills += 1
        self._state.layers[0]["ks"][1].view(np.uint32)[0] += np.uint32(self.prefills)
        return steps


class RacingEnd(Engine):
    """Every tenth step leaves another row of V behind, which no key and no later step shows."""

    steps = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        self.steps += 1
        if plan is not None and self.length == 6:
            self._state.layers[3]["v"][5, 0, 0] = np.int8(self.steps)
        return step


class FrozenTap(Engine):
    """Tells one digest for every key."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        return replace(step, entries=[replace(entry, digest=77) for entry in step.entries])


class StaleBuffer(Engine):
    """Tells for the attn of every layer what the last layer's is: one buffer, hashed too late."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        last = {entry.key.field: entry.digest for entry in step.entries}
        told = [
            replace(entry, digest=last["attn"]) if entry.key.field == "attn" else entry
            for entry in step.entries
        ]
        return replace(step, entries=told)


class RacingLater(Engine):
    """Moves the x of layer 0 at t3 always, and the attn of layer 2 at t4 in its first run alone."""

    steps = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None:
            self.steps += 1
            place = Key(4, 2, "attn") if self.steps == 2 else Key(3, 0, "x")
            plan = replace(plan, inject=Injection(place, 0))
        return super().step(token, plan)
