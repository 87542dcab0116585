"""elementary.cuh on the emulated device: the golden results, and the Numba twin's, bit for bit."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from parity_cpu.ops import elementary, elementary_tables
from parity_cpu.ops.elementary import ELEMENTARY, map_elementary
from parity_cuda.emu import EmuModule, Schedule, build_module
from tests.engines.header_digest import planted

GOLDEN = Path(__file__).parents[2] / "golden"
KERNELS = Path(__file__).parents[3] / "engines" / "parity_cuda" / "kernels"
TWIN = Path(elementary.__file__)
FILES = ("elementary.cuh", "elementary_tables.cuh", "map_elements.cuh", "map_elementary.cu")
ROUTINES = ("expf", "cosf", "sinf", "logf")
EVERY_FLOAT = 1 << 32
SEED = 20_261_129

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint32]


def sources() -> dict[str, str]:
    return {name: (KERNELS / name).read_text(encoding="utf-8") for name in FILES}


def build(texts: dict[str, str]) -> EmuModule:
    return EmuModule(build_module(texts))


@pytest.fixture(scope="module")
def module() -> Iterator[EmuModule]:
    return build(sources())


def bits_by_emu(
    module: EmuModule, name: str, x: Bits, order: str = "ascending", grid: int = 64, block: int = 64
) -> Bits:
    """Result bits of the device twin for argument bits x."""
    arguments = np.ascontiguousarray(x).view(np.float32)
    out = np.full(arguments.shape, np.float32(12345.0))
    module.launch(
        f"map_{name}",
        (grid,),
        (block,),
        (out, arguments, np.int64(arguments.size)),
        schedule=Schedule(order=order, seed=SEED),
    )
    return out.view(np.uint32)


def bits_by_numba(name: str, x: Bits) -> Bits:
    """Result bits of the Numba twin for argument bits x."""
    arguments = np.ascontiguousarray(x).view(np.float32)
    out = np.full(arguments.shape, np.float32(54321.0))
    map_elementary(name)(out, arguments)
    return out.view(np.uint32)


def golden(name: str) -> tuple[Bits, Bits]:
    with np.load(GOLDEN / f"ucrt_{name}.npz") as data:
        return data["x"], data["y"]


def words(values: Any) -> list[str]:
    return [f"{int(value):08x}" for value in values]


def is_nan(bits: Bits) -> npt.NDArray[np.bool_]:
    return (bits & 0x7FFFFFFF) > 0x7F800000


def twins_differ(name: str, ref: Bits, dut: Bits) -> npt.NDArray[np.bool_]:
    """Where the twins' bits differ. silu of a NaN multiplies two NaNs, and which payload that
    keeps is not defined (contract 1.10): there two NaNs are no difference, nowhere else."""
    differ = ref != dut
    return differ & ~(is_nan(ref) & is_nan(dut)) if name == "silu" else differ


# --- bits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUTINES)
def test_golden_points(module: EmuModule, name: str) -> None:
    x, y = golden(name)
    assert x.size == 200_000
    assert words(x[bits_by_emu(module, name, x) != y]) == []


@pytest.mark.parametrize("name", ELEMENTARY)
def test_random_bit_patterns(module: EmuModule, name: str) -> None:
    x = np.random.default_rng(SEED).integers(0, EVERY_FLOAT, 1 << 20, dtype=np.uint32)
    ref, dut = bits_by_numba(name, x), bits_by_emu(module, name, x)
    assert is_nan(x).sum() > 3_500
    assert words(x[twins_differ(name, ref, dut)]) == []


@pytest.mark.parametrize("name", ELEMENTARY)
def test_every_4099th_float(module: EmuModule, name: str) -> None:
    x = np.arange(0, EVERY_FLOAT, 4099).astype(np.uint32)
    ref, dut = bits_by_numba(name, x), bits_by_emu(module, name, x)
    assert words(x[twins_differ(name, ref, dut)]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ELEMENTARY)
def test_every_float(module: EmuModule, name: str) -> None:
    for start in range(0, EVERY_FLOAT, 1 << 24):
        x = np.arange(start, start + (1 << 24)).astype(np.uint32)
        ref, dut = bits_by_numba(name, x), bits_by_emu(module, name, x)
        assert words(x[twins_differ(name, ref, dut)][:10]) == []


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize(("grid", "block"), [(1, 1), (3, 33), (300, 32)])
def test_the_launch_cannot_change_a_bit(
    module: EmuModule, order: str, grid: int, block: int
) -> None:
    x = golden("cosf")[0][::50]
    assert (
        words(x[bits_by_emu(module, "cosf", x, order, grid, block) != bits_by_numba("cosf", x)])
        == []
    )


def test_nothing_is_written_past_the_end(module: EmuModule) -> None:
    row = np.zeros(100, np.float32)
    guarded = np.full(104, np.float32(-7.0))
    module.launch(
        "map_expf", (2,), (64,), (guarded, row, np.int64(100)), schedule=Schedule(order="ascending")
    )
    assert guarded.tolist() == [1.0] * 100 + [-7.0] * 4


# --- planted faults -----------------------------------------------------------------------------

PLANTED = [
    ("expf", "__fma_rn(-n, ucrt_f64(UCRT_EXP_STEP), wide)",
     "__dsub_rn(wide, __dmul_rn(n, ucrt_f64(UCRT_EXP_STEP)))", ["c2890f89"]),
    ("expf", "__fma_rn(q, e2, e2)",
     "__dmul_rn(e2, __dadd_rn(1.0, q))", ["be3510e2"]),
    ("cosf", "r = huge_angle_cos(f0, f1);",
     "r = __dmul_rn(f0, ucrt_f64(UCRT_PIO2));", ["73daadec", "f3daadec"]),
    ("sinf", "if (ax < UCRT_TRIG_ONE_TERM) return x;", "", ["80000000"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "fault", "points"), PLANTED)
def test_red_planted_fault(name: str, text: str, fault: str, points: list[str]) -> None:
    faulty = build(planted(sources(), text, fault))
    x, y = golden(name)
    assert words(x[bits_by_emu(faulty, name, x) != y]) == points


# --- cosine and sine together (cos_sin.cuh) -------------------------------------------------------

TOGETHER = """
#include "cos_sin.cuh"
#include "map_elements.cuh"

__device__ float cosine(float x) { return ucrt_cos_sin(x).c; }
__device__ float sine(float x) { return ucrt_cos_sin(x).s; }

extern "C" __global__ void map_cosf(float* out, const float* x, long long n) {
  map_elements<cosine>(out, x, n);
}

extern "C" __global__ void map_sinf(float* out, const float* x, long long n) {
  map_elements<sine>(out, x, n);
}
"""


def together() -> dict[str, str]:
    names = (*FILES[:-1], "variants.cuh", "cos_sin.cuh")
    texts = {name: (KERNELS / name).read_text(encoding="utf-8") for name in names}
    return {**texts, "together.cu": TOGETHER}


@pytest.fixture(scope="module")
def pair() -> EmuModule:
    return build(together())


@pytest.mark.parametrize("name", ["cosf", "sinf"])
def test_together_they_have_the_bits_of_each(pair: EmuModule, name: str) -> None:
    edges = (0, 0x39000000, 0x3C000000, 0x3F490FDA, 0x4B800456, 0x4F490FDB, 0x7F800000)
    near = np.array([edge + by for edge in edges for by in range(-3, 4) if edge + by >= 0])
    x = np.concatenate([golden(name)[0], near, near | 1 << 31, np.arange(0, EVERY_FLOAT, 8209)])
    x = x.astype(np.uint32)
    assert words(x[bits_by_emu(pair, name, x) != bits_by_numba(name, x)]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cosf", "sinf"])
def test_together_every_float(pair: EmuModule, name: str) -> None:
    for start in range(0, EVERY_FLOAT, 1 << 24):
        x = np.arange(start, start + (1 << 24)).astype(np.uint32)
        assert words(x[bits_by_emu(pair, name, x) != bits_by_numba(name, x)][:10]) == []


TOGETHER_FAULTS = [
    ("sinf", "{__uint_as_float(UCRT_F_ONE), x}",
     "{__uint_as_float(UCRT_F_ONE), fabsf(x)}", ["80000000", "80000001"]),
    ("cosf", "if (ax >= UCRT_SIN_HUGE) return cos_sin_apart(x);", "", ["7f800000"]),
    ("sinf", "n = 0, r = a;", "n = 2, r = a;", ["3c000000", "3f490fda"]),
    ("cosf", "n = 0, r = a;", "n = 2, r = a;", ["3c000000", "3f490fda"]),
    ("sinf", "& 1) != (bits >> 31);\n  return {", "& 1) != 0u;\n  return {",
     ["bf490fdb", "c0490fdb"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "fault", "points"), TOGETHER_FAULTS)
def test_red_together(name: str, text: str, fault: str, points: list[str]) -> None:
    faulty = build(planted(together(), text, fault))
    x = np.array([int(point, 16) for point in (*points, "3a000000", "40000000")], np.uint32)
    assert words(x[bits_by_emu(faulty, name, x) != bits_by_numba(name, x)]) == points


# --- tables and steps ---------------------------------------------------------------------------

SCALAR = re.compile(r"^constexpr (unsigned(?: long long)?) UCRT_(\w+) = 0x([0-9a-f]+);", re.M)
TABLE = re.compile(
    r"^static __device__ const (unsigned(?: long long)?) UCRT_(\w+)\[(\d+)\] = \{([^}]*)\};", re.M
)
WIDTHS = {"unsigned": "uint32", "unsigned long long": "uint64"}


def device_tables(text: str) -> dict[str, tuple[str, list[int]]]:
    """Name to width and values of everything elementary_tables.cuh defines."""
    found = {name: (WIDTHS[kind], [int(word, 16)]) for kind, name, word in SCALAR.findall(text)}
    for kind, name, length, body in TABLE.findall(text):
        values = [int(word, 16) for word in re.findall(r"0x([0-9a-f]+)", body)]
        assert len(values) == int(length)
        found[name] = WIDTHS[kind], values
    assert len(found) == len(re.findall(r"\bUCRT_\w+(?:\[\d+\])? = ", text))
    return found


def reference_tables() -> dict[str, tuple[str, list[int]]]:
    """The same of elementary_tables.py, floats by their bits."""
    found = {}
    for name, value in vars(elementary_tables).items():
        if name.isupper() and not name.startswith("_"):
            values = np.atleast_1d(value)
            bits = values.view(f"uint{values.dtype.itemsize * 8}")
            found[name] = str(bits.dtype), [int(word) for word in bits]
    return found


def test_tables_of_both_twins_are_equal() -> None:
    ref, dut = reference_tables(), device_tables(sources()["elementary_tables.cuh"])
    assert len(ref) > 30
    assert dut == ref


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0x3ff02c9a3e778061", "0x3ff02c9a3e778060"),
        ("UCRT_C6 = 0xbf56c16c16c16c16", "UCRT_C6 = 0xbf56c16c16c16c17"),
        ("constexpr unsigned UCRT_F_TWO = 0x40000000;  // 2\n", ""),
    ],
)
def test_red_changed_table(text: str, fault: str) -> None:
    tables = sources()["elementary_tables.cuh"]
    assert tables.count(text) == 1
    assert device_tables(tables.replace(text, fault)) != reference_tables()


def steps(text: str, function: str, mark: str) -> dict[str, list[str]]:
    """Function name to its step comments, in order."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if head := re.match(function, line):
            name = head[1]
        elif (step := line.strip()).startswith(f"{mark} step "):
            found.setdefault(name, []).append(step.removeprefix(mark).strip())
    return found


def steps_of_both() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    ref = steps(TWIN.read_text(encoding="utf-8"), r"def (\w+)\(", "#")
    dut = steps(sources()["elementary.cuh"], r"__device__ __forceinline__ \w+ (\w+)\(", "//")
    return ref, dut


def test_both_twins_name_the_same_steps_in_the_same_order() -> None:
    ref, dut = steps_of_both()
    assert set(ref) >= {"ucrt_expf", "ucrt_cosf", "ucrt_sinf", "ucrt_logf", "sigmoid"}
    assert list(dut.items()) == list(ref.items())


# --- the real compiler --------------------------------------------------------------------------

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def ptx(folder: Path, *options: str) -> list[str]:
    """Instructions that nvcc makes of the kernels, comments and file names left out."""
    out = folder / "out.ptx"
    command = ["nvcc", "-arch=sm_90", "-ptx", *options, str(KERNELS / FILES[-1]), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [line for line in out.read_text().splitlines() if not line.startswith("//")]


@needs_nvcc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
def test_nvcc_accepts_the_kernels(tmp_path: Path, architecture: str) -> None:
    out = tmp_path / "out.cubin"
    command = ["nvcc", f"-arch={architecture}", "-cubin", "-fmad=false", str(KERNELS / FILES[-1])]
    done = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.stat().st_size > 0


@needs_nvcc
def test_no_option_can_contract(tmp_path: Path) -> None:
    ref = ptx(tmp_path, "-fmad=false")
    assert ptx(tmp_path, "-fmad=true") == ref
    assert any("fma.rn.f64" in line for line in ref)
    assert [line for line in ref if ".ftz" in line or ".approx" in line] == []
