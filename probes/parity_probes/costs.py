"""What M rows cost: op calls or launches, and time, of one forward against M single steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parity.protocol import Step
from parity.runs.probe import Cost
from parity.runs.run import Side, State
from parity_probes.blocks import write_over

ROUNDS = 3  # as long as they are short
ENOUGH = 0.1  # seconds after which no further round is made


@dataclass(frozen=True)
class Timed:
    """What ran, for how long, and the calls it took by name."""

    steps: Sequence[Step]
    seconds: float
    calls: dict[str, int]


def measure(side: Side, state: State, block: Sequence[int], room: int) -> tuple[Timed, Timed]:
    """``block`` as rows of one forward and as single steps, without a tap: (rows, singles).

    Steps and calls are those of the first round, seconds the best of a few. An engine may make a
    single step in another way, of fewer calls, than a forward of rows: where its rows took no fewer
    calls they are held against forwards of one row each.
    """
    engine: Any = side.engine
    rows: list[Timed] = []
    singles: list[Timed] = []
    while len(rows) < ROUNDS and sum(one.seconds for one in (*rows, *singles)) < ENOUGH:
        write_over(side, state, room)
        singles.append(timed(engine, lambda: [engine.step(token) for token in block]))
        write_over(side, state, room)
        rows.append(timed(engine, lambda: engine.step_rows(block)))
    if len(block) == 1 or _count(rows[0]) < _count(singles[0]):
        return _best(rows), _best(singles)
    write_over(side, state, room)
    alike = timed(engine, lambda: [engine.step_rows([token])[0] for token in block])
    return _best(rows), replace(_best(singles), calls=alike.calls)


def _count(one: Timed) -> int:
    return sum(one.calls.values())


def cost_of(m: int, rows: Timed, singles: Timed) -> Cost:
    """Both as the probe reports them."""
    return Cost(m, rows.seconds, singles.seconds, rows.calls, singles.calls)


def path_text(cost: Cost) -> str:
    """The evidence that the M-row path ran."""
    rows, singles = cost.totals
    text = f"{rows:,} calls for one forward of {cost.m} rows, {singles:,} for {cost.m} single steps"
    return f"{text}; row by row: {', '.join(cost.row_by_row)}" if cost.row_by_row else text


def speed_text(costs: Sequence[Cost]) -> str:
    """Time of the smallest and the largest M above 1."""
    chosen = [cost for cost in costs if cost.m > 1] or list(costs)
    chosen.sort(key=lambda cost: cost.m)
    return "; ".join(
        f"M = {cost.m}: {_time(cost.rows_seconds)} one forward, {_time(cost.single_seconds)} "
        f"singly ({cost.single_seconds / cost.rows_seconds:.1f} x)"
        for cost in chosen[:1] + chosen[1:][-1:]
    )


def _best(timed: Sequence[Timed]) -> Timed:
    return Timed(timed[0].steps, min(one.seconds for one in timed), timed[0].calls)


def timed(engine: Any, run: Callable[[], Sequence[Step]]) -> Timed:
    """What ``run`` gives, its time, and the calls it made as far as the engine counts them."""
    counts = "counters" in engine.capabilities
    before: Mapping[str, int] = dict(engine.counters()) if counts else {}
    began = time.perf_counter()
    steps = run()
    seconds = time.perf_counter() - began
    after: Mapping[str, int] = engine.counters() if counts else {}
    made = {name: count - before.get(name, 0) for name, count in after.items()}
    return Timed(steps, seconds, {name: count for name, count in made.items() if count})


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms" if seconds < 0.1 else f"{seconds:,.2f} s"
