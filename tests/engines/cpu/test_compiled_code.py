"""The guards on compiled code, each turned red by the fault it exists for."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit, prange
from numba.core import config

from tests.engines.cpu.compiled_code import (
    FMA,
    fast_math_lines,
    float64_values,
    fma_instructions,
    host_has_fma,
)

needs_fma = pytest.mark.skipif(not host_has_fma(), reason="this processor has no fma instruction")

F = np.float32
ONE = F(1)
ROW = np.linspace(0, 1, 40, dtype=F)

IN_A_FILE = """
import numpy as np
from numba import njit

@njit(fastmath=True, cache=True)
def contracted(a, b, c):
    return a * b + c

@njit(cache=True)
def promoted(values):
    total = 0.0
    for value in values:
        total += value
    return np.float32(total)
"""


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def multiply_add_rows(out: Any, a: Any, b: Any) -> None:
    for i in prange(out.size):
        out[i] = a[i] * b[i] + out[i]


def clean_rows(out: Any, a: Any) -> None:
    for i in prange(out.size):
        total = F(0.0)
        for j in range(a.size):
            total = total + a[j] * F(0.5)
        out[i] = np.sqrt(total) + F(np.int32(i))


def zero_accumulator(a: Any) -> Any:
    total = 0.0
    for value in a:
        total += value
    return F(total)


def zero_accumulator_rows(out: Any, a: Any) -> None:
    for i in prange(out.size):
        total = 0.0
        for j in range(a.size):
            total += a[j]
        out[i] = total


def literal_factor(out: Any, a: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] * 0.5


def times_int32(out: Any, a: Any, n: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] * n


def float64_scratch(out: Any) -> None:
    scratch = np.zeros(4)
    out[0] = F(scratch[0])


def float64_pair(a: Any) -> Any:
    pair = (a, np.float64(a))
    return F(pair[0])


def run(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`function` compiled with `options` and called once."""
    dispatcher = njit(error_model="numpy", **options)(function)
    dispatcher(*args)
    return dispatcher


@needs_fma
@pytest.mark.parametrize("parallel", [False, True])
def test_red_fastmath(parallel: bool) -> None:
    if parallel:
        args: tuple[Any, ...] = (ROW.copy(), ROW, ROW)
        planted = run(multiply_add_rows, *args, fastmath=True, parallel=True)
        control = run(multiply_add_rows, *args, fastmath=False, parallel=True)
    else:
        planted = run(multiply_add, ONE, ONE, ONE, fastmath=True)
        control = run(multiply_add, ONE, ONE, ONE, fastmath=False)
    assert fma_instructions(planted)
    assert any("fmul" in line for line in fast_math_lines(planted))
    assert fma_instructions(control) == []
    assert fast_math_lines(control) == []


@pytest.mark.parametrize("flags", [{"contract"}, {"reassoc"}])
def test_red_single_flag(flags: set[str]) -> None:
    assert fast_math_lines(run(multiply_add, ONE, ONE, ONE, fastmath=flags))


@needs_fma
def test_red_fault_in_a_called_function() -> None:
    inner = njit(fastmath=True)(multiply_add)

    def outer(a: Any) -> Any:
        return inner(a, a, a)

    planted = run(outer, ONE)
    assert fma_instructions(planted)
    assert fast_math_lines(planted)


@pytest.mark.parametrize(
    ("function", "args", "parallel", "named"),
    [
        (zero_accumulator, (ROW,), False, "total: float64"),
        (zero_accumulator_rows, (ROW.copy(), ROW), True, "total: float64"),
        (literal_factor, (ROW.copy(), ROW), False, "float64"),
        (times_int32, (ROW.copy(), ROW, np.int32(3)), False, "float64"),
        (float64_scratch, (ROW.copy(),), False, "scratch: array(float64, 1d, C)"),
        (float64_pair, (ONE,), False, "pair: Tuple(float32, float64)"),
    ],
)
def test_red_float64(
    function: Callable[..., Any], args: tuple[Any, ...], parallel: bool, named: str
) -> None:
    found = float64_values(run(function, *args, parallel=parallel))
    assert any(named in value for value in found), found


def test_red_float64_result() -> None:
    found = float64_values(run(multiply_add, ONE, np.float64(1), ONE))
    assert "return: float64" in found


def test_clean_function() -> None:
    assert float64_values(run(clean_rows, ROW.copy(), ROW, parallel=True)) == []


def test_red_function_that_never_ran() -> None:
    unused = njit(multiply_add)
    for guard in (fma_instructions, fast_math_lines, float64_values):
        with pytest.raises(ValueError, match="multiply_add has not run"):
            guard(unused)


def load(path: Path) -> Any:
    """A fresh module object of one file, as a new process would have it."""
    spec = importlib.util.spec_from_file_location("planted_faults", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@needs_fma
def test_red_code_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached function has neither machine code nor types of its own: the guards compile it."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "planted_faults.py"
    path.write_text(IN_A_FILE)
    load(path).contracted(ONE, ONE, ONE)
    load(path).promoted(ROW)
    again = load(path)
    again.contracted(ONE, ONE, ONE)
    again.promoted(ROW)
    assert sum(again.contracted.stats.cache_hits.values()) == 1
    assert sum(again.promoted.stats.cache_hits.values()) == 1
    assert fma_instructions(again.contracted)
    assert fast_math_lines(again.contracted)
    assert any("total" in value for value in float64_values(again.promoted))


@pytest.mark.parametrize(
    ("line", "fused"),
    [
        ("vfmadd213ss %xmm2, %xmm1, %xmm0", True),
        ("vfnmadd231pd %zmm1, %zmm2, %zmm3", True),
        ("vfmsub132ps %ymm1, %ymm2, %ymm3", True),
        ("vfmaddsub213pd %ymm1, %ymm2, %ymm3", True),
        ("fmadd s0, s0, s1, s2", True),
        ("fnmsub d0, d0, d1, d2", True),
        ("fmla v0.4s, v1.4s, v2.4s", True),
        ("vmulss %xmm1, %xmm0, %xmm0", False),
        ("vaddss %xmm2, %xmm0, %xmm0", False),
        ("fmul s0, s0, s1", False),
    ],
)
def test_names_of_fused_instructions(line: str, fused: bool) -> None:
    assert bool(FMA.search(line)) == fused
