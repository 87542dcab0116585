"""Rollback: having tried M tokens and gone back leaves no trace.

A: from a state, M single steps. B: from the same state, mark, M rows in one forward, rollback, M
single steps. Logits, keys, state and further steps must be equal byte by byte; so must accepting
the first n of the M tokens (rollback, then those again) for every n. It would break where a part
of the state is not restored. Controls with a part left out must be red.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.probe import Ask, Found, OpenSide
from parity.run import Side, State
from parity.status import Verdict
from parity_probes.blocks import Outcome, compare_outcomes, plan_for, run_block, start_at

RECURRENT = ("s", "hist")


@dataclass
class _Tally:
    """What all sizes together gave. ``controls``: name to whether it was red."""

    checks: int = 0
    keys: int = 0
    problems: list[tuple[int, str, str | None]] = field(default_factory=list)
    controls: dict[str, bool] = field(default_factory=dict)


class Rollback:
    """Probe ``rollback``."""

    name = "rollback"
    claim = "mark, M rows, rollback leaves every bit as if they had never been tried"
    needs: Sequence[str] = ("rows", "rollback", "state")

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every M at the first start and every seed, each with accept = 0 .. M and controls."""
        tally = _Tally()
        start = ask.starts[0]
        for model in ask.models:
            longest = start + 2 * max(ask.sizes) + ask.more
            side = open_side(model, longest)
            tokens = prompt_tokens(int(getattr(model, "seed", 0)), longest, model.config.vocab)
            state = start_at(side, tokens[:start])
            for size in ask.sizes:
                _size(side, model, tokens, state, start, size, ask.more, tally)
            _rows_past_length(side, model, tokens, state, start, ask, tally)
        return _found(self.name, ask, tally)


def _size(
    side: Side,
    model: Model,
    tokens: list[int],
    state: State,
    start: int,
    size: int,
    more: int,
    tally: _Tally,
) -> None:
    """One M: no trace, accept 0 .. M, and the controls."""
    block, rest = tokens[start : start + size], tokens[start + size : start + size + more]
    plan = plan_for(model.config)
    tried = [(token + 1) % model.config.vocab for token in block]
    ref = run_block(side, state, block, rest, rows=False, plan=plan)
    went_back, after_rows = _try_and_go_back(side, state, tried)
    _check(tally, size, "after rollback", ref, run_here(side, went_back, block, rest, plan))
    for accept in range(size + 1):
        _accept(side, state, block, rest, accept, size, plan, tally)
    for name, spoiled in _spoiled(went_back, after_rows):
        outcome = run_block(side, spoiled, block, rest, rows=False, plan=plan)
        red = not _equal(ref, outcome)
        tally.controls[name] = tally.controls.get(name, True) and red


def _try_and_go_back(side: Side, state: State, tried: list[int]) -> tuple[State, State]:
    """mark, M rows, rollback; the state after rollback (still in the engine) and after the rows."""
    engine: Any = side.engine
    side.write_state(state)
    engine.mark()
    engine.step_rows(tried)
    after_rows = engine.read_state()
    engine.rollback()
    return engine.read_state(), after_rows


def run_here(
    side: Side, start: State, block: Sequence[int], rest: Sequence[int], plan: Any
) -> Outcome:
    """Single steps from where the engine stands, without writing its state."""
    engine: Any = side.engine
    steps = [engine.step(token, plan) for token in block]
    state = engine.read_state()
    return Outcome(steps, state, [engine.step(token, plan) for token in rest], {})


def _accept(
    side: Side,
    state: State,
    block: list[int],
    rest: list[int],
    accept: int,
    size: int,
    plan: Any,
    tally: _Tally,
) -> None:
    """Try all M, go back, take the first ``accept`` again, then go on."""
    engine: Any = side.engine
    ref = run_block(side, state, block[:accept], rest, rows=False, plan=plan)
    side.write_state(state)
    engine.mark()
    engine.step_rows(block)
    engine.rollback()
    dut = run_here(side, state, block[:accept], rest, plan)
    _check(tally, size, f"accept {accept}", ref, dut)


def _check(tally: _Tally, size: int, what: str, ref: Outcome, dut: Outcome) -> None:
    keys, states, further = compare_outcomes(ref, dut)
    tally.checks += 1
    tally.keys += keys.counts.total + (further.counts.total if further else 0)
    if not states.equal:
        tally.problems.append((size, f"{what}: state differs, first at {states.first}", None))
    elif ref.steps and keys.verdict is not Verdict.SAME:
        tally.problems.append((size, f"{what}: first key {keys.first}", keys.first))
    elif further is not None and further.verdict is not Verdict.SAME:
        tally.problems.append((size, f"{what}: a further step differs", further.first))


def _equal(ref: Outcome, dut: Outcome) -> bool:
    keys, states, further = compare_outcomes(ref, dut)
    rest = further is None or further.verdict is Verdict.SAME
    return states.equal and keys.verdict is Verdict.SAME and rest


def _spoiled(back: State, tried: State) -> Iterator[tuple[str, State]]:
    """States as faulty rollbacks would leave them, by the name of the fault."""
    for part in RECURRENT:
        names = [name for name in back if name.endswith(f"_{part}") and _recurrent(name)]
        if names:
            yield f"no {part}", {**back, **{name: tried[name] for name in names}}
    recurrent = [name for name in back if _recurrent(name)]
    if recurrent:
        last = recurrent[-1].split("_")[0]
        left = {name: tried[name] for name in recurrent if name.split("_")[0] == last}
        yield "one layer too few", {**back, **left}
    yield "length kept", {**tried, **{name: back[name] for name in recurrent}}


def _recurrent(name: str) -> bool:
    return name.split("_")[-1] in RECURRENT


def _rows_past_length(
    side: Side,
    model: Model,
    tokens: list[int],
    state: State,
    start: int,
    ask: Ask,
    tally: _Tally,
) -> None:
    """KV rows past the length may hold anything: NaN and zeros give the same bits."""
    size = max(ask.sizes)
    block, rest = tokens[start : start + size], tokens[start + size : start + size + ask.more]
    plan = plan_for(model.config)
    outcomes = []
    for fill in (_nan, np.zeros_like):
        side.write_state(_longer(state, size + ask.more, fill))
        side.write_state(state)
        outcomes.append(run_here(side, state, block, rest, plan))
    _check(tally, size, "unused rows NaN or zero", *outcomes)


def _nan(array: np.ndarray) -> np.ndarray:
    """NaN in every float, -1 in every integer (all bits set)."""
    return np.frombuffer(b"\xff" * array.nbytes, array.dtype).reshape(array.shape)


def _longer(state: State, rows: int, fill: Callable[[np.ndarray], np.ndarray]) -> State:
    """The state with ``rows`` filled rows after its own."""
    length = int(state["lengths"][0])
    longer = {"lengths": np.array([length + rows], np.int32)}
    for name, array in state.items():
        if name != "lengths":
            more = np.empty((rows, *array.shape[1:]), array.dtype)
            longer[name] = array if _recurrent(name) else np.concatenate([array, fill(more)])
    return longer


def _found(name: str, ask: Ask, tally: _Tally) -> Found:
    sizes = ", ".join(map(str, ask.sizes))
    green = [control for control, red in tally.controls.items() if not red]
    verdict, first, failing = Verdict.SAME, None, ""
    headline = f"M = {sizes}: {tally.checks:,} of {tally.checks:,} checks, {tally.keys:,} keys"
    red = len(tally.controls) - len(green)
    facts = [
        ("checks", f"after rollback, accept 0..M, unused rows: {tally.checks:,} compared"),
        ("controls", f"{red} of {len(tally.controls)} red: {', '.join(tally.controls)}"),
    ]
    if tally.problems:
        size, what, first = min(tally.problems)
        verdict, failing = Verdict.DIVERGED, f"--m {size}"
        headline = f"M = {size}, {what}"
        facts.insert(0, ("differ", f"{len(tally.problems):,} of {tally.checks:,} checks"))
    elif green:
        verdict = Verdict.NOT_RUN
        headline = f"control {green[0]!r} was not red: a faulty rollback would not be seen"
    return Found(name, verdict, headline, facts, [], first, failing, tally.keys)
