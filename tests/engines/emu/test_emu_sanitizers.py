"""Faults that no schedule shows: out of bounds (ASan), undefined (UBSan), data races (TSan)."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.errors import NotRunError
from parity_cuda.emu import EmuModule, Mode, build_module, sanitizer_env
from parity_cuda.emu.compiler import Compiler

CHILD = Path(__file__).parent / "sanitizer_child.py"
ASAN_STATUS, TSAN_STATUS = 1, 66
Results = dict[str, tuple[int, str]]

OUT_OF_BOUNDS = {
    "global_past_end": "AddressSanitizer: heap-buffer-overflow",
    "dynamic_past_end": "AddressSanitizer: heap-buffer-overflow",
    "shared_past_end@256": "runtime error: index 256 out of bounds",
    "shift_by_32": "runtime error: shift exponent 32 is too large",
    "bare_cast": "runtime error: 3e+09 is outside the range of representable values of type 'int'",
}
RACES = (
    *("no_barrier", "no_barrier_hidden", "write_after_read", "warp_barrier_only"),
    # more threads than TSan can follow
    *("no_barrier@256", "write_after_read@256", "write_after_read@1024"),
    "named_too_early@256",
    # between blocks, which follow each other here: blocks_count gives the same bits in any order
    *("blocks_share_a_word@64x2", "blocks_count@1x2", "blocks_count@224x8"),
)
CONTROLS = (
    *("ok_barriers", "ok_barriers@256", "ok_warp_barrier", "ok_locals", "good"),
    *("ok_atomic@64x2", "ok_blocks@64x3", "ok_blocks@128x20", "ok_named@256"),
)


def run(cache: Path, mode: str, *names: str) -> Results:
    """Run cases in a process with the sanitizer's runtime, once for all workers."""
    kept = cache / f"{mode}.json"
    if not kept.exists():
        said = kept.with_suffix(f".{os.getpid()}")
        said.write_text(run_child(mode, *names))
        said.replace(kept)
    return {name: (code, text) for name, (code, text) in json.loads(kept.read_text()).items()}


def run_child(mode: str, *names: str) -> str:
    env = {**os.environ, **sanitizer_env(mode), "PYTHONPATH": os.pathsep.join(sys.path)}
    env["OPENBLAS_NUM_THREADS"] = "1"  # TSan ends a process that forks with threads
    command = [sys.executable, str(CHILD), mode, "ascending", *names]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def lines_of(text: str, kernel: str) -> range:
    lines, kernel = text.splitlines(), kernel.partition("@")[0]
    start = next(i for i, line in enumerate(lines) if f"void {kernel}(" in line)
    return range(start + 1, next(i for i in range(start, len(lines)) if lines[i] == "}") + 2)


@pytest.fixture(scope="module")
def asan(cache_base: Path) -> Results:
    return run(cache_base, "asan", *OUT_OF_BOUNDS, *CONTROLS, "in_place")


@pytest.fixture(scope="module")
def tsan(cache_base: Path) -> Results:
    return run(cache_base, "tsan", *RACES, "shuffle_as_barrier", *CONTROLS)


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_asan_finds(asan: Results, cuda_text: Callable[[str], str], name: str) -> None:
    status, text = asan[name]
    assert status == ASAN_STATUS, text
    assert OUT_OF_BOUNDS[name] in text
    lines = [int(line) for line in re.findall(r"faults\.cu:(\d+)", text)]
    assert lines[0] in lines_of(cuda_text("faults.cu"), name)


@pytest.mark.parametrize("name", [*CONTROLS, "in_place"])
def test_asan_is_silent_on_controls(asan: Results, name: str) -> None:
    assert asan[name] == (0, "")


@pytest.mark.parametrize("name", RACES)
def test_tsan_finds_races_even_in_ascending_order(
    tsan: Results, cuda_text: Callable[[str], str], name: str
) -> None:
    status, text = tsan[name]
    assert status == TSAN_STATUS, text
    assert "ThreadSanitizer: data race" in text
    lines = {int(line) for line in re.findall(r"faults\.cu:(\d+)", text)}
    kernel = lines_of(cuda_text("faults.cu"), name)
    assert lines <= set(kernel)
    # Some runtimes name the declaration, too, as the caller of the kernel.
    sides = 1 if name.startswith("blocks") else 2  # one line, in two blocks
    assert len(lines - {kernel[0]}) == sides, "both sides of the race are named"


def test_tsan_knows_that_shuffles_order_no_memory(tsan: Results) -> None:
    assert tsan["shuffle_as_barrier"][0] == TSAN_STATUS


@pytest.mark.parametrize("name", CONTROLS)
def test_tsan_is_silent_on_controls(tsan: Results, name: str) -> None:
    assert tsan[name] == (0, "")


@pytest.mark.parametrize("mode", ["asan", "tsan"])
def test_module_without_its_runtime_is_refused(mode: Mode) -> None:
    """Loading it would end the whole process."""
    sources = {path.name: path.read_text() for path in (CHILD.parent / "cuda").iterdir()}
    built = build_module(sources, mode=mode)
    with pytest.raises(NotRunError, match=f"no {mode} runtime") as caught:
        EmuModule(built)
    assert "sanitizer_env" in caught.value.next_step


def test_compiler_without_sanitizers_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "cxx"
    script.write_text("#!/bin/sh\necho libasan.so\n")
    script.chmod(0o700)
    with pytest.raises(NotRunError, match="no asan runtime"):
        sanitizer_env("asan", Compiler((str(script),), "cxx 1.0"))
