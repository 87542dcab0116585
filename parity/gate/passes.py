"""One pass: a side decodes the tokens of a seed in forwards of M rows, from a given state.

A pass is the same with and without a clock or a tap, and what it gave is compared in the same way:
logits and the state it left as bytes, and every key where a tap told them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.collector import collector_paused
from parity.comparison.compare import compare_dumps
from parity.comparison.states import compare_states
from parity.dtypes import same_bits
from parity.dump import MAIN, Dump
from parity.dumps.table import joined
from parity.errors import NotRunError
from parity.explain.dataflow import ROW_PARTS
from parity.families import field_op
from parity.keys import Key
from parity.protocol import Plan, Step
from parity.runs.run import Run, Side, State
from parity.status import Verdict


def now() -> int:
    """Nanoseconds of a clock that never goes back."""
    return time.perf_counter_ns()


@dataclass(frozen=True)
class Course:
    """What the passes of one seed run over: ``tokens`` from the state ``start`` on."""

    run: Run
    tokens: tuple[int, ...]
    start: State

    def blocks(self, size: int) -> list[list[int]]:
        """The tokens in forwards of ``size`` rows; the last one may be shorter."""
        tokens = list(self.tokens)
        return [tokens[at : at + size] for at in range(0, len(tokens), size)]


@dataclass(frozen=True)
class Pass:
    """The steps of a pass, the state after them, and how long the forwards took, nanoseconds."""

    steps: Sequence[Step]
    state: State
    took: int = 0

    @property
    def dump(self) -> Dump:
        """Every key that the steps told."""
        return Dump({}, {MAIN: joined(step.entries for step in self.steps)})

    def sha256(self) -> str:
        """Of the bytes of all logits, row by row, and of the state, part by part."""
        digest = hashlib.sha256()
        for array in (*(step.logits for step in self.steps), *self.state.values()):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Difference:
    """``what`` differs; ``first``: the tag of the first key, or a part of the state; ``cause``: the
    op behind that key."""

    what: str
    first: str
    cause: str = ""


def run_pass(side: Side, course: Course, size: int, plan: Plan | None = None) -> Pass:
    """Decode the tokens of ``course`` in forwards of ``size`` rows; 1 is single steps."""
    engine: Any = side.engine
    blocks = course.blocks(size)
    steps: list[Step] = []
    write_over(side, course)
    read_state(side)  # every copy to the device is done: none is still under way in the timed part
    with collector_paused():
        began = now()
        for block in blocks:
            steps += [engine.step(block[0], plan)] if size == 1 else engine.step_rows(block, plan)
        took = now() - began
    return Pass(steps, read_state(side), took)


def read_state(side: Side) -> State:
    """Copies of every part; the gate needs the capability ``state``."""
    state = side.read_state()
    return {} if state is None else state


def write_over(side: Side, course: Course) -> None:
    """Write the start with all bits set in every KV row after it.

    Else those rows would hold what an earlier pass over the same tokens left there, and hide a row
    that this one does not write.
    """
    longer = {name: _filled(name, array, course) for name, array in course.start.items()}
    side.write_state(longer)
    side.write_state(course.start)


def _filled(name: str, array: np.ndarray, course: Course) -> np.ndarray:
    rows = course.run.positions - course.run.start
    if name == "lengths":
        return array + np.int32(rows)
    if name.rpartition("_")[2] not in ROW_PARTS:
        return array
    more = np.empty((rows, *array.shape[1:]), array.dtype)
    more.view(np.uint8)[...] = 0xFF
    return np.concatenate([array, more])


def difference(ref: Pass, dut: Pass, start: int, *, tapped: bool) -> Difference | None:
    """The first difference of two passes over the same tokens, or None. ``start``: position of
    the first token. ``tapped``: the keys of both were told and are compared before all.

    NotRunError where keys cannot be compared.
    """
    if len(dut.steps) != len(ref.steps):
        first = Key(start + min(len(ref.steps), len(dut.steps)), None, "logits").tag
        return Difference(f"{len(dut.steps)} rows for {len(ref.steps)} tokens", first)
    if tapped:
        tree = compare_dumps(ref.dump, dut.dump)
        if tree.verdict is Verdict.NOT_RUN:
            raise NotRunError(tree.reason, "parity diff shows it")
        if tree.first is not None:
            text = f"{op_text(tree.first)}; every key before it is equal"
            return Difference("a key differs", tree.first, text)
    return _logits(ref, dut, start) or _state(ref, dut)


def op_text(tag: str) -> str:
    """The op that makes the value behind a key, and the contract's section."""
    return field_op(Key.parse(tag).field)


def _logits(ref: Pass, dut: Pass, start: int) -> Difference | None:
    for pos, (single, row) in enumerate(zip(ref.steps, dut.steps, strict=True), start):
        if not same_bits(single.logits, row.logits):
            return Difference("the logits returned differ", Key(pos, None, "logits").tag)
    return None


def _state(ref: Pass, dut: Pass) -> Difference | None:
    found = compare_states("end", ref.state, dut.state)
    return None if found.first is None else Difference("the end state differs", found.first)
