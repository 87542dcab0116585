"""Candidates and bases for ``parity gate``: ``tests.red.gate_engines:NAME``.

Time is made up: each engine moves CLOCK by ``@us=N`` microseconds a row, so that no test depends
on how fast anything is. ``@wide=N`` is the time of a row in forwards of more than four,
``@noise=SEED`` spreads every forward by up to a third.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from parity.dump import TensorType
from parity.gate.timing import WARM_UP
from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity.variants import VARIANTS
from parity_cpu.engine import Engine
from tests.red.control_faults import RememberedRows
from tests.red.row_faults import LateRow, _CpuOps

NOTHING = Plan(fields=())  # an untapped step in which a fault can be planted all the same


class Clock:
    """Nanoseconds that pass only when an engine says so."""

    at = 0

    def now(self) -> int:
        return self.at


CLOCK = Clock()


class Paced(Engine):
    """The CPU engine at the pace that its options say."""

    options = ("us", "wide", "noise")

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._draw = random.Random(int(settings.options.get("noise", 0)))

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._pass_time(1)
        return super().step(token, plan)

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self._pass_time(len(tokens))
        return super().step_rows(tokens, plan)

    def _pass_time(self, rows: int) -> None:
        given = self.settings.options
        pace = int(given.get("wide" if rows > 4 and "wide" in given else "us", 1000))
        spread = self._draw.uniform(2 / 3, 4 / 3) if "noise" in given else 1.0
        CLOCK.at += round(1000 * pace * rows * spread)


class Stopped(Engine):
    """No time passes."""


class OneBuild(Paced):
    """Has a variant of its own, ``quick``, that halves the pace and leaves the compiled code as it
    is; no mask tells the two apart."""

    variants: ClassVar[tuple[str, ...]] = (*VARIANTS, "quick")

    def __init__(self, settings: EngineSettings) -> None:
        self.asked, self.plain = settings, replace(settings, variants=frozenset())
        super().__init__(self.plain)
        self.settings = settings

    def load(self, model: Model, positions: int) -> None:
        self.settings = self.plain
        super().load(model, positions)
        self.settings = self.asked

    def describe(self) -> Mapping[str, str]:
        self.settings = self.plain
        told = super().describe()
        self.settings = self.asked
        return told

    def _pass_time(self, rows: int) -> None:
        CLOCK.at += rows * (500_000 if "quick" in self.asked.variants else 1_000_000)


class Deaf(Paced):
    """Takes every variant and computes the exact tier."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(replace(settings, variants=frozenset()))


# --- other bits with a tap ------------------------------------------------------------------------


class WideOnSeedThree(Paced):
    """1 ULP in one element of the last row of eight, with one model alone: seed 3."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if len(tokens) == 8 and getattr(self.model, "seed", 0) == 3:
            key = Key(self.length + 7, 1, "attn")
            plan = replace(plan or NOTHING, inject=Injection(key, 11))
        return super().step_rows(tokens, plan)


class WideStates(Paced):
    """After a forward of eight rows the newest V row of layer 1 is a copy of the one before."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if len(tokens) == 8:
            values = self._state.layers[1]["v"]
            values[self.length - 1] = values[self.length - 2]
        return steps


class WideLogits(Paced):
    """Returns other logits for the third of eight rows than its keys tell."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if len(tokens) == 8:
            steps[2].logits.view(np.uint32)[5] ^= 1
        return steps


class ShortRows(Paced):
    """Gives seven rows of eight."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().step_rows(tokens, plan)[:7]


class Shaky(Paced):
    """Its second forward of eight rows is wrong, and no other."""

    count = 0

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self.count += len(tokens) == 8
        if len(tokens) == 8 and self.count == 2:
            key = Key(self.length + 1, 0, "x")
            plan = replace(plan or NOTHING, inject=Injection(key, 0))
        return super().step_rows(tokens, plan)


class LateRows(Paced):
    """In forwards of six rows, those of K and V are written one position further on."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.fault = LateRow()
        self._decoder.call = _CpuOps(self.fault)

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self.fault.begin(6 if len(tokens) == 6 else 1)
        return super()._forward(tokens, plan)


class ShakySteps(Paced):
    """Its ``@visit=N``-th tapped step at t5 is wrong, and no other."""

    options = (*Paced.options, "visit")
    visits = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.visits += plan is not None and self.length == 5
        wrong = self.visits == int(self.settings.options["visit"])
        if plan is not None and self.length == 5 and wrong:
            plan = replace(plan, inject=Injection(Key(5, 0, "x"), 0))
        return super().step(token, plan)


class OtherWeights(Paced):
    """Tells of another final norm than it computes with: no key of the run shows it."""

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        told = dict(super().weights())
        kind, digest = told["final_norm"]
        return {**told, "final_norm": (kind, digest ^ 1)}


class RemembersRows(Paced, RememberedRows):
    """Gives for rows what it gave before, whatever is planted in them."""


# --- other bits without a tap ---------------------------------------------------------------------


class UntappedPath(Paced):
    """Without a tap, rows take another path, which is wrong by 1 ULP; every key is right."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is None:
            plan = replace(NOTHING, inject=Injection(Key(self.length + 1, None, "logits"), 7))
        return super().step_rows(tokens, plan)


class UntappedSteps(Paced):
    """The same in single steps past the prompt."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is None and self.length >= 3:
            plan = replace(NOTHING, inject=Injection(Key(self.length, None, "logits"), 7))
        return super().step(token, plan)


class UntappedState(Paced):
    """Without a tap the logits of eight rows are right and a stored scale is not."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if plan is None and len(tokens) == 8:
            self._state.layers[1]["ks"].view(np.uint32)[self.length - 2, 0] ^= 1
        return steps


class OneRound(Paced):
    """Right in the warm-up and in every timed pass of eight rows but the second of each seed."""

    untapped = 0

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        self.untapped += plan is None and len(tokens) == 8
        if plan is None and len(tokens) == 8 and self.untapped == WARM_UP + 2:
            steps[4].logits.view(np.uint32)[0] ^= 1
        return steps


class WhileTimed(Paced):
    """Right until the clock has been read as often as the warm-up reads it."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if plan is None and CLOCK.at > 0 and self._warm(len(tokens)):
            steps[0].logits.view(np.uint32)[1] ^= 1
        return steps

    calls = 0

    def _warm(self, rows: int) -> bool:
        self.calls += rows == 8
        return rows == 8 and self.calls > WARM_UP


class Interrupted(Paced):
    """The user stops the gate in the first timed pass."""

    untapped = 0

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self.untapped += plan is None
        if self.untapped > WARM_UP:
            raise KeyboardInterrupt
        return super().step_rows(tokens, plan)


class Remembers(Paced):
    """An untapped forward that it made before, from the same state, takes no time again."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.made: set[tuple[object, ...]] = set()
        self.past: tuple[int, ...] = ()

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().write_state(state)
        self.past = ()

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self.past += tuple(tokens)
        if plan is None:
            self.made.add((self.past, len(tokens)))
        return super()._forward(tokens, plan)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._take([token])
        return Engine.step(self, token, plan)

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self._take(tokens)
        return Engine.step_rows(self, tokens, plan)

    def _take(self, tokens: Sequence[int]) -> None:
        known = ((*self.past, *tokens), len(tokens)) in self.made
        CLOCK.at += 1 if known else 1000 * int(self.settings.options["us"]) * len(tokens)


# --- capabilities ---------------------------------------------------------------------------------


class NoRows(Paced):
    """Offers single steps alone."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"rows"}


class NoState(Paced):
    """Shows no state."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"state"}


class NoInject(Paced):
    """Cannot plant a fault in itself."""

    capabilities: ClassVar[frozenset[str]] = Engine.capabilities - {"inject"}
