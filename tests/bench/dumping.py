"""What Python makes of a dumped step, and of a run of them, beside a device that answers at once.

Usage: dumping.py [N] [--json FILE]. The engine's part of a step is timed with and without a plan of
every dumped field, N times (default 200), in turn; then a run of steps is taken in, written, read,
compared green and red, and held against itself. Times are the
thread's CPU times, which a busy machine changes least; medians, microseconds a step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.dump import MAIN, Dump
from parity.dumps.reader import read_dump
from parity.dumps.table import Table, joined
from parity.dumps.writer import write_dump
from parity.protocol import Step
from parity.runs.stability import unlike_entries
from tests.bench.idle import IdleSteps

SHAPES = ("qwen3-30b-a3b", "qwen3.5-27b")
STEPS, ROUNDS = 64, 7  # of a run
Times = dict[str, float]


def handing(preset: str, rows: int, rounds: int) -> Times:
    """A replayed forward, with a plan and without."""
    idle = IdleSteps(preset, rows)
    plan = idle.plan
    found: dict[str, list[float]] = {"no dump": [], "dump": []}
    for number in range(rounds + 3):
        for what, idle.plan in zip(found, (None, plan), strict=True):  # type: ignore[assignment]
            began = time.thread_time()
            idle.steps(100 + number)
            found[what].append(time.thread_time() - began)
    keys = len(idle.offered)
    return {
        f"{preset}, {rows} rows of {keys} keys, {what}": 1e6 * median(times[3:])
        for what, times in found.items()
    }


def told(preset: str, seed: int) -> list[Step]:
    """Steps with random digests."""
    idle, rng = IdleSteps(preset), np.random.default_rng(seed)
    steps = []
    for pos in range(STEPS):
        idle.answer(rng.integers(0, 1 << 63, len(idle.offered), np.uint64))
        steps += idle.steps(pos)
    return steps


def running(preset: str, folder: Path) -> Times:
    """What becomes of the steps of a run."""
    path, steps, others = folder / "a.dump", told(preset, 1), told(preset, 1)
    ref, dut = (_dump(each) for each in (steps, others))
    table = dut.segments[MAIN]
    assert isinstance(table, Table)
    last = Dump({}, {MAIN: table.with_digest(len(table) - 1, 0)})
    pairs = list(zip(steps, others, strict=True))
    calls: dict[str, Callable[[], object]] = {
        "take in": lambda: _dump(steps),
        "write": lambda: write_dump(ref, path, force=True),
        "read": lambda: read_dump(path),
        "compare, green": lambda: compare_dumps(ref, dut),
        "compare, the last key differs": lambda: compare_dumps(ref, last),
        "hold against itself": lambda: [
            unlike_entries(one.entries, other.entries) for one, other in pairs
        ],
    }
    return {f"{preset}, {what}": 1e6 * _timed(call) / STEPS for what, call in calls.items()}


def _dump(steps: list[Step]) -> Dump:
    return Dump({"engine": "bench"}, {MAIN: joined(step.entries for step in steps)}, "bench")


def _timed(call: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return median(times)


def main(arguments: list[str]) -> int:
    """Measure, print a table and, where asked for, one line of JSON."""
    parser = argparse.ArgumentParser(prog="dumping.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rounds", nargs="?", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"the number of rounds must be 1 or more, got {given.rounds}")
    found: Times = {}
    for preset in SHAPES:
        found |= handing(preset, 1, given.rounds) | handing(preset, 4, given.rounds)
        with tempfile.TemporaryDirectory() as folder:
            found |= running(preset, Path(folder))
    load = f"{os.getloadavg()[0]:.1f}"
    print(f"{platform.platform()}, Python {platform.python_version()}, load {load}")
    for what, time_us in found.items():
        print(f"{what:52} {time_us:9.1f} us a step")
    if given.json is not None:
        body = {"machine": platform.platform(), "load": load, "us": found}
        given.json.write_text(json.dumps(body) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
