"""Kernels give NumPy's bits under every schedule, and a wrong flag shows."""

import ctypes
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from parity_cuda.emu import EmuModule, Schedule, build_module, find_compiler
from tests.engines.emu.reference import ASCENDING, Inputs, expected, f32, inputs, rmsnorm, run_all

GOOD = ("good.cu", "good.cuh")
X86 = platform.machine() == "x86_64"
MXCSR_FLUSH = 0x8040 | 0x1F80  # flush to zero and denormals are zero, on top of the default


@pytest.fixture(scope="module")
def given() -> Inputs:
    return inputs()


@pytest.fixture(scope="module")
def wanted(given: Inputs) -> dict[str, bytes]:
    return expected(given)


def test_every_schedule_gives_numpys_bits(
    load: Callable[..., EmuModule], given: Inputs, wanted: dict[str, bytes], schedule: Schedule
) -> None:
    assert run_all(load(*GOOD), given, schedule) == wanted


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("-DEMU_UCONTEXT",), id="ucontext"),
        pytest.param(
            ("-mno-fma", "-mno-avx2"),
            id="no-fma-instruction",
            marks=pytest.mark.skipif(not X86, reason="x86-64 flags"),
        ),
        pytest.param(("-O0",), id="not-optimised"),
        pytest.param(("-O3", "-funroll-loops"), id="more-optimised"),
    ],
)
def test_other_builds_give_the_same_bits(
    load: Callable[..., EmuModule], given: Inputs, wanted: dict[str, bytes], flags: tuple[str, ...]
) -> None:
    module = load(*GOOD, extra_flags=flags)
    assert run_all(module, given, ASCENDING) == wanted
    assert run_all(module, given, Schedule("shuffled", seed=4)) == wanted


def test_red_contraction_changes_bits(
    load: Callable[..., EmuModule], given: Inputs, wanted: dict[str, bytes]
) -> None:
    module = load(*GOOD, extra_flags=("-ffp-contract=fast",))
    got = run_all(module, given, ASCENDING)
    # g++ 13 leaves chains such as those of attention alone, whatever the flag says.
    changed = {name for name in wanted if got[name] != wanted[name]}
    assert {"rmsnorm"} <= changed <= {"rmsnorm", "attention"}
    assert "-ffp-contract=off" in module.built.flags
    assert "-ffp-contract=fast" in module.built.flags, "the control's flags are recorded too"


def test_red_another_order_changes_bits(given: Inputs) -> None:
    ones, eps = np.ones_like(given.w), f32(1e-6)
    backwards = rmsnorm(given.x[:, ::-1], ones, eps)[:, ::-1]
    assert backwards.tobytes() != rmsnorm(given.x, ones, eps).tobytes()


@pytest.fixture
def flushing(tmp_path: Path) -> Iterator[None]:
    """Put this OS thread into flush-to-zero, as a library built with -ffast-math does."""
    source, library = tmp_path / "csr.cpp", tmp_path / "csr.so"
    source.write_text('extern "C" void csr(unsigned v) { __builtin_ia32_ldmxcsr(v); }')
    command = [*find_compiler().command, "-x", "c++", "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)
    csr = ctypes.CDLL(str(library)).csr
    csr(MXCSR_FLUSH)
    yield
    csr(MXCSR_FLUSH & ~0x8040)


@pytest.mark.skipif(not X86, reason="sets MXCSR")
@pytest.mark.usefixtures("flushing")
def test_launch_resets_flush_to_zero(
    load: Callable[..., EmuModule], given: Inputs, wanted: dict[str, bytes]
) -> None:
    tiny = np.full(4, 1e-39, f32)
    assert not (tiny * f32(0.5)).any(), "the fixture did not take: this process does not flush"
    assert run_all(load(*GOOD), given, ASCENDING) == wanted
    assert not (tiny * f32(0.5)).any(), "the launch did not restore the process's own mode"


def test_block_votes(load: Callable[..., EmuModule], schedule: Schedule) -> None:
    x = np.ones((4, 64), np.int32)
    x[1, 7], x[2, 9], x[3] = 2, -1, 0
    out = np.empty(4, np.int32)
    load(*GOOD).launch("block_votes", (4,), (64,), (x, out), schedule=schedule)
    assert out.tolist() == [4 * 64 + 1, 4 * 64 + 2 + 1, 4 * 63, 1]


def test_atomics_and_last_block(load: Callable[..., EmuModule], schedule: Schedule) -> None:
    x = np.random.default_rng(3).integers(0, 2**32, (40, 96), np.uint32)
    total = int(np.bitwise_count(x).sum())
    result, done, last = np.full(1, 5, np.uint64), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    args = (x, result, done, last)
    load(*GOOD).launch("count_bits", (40,), (96,), args, schedule=schedule)
    assert (int(result[0]), int(done[0]), int(last[0])) == ((total << 40) + 5, 40, total)


def test_launches_from_many_python_threads(
    load: Callable[..., EmuModule], given: Inputs, wanted: dict[str, bytes]
) -> None:
    module = load(*GOOD)
    schedules = [Schedule("shuffled", seed=n, threads=1 + n % 3) for n in range(24)]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda s: run_all(module, given, s), schedules))
    assert got == [wanted] * 24


FORK = """
import os, sys
from parity_cuda.emu import EmuModule, Schedule, build_module
from tests.engines.emu.reference import expected, inputs, run_all
from pathlib import Path
names = Path(sys.argv[1]).glob("good.*")
module = EmuModule(build_module({path.name: path.read_text() for path in names}))
given, schedule = inputs(), Schedule("shuffled", seed=1, threads=3)
wanted = run_all(module, given, schedule)
assert wanted == expected(given)
child = os.fork()
same = run_all(module, given, schedule) == wanted
if not child:
    os._exit(0 if same else 1)
assert same
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_launch_after_fork() -> None:
    """The crew of OS threads stays behind in the parent; the child calls up its own."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(Path(__file__).parent / "cuda")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=_with_path(), check=False
    )
    assert (done.returncode, done.stdout) == (0, "child 0\n"), done.stderr


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_two_modules_do_not_share_kernels_or_memory() -> None:
    """Both define `fill` and a shared array of that name, of different sizes and values."""
    text = """extern "C" __global__ void fill(int* y) {
      __shared__ int s[SIZE];
      s[threadIdx.x] = SIZE + threadIdx.x;
      __syncthreads();
      y[threadIdx.x] = s[SIZE - 1 - threadIdx.x];
    }"""
    modules = {
        size: EmuModule(build_module({"a.cu": text.replace("SIZE", str(size))}))
        for size in (32, 256)
    }
    for size in (32, 256, 32):
        y = np.empty(size, np.int32)
        modules[size].launch("fill", (1,), (size,), (y,), schedule=ASCENDING)
        assert y.tolist() == list(range(2 * size - 1, size - 1, -1))


def test_many_modules_in_one_process() -> None:
    """Modules that took their thread-local memory at load would end after about 100."""
    script = """
import shutil, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from parity_cuda.emu import EmuModule, Schedule, build_module
text = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = 7; }'
built = build_module({"k.cu": text})
y = np.zeros(8, np.int32)
for number in range(300):
    copy = Path(sys.argv[1]) / f"{number}.so"
    shutil.copy(built.path, copy)
    y[:] = 0
    module = EmuModule(replace(built, path=copy))
    module.launch("k", (1,), (8,), (y,), schedule=Schedule("ascending"))
    assert y.tolist() == [7] * 8
"""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script, folder]
        subprocess.run(command, env=_with_path(), check=True, timeout=60)


def test_instances_of_a_template_have_shared_memory_of_their_own() -> None:
    text = """template <int N> __device__ int* local() { __shared__ int s[8]; return s; }
    extern "C" __global__ void k(int* y) {
      local<1>()[threadIdx.x] = 1;
      local<2>()[threadIdx.x] = 2;
      __syncthreads();
      y[threadIdx.x] = 10 * local<1>()[threadIdx.x] + local<2>()[threadIdx.x];
    }"""
    y = np.empty(8, np.int32)
    module = EmuModule(build_module({"a.cu": text}))
    module.launch("k", (1,), (8,), (y,), schedule=ASCENDING)
    assert y.tolist() == [12] * 8
