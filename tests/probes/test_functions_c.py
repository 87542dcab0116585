"""The platform's C library and symbols of a user's libraries, called from compiled loops."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from parity.elementary.functions import FUNCTIONS, open_implementation
from parity.errors import InputError, NotRunError
from parity_cpu import c_library
from parity_cpu.c_functions import CALLS
from parity_cpu.functions import WORTHWHILE, ExpViaDouble
from tests.cli_runner import run_cli

Floats = npt.NDArray[np.float32]
F = np.float32
SEED = 20_261_202

MINE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
float twice(float x) { return x + x; }
float bits(float x) {
  unsigned u;
  memcpy(&u, &x, 4);
  u ^= 1u;
  memcpy(&x, &u, 4);
  return x;
}
int data = 7;
static float *volatile nowhere = 0;
float crash(float x) { return *nowhere + x; }
float crash_at_nan(float x) { return x != x ? *nowhere : x; }
float aborts(float x) { abort(); }
float leaves(float x) { _exit(0); }
float hangs(float x) { for (;;) pause(); }
"""

DIES = """
__attribute__((constructor)) static void start(void) { __builtin_trap(); }
extern "C" float f(float x) { return x; }
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library of the user's."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None, "scripts/setup.sh asks for a C++ compiler"
    folder = tmp_path_factory.mktemp("library")
    for name, text in {"mine": f'extern "C" {{{MINE}}}', "dies": DIES}.items():
        (folder / f"{name}.cc").write_text(text)
        command = [compiler, "-O1", "-w", "-shared", "-fPIC", f"{name}.cc", "-o", f"lib{name}.so"]
        subprocess.run(command, cwd=folder, check=True)
    return folder / "libmine.so"


def scalar(symbol: str) -> Callable[[np.float32], np.float32]:
    """One C function by ctypes, call by call."""
    function: Any = getattr(c_library.c_library(), symbol)
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return lambda x: F(function(float(x)))


def composed(function: str) -> Callable[[np.float32], np.float32]:
    """What contract 1.1 and 1.9 make of the C library's functions, in NumPy scalars."""
    expf, logf, sqrtf = scalar("expf"), scalar("logf"), scalar("sqrtf")

    def sigmoid(x: np.float32) -> np.float32:
        return F(F(1) / F(F(1) + expf(F(-x))))

    made: dict[str, Callable[[np.float32], np.float32]] = {
        "rsqrt": lambda x: F(F(1) / sqrtf(x)),
        "sigmoid": sigmoid,
        "silu": lambda x: F(x * sigmoid(x)),
        "softplus": lambda x: x if x > F(20) else logf(F(F(1) + expf(x))),
    }
    return made.get(function) or scalar(function)


def arguments() -> Floats:
    """Random bit patterns, common arguments, and the ends of softplus's two branches."""
    rng = np.random.default_rng(SEED)
    random = rng.integers(0, 2**32, 1_000, dtype=np.uint32).view(F)
    bound = np.array([20.0, np.nextafter(F(20), F(30)), -0.0, np.inf, -np.inf, 1e-45], F)
    return np.concatenate([random, rng.normal(0, 10, 1_000).astype(F), bound])


def differing(ref: Floats, dut: Floats) -> list[int]:
    """Indices of other bits; NaN against NaN is none: arithmetic may choose either's payload."""
    other = ref.view(np.uint32) != dut.view(np.uint32)
    return np.flatnonzero(other & ~(np.isnan(ref) & np.isnan(dut))).tolist()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_libm_is_what_ctypes_calls(function: str) -> None:
    x = arguments()
    one = composed(function)
    with np.errstate(all="ignore"):
        wanted = np.array([one(value) for value in x], F)
    assert differing(wanted, open_implementation("libm").evaluate(function, x)) == []


@pytest.mark.parametrize("function", CALLS)
def test_red_a_composition_with_another_order(function: str) -> None:
    """The compositions are told from their neighbours by the same arguments."""
    with np.errstate(all="ignore"):
        x = arguments()
        wrong = {
            "rsqrt": F(1.0) / np.sqrt(np.float64(x)),
            "sigmoid": 1.0 / (1.0 + np.exp(-np.float64(x))),
            "silu": x / (F(1) + open_implementation("libm").evaluate("expf", -x)),
            "softplus": np.log1p(np.exp(np.float64(x))),
        }[function].astype(F)
    assert len(differing(wrong, open_implementation("libm").evaluate(function, x))) > 20


@pytest.mark.parametrize("function", ExpViaDouble.functions)
def test_exp_via_double(function: str) -> None:
    exp: Any = c_library.c_library().exp
    exp.restype, exp.argtypes = ctypes.c_double, [ctypes.c_double]
    ucrt = open_implementation("ucrt")

    def expf(x: np.float32) -> np.float32:
        return F(exp(float(x)))

    def one(x: np.float32) -> np.float32:
        sigmoid = F(F(1) / F(F(1) + expf(F(-x))))
        if function == "softplus":
            return x if x > F(20) else ucrt.evaluate("logf", np.array([F(1) + expf(x)], F))[0]
        return {"expf": expf(x), "sigmoid": sigmoid, "silu": F(x * sigmoid)}[function]

    x = arguments()
    with np.errstate(all="ignore"):
        wanted = np.array([one(value) for value in x], F)
    opened = ExpViaDouble()
    assert differing(wanted, opened.evaluate(function, x)) == []
    wide = np.linspace(-800, 720, 999)
    assert opened.exp64(wide).tobytes() == np.array([exp(v) for v in wide]).tobytes()


def test_rsqrt_of_the_replica_is_the_contracts() -> None:
    x = np.abs(arguments())
    with np.errstate(all="ignore"):
        wanted = F(1) / np.sqrt(x)
    assert differing(wanted, open_implementation("ucrt").evaluate("rsqrt", x)) == []


@pytest.mark.parametrize("name", ["ucrt", "libm", "exp_via_double", "libm.so.6:expf"])
def test_threads_and_layouts_change_nothing(name: str) -> None:
    x = np.random.default_rng(SEED).normal(0, 30, 3 * WORTHWHILE + 5).astype(F)
    opened = open_implementation(name)
    whole = opened.evaluate("expf", x)
    parts = [opened.evaluate("expf", x[at : at + 999]) for at in range(0, x.size, 999)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert opened.evaluate("expf", x[::-2]).tobytes() == whole[::-2].tobytes()
    assert opened.evaluate("expf", x[:0]).shape == (0,)


def test_arguments_reach_c_bit_for_bit(mine: Path) -> None:
    bits = np.array([0x7FC12345, 0xFFC00001, 1, 0x80000000, 0x007FFFFE], np.uint32)
    opened = open_implementation(f"{mine}:bits")
    assert opened.evaluate("cosf", bits.view(F)).view(np.uint32).tolist() == (bits ^ 1).tolist()


def test_a_symbol_of_the_users(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent)
    x = np.array([1.5, -3.0], F)
    for spec in ("./libmine.so:twice", "libmine.so:twice", f"{mine}:twice"):
        opened = open_implementation(spec)
        assert opened.name == spec
        assert opened.functions == FUNCTIONS
        assert opened.describe()["library"] == f"user's symbol {spec}"
        assert opened.evaluate("silu", x).tolist() == [3.0, -6.0]


def test_a_library_by_the_loaders_name() -> None:
    x = arguments()
    found = open_implementation("libm.so.6:sinf").evaluate("expf", x)
    assert found.tobytes() == open_implementation("libm").evaluate("sinf", x).tobytes()


def test_red_symbols(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.so").write_text("not a library\n")
    for spec, said, step in (
        (f"{mine}:thrice", f"{mine} has no symbol 'thrice'", "see what it exports: nm -D"),
        ("./absent.so:expf", "./absent.so cannot be loaded: ", "name a shared library for this"),
        (f"{tmp_path}/empty.so:f", f"{tmp_path}/empty.so cannot be loaded: ", "name a shared"),
    ):
        with pytest.raises(InputError) as raised:
            open_implementation(spec)
        assert raised.value.message.startswith(f"implementation {spec}: {said}")
        assert raised.value.next_step.startswith(step)
        assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("data", "'data' is no function: no code stands there"),
        ("crash", "'crash' dies of SIGSEGV at 3f000000 (+5.00000000e-01)"),
        ("crash_at_nan", "'crash_at_nan' dies of SIGSEGV at 7fc00000 (NaN)"),
        ("aborts", "'aborts' dies of SIGABRT at 3f000000 (+5.00000000e-01)"),
        ("leaves", "'leaves' ends the process at 3f000000 (+5.00000000e-01)"),
        ("hangs", "'hangs' gives no result in 2 s at 3f000000 (+5.00000000e-01)"),
    ],
)
def test_red_a_symbol_that_would_end_parity(
    mine: Path, symbol: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_library, "TRIAL_S", 2)
    result = run_cli("mathfn", "expf", "--ref", "numpy", "--dut", f"{mine}:{symbol}", "--n", "100")
    assert result.status == 2
    first, step = result.stderr.splitlines()
    assert first == f"parity: implementation {mine}:{symbol}: {said}"
    assert step.startswith("  next: name a C function float f(float) that takes every float32")
    assert result.stdout == ""


def test_red_a_library_that_dies_when_loaded(mine: Path) -> None:
    library = mine.parent / "libdies.so"
    with pytest.raises(InputError) as raised:
        open_implementation(f"{library}:f")
    assert raised.value.message.startswith(f"implementation {library}:f: {library} dies of SIG")
    assert raised.value.message.endswith(" when it is loaded")


def test_red_no_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    c_library.c_library.cache_clear()
    monkeypatch.setattr(c_library, "NAMES", {})
    monkeypatch.setattr(c_library, "ELSEWHERE", ("libnone.so.9",))
    with pytest.raises(NotRunError, match=r"no C library found .* \(tried libnone\.so\.9\)"):
        open_implementation("libm")
    c_library.c_library.cache_clear()


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    described = open_implementation("libm").describe()
    name, number = described["library"].split()[:2]
    assert name == "glibc"
    assert float(number) > 2
    assert described["compiler"].startswith("Numba ")
    assert " with " in described["processor"]
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA")
    described = open_implementation("libm").describe()
    assert described["processor"].endswith("; GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA")


def test_red_fma_operands_in_another_order() -> None:
    """A disassembled vfmadd213 taken for a vfmadd231: more than 90 % of samples differ."""
    ucrt = open_implementation("ucrt")
    wrong = open_implementation("tests.red.function_faults:cosf_operands_231")
    for size in (10_000, 35):
        x = np.random.default_rng(SEED).uniform(-size, size, 100_000).astype(F)
        differ = ucrt.evaluate("cosf", x).view(np.uint32) != wrong.evaluate("cosf", x).view(
            np.uint32
        )
        assert np.mean(differ) > 0.9
