"""Two steps in lockstep: what is exchanged, what is refused, and that no thread is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from parity.errors import NotRunError
from parity.isolate.lockstep import Partner, step_together
from parity.keys import Key
from parity.protocol import Plan, Replace, Step
from parity.runs.run import Side

PLAN = Plan(fields=())
LOGITS = np.zeros(4, np.float32)
FIELDS = ("nrm", "kraw", "k", "x")


class Script:
    """An engine whose step makes one number a field: the sum of those before it plus ``weight``."""

    name = "script"
    capabilities = frozenset({"state", "replay"})
    running = threading.Lock()  # held by whoever computes

    def __init__(self, weight: float, fields: tuple[str, ...] = FIELDS) -> None:
        self.weight, self.fields = weight, fields
        self.made: dict[str, float] = {}
        self.read: dict[str, float] = {}
        self.fails: Callable[[str], None] = lambda field: None
        self.kind: type = np.float32

    def step(self, token: int, plan: Plan) -> Step:
        assert plan.replace is not None
        with self.computing(None):
            value = np.array([token], self.kind)
        for field in self.fields:
            with self.computing(field):
                value = np.array([value.sum() + self.weight], self.kind)
                self.made[field] = float(value[0])
            given = plan.replace(Key(0, 0, field), value.copy)
            with self.computing(None):
                value = value if given is None else given
                self.read[field] = float(value[0])
        return Step(LOGITS)

    def computing(self, field: str | None) -> Held:
        assert self.running.acquire(blocking=False), "both compute at the same time"
        return Held(self.running, lambda: field and self.fails(field))


class Held:
    """Releases a lock after what may fail."""

    def __init__(self, lock: threading.Lock, last: Callable[[], Any]) -> None:
        self.lock, self.last = lock, last

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        self.last()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before
    assert not Script.running.locked()


def together(ref: Script, dut: Script, placed: str = "") -> tuple[Step, Step]:
    sides = Side("ref", "left", ref), Side("dut", "right", dut)  # type: ignore[arg-type]
    return step_together(*sides, 5, (PLAN, PLAN), lambda key: key.field == placed)


def test_the_refs_values_stand() -> None:
    ref, dut = Script(1), Script(10)
    together(ref, dut)
    assert ref.read == dut.read == {"nrm": 6, "kraw": 7, "k": 8, "x": 9}
    # Each op of the dut ran on the ref's inputs.
    assert dut.made == {"nrm": 15, "kraw": 16, "k": 17, "x": 18}


def test_a_placed_value_is_the_duts_on_the_same_inputs() -> None:
    ref, dut = Script(1), Script(10)
    together(ref, dut, "kraw")
    assert ref.read == dut.read == {"nrm": 6, "kraw": 16, "k": 17, "x": 18}
    assert ref.made["kraw"] == 7


@pytest.mark.parametrize(
    ("ref", "dut", "said"),
    [
        (FIELDS, ("nrm", "k", "kraw", "x"), "left makes t0_l0_kraw where right makes t0_l0_k:"),
        (FIELDS, FIELDS[:2], "left makes t0_l0_k where right makes no further value:"),
        (FIELDS, (), "left makes t0_l0_nrm where right makes no further value:"),
        (FIELDS[:2], FIELDS, "left makes no further value where right makes t0_l0_k:"),
        ((), FIELDS, "left makes no further value where right makes t0_l0_nrm:"),
    ],
    ids=["order", "dut lacks", "dut lacks all", "ref lacks", "ref lacks all"],
)
def test_red_values_that_do_not_match(
    ref: tuple[str, ...], dut: tuple[str, ...], said: str
) -> None:
    with pytest.raises(NotRunError, match=said):
        together(Script(1, ref), Script(10, dut))


def test_red_values_of_another_type() -> None:
    ref, dut = Script(1), Script(10)
    dut.kind = np.float64
    with pytest.raises(NotRunError, match=r"t0_l0_nrm is float32\[1\] in left and float64\[1\] in"):
        together(ref, dut)


class Broke(Exception):
    """What a side raises."""


@pytest.mark.parametrize("side", [0, 1], ids=["ref", "dut"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("error", [Broke, KeyboardInterrupt, SystemExit])
def test_red_a_step_that_fails_reaches_the_caller(
    side: int, field: str, error: type[BaseException]
) -> None:
    def fail(at: str) -> None:
        if at == field:
            raise error

    scripts = Script(1), Script(10)
    scripts[side].fails = fail
    with pytest.raises(error):
        together(*scripts)


def test_a_step_that_goes_on_after_it_was_stopped_is_stopped_again() -> None:
    asked = []

    def stubborn(replace: Replace) -> Step:
        for number in range(5):
            try:
                replace(Key(number, 0, "x"), LOGITS.copy)
            except BaseException as error:
                asked.append(type(error).__name__)
        return Step(LOGITS)

    with Partner(stubborn) as partner:
        met = partner.advance()
        assert met is not None
        assert met.key == Key(0, 0, "x")
    assert asked == ["_Stopped"] * 5


def test_a_step_that_nobody_asks_for_is_never_made() -> None:
    made = []
    with Partner(lambda replace: made.append(1) or Step(LOGITS)):  # type: ignore[func-returns-value]
        pass
    assert made == []
