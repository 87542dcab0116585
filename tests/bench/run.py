"""Time the command line: start-up, and a warm `parity diff`; prints one table.

Usage: run.py [N]. Each command runs once before the N timed runs (default 5), so caches are warm;
that first time is shown too. A command that does not end 0 is not timed: the bench ends 1.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RUNS = 5
PARITY = str(Path(sys.executable).with_name("parity"))
COMMANDS = (
    (PARITY, "--version"),
    (PARITY, "diff", "-q"),
)


@dataclass(frozen=True)
class Times:
    """Wall times of one command in seconds: the first run, then the timed ones."""

    command: str
    first: float
    timed: tuple[float, ...]


class Failed(Exception):
    """A command did not end 0, so its time says nothing."""


def once(command: Sequence[str]) -> float:
    """Run a command and return its wall time in seconds; raises Failed when it does not end 0."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)} ended {done.returncode}: {done.stderr or done.stdout}")
    return seconds


def measure(command: Sequence[str], runs: int) -> Times:
    """Time a command `runs` times after one run that warms the caches."""
    name = " ".join([Path(command[0]).name, *command[1:]])
    return Times(name, once(command), tuple(once(command) for _ in range(runs)))


def table(rows: Sequence[Times]) -> list[str]:
    """Return the lines of a table; seconds."""
    width = max(len(row.command) for row in rows)
    lines = [f"{'command':{width}}  {'n':>3}  {'first':>7}  {'min':>7}  {'median':>7}  {'max':>7}"]
    for row in rows:
        figures = (row.first, min(row.timed), median(row.timed), max(row.timed))
        cells = "  ".join(f"{figure:7.3f}" for figure in figures)
        lines.append(f"{row.command:{width}}  {len(row.timed):3}  {cells}")
    return lines


def main(arguments: list[str]) -> int:
    """Time every command and print machine and table."""
    if arguments and not (arguments[0].isdecimal() and int(arguments[0]) > 0):
        print(f"bench: the number of runs must be 1 or more, got {arguments[0]}", file=sys.stderr)
        return 2
    runs = int(arguments[0]) if arguments else RUNS
    try:
        rows = [measure(command, runs) for command in COMMANDS]
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, load {load:.1f}, Python", end=" ")
    print(f"{platform.python_version()}; wall seconds of whole processes")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
