"""Run kernels of cuda/ under a sanitizer, each in a fork: MODE ORDER CASE... -> JSON on stdout.

A case is a kernel, kernel@threads or kernel@threadsxblocks. This process has the sanitizer's
runtime (sanitizer_env).
"""

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from parity_cuda.emu import EmuModule, Schedule, build_module
from tests.engines.emu.reference import expected, inputs, run_all

CUDA = Path(__file__).parent / "cuda"
THREADS = 256
# Arrays are views that end before their buffer does, as an engine's are.
BUFFER = np.random.default_rng(1).standard_normal(4 * THREADS).astype(np.float32)


def run_fault(module: EmuModule, name: str, schedule: Schedule) -> None:
    kernel, _, shape = name.partition("@")
    threads, grid = (int(count) for count in f"{shape or 64}x1".split("x")[:2])
    result = np.zeros(4 * THREADS, np.float32)
    args = (BUFFER[:threads], result[:threads])
    shared = 4 * threads if "dynamic" in kernel else 0
    module.launch(kernel, (grid,), (threads,), args, shared_bytes=shared, schedule=schedule)


def in_place(module: EmuModule, schedule: Schedule) -> None:
    """Output and input are one array: copies made for the sanitizer must stay one, too."""
    x = BUFFER[8:72].copy()
    wanted = x.copy()
    args = (x[:64], np.ones(64, np.float32), x, np.int32(64), np.float32(1e-6))
    module.launch("rmsnorm", (1,), (64,), args, schedule=schedule)
    args = (wanted.copy(), np.ones(64, np.float32), wanted, np.int32(64), np.float32(1e-6))
    module.launch("rmsnorm", (1,), (64,), args, schedule=schedule)
    if x.tobytes() != wanted.tobytes():
        raise SystemExit("an array in two arguments gave other bits")


def run_case(module: EmuModule, name: str, schedule: Schedule) -> None:
    if name == "good":
        if run_all(module, inputs(), schedule) != expected(inputs()):
            raise SystemExit("other bits than NumPy")
    elif name == "in_place":
        in_place(module, schedule)
    else:
        run_fault(module, name, schedule)


def forked(module: EmuModule, name: str, schedule: Schedule) -> tuple[int, str]:
    """Exit status and everything said, of one case in a process of its own."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            run_case(module, name, schedule)
            ctypes.CDLL(None).exit(0)  # C's exit: a sanitizer gives its own status there
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read()


def main() -> None:
    mode, order, *names = sys.argv[1:]
    schedule = Schedule(order, seed=7)  # type: ignore[arg-type]
    sources = {path.name: path.read_text() for path in CUDA.iterdir()}
    module = EmuModule(build_module(sources, mode=mode))  # type: ignore[arg-type]
    # Nothing is launched before the forks: TSan looks away in the child of a process with threads.
    print(json.dumps({name: forked(module, name, schedule) for name in names}))


if __name__ == "__main__":
    main()
