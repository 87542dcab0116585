"""One pass and what is compared of it: bytes of logits, keys, states; the order of a round."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.errors import NotRunError
from parity.families import dumped_fields
from parity.gate import passes, timing
from parity.gate.passes import Course, Pass, difference, run_pass
from parity.gate.timing import candidate_first
from parity.protocol import Plan, Step
from parity.runs.run import Side
from tests.probes.small_engine import small_config, small_side

TOKENS = (3, 1, 4, 1, 5, 9)
PROMPT = 2


def course(side: Side) -> Course:
    """Six tokens after a prompt of two."""
    side.engine.reset()
    side.engine.prefill([1, 2])
    run: Any = SimpleNamespace(start=PROMPT, positions=PROMPT + len(TOKENS))
    return Course(run, TOKENS, passes.read_state(side))


def plan() -> Plan:
    return Plan(fields=dumped_fields(small_config("moe-tiny")))


def made(size: int, *faults: str, tap: bool = True) -> Pass:
    side = small_side(faults, positions=PROMPT + len(TOKENS))
    return run_pass(side, course(side), size, plan() if tap else None)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("tap", [True, False], ids=["tap", "no tap"])
def test_any_size_gives_what_single_steps_give(size: int, tap: bool) -> None:
    assert difference(made(1), made(size, tap=tap), PROMPT, tapped=tap) is None


def test_blocks() -> None:
    found = course(small_side(positions=8))
    assert found.blocks(1) == [[token] for token in TOKENS]
    assert found.blocks(4) == [[3, 1, 4, 1], [5, 9]]


@pytest.mark.parametrize(
    ("fault", "what", "first"),
    [
        ("attn", "a key differs", "t3_l0_attn"),
        ("final", "a key differs", "t3_final_normed"),
        ("logits", "the logits returned differ", "t3_logits"),
        ("stores k", "a key differs", "t4_l0_nrm"),
        ("short", "4 rows for 6 tokens", "t6_logits"),
    ],
)
def test_red_wrong_rows(fault: str, what: str, first: str) -> None:
    found = difference(made(1), made(3, fault), PROMPT, tapped=True)
    assert found is not None
    assert (found.what, found.first) == (what, first)


def test_red_rows_past_the_length() -> None:
    """They hold garbage at the start of every pass."""
    found = difference(made(1), made(2, "past"), PROMPT, tapped=True)
    assert found is not None
    assert found.first == "t3_l0_nrm"


def test_not_finite_is_not_comparable() -> None:
    with pytest.raises(NotRunError, match="not finite"):
        difference(made(1, "nan everywhere"), made(2, "nan everywhere"), PROMPT, tapped=True)


def one(logits: np.ndarray, state: dict[str, np.ndarray] | None = None) -> Pass:
    return Pass([Step(logits)], state or {"lengths": np.array([3], np.int32)})


@pytest.mark.parametrize(
    "other",
    [
        np.array([-0.0, 1], np.float32),
        np.array([0x00000000, 0x3F800001], np.uint32).view(np.float32),
        np.array([0, 1], np.float64),
        np.array([[0, 1]], np.float32),
        np.array([0], np.float32),
    ],
    ids=["-0", "1 ULP", "float64", "shape", "fewer"],
)
def test_red_logits_are_bytes(other: np.ndarray) -> None:
    found = difference(one(np.array([0, 1], np.float32)), one(other), 2, tapped=False)
    assert found is not None
    assert (found.what, found.first) == ("the logits returned differ", "t2_logits")


def test_a_nan_equals_itself_and_no_other_payload() -> None:
    nan, other = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))
    assert difference(one(nan), one(nan.copy()), 2, tapped=False) is None
    assert difference(one(nan), one(other), 2, tapped=False) is not None


def test_red_state() -> None:
    logits = np.zeros(2, np.float32)
    ref = {"lengths": np.array([3], np.int32), "l0_k": np.zeros((3, 2), np.int8)}
    moved = {**ref, "l0_k": ref["l0_k"].copy()}
    moved["l0_k"][1, 1] = 1
    found = difference(one(logits, ref), one(logits, moved), 2, tapped=False)
    assert found is not None
    assert (found.what, found.first) == ("the end state differs", "l0_k row 1 (position 1)")
    assert difference(one(logits, ref), one(logits, dict(ref)), 2, tapped=False) is None


def test_digest_of_the_outputs() -> None:
    first = made(1, tap=False)
    assert first.sha256() == made(4, tap=False).sha256()
    moved = replace(first, state={**first.state, "lengths": np.array([9], np.int32)})
    assert moved.sha256() != first.sha256()


def test_only_the_forwards_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    side = small_side(positions=PROMPT + len(TOKENS))
    at = [0]
    monkeypatch.setattr(passes, "now", lambda: at[0])
    for name, cost in (("step", 7), ("step_rows", 5), ("read_state", 1000), ("write_state", 1000)):
        _slow(side.engine, name, cost, at)
    start = course(side)
    assert run_pass(side, start, 1).took == 7 * len(TOKENS)
    assert run_pass(side, start, 4).took == 5 * 2


def _slow(engine: Any, name: str, cost: int, at: list[int]) -> None:
    plain = getattr(engine, name)

    def slow(*args: Any) -> Any:
        at[0] += cost
        return plain(*args)

    setattr(engine, name, slow)


def _logged(log: list[str], name: str) -> Side:
    """A side that writes its name and every call into ``log``."""
    side = small_side(positions=PROMPT + len(TOKENS))
    engine: Any = side.engine
    for member in ("write_state", "read_state", "step", "step_rows"):
        plain = getattr(engine, member)

        def logged(*args: Any, plain: Any = plain, member: str = member) -> Any:
            log.append(f"{name} {member}")
            return plain(*args)

        setattr(engine, member, logged)
    return side


def test_a_device_has_finished_what_was_written_before_the_clock_starts() -> None:
    """Reading a state waits for every copy that was asked for before it."""
    log: list[str] = []
    side = _logged(log, "it")
    start = course(side)
    log.clear()
    run_pass(side, start, 3)
    calls = ["write_state", "write_state", "read_state", "step_rows", "step_rows", "read_state"]
    assert log == [f"it {call}" for call in calls]


@pytest.mark.parametrize("first", ["base", "candidate"])
def test_turns_are_taken_as_drawn(first: str) -> None:
    log: list[str] = []
    sides = (_logged(log, "base"), _logged(log, "candidate"))
    start = course(sides[0])
    log.clear()
    made = timing._turns(start, sides, 6, first == "candidate")
    other = {"base": "candidate", "candidate": "base"}[first]
    steps = [line for line in log if line.endswith("step_rows")]
    assert steps == [f"{first} step_rows", f"{other} step_rows"]
    assert [len(one.steps) for one in made] == [6, 6]


def test_each_side_goes_first_in_one_of_two_rounds() -> None:
    orders = set()
    for seed in range(20):
        for size in (1, 8):
            firsts = [candidate_first(seed, at, size) for at in range(20)]
            assert all(sum(firsts[at : at + 2]) == 1 for at in range(0, 20, 2))
            orders.add(tuple(firsts))
    assert len(orders) == 40  # drawn, and not the same for every seed and size
