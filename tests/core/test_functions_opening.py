"""Implementations of elementary functions by what the user types, and what may go wrong."""

from __future__ import annotations

import math
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from parity import registry
from parity.elementary.functions import (
    FUNCTIONS,
    implementation_names,
    open_implementation,
    require_function,
)
from parity.errors import InputError, NotRunError, ParityBug
from tests.red import function_faults

FAULTS = "tests.red.function_faults"
X = np.array([-1.5, -0.0, 0.0, 3.25], np.float32)


def test_installed_names() -> None:
    wanted = {"ucrt", "exp_via_double", "libm", "cuda", "cuda-fast", "ucrt@cuda", "numpy"}
    assert {*wanted, "exp_via_double@cuda", "correct"} <= set(implementation_names())
    assert "symbol" not in implementation_names()


@pytest.mark.parametrize("name", ["ucrt", "exp_via_double", "libm", "numpy", "correct"])
def test_each_says_what_decides_its_bits(name: str) -> None:
    opened = open_implementation(name)
    assert opened.name == name
    assert set(opened.functions) <= set(FUNCTIONS)
    described = opened.describe()
    assert "library" in described
    assert all(described.values())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ucrt_", "no implementation 'ucrt_'"),
        ("symbol", "implementation 'symbol' is no name, module:function or LIBRARY.so:SYMBOL"),
        ("./mine.py:expf", "implementation './mine.py:expf' is no name, module:function or"),
        ("no_such_module:f", "implementation no_such_module:f: no_such_module cannot be imported"),
        (f"{FAULTS}:exp", f"implementation {FAULTS}:exp: module {FAULTS} has no exp"),
        (f"{FAULTS}:NO_FUNCTION", f"implementation {FAULTS}:NO_FUNCTION is no function"),
    ],
)
def test_red_no_such_implementation(spec: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        open_implementation(spec)
    assert raised.value.message.startswith(said)
    assert "\n" not in raised.value.message
    assert raised.value.next_step


def test_near_names_are_offered() -> None:
    with pytest.raises(InputError) as raised:
        open_implementation("corect")
    assert raised.value.next_step.startswith("did you mean correct? installed: correct, cuda")
    with pytest.raises(InputError) as raised:
        open_implementation(f"{FAULTS}:exp")
    assert raised.value.next_step == f"did you mean {FAULTS}:expf?"
    for name in ("zzz", "symbl"):
        with pytest.raises(InputError) as raised:
            open_implementation(name)
        assert raised.value.message == f"no implementation {name!r}"
        assert raised.value.next_step == f"installed: {', '.join(implementation_names())}"


def test_red_function_not_offered() -> None:
    with pytest.raises(InputError) as raised:
        require_function(open_implementation("exp_via_double"), "cosf")
    assert raised.value.message == "implementation exp_via_double does not offer 'cosf'"
    assert raised.value.next_step == "it offers: expf, sigmoid, silu, softplus"


def test_working_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_in_folder.py").write_text("def f(x):\n    return x + x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    opened = open_implementation("mine_in_folder:f")
    assert opened.evaluate("expf", X).tolist() == (X * 2).tolist()
    assert opened.functions == FUNCTIONS


def test_red_a_module_that_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(4)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError) as raised:
        open_implementation("leaves_at_once:f")
    assert raised.value.message == (
        "implementation leaves_at_once:f: leaves_at_once cannot be imported: SystemExit: 4"
    )


@pytest.mark.parametrize("function", ["expf", "single"])
def test_arrays_and_single_numbers(function: str) -> None:
    opened = open_implementation(f"{FAULTS}:{function}")
    wanted = function_faults.expf(X)
    assert opened.evaluate("expf", X).tobytes() == wanted.tobytes()
    assert opened.evaluate("expf", X[::2]).tobytes() == wanted[::2].tobytes()
    assert opened.evaluate("expf", X[:0]).shape == (0,)
    how = {"expf": "a float32 array", "single": "one number at a time"}
    assert opened.describe()["called"] == how[function]


def test_arguments_reach_a_users_function_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        function_faults, "kept", lambda x: seen.append(x.copy()) or x, raising=False
    )
    bits = np.array([0x7FC12345, 0xFF800001, 1, 0x80000000], np.uint32)
    found = open_implementation(f"{FAULTS}:kept").evaluate("expf", bits.view(np.float32))
    assert seen[-1].view(np.uint32).tolist() == bits.tolist()
    assert found.view(np.uint32).tolist() == bits.tolist()


def test_a_result_is_a_copy() -> None:
    opened = open_implementation(f"{FAULTS}:same_array")
    first = opened.evaluate("expf", X)
    kept = first.tobytes()
    opened.evaluate("expf", X[::-1])
    assert first.tobytes() == kept


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("float64_array", "returned float64"),
        ("exact_double", "returned float64 at bfc00000 (-1.50000000e+00)"),
        ("one_short", "returned shape (3,) for (4,)"),
        ("raises_for_nan", "raised ArithmeticError: no NaN, please"),
        ("ends_the_program", "raised SystemExit: 5"),
        ("overflows", "raised OverflowError at 44318000 (+7.10000000e+02): math range error"),
        ("writes", "raised ValueError: assignment destination is read-only"),
    ],
)
def test_red_users_function(function: str, said: str) -> None:
    x = np.array([-1.5, 0.0, 3.25, np.nan], np.float32)
    if function == "overflows":
        x[1:] = 89.0, 710.0, 720.0
    with pytest.raises(InputError) as raised:
        open_implementation(f"{FAULTS}:{function}").evaluate("expf", x)
    assert raised.value.message == f"implementation {FAULTS}:{function} {said}"
    assert raised.value.next_step
    assert not np.isnan(X).any()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("always_raises", "raised KeyError: 'table'"),
        ("needs_three", "raised ValueError: three at least"),
    ],
)
def test_red_function_that_takes_neither(function: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        open_implementation(f"{FAULTS}:{function}")
    assert raised.value.message == f"implementation {FAULTS}:{function} {said}"


def test_python_floats_are_rounded_once_and_said_to_be() -> None:
    opened = open_implementation(f"{FAULTS}:float64_single")
    found = opened.evaluate("expf", X)
    wanted = [np.float32(math.exp(float(x))) for x in X]
    assert found.dtype == np.float32
    assert found.tobytes() == np.array(wanted).tobytes()
    assert opened.describe()["called"] == "one number at a time, rounded to float32"
    single = open_implementation(f"{FAULTS}:single")
    single.evaluate("expf", X)
    assert single.describe()["called"] == "one number at a time"


def test_red_entry_point_without_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("half", "builtins:object", registry.FUNCTION_GROUP)
    half = registry.Plugin("half", "unknown", point)
    monkeypatch.setattr(registry, "_scanned", lambda group, places: {"half": half})
    with pytest.raises(ParityBug, match="implementation half lacks name"):
        open_implementation("half")


def test_red_correct_without_gmpy2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gmpy2", None)
    with pytest.raises(NotRunError) as raised:
        open_implementation("correct")
    assert raised.value.message == "correct: gmpy2 is not installed"
    assert raised.value.next_step.startswith("pip install -e '.[mathfn]'")


@pytest.mark.parametrize("name", ["cuda", "cuda-fast", "ucrt@cuda", "exp_via_double@cuda"])
def test_red_device_functions_without_cupy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from parity_cuda import functions

    functions.open_backend.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NotRunError) as raised:
        open_implementation(name)
    assert raised.value.message == "cuda: CuPy is not installed"
    assert raised.value.next_step.endswith("the emulator has no device functions")
