"""Time `parity compare` on large dumps, beside `diff` and a script with pandas; prints one table.

Usage: compare.py [LINES] [JSON]. Two pairs of dumps of LINES lines (default 10,000,000) are made in
a temporary folder: one differs at its last key, the other at every key. Each command runs in a
process of its own, three times for parity and once for the others; told are the least wall time,
the least processor time (of all threads) and the largest resident memory. JSON is a file for the
figures. Ends 1 where a command does not find what was planted, or where parity is over its limits
(10 s, 2 GB at 10 million lines).

What each does: parity checks the form of every line, repeated keys and the order, and names the
first key in dataflow order; `diff` compares lines of text; the script reads columns, looks for
repeated keys and compares row by row, so it needs the same keys in the same order.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LINES = 10_000_000
LIMIT_SECONDS, LIMIT_BYTES = 10.0, 2e9  # at LINES lines
PARITY = str(Path(sys.executable).with_name("parity"))
PARITY_RUNS = 3
LAYERS = 48
FIELDS = {
    **{"nrm": "f32[2048]", "kraw": "f32[4,128]", "knorm": "f32[4,128]", "k": "int8[4,128]"},
    **{"ks": "f32[4]", "v": "int8[4,128]", "vs": "f32[4]", "qrope": "f32[32,128]"},
    **{"attn": "f32[32,128]", "ores": "f32[2048]", "x": "f32[2048]"},
}
PANDAS = """
import sys, pandas
names = ["key", "digest", "type"]
ref, dut = (
    pandas.read_csv(path, sep=" ", comment="#", header=None, names=names, dtype=str)
    for path in sys.argv[1:]
)
assert not ref.key.duplicated().any() and not dut.key.duplicated().any()
differ = (ref != dut).any(axis=1)
print(int(differ.sum()), ref.key[differ.idxmax()])
sys.exit(int(differ.any()))
"""


@dataclass(frozen=True)
class Figures:
    """One command on one pair: least wall and processor seconds, peak resident bytes, of runs."""

    tool: str
    pair: str
    seconds: float
    cpu: float
    peak: int
    runs: int


class Failed(Exception):
    """A command did not find what was planted, so its time says nothing."""


def write_dump(path: Path, lines: int, seed: int) -> None:
    """A dump of a 48-layer model with random digests."""
    chance = random.Random(seed)
    tails = [
        (f"_l{layer}_{name} ", f" {kind}\n")
        for layer in range(LAYERS)
        for name, kind in FIELDS.items()
    ] + [("_final_normed ", " f32[2048]\n"), ("_logits ", " f32[151936]\n")]
    with path.open("w", encoding="ascii") as stream:
        stream.write("# format parity-dump 1\n# engine bench\n")
        for pos in range(-(-lines // len(tails))):
            count = min(len(tails), lines - pos * len(tails))
            digits = chance.randbytes(8 * count).hex()
            stream.write(
                "".join(
                    [
                        f"t{pos}{tail}{digits[16 * at : 16 * at + 16]}{kind}"
                        for at, (tail, kind) in enumerate(tails[:count])
                    ]
                )
            )


def change_last(path: Path) -> str:
    """Change the last digit of the last digest in place; the tag of that line."""
    with path.open("r+b") as stream:
        stream.seek(-200, os.SEEK_END)
        start = stream.tell()
        text = stream.read()
        line = text.rindex(b"\n", 0, -1) + 1
        at = text.rindex(b" ") - 1
        stream.seek(start + at)
        stream.write(b"0" if text[at : at + 1] != b"0" else b"1")
    return text[line:].split(b" ")[0].decode()


def once(command: Sequence[str], expected: str) -> tuple[float, float, int]:
    """(wall seconds, processor seconds, peak resident bytes) of a command, which must end 1 and
    print ``expected``."""
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(running.pid, 0)
        seconds = time.perf_counter() - begin
        running.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read(1 << 20).decode("utf-8", "replace")
        out.seek(max(0, out.seek(0, os.SEEK_END) - (1 << 16)))
        printed += out.read().decode("utf-8", "replace")
    if running.returncode != 1 or expected not in printed:
        name = " ".join([Path(command[0]).name, *command[1:]])
        raise Failed(f"{name} ended {running.returncode}, without {expected!r}: {printed[-300:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return seconds, cpu, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(tool: str, pair: str, command: Sequence[str], expected: str, runs: int) -> Figures:
    """Run a command ``runs`` times."""
    seconds, cpu, peak = zip(*(once(command, expected) for _ in range(runs)), strict=True)
    return Figures(tool, pair, min(seconds), min(cpu), max(peak), runs)


def tools() -> dict[str, tuple[list[str], int]]:
    """Command and number of runs of each tool that is here."""
    found = {"parity": ([PARITY, "compare", "-q"], PARITY_RUNS)}
    if shutil.which("diff"):
        found["diff"] = (["diff"], 1)
    return {**found, "pandas": ([sys.executable, "-c", PANDAS], 1)}


def bench(folder: Path, lines: int) -> list[Figures]:
    """Make the dumps and time every tool on both pairs."""
    ref, last, every = (folder / f"{name}.dump" for name in ("ref", "last", "every"))
    write_dump(ref, lines, 1)
    write_dump(every, lines, 2)
    shutil.copyfile(ref, last)
    tag = change_last(last)
    pairs = (("last key", last, tag), ("every key", every, "t0_l0_nrm"))
    return [
        measure(tool, pair, [*command, str(ref), str(dut)], first, runs)
        for pair, dut, first in pairs
        for tool, (command, runs) in tools().items()
    ]


def table(rows: Sequence[Figures]) -> list[str]:
    """The lines of a table; seconds and megabytes (10^6)."""
    lines = ["differs at  tool      seconds  processor   peak MB  runs"]
    for row in rows:
        figures = f"{row.seconds:8.2f}  {row.cpu:9.2f}  {row.peak / 1e6:8.0f}  {row.runs:4}"
        lines.append(f"{row.pair:10}  {row.tool:8} {figures}")
    return lines


def over_limits(rows: Sequence[Figures], lines: int) -> list[str]:
    """One line for each run of parity that took more than a share of the limits; small files have
    the whole limits, as starting takes its time and memory."""
    share = max(1.0, lines / LINES)
    return [
        f"parity, {row.pair}: {row.seconds:.1f} s, {row.peak / 1e6:.0f} MB"
        for row in rows
        if row.tool == "parity"
        and (row.seconds > LIMIT_SECONDS * share or row.peak > LIMIT_BYTES * share)
    ]


def main(arguments: list[str]) -> int:
    """Print machine and table, write the JSON."""
    lines = int(arguments[0]) if arguments else LINES
    with tempfile.TemporaryDirectory(prefix="parity-bench-") as folder:
        try:
            rows = bench(Path(folder), lines)
        except Failed as failure:
            print(f"bench: {failure}", file=sys.stderr)
            return 1
    machine = {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    print(f"{lines:,} lines; {', '.join(f'{name} {value}' for name, value in machine.items())}")
    print("\n".join(table(rows)))
    if len(arguments) > 1:
        figures = {"lines": lines, **machine, "figures": [asdict(row) for row in rows]}
        Path(arguments[1]).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    late = over_limits(rows, lines)
    for line in late:
        print(f"bench: over the limits: {line}", file=sys.stderr)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
