"""parity_dump.cuh on the CPU: its digests are parity's, in any order of threads; sanitizers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity_cuda.emu import EmuModule, Schedule, build_module, sanitizer_env
from tests.engines.header_digest import RESULT, THREADS, Jobs, all_jobs, random_bytes, sources

CHILD = Path(__file__).with_name("header_child.py")
JOBS = dict(all_jobs())
ORDERS = {
    "ascending": Schedule("ascending"),
    "descending": Schedule("descending", poison=0x55),
    "shuffled": Schedule("shuffled", seed=3, threads=2, poison=0xD5),
}


@pytest.fixture(scope="module")
def module() -> EmuModule:
    return EmuModule(build_module(sources()))


def differing(module: EmuModule, jobs: Jobs, schedule: Schedule) -> list[tuple[int, int]]:
    """Buffers whose result on the emulator is not the one wanted."""
    given = jobs.array(jobs.memory.ctypes.data)
    results = np.frombuffer(random_bytes(len(given) * RESULT.itemsize), RESULT).copy()
    args = (results.view(np.uint8), given.view(np.uint8), jobs.basis)
    module.launch("digests", (len(given),), (THREADS,), args, schedule=schedule)
    return jobs.differing(results)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", JOBS)
def test_every_digest_is_paritys(module: EmuModule, name: str, order: str) -> None:
    assert len(JOBS[name].places) > 5
    assert differing(module, JOBS[name], ORDERS[order]) == []


def test_memory_outside_the_buffers_is_not_read_into_them(module: EmuModule) -> None:
    """The same buffers with all else turned over."""
    for at, size in ((0, 1), (3, 255), (7, 257), (1, 5000)):
        jobs = Jobs(random_bytes(6000))
        jobs.add(at, size)
        kept = jobs.memory[at : at + size].copy()
        jobs.memory[:] = ~jobs.memory
        jobs.memory[at : at + size] = kept
        assert differing(module, jobs, ORDERS["ascending"]) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return own << K |", "return 0 * own |"),  # every slice as if its low byte were 0
        ("(start ^ __popc(votes & parity_lanes_before()))",  # follow skips the lane before
         "(start ^ __popc(votes & parity_lanes_before() >> 1))"),
        ("^ (0u - (bits & 1))", ""),
        ("return hash - low * power;", "return hash;"),
        ("warps(span) * PARITY_WARP_BYTES - span", "warps(span) * PARITY_WARP_BYTES - span + 1"),
    ],
)  # fmt: skip
def test_red_a_fault_in_it(old: str, new: str) -> None:
    wrong = differing(
        EmuModule(build_module(sources(old, new))), JOBS["short"], ORDERS["ascending"]
    )
    assert len(wrong) > len(JOBS["short"].places) / 2


@pytest.mark.parametrize("mode", ["asan", "tsan"])
def test_sanitizers_say_nothing(mode: str) -> None:
    assert run_child(mode, "") == ""


@pytest.mark.parametrize(
    ("mode", "fault", "said"),
    [
        ("asan", "past the end", "heap-buffer-overflow"),
        ("tsan", "no barrier", "data race"),
    ],
)
def test_red_sanitizers_see(mode: str, fault: str, said: str) -> None:
    assert said in run_child(mode, fault)


def run_child(mode: str, fault: str) -> str:
    """What a sanitizer says of a few buffers, in a process with its runtime."""
    env = {**os.environ, **sanitizer_env(mode), "PYTHONPATH": os.pathsep.join(sys.path)}
    env["OPENBLAS_NUM_THREADS"] = "1"  # TSan ends a process that forks with threads
    words = [sys.executable, str(CHILD), mode, fault]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["said"] != "") == (found["status"] != 0)
    return str(re.sub(r"=+", "=", found["said"]))
