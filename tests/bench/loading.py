"""How fast an engine takes over a model file, from the opened file to weights that it holds.

Usage: loading.py FILE|FOLDER [--engine NAME]. Three figures: cold (the file was put out of the
system's cache before), warm, and the digests of all tensors; beside them a plain cold read of the
file's first 4 GiB. Single runs, wall times; GB are 10^9 bytes of the model's tensors.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from parity.errors import ParityError
from parity.model.opening import open_model
from parity.protocol import EngineSettings
from parity.registry import engine_class

PLAIN = 4 << 30
CHUNK = 1 << 24


def files_of(path: Path) -> list[Path]:
    """The files that hold the tensors."""
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [path]


def forget(path: Path) -> None:
    """Put the files out of the system's cache."""
    for file in files_of(path):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def seconds(action: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def read_plainly(path: Path) -> int:
    """Read at most PLAIN bytes of the first file; how many there were."""
    done = 0
    with files_of(path)[0].open("rb", buffering=0) as file:
        while done < PLAIN and (part := file.read(CHUNK)):
            done += len(part)
    return done


def report(path: Path, engine: str) -> None:
    """Print the figures, one line each."""
    total = sum(file.stat().st_size for file in files_of(path))
    forget(path)
    begin = time.perf_counter()
    plain = read_plainly(path)
    show("plain cold read, one thread", plain, time.perf_counter() - begin)
    for name, prepare in (("cold", forget), ("warm", lambda _: None)):
        prepare(path)
        opened = engine_class(engine)(EngineSettings())
        model = open_model(str(path), seed=7)
        taken = seconds(lambda opened=opened, model=model: opened.load(model, 64))
        show(f"{engine}, {name}", total, taken)
    show(f"{engine}, digests", total, seconds(opened.weights))


def show(what: str, count: int, taken: float) -> None:
    """One figure."""
    print(f"{what:30} {count / 1e9:8.2f} GB {taken:8.2f} s {count / 1e9 / taken:8.2f} GB/s")


def main() -> int:
    """Status 0, or 2 and 3 with one line, as parity's own commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--engine", default="cpu")
    given = parser.parse_args()
    if not files_of(given.model) or not given.model.exists():
        print(f"bench: no model at {given.model}", file=sys.stderr)
        return 2
    try:
        report(given.model, given.engine)
    except ParityError as error:
        print(f"bench: {error}", file=sys.stderr)
        return int(error.exit_status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
