"""Run kernels of cuda/ under a sanitizer, each in a fork: MODE ORDER CASE... -> JSON on stdout.

The parent process has the sanitizer's runtime preloaded (sanitizer_env).
"""

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


def module(mode: str, *names: str) -> EmuModule:
    sources = {name: (CUDA / name).read_text() for name in names}
    return EmuModule(build_module(sources, mode=mode))  # type: ignore[arg-type]


def run_fault(faults: EmuModule, name: str, schedule: Schedule) -> None:
    result = np.zeros(4 * THREADS, np.float32)
    args = (BUFFER[:THREADS], result[:THREADS])
    shared = 4 * THREADS if "dynamic" in name else 0
    grid = 2 if name == "ok_atomic" else 1
    faults.launch(name, (grid,), (THREADS,), args, shared_bytes=shared, schedule=schedule)


def in_place(good: EmuModule, schedule: Schedule) -> None:
    """Output and input are one array: copies made for the sanitizer must stay one, too."""
    x = BUFFER[8:72].copy()
    wanted = x.copy()
    args = (x[:64], np.ones(64, np.float32), x, np.int32(64), np.float32(1e-6))
    good.launch("rmsnorm", (1,), (64,), args, schedule=schedule)
    args = (wanted.copy(), np.ones(64, np.float32), wanted, np.int32(64), np.float32(1e-6))
    good.launch("rmsnorm", (1,), (64,), args, schedule=schedule)
    if x.tobytes() != wanted.tobytes():
        raise SystemExit("an array in two arguments gave other bits")


def run_case(modules: tuple[EmuModule, EmuModule], name: str, schedule: Schedule) -> None:
    good, faults = modules
    if name == "good":
        if run_all(good, inputs(), schedule) != expected(inputs()):
            raise SystemExit("other bits than NumPy")
    elif name == "in_place":
        in_place(good, schedule)
    else:
        run_fault(faults, name, schedule)


def forked(modules: tuple[EmuModule, EmuModule], name: str, schedule: Schedule) -> tuple[int, str]:
    """Exit status and everything said, of one case in a process of its own."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            run_case(modules, name, schedule)
            sys.exit()  # not os._exit: a sanitizer reports its exit status on the way out
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read()


def main() -> None:
    mode, order, *names = sys.argv[1:]
    schedule = Schedule(order, seed=7)  # type: ignore[arg-type]
    modules = module(mode, "good.cu", "good.cuh"), module(mode, "faults.cu")
    print(json.dumps({name: forked(modules, name, schedule) for name in names}))


if __name__ == "__main__":
    main()
