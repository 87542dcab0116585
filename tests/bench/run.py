"""Time the command line: start-up, and a warm `parity diff`; prints one table.

Usage: run.py [N] [--json FILE]. Each command runs once before the N timed runs (default 5), so
caches are warm; that first time is shown too. The commands take turns, and the last column is the
median of the ratios to the first command's time in the same round. A command that does not end 0 is
not timed: the bench ends 1. ``--json`` adds a line with every figure to FILE.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

RUNS = 5
PARITY = str(Path(sys.executable).with_name("parity"))
COMMANDS = (
    (PARITY, "--version"),
    (PARITY, "--help"),
    (PARITY, "diff", "-q"),
    (PARITY, "diff", "--dut", "cpu", "-q"),
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


def measure(commands: Sequence[Sequence[str]], runs: int) -> list[Times]:
    """Time commands in turn, `runs` times after one run of each that warms the caches."""
    names = [" ".join([Path(command[0]).name, *command[1:]]) for command in commands]
    firsts = [once(command) for command in commands]
    rounds = [[once(command) for command in commands] for _ in range(runs)]
    timed = zip(*rounds, strict=True)
    return [Times(*one) for one in zip(names, firsts, map(tuple, timed), strict=True)]


def table(rows: Sequence[Times]) -> list[str]:
    """Return the lines of a table; seconds, and the ratio to the first row."""
    width = max(len(row.command) for row in rows)
    head = ("n", "first", "min", "median", "max", "ratio")
    lines = [f"{'command':{width}}  {head[0]:>3}  " + "  ".join(f"{name:>7}" for name in head[1:])]
    for row in rows:
        pairs = zip(row.timed, rows[0].timed, strict=True)
        ratio = median(one / other for one, other in pairs)
        figures = (row.first, min(row.timed), median(row.timed), max(row.timed), ratio)
        cells = "  ".join(f"{figure:7.3f}" for figure in figures)
        lines.append(f"{row.command:{width}}  {len(row.timed):3}  {cells}")
    return lines


def main(arguments: list[str]) -> int:
    """Time every command and print machine and table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=RUNS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error(f"the number of runs must be 1 or more, got {given.runs}")
    try:
        rows = measure(COMMANDS, given.runs)
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    told = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    print(", ".join(f"{name} {value}" for name, value in told.items()), end="")
    print("; wall seconds of whole processes")
    print("\n".join(table(rows)))
    if given.json:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**told, "commands": [asdict(row) for row in rows]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
