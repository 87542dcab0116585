"""Arguments of a launch: count, width, kind, memory; schedules; names."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.errors import ParityBug
from parity_cuda.emu import EmuModule, Schedule, build_module
from parity_cuda.emu import launch as launching
from tests.engines.emu.reference import ASCENDING

TEXT = """
extern "C" __global__ void axpy(const float* x, float* y, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void widths(unsigned char a, short b, unsigned c, long long d, double e,
                                  bool f, signed char g, const void* p, long long* out) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = __double_as_longlong(e); out[5] = f;
  out[6] = g; out[7] = *(const unsigned char*)p;
}
extern "C" __global__ void bits(float a, double b, unsigned* out) {
  out[0] = __float_as_uint(a);
  out[1] = (unsigned)__double_as_longlong(b);
}
extern "C" __global__ void vectors(const float4* x, float* y) { y[0] = x[1].z; }
extern "C" __global__ void nothing() {}
extern "C" __global__ void where(int* out) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int size = blockDim.x * blockDim.y * blockDim.z;
  out[block * size + thread] = 100 * block + thread;
}
"""
f32, i32 = np.float32, np.int32


@pytest.fixture(scope="module")
def module() -> EmuModule:
    return EmuModule(build_module({"launch.cu": TEXT}))


def launch(module: EmuModule, name: str, *args: Any) -> None:
    module.launch(name, (1,), (32,), args, schedule=ASCENDING)


def test_scalars_go_by_value_with_their_width(module: EmuModule) -> None:
    out = np.zeros(8, np.int64)
    args = (np.uint8(200), np.int16(-3), np.uint32(2**32 - 1), np.int64(-(2**62)))
    rest = (np.float64(-0.1), np.bool_(True), np.int8(-7), np.array([9], np.uint8), out)
    module.launch("widths", (1,), (1,), (*args, *rest), schedule=ASCENDING)
    minus_tenth = int(np.float64(-0.1).view(np.int64))
    assert out.tolist() == [200, -3, 2**32 - 1, -(2**62), minus_tenth, 1, -7, 9]


def test_nan_payloads_pass_unchanged(module: EmuModule) -> None:
    """Not by way of a Python float, which would quieten the NaN."""
    words = np.array([0x7F800001, 0xFFF00001], np.uint32)
    wide = np.array([0x7FF0000000000001], np.uint64).view(np.float64)[0]
    for word in words:
        out = np.zeros(2, np.uint32)
        launch(module, "bits", word.view(f32), wide, out)
        assert out.tolist() == [word, 1]


def test_views_read_only_arrays_and_single_numbers(module: EmuModule) -> None:
    base = np.arange(100, dtype=f32)
    x, y = base[10:42], np.zeros((2, 32), f32)
    x.flags.writeable = False
    launch(module, "axpy", x, y[1], f32(2), i32(32))
    assert y[1].tolist() == [2.0 * v for v in range(10, 42)]
    assert not y[0].any()
    module.launch(
        "axpy", (1,), (1,), (np.array(3, f32), y[0, 4:5], f32(1), i32(1)), schedule=ASCENDING
    )
    assert y[0].tolist() == [0.0] * 4 + [3.0] + [0.0] * 27


def test_vector_pointers_take_arrays_of_numbers(module: EmuModule) -> None:
    y = np.zeros(1, f32)
    launch(module, "vectors", np.arange(8, dtype=f32), y)
    assert y.tolist() == [6.0]


def test_empty_arrays_and_no_arguments(module: EmuModule) -> None:
    launch(module, "nothing")
    empty = np.zeros(0, f32)
    launch(module, "axpy", empty, empty, f32(1), i32(0))


X, Y = np.zeros(32, f32), np.zeros(32, f32)
READ_ONLY = np.zeros(32, f32)
READ_ONLY.flags.writeable = False
ONE, N = f32(1), i32(1)
WRONG = {
    "double-array": ((X, Y.astype(np.float64), ONE, N), 1, r"a pointer to 4 bytes, not float64\["),
    "half-array": ((X.astype(np.float16), Y, ONE, N), 0, "a pointer to 4 bytes, not float16"),
    "strided": ((np.zeros(64, f32)[::2], Y, ONE, N), 0, r"a C-contiguous array, .*strides \(8,\)"),
    "transposed": ((np.zeros((4, 8), f32).T, Y, ONE, N), 0, "a C-contiguous array"),
    "strided-read-only": ((READ_ONLY[::2], Y, ONE, N), 0, "a C-contiguous array, .*read-only"),
    "read-only-output": ((X, READ_ONLY, ONE, N), 1, "an array that it may write, .*read-only"),
    "number-for-array": ((f32(1), Y, ONE, N), 0, "a pointer to 4 bytes, not float32"),
    "array-for-number": ((X, Y, X, N), 2, r"a float of 4 bytes, not float32\[32\]"),
    "double-number": ((X, Y, np.float64(1), N), 2, "a float of 4 bytes, not float64"),
    "long-number": ((X, Y, ONE, np.int64(1)), 3, "an integer of 4 bytes, not int64"),
    "short-number": ((X, Y, ONE, np.int16(1)), 3, "an integer of 4 bytes, not int16"),
    "integer-for-float": ((X, Y, N, N), 2, "a float of 4 bytes, not int32"),
    "float-for-integer": ((X, Y, ONE, ONE), 3, "an integer of 4 bytes, not float32"),
    "python-number": ((X, Y, 1.0, N), 2, r"a float of 4 bytes, not float 1\.0"),
}


@pytest.mark.parametrize(("args", "index", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_argument_is_named(
    module: EmuModule, args: tuple[Any, ...], index: int, message: str
) -> None:
    with pytest.raises(ParityBug, match=f"^kernel axpy, argument {index}: takes {message}"):
        launch(module, "axpy", *args)
    assert not Y.any(), "nothing ran"


@pytest.mark.parametrize("count", [0, 3, 5])
def test_wrong_number_of_arguments(module: EmuModule, count: int) -> None:
    args = (X, Y, f32(1), i32(1), i32(1))[:count]
    with pytest.raises(ParityBug, match=f"^kernel axpy takes 4 arguments, not {count}$"):
        launch(module, "axpy", *args)


def test_unknown_kernel(module: EmuModule) -> None:
    with pytest.raises(ParityBug, match=r"^no kernel 'axpby' in this module: axpy, widths"):
        launch(module, "axpby")


def test_unknown_schedule() -> None:
    with pytest.raises(ParityBug, match=r"^no schedule 'random': one of ascending, descending"):
        Schedule("random")  # type: ignore[arg-type]
    with pytest.raises(ParityBug, match="1 to 1024 threads, not 0"):
        Schedule("ascending", threads=0)


@pytest.mark.parametrize(
    ("grid", "block"),
    [((3,), (5,)), ((2, 3), (4, 2)), ((2, 1, 3), (3, 2, 4)), ((1, 1, 1), (32, 32))],
)
def test_indices(
    module: EmuModule, grid: tuple[int, ...], block: tuple[int, ...], schedule: Schedule
) -> None:
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    out = np.full(blocks * threads, -1, i32)
    module.launch("where", grid, block, (out,), schedule=schedule)
    assert out.tolist() == [100 * b + t for b in range(blocks) for t in range(threads)]


# --- stacks ---------------------------------------------------------------------------------------

MEETING = """
extern "C" __global__ void meet{0}(int* out) {{
  __syncthreads();
  out[threadIdx.x] = {0};
}}
"""


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def mapped_by_launches() -> int:
    """Mappings that launches of seven modules, 1,024 threads each, leave; launched twice."""
    texts = [{"meet.cu": MEETING.format(number)} for number in range(7)]
    modules = [EmuModule(build_module(text)) for text in texts]
    before, out = mappings(), np.zeros(1024, np.int32)
    for number in (*range(7), *range(7)):
        modules[number].launch(f"meet{number}", (1,), (1024,), (out,), schedule=ASCENDING)
        assert out.tolist() == [number] * 1024
    return mappings() - before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_only_some_modules_keep_their_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mappings a stack: those of four modules, until more of them may stay awake."""
    assert mapped_by_launches() <= 4 * 2 * 1024 + 64
    monkeypatch.setattr(launching, "MOST_AWAKE", 100)
    assert mapped_by_launches() >= 3 * 2 * 1024  # red: a process ends at some 65,000
