"""Engines that misbehave, given on the command line as ``tests.cli.engines_for_tests:NAME``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from parity.dump import Entry
from parity.keys import Key
from parity.protocol import Injection, Plan, Step
from parity_cpu.engine import Engine

OLD_LOGITS = Key(0, None, "logits")


class Moved(Engine):
    """Moves element 0 of the value behind ``@key=TAG`` before it is hashed and used."""

    options = ("key", "pos", "steps")

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None:
            key = Key.parse(self.settings.options["key"])
            plan = replace(plan, inject=Injection(key, 0))
        return super().step(token, plan)


class Once(Engine):
    """Moves the x of the last layer in each of its first five steps, and in no rerun."""

    options = ("key", "pos", "steps")

    count = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.count += 1
        if plan is not None and self.count <= 5:
            plan = replace(plan, inject=Injection(Key(self.length, 3, "x"), 0))
        return super().step(token, plan)


class _Retold(Engine):
    """Tells other entries than those it computed."""

    options = ("key", "pos", "steps")

    def retell(self, entry: Entry) -> Entry | None:
        raise NotImplementedError

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        told = [self.retell(entry) for entry in step.entries]
        return replace(step, entries=[entry for entry in told if entry is not None])


class Misheard(_Retold):
    """Computes the right values and tells another digest of ``@key=TAG``: logits stay equal."""

    def retell(self, entry: Entry) -> Entry:
        if entry.key.tag != self.settings.options["key"]:
            return entry
        return replace(entry, digest=entry.digest ^ 1)


class Silent(_Retold):
    """Leaves out the key ``@key=TAG``."""

    def retell(self, entry: Entry) -> Entry | None:
        return None if entry.key.tag == self.settings.options["key"] else entry


class NotFinite(_Retold):
    """Says that the second layer's x at ``@pos=N`` holds one NaN; the digests stay equal."""

    def retell(self, entry: Entry) -> Entry:
        place = Key(int(self.settings.options["pos"]), 1, "x")
        return replace(entry, nonfinite=(1, 0)) if entry.key == place else entry


class DeadTap(Engine):
    """Its tap shows what would have been computed without any change."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        return super().step(token, None if plan is None else replace(plan, inject=None))


class StaleTap(Engine):
    """Its tap shows what a buffer held at the first visit of a position, not what it holds now."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._seen: dict[Key, Entry] = {}

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        shown = [self._seen.setdefault(entry.key, entry) for entry in step.entries]
        return replace(step, entries=shown)


class Aliased(Engine):
    """Every side tells the entries that the first side computed: one buffer for all."""

    shared: ClassVar[dict[Key, Entry]] = {}

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        shown = [self.shared.setdefault(entry.key, entry) for entry in step.entries]
        return replace(step, entries=shown)


class WrongPlace(Engine):
    """Moves an element of the last value of the step, whichever key it is asked for."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is not None:
            plan = replace(plan, inject=Injection(Key(self.length, None, "logits"), 0))
        return super().step(token, plan)


class OwnChoice(Engine):
    """The right keys, but its greedy choice is the smallest logit."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        return replace(step, logits=np.negative(step.logits))


class NoInject(Engine):
    """Cannot plant a fault in itself."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"state", "capture"})


class NoCapture(Moved):
    """Cannot give the values themselves."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"state", "inject"})


class NoState(Engine):
    """Cannot give its state."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"capture", "inject"})


class OwnTier(Engine):
    """A user's engine with a tier of its own."""

    tiers: ClassVar[tuple[str, ...]] = ("plain",)
    variants: ClassVar[tuple[str, ...]] = ()


class OldRow(Engine):
    """Its last K row is that of the position before, after the last of ``@steps=N`` steps."""

    options = ("key", "pos", "steps")

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.length == int(self.settings.options["steps"]):
            state = self.read_state()
            state["l3_k"][-1] = state["l3_k"][-2]
            self.write_state(state)
        return step


class _Raising(Engine):
    raised: ClassVar[Callable[[], BaseException]]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        raise self.raised()


class Quits(_Raising):
    """Ends the process as if all were well."""

    raised = staticmethod(lambda: SystemExit(0))


class BrokenPipe(_Raising):
    """Loses the program it talks to."""

    raised = staticmethod(lambda: BrokenPipeError(32, "Broken pipe"))


class EndOfFile(_Raising):
    """Reads past the end of a file."""

    raised = staticmethod(lambda: EOFError("no more weights"))


class ManyLines(_Raising):
    """Says more than one line, with control characters."""

    raised = staticmethod(lambda: ValueError("first line\x1b[31m\nsecond line"))


class Interrupted(_Raising):
    """The user presses Ctrl-C."""

    raised = staticmethod(KeyboardInterrupt)


class Talkative(Engine):
    """Prints to stdout and warns while it runs."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        print("talk", file=sys.stderr)
        return super().step(token, plan)


class NoWeights:
    """Lacks ``weights`` and what follows it in the Protocol."""

    name, version = "none", "0"
    tiers, variants, capabilities = ("exact",), (), frozenset({"state"})
    describe = load = reset = prefill = step = print


class NoWriteState(NoWeights):
    """Says that it can give its state, and cannot take one over."""

    weights = read_state = print


NOT_AN_ENGINE = 7


class Stopped(Engine):
    """The user presses Ctrl-C while position ``@pos=N`` is computed; ``@key=TAG`` is moved."""

    options = ("key", "pos", "steps")

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if self.length == int(self.settings.options["pos"]):
            raise KeyboardInterrupt
        if plan is not None and "key" in self.settings.options:
            key = Key.parse(self.settings.options["key"])
            plan = replace(plan, inject=Injection(key, 0))
        return super().step(token, plan)
