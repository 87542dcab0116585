"""How time grows when keys, context, rows or layers double; prints one table.

Usage: scaling.py [N] [--engine NAME] [--only TEXT] [--json FILE]. In each of N rounds (default 5)
every case runs at all its sizes in turn; the growth is the median over the rounds of log2 of the
ratio of two neighbouring sizes in the same round: 0 constant, 1 linear, 2 quadratic. ``needs`` is
what the model, or the text that is written, has by itself (scaling_cases.py); a growth more than
MARGIN above it is marked. CPU times of the process; wall times for another engine than ``cpu`` and
``emu``. ``--json`` adds a line with every figure to FILE. No test decides by a time: that nothing
is quadratic by mistake is tested by counting (test_scaling.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from parity.errors import ParityError
from tests.bench.cpu import machine
from tests.bench.scaling_cases import CASES, Case

ROUNDS = 5
MARGIN = 0.25  # of an exponent: caches and a busy machine make as much
LEAST = 0.02  # seconds that a figure must have taken: short calls are made again and again
Seconds = list[float]  # by size


def timed(call: Callable[[], object], clock: Callable[[], float], least: float = LEAST) -> float:
    """Seconds of one call: the mean of as many as take ``least`` together."""
    count, begin = 0, clock()
    while not count or clock() - begin < least:
        call()
        count += 1
    return (clock() - begin) / count


def measure(case: Case, engine: str, rounds: int) -> list[Seconds]:
    """Seconds at every size, round by round; the first round is not counted."""
    clock = time.process_time if engine in ("cpu", "emu") else time.perf_counter
    calls = [case.make(engine, size) for size in case.sizes]
    for call in calls:
        call()
    gc.collect()
    gc.freeze()  # what the cases hold is no part of what a call makes the collector go through
    found = []
    for _ in range(rounds):
        found.append([timed(call, clock) for call in calls])
    return found


def growth(found: Sequence[Seconds]) -> list[float]:
    """Exponents, one a doubling: the median of the rounds."""
    pairs = range(len(found[0]) - 1)
    return [median(math.log2(one[at + 1] / one[at]) for one in found) for at in pairs]


def above(case: Case, found: Sequence[Seconds]) -> bool:
    """Whether the last doubling grew by more than the case needs."""
    return growth(found)[-1] > case.needs + MARGIN


def line(case: Case, found: Sequence[Seconds]) -> str:
    """A row of the table: sizes, milliseconds, exponents, what is needed, and the mark."""
    milliseconds = [1e3 * median(one[at] for one in found) for at in range(len(case.sizes))]
    times = "  ".join(f"{one:9.3f}" for one in milliseconds)
    powers = "  ".join(f"{one:6.2f}" for one in growth(found))
    mark = "  ABOVE" if above(case, found) else ""
    return f"{case.label:38}  {case.sizes[0]:7,}  {times}  {powers}  {case.needs:5}{mark}"


def main(arguments: list[str]) -> int:
    """Measure every case and print the table; 0 also where something is above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    parser.add_argument("--engine", default="cpu")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"the number of rounds must be 1 or more, got {given.rounds}")
    cases = [case for case in CASES if given.only in case.label]
    if not cases:
        parser.error(f"no case has {given.only!r} in its name")
    told = {**machine(), "engine": given.engine, "rounds": given.rounds}
    print(", ".join(f"{name} {value}" for name, value in told.items()))
    head = f"{'':38}  {'from':>7}  {'ms':>9}  {'x 2':>9}  {'x 4':>9}  {'growth':>6}  {'':>6}"
    print(f"{head}  needs", flush=True)
    figures = {}
    try:
        for case in cases:
            found = measure(case, given.engine, given.rounds)
            figures[case.label] = {"sizes": case.sizes, "seconds": found, "growth": growth(found)}
            print(line(case, found), flush=True)
    except ParityError as error:
        print(f"bench: {error}", file=sys.stderr)
        return int(error.exit_status)
    if given.json:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**told, "cases": figures}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
