"""What the probes share: running tokens one by one or as rows, and comparing what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.compare import compare_dumps
from parity.dump import MAIN, Dump
from parity.families import dumped_fields
from parity.model.config import ModelConfig
from parity.protocol import Plan, Step
from parity.run import Side, State
from parity.states import compare_states
from parity.tree import StateDiff, Tree


@dataclass(frozen=True)
class Outcome:
    """Steps of a block, the state after it, further steps from there, and the ops called."""

    steps: list[Step]
    state: State
    further: list[Step]
    counts: Mapping[str, int]


def plan_for(config: ModelConfig, **changes: Any) -> Plan:
    """Every dumped field of the family."""
    return Plan(**{"fields": dumped_fields(config), **changes})


def start_at(side: Side, tokens: Sequence[int]) -> State:
    """The state after ``tokens``, from single steps."""
    side.engine.reset()
    if tokens:
        side.engine.prefill(tokens)
    return _state(side)


def run_block(
    side: Side,
    start: State,
    block: Sequence[int],
    further: Sequence[int],
    *,
    rows: bool,
    plan: Plan,
) -> Outcome:
    """From ``start``: ``block`` as rows of one forward or as single steps, then ``further``."""
    engine: Any = side.engine
    side.write_state(start)
    counting = side.has("counters")
    before = dict(engine.counters()) if counting else {}
    steps = engine.step_rows(block, plan) if rows else [engine.step(t, plan) for t in block]
    after = dict(engine.counters()) if counting else {}
    counts = {name: count - before.get(name, 0) for name, count in after.items()}
    state = _state(side)
    continued = Plan(plan.fields, basis=plan.basis)
    return Outcome(steps, state, [engine.step(token, continued) for token in further], counts)


def compare_steps(ref: Sequence[Step], dut: Sequence[Step]) -> Tree:
    """Every key of both, in dataflow order."""
    sides = [
        Dump({}, {MAIN: [entry for step in steps for entry in step.entries]}, name)
        for name, steps in (("singles", ref), ("rows", dut))
    ]
    return compare_dumps(*sides)


def compare_outcomes(ref: Outcome, dut: Outcome) -> tuple[Tree, StateDiff, Tree | None]:
    """Keys of the block, the state after it, keys of the further steps (None without any)."""
    further = compare_steps(ref.further, dut.further) if ref.further else None
    return (
        compare_steps(ref.steps, dut.steps),
        compare_states("end", ref.state, dut.state),
        further,
    )


def differing_logits(ref: np.ndarray, dut: np.ndarray) -> np.ndarray:
    """Flat indices at which two rows of float32 logits differ as uint32."""
    return np.flatnonzero(ref.view(np.uint32) != dut.view(np.uint32))


def _state(side: Side) -> State:
    state = side.read_state()
    return {} if state is None else state
