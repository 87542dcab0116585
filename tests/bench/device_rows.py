"""Time decode steps of M rows at once: recorded graphs, device time (device.py: ``--rows``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parity.protocol import Plan
from parity_cuda.graph import Graphs

WARM = 3  # the first step launches, the second is recorded, the third replayed


def rows_us(
    engine: Any,
    counts: Sequence[int],
    context: int,
    replayed: Callable[[Any], float],
    plan: Plan | None = None,
) -> dict[int, float]:
    """Microseconds of a step by its rows, the first of which stands at position ``context``.

    ``engine``: loaded, with room for WARM steps of the most rows after ``context``; ``replayed``:
    the device time of a recorded graph.
    """
    found: dict[int, float] = {}
    for count in counts:
        engine.length = context  # rows of any content: times do not depend on them
        engine._graphs = Graphs(engine.backend, engine._arena)
        for _ in range(WARM):
            if count == 1:
                engine.step(1, plan)
            else:
                engine.step_rows([1] * count, plan)
        graphs = [each for each in engine._graphs._found.values() if each is not None]
        if not graphs:
            raise AssertionError(f"a step of {count} rows was not recorded")
        found[count] = min(replayed(each.recorded) for each in graphs)
    return found


def rows_lines(found: dict[int, float]) -> list[str]:
    """A line a count: microseconds, and as many single steps."""
    single = found.get(1)
    return [
        f"  M={count:<3} {us:10.1f} us"
        + (f" {us / single:6.2f} single steps" if single is not None else "")
        for count, us in found.items()
    ]
