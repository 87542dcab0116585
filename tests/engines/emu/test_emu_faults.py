"""Planted faults, each caught: by comparing schedules, by poison, or by a KernelFault."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.errors import ParityBug
from parity_cuda.emu import EmuModule, KernelFault, Schedule
from tests.engines.emu.reference import ASCENDING

THREADS = 256
NAN_WORD = 0xFFFFFFFF
DESCENDING = Schedule("descending")
SHUFFLED = [Schedule("shuffled", seed=seed) for seed in range(1, 5)]
ALL = [ASCENDING, DESCENDING, *SHUFFLED]
X = np.random.default_rng(1).standard_normal(4 * THREADS).astype(np.float32)


@pytest.fixture(scope="module")
def faults(load: Callable[..., EmuModule]) -> EmuModule:
    return load("faults.cu")


def run(
    module: EmuModule, name: str, schedule: Schedule, grid: int = 1, threads: int = THREADS
) -> bytes:
    y = np.zeros(THREADS, np.float32)
    module.launch(name, (grid,), (threads,), (X, y), schedule=schedule)
    return y.tobytes()


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("no_barrier", 1),
        ("no_barrier_hidden", 1),
        ("write_after_read", 1),
        ("warp_barrier_only", 1),
        ("float_atomic", 4),
        ("blocks_share_a_word", 4),
        ("named_too_early", 1),
    ],
)
def test_schedules_disagree(faults: EmuModule, name: str, grid: int) -> None:
    results = {run(faults, name, schedule, grid) for schedule in ALL}
    assert len(results) > 1


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("ok_barriers", 1),
        ("ok_warp_barrier", 1),
        ("ok_locals", 1),
        ("ok_atomic", 4),
        ("ok_named", 1),
    ],
)
def test_control_schedules_agree(faults: EmuModule, name: str, grid: int) -> None:
    results = {run(faults, name, schedule, grid) for schedule in ALL}
    assert len(results) == 1
    assert np.frombuffer(results.pop(), np.uint32).any()


def test_one_order_alone_can_hide_a_race(faults: EmuModule) -> None:
    """Why no single schedule will do: thread t reads what thread t - 1 wrote."""
    right = X[:THREADS] + np.concatenate([np.zeros(1, np.float32), X[: THREADS - 1]])
    right[0] = X[0]
    assert run(faults, "no_barrier_hidden", ASCENDING) == right.tobytes()
    for schedule in (DESCENDING, *SHUFFLED):
        assert run(faults, "no_barrier_hidden", schedule) != right.tobytes()


def test_one_warp_ahead_of_the_others(faults: EmuModule) -> None:
    """A warp's barrier for a block's: orders that run warps side by side may hide it."""

    def found(schedule: Schedule) -> bool:
        words = np.frombuffer(run(faults, "warp_barrier_only", schedule), np.uint32)
        return bool((words == NAN_WORD).any())

    assert found(ASCENDING)
    assert not found(DESCENDING)
    assert {found(schedule) for schedule in SHUFFLED} == {True, False}


def test_a_shuffled_schedule_is_repeatable(faults: EmuModule) -> None:
    for name in ("no_barrier", "float_atomic", "blocks_share_a_word"):
        for schedule in SHUFFLED:
            assert run(faults, name, schedule, 4) == run(faults, name, schedule, 4)


def test_seeds_give_different_orders(faults: EmuModule) -> None:
    results = {run(faults, "no_barrier", schedule) for schedule in SHUFFLED}
    assert len(results) == len(SHUFFLED)


def test_unwritten_shared_memory_is_nan(faults: EmuModule, schedule: Schedule) -> None:
    # A block that wrote all of it runs before: its values must be gone.
    run(faults, "ok_barriers", schedule)
    words = np.frombuffer(run(faults, "unwritten_shared", schedule), np.uint32)
    assert set(words[:32]) == {np.float32(1).view(np.uint32)}
    assert set(words[32:]) == {NAN_WORD}


def test_unwritten_dynamic_memory_is_nan(faults: EmuModule, schedule: Schedule) -> None:
    y = np.zeros(THREADS, np.float32)
    for _ in range(2):
        args, size = (X, y), 4 * THREADS
        faults.launch(
            "unwritten_dynamic", (1,), (THREADS,), args, shared_bytes=size, schedule=schedule
        )
        assert set(y.view(np.uint32)) == {NAN_WORD}


@pytest.mark.parametrize("poison", [0x00, 0x55, 0xD5])
def test_unwritten_memory_has_the_poison_asked_for(faults: EmuModule, poison: int) -> None:
    schedule = Schedule("shuffled", seed=1, poison=poison)
    words = np.frombuffer(run(faults, "unwritten_shared", schedule), np.uint32)
    assert set(words[32:]) == {poison * 0x01010101}
    y = np.zeros(THREADS, np.float32)
    args, size = (X, y), 4 * THREADS
    faults.launch("unwritten_dynamic", (1,), (THREADS,), args, shared_bytes=size, schedule=schedule)
    assert set(y.view(np.uint32)) == {poison * 0x01010101}


@pytest.mark.parametrize("poison", [-1, 256])
def test_impossible_poison(poison: int) -> None:
    with pytest.raises(ParityBug, match=f"a poison is a byte, not {poison}"):
        Schedule("ascending", poison=poison)


RETURNED = (
    r"block \(0,0,0\): thread \d+ (waits in __syncthreads at faults\.cu:LINE, but \d+ of 64 "
    r"threads have returned|returned while \d+ threads wait in __syncthreads at faults\.cu:LINE)"
)
MESSAGES = {
    "half_barrier": RETURNED,
    "early_return": RETURNED,
    "two_barriers": (
        r"block \(0,0,0\): divergent __syncthreads: thread \d+ at faults\.cu:LINE, \d+ others at "
        r"faults\.cu:LINE"
    ),
    "deadlock": (
        r"block \(0,0,0\): deadlock: 32 wait in __syncthreads \(thread 62 at faults\.cu:LINE\), "
        r"32 wait in a warp operation \(thread 63 at faults\.cu:LINE\), 0 have returned"
    ),
    "named_deadlock": (
        r"block \(0,0,0\): deadlock: 32 wait in a barrier by number \(thread 31 at "
        r"faults\.cu:LINE\), 32 have returned"
    ),
    "named_counts": (
        r"block \(0,0,0\): faults\.cu:LINE: thread \d+ expects (64|96) threads at barrier 1, "
        r"others (64|96)"
    ),
    "named_number": (
        r"block \(0,0,0\): faults\.cu:LINE: barrier 16 of 64 threads: numbers go from 1 to 15, "
        r"threads by 32"
    ),
    "named_threads": (
        r"block \(0,0,0\): faults\.cu:LINE: barrier 1 of 33 threads: numbers go from 1 to 15, "
        r"threads by 32"
    ),
    "mask_without_me": (
        r"block \(0,0,0\): faults\.cu:LINE: thread \d+ is lane \d+, which its own mask 0x0000ffff "
        r"leaves out"
    ),
    "masks_differ": (
        r"block \(0,0,0\): faults\.cu:LINE: thread \d+ (gives the mask 0x[7f]fffffff, other lanes "
        r"0x[7f]fffffff|is lane 31, which its own mask 0x7fffffff leaves out)"
    ),
    "lanes_returned": (
        r"block \(0,0,0\): (faults\.cu:LINE: thread \d+ waits for lanes that have returned: mask "
        r"0xffffffff, returned 0x[0-9a-f]{8}|deadlock: \d+ wait in a warp operation "
        r"\(thread \d+ at faults\.cu:LINE\), \d+ have returned)"
    ),
    "two_shuffles": (
        r"block \(0,0,0\): divergent warp operation: thread \d+ at faults\.cu:LINE, other lanes at "
        r"faults\.cu:LINE"
    ),
    "trap": r"block \(0,0,0\): faults\.cu:LINE: thread 5 ran into __trap",
    "unwritten_dynamic": (
        r"block \(0,0,0\): faults\.cu:LINE uses extern __shared__, but the launch gives 0 bytes"
    ),
}
OPERATIONS = ("__syncthreads()", "_sync(", "_arrive(", "__trap()", "extern __shared__")


def lines_of(text: str, kernel: str) -> str:
    """A pattern for the line numbers where a kernel waits, traps or declares."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if f"void {kernel}(" in line)
    end = next(i for i in range(start, len(lines)) if lines[i].startswith("}"))
    body = range(start, end)
    return "|".join(str(i + 1) for i in body if any(op in lines[i] for op in OPERATIONS))


@pytest.mark.parametrize("name", MESSAGES)
def test_fault_is_named_with_thread_and_line(
    faults: EmuModule, schedule: Schedule, cuda_text: Callable[[str], str], name: str
) -> None:
    with pytest.raises(KernelFault) as caught:
        run(faults, name, schedule, threads=64)
    lines = lines_of(cuda_text("faults.cu"), name)
    pattern = MESSAGES[name].replace("LINE", f"({lines})")
    assert re.fullmatch(rf"kernel {name}: {pattern}", str(caught.value)), str(caught.value)
    assert isinstance(caught.value, ParityBug)
    # The threads given up leave nothing behind.
    assert run(faults, "ok_barriers", schedule) == run(faults, "ok_barriers", ASCENDING)


def test_failing_block_is_named(faults: EmuModule) -> None:
    with pytest.raises(KernelFault, match=r"block \(2,0,0\)"):
        run(faults, "half_barrier", DESCENDING, grid=3, threads=64)


@pytest.mark.parametrize("name", ["half_barrier", "early_return", "two_barriers"])
def test_not_strict_does_what_the_device_does(faults: EmuModule, name: str) -> None:
    """Threads that have returned count no more, and any two barriers meet."""
    y = np.frombuffer(
        run(faults, name, Schedule("ascending", strict=False), threads=64), np.float32
    )
    first = 32 if name == "early_return" else 0
    assert y.tolist() == [0.0] * first + [1.0] * (64 - first) + [0.0] * (THREADS - 64)


def test_not_strict_still_reports_a_deadlock(faults: EmuModule) -> None:
    with pytest.raises(KernelFault, match="deadlock"):
        run(faults, "deadlock", Schedule("ascending", strict=False), threads=64)


def test_stack_overflow_ends_in_a_fault() -> None:
    """Stacks have guard pages: no thread runs silently into its neighbour's variables."""
    script = """
import sys, numpy as np
from pathlib import Path
from parity_cuda.emu import EmuModule, Schedule, build_module
text = Path(sys.argv[1]).read_text()
module = EmuModule(build_module({"faults.cu": text}))
x = np.zeros(64, np.float32)
module.launch(sys.argv[2], (1,), (64,), (x, x), schedule=Schedule("ascending"))
"""
    file = str(Path(__file__).parent / "cuda" / "faults.cu")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    codes = [
        subprocess.run([sys.executable, "-c", script, file, name], env=env, check=False).returncode
        for name in ("ok_locals", "stack_overflow")
    ]
    assert codes == [0, -signal.SIGSEGV]


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes", "message"),
    [
        ((1,), (1025,), 0, "1 to 1024 threads"),
        ((1,), (0,), 0, "1 to 1024 threads"),
        ((1,), (32, 33), 0, "1 to 1024 threads"),
        ((1,), (1, 1, 65), 0, "at most 64 of them along z"),
        ((0,), (32,), 0, "a grid has"),
        ((1, 65536), (32,), 0, "65535 along y and z"),
        ((65536, 65535), (32,), 0, "not emulated"),
        ((1,), (32,), 232449, "at most 232448 bytes"),
        ((-1,), (32,), 0, "no such launch"),
        ((1,), (32,), -4, "no such launch"),
    ],
)
def test_impossible_launches(
    faults: EmuModule,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared_bytes: int,
    message: str,
) -> None:
    y = np.zeros(THREADS, np.float32)
    with pytest.raises(ParityBug, match=f"kernel ok_atomic: .*{message}"):
        faults.launch(
            "ok_atomic", grid, block, (X, y), shared_bytes=shared_bytes, schedule=ASCENDING
        )
    assert not y.any()
