"""Engines that break the promises of ``elementary`` and ``borrow``: the reference, changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from parity.errors import ParityError
from parity.protocol import Elementary, Plan, Step
from parity_cpu import Engine
from tests.engines.broken_engines import with_plan
from tests.engines.broken_promises import Broken


def with_values(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> type[Engine]:
    """An engine whose values are ``change(values, arguments)``."""

    class Values(Engine):
        def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
            return change(super().elementary(function, x), x)

    return Values


def by_place(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """As a vector loop whose tail takes another path."""
    tail = values.size - values.size % 8
    values[tail:] = np.nextafter(values[tail:], np.float32(0))
    return values


def in_place(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    x[...] = values
    return values


class OneBuffer(Engine):
    """Gives the same memory every time."""

    _held: ClassVar[np.ndarray] = np.empty(1024, np.float32)

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        out = self._held[: x.size]
        out[...] = super().elementary(function, x)
        return out


class WarmsUp(Engine):
    """Other bits once a step has run."""

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        values = super().elementary(function, x)
        return values if self.length == 0 else np.nextafter(values, np.float32(0))


class AnyName(Engine):
    """A name it does not know is the first it does."""

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        try:
            return super().elementary(function, x)
        except ParityError:
            return super().elementary("expf", x)


class BorrowsAlone(Engine):
    """Cannot tell its own functions."""

    capabilities = Engine.capabilities - {"elementary"}


def unborrowed(plan: Plan) -> Plan:
    return replace(plan, borrow=None)


def lending(change: Callable[[Engine, Elementary], Elementary]) -> type[Engine]:
    """An engine that computes with ``change(itself, what it was given)``."""

    class Changed(Engine):
        def step(self, token: int, plan: Plan | None = None) -> Step:
            if plan is not None and plan.borrow is not None:
                plan = replace(plan, borrow=change(self, plan.borrow))
            return super().step(token, plan)

    return Changed


def but_rsqrt(engine: Engine, lent: Elementary) -> Elementary:
    """The norms go on with the engine's own."""
    return lambda name, x: (engine.elementary if name == "rsqrt" else lent)(name, x)


def in_rows(engine: Engine, lent: Elementary) -> Elementary:
    """Asks with an array of rows."""
    return lambda name, x: lent(name, x[None])[0]


def in_double(engine: Engine, lent: Elementary) -> Elementary:
    """Asks with float64."""
    return lambda name, x: lent(name, x.astype(np.float64)).astype(np.float32)


def renamed(engine: Engine, lent: Elementary) -> Elementary:
    """Asks by the name of another library."""
    return lambda name, x: lent({"expf": "__expf"}.get(name, name), x)


def rounded(engine: Engine, lent: Elementary) -> Elementary:
    """Computes with the values by another route than with its own."""
    return lambda name, x: np.nextafter(lent(name, x), np.float32(0))


class KeepsBorrowed(Engine):
    """Goes on with the functions that an earlier step was given."""

    _lent: Elementary | None = None

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._lent = (plan and plan.borrow) or self._lent
        return super().step(token, plan and replace(plan, borrow=self._lent))


BROKEN = (
    Broken(
        "float64 values",
        "elementary_is_a_function",
        with_values(lambda values, x: values.astype(np.float64)),
        "rsqrt of float32[108] gave float64[108]",
    ),
    Broken(
        "values that are a list",
        "elementary_is_a_function",
        with_values(lambda values, x: values.tolist()),
        "rsqrt: a list, no array",
    ),
    Broken(
        "values by place",
        "elementary_is_a_function",
        with_values(by_place),
        "rsqrt: the value depends on where its argument stands",
    ),
    Broken(
        "values in place",
        "elementary_is_a_function",
        with_values(in_place),
        "rsqrt wrote into its arguments",
    ),
    Broken(
        "values in one buffer",
        "elementary_is_a_function",
        OneBuffer,
        "rsqrt: a later call wrote into what an earlier one gave",
    ),
    Broken(
        "values that a step changes",
        "elementary_is_a_function",
        WarmsUp,
        "rsqrt: other values after a step",
    ),
    Broken(
        "any name is taken",
        "elementary_is_a_function",
        AnyName,
        "elementary('tanf') was not refused",
    ),
    Broken(
        "borrows alone",
        "borrow_computes_with_what_is_given",
        BorrowsAlone,
        "offered without 'elementary'",
    ),
    Broken(
        "nothing is borrowed",
        "borrow_computes_with_what_is_given",
        with_plan(unborrowed),
        "rsqrt with other values, and nothing differs",
    ),
    Broken(
        "one function is not borrowed",
        "borrow_computes_with_what_is_given",
        lending(but_rsqrt),
        "rsqrt with other values, and nothing differs",
    ),
    Broken(
        "another route with what is borrowed",
        "borrow_computes_with_what_is_given",
        lending(rounded),
        "with the engine's own functions, step 0: other logits",
    ),
    Broken(
        "borrowed for good",
        "borrow_computes_with_what_is_given",
        KeepsBorrowed,
        "after a step with others, step 0: other logits",
    ),
    Broken(
        "asked in rows",
        "borrow_computes_with_what_is_given",
        lending(in_rows),
        "rsqrt was asked with float32[1, 1]",
    ),
    Broken(
        "asked in float64",
        "borrow_computes_with_what_is_given",
        lending(in_double),
        "rsqrt was asked with float64[1]",
    ),
    Broken(
        "asked by another name",
        "borrow_computes_with_what_is_given",
        lending(renamed),
        "'__expf' was asked for",
    ),
)
