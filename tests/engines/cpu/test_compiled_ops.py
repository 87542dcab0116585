"""The machine code of every reference op: nothing contracted, no stray float64, no thread count."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Callable, Collection, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import njit, prange
from numba.core.dispatcher import Dispatcher

import parity_cpu.ops
from parity.families import dumped_fields
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity.variants import TIERS
from parity_cpu import Engine
from tests.engines.cpu import compiled_code
from tests.engines.cuda import twin_cases
from tests.oracle import check
from tests.oracle.inputs import cases

OPS = Path(parity_cpu.ops.__file__).parent
NAMES = [found.name for found in pkgutil.iter_modules(parity_cpu.ops.__path__)]
ELEMENTARY = "elementary"  # test_elementary.py looks at it
# Functions in which contract 5 writes an fma or float64.
FMA_WRITTEN = {"elementary", "variants"}
# And functions of q4.py that the variant alone calls.
FUSED = {"q4_block_fused", "four_pairs_fused", "two_unpaired_fused", "four_fused"}
FUSED |= {"two_nibbles_fused"}
FLOAT64_WRITTEN = {"variants.inverse_root", "variants.any_expf"}
PARALLEL = {"attention_f32", "attention_int8", "expert_f32_matvec", "expert_matvec"}
PARALLEL |= {"delta_step", "f32_matvec", "q4_matvec"}

F = np.float32
needs_fma = pytest.mark.skipif(
    not compiled_code.host_has_fma(), reason="this processor has no fma instruction"
)
needs_two_threads = pytest.mark.skipif(
    numba.config.NUMBA_NUM_THREADS < 2, reason="Numba has one thread here"
)


def run_all_ops() -> None:
    """One step in each tier and storage, hashed: every op has run with its real types."""
    for tier, variants in TIERS.items():
        for name, weights in (
            ("moe-tiny", "q4"),
            ("moe-tiny", "f32"),
            ("hybrid-tiny", "q4"),
            ("next-tiny", "q4"),
        ):
            engine = Engine(EngineSettings(tier=tier, variants=variants))
            model = synthetic(name, 7, weights)
            engine.load(model, 2)
            engine.step(1, Plan(dumped_fields(model.config, ("ffn",))))


@pytest.fixture(scope="module")
def functions() -> Iterator[dict[str, Any]]:
    """``module.function`` to its compiled function, for all that the engine uses but elementary.

    The guards compile afresh; all three share one compilation here, or this file would take a
    minute.
    """
    run_all_ops()
    found = dict(compiled_functions())
    fresh = compiled_code._fresh
    once = cache(lambda function, signatures: fresh(function))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_code, "_fresh", lambda f: once(f, tuple(f.overloads)))
        _reach_called_functions(found.values())
        yield found


def _reach_called_functions(functions: Collection[Any]) -> None:
    """Code from the cache does not say what it calls: compile until no function comes new."""
    done: set[tuple[int, int]] = set()
    while reached := {(id(f), len(f.overloads)): f for f in functions if f.overloads}.keys() - done:
        for function in functions:
            if (id(function), len(function.overloads)) in reached:
                compiled_code.fast_math_lines(function)
        done |= reached


def compiled_functions() -> Iterator[tuple[str, Any]]:
    for name in NAMES:
        module = import_module(f"parity_cpu.ops.{name}")
        for attribute, value in vars(module).items():
            own = isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__
            if own and name != ELEMENTARY:
                yield f"{name}.{attribute}", value


def names_used(text: str) -> set[str]:
    """Every name that a source text reads."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def imported_ops(name: str) -> set[str]:
    """The op modules that a module's functions may call, itself included."""
    tree = ast.parse((OPS / f"{name}.py").read_text(encoding="utf-8"))
    found = {name}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parity_cpu.ops."):
            found |= imported_ops((node.module or "").rsplit(".", 1)[1])
    return found


def test_every_function_has_run(functions: dict[str, Any]) -> None:
    assert len(functions) > 40
    assert [name for name, function in functions.items() if not function.overloads] == []


def test_nothing_may_be_contracted_or_reordered(functions: dict[str, Any]) -> None:
    found = {name: compiled_code.fast_math_lines(f) for name, f in functions.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@needs_fma
def test_no_fma_where_none_is_written(functions: dict[str, Any]) -> None:
    plain = [name for name in NAMES if not imported_ops(name) & FMA_WRITTEN]
    assert set(plain) >= {"add", "combine", "digest", "embed_f32", "router_tree", "tree"}
    checked = {name: f for name, f in functions.items() if name.split(".")[0] in plain}
    found = {name: compiled_code.fma_instructions(f) for name, f in checked.items()}
    assert {name for name, lines in found.items() if lines} == {f"q4.{name}" for name in FUSED}


def test_fma_is_written_in_three_files_alone() -> None:
    """With nothing contracted, these are all there can be."""
    written = {
        name
        for name in NAMES
        if names_used((OPS / f"{name}.py").read_text(encoding="utf-8")) & {"fma32", "fma64"}
    }
    assert written == FMA_WRITTEN | {"q4"}


def test_no_stray_float64(functions: dict[str, Any]) -> None:
    found = {name: compiled_code.float64_values(f) for name, f in functions.items()}
    assert {name for name, values in found.items() if values} == FLOAT64_WRITTEN


# --- planted faults -------------------------------------------------------------------------------


def planted(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A reference op compiled with other options, and run."""
    dispatcher = njit(error_model="numpy", **options)(function)
    dispatcher(*args)
    return dispatcher


def sum_of_squares(out: Any, x: Any) -> None:
    """1.2's chain with an accumulator that Numba takes for float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j] * x[j]
    out[0] = total


@needs_fma
def test_red_op_with_fastmath() -> None:
    row = np.linspace(0, 1, 64, dtype=F)[None]
    add = import_module("parity_cpu.ops.add").add
    combine = import_module("parity_cpu.ops.combine").combine
    down, probs = np.ones((1, 2, 64), F), np.ones((1, 2), F)
    faulty = planted(combine.py_func, row.copy(), row, down, probs, 0, fastmath=True)
    assert compiled_code.fast_math_lines(faulty)
    assert compiled_code.fma_instructions(faulty)
    right = planted(combine.py_func, row.copy(), row, down, probs, 0)
    assert compiled_code.fast_math_lines(right) == []
    assert compiled_code.fma_instructions(right) == []
    assert compiled_code.fast_math_lines(planted(add.py_func, row.copy(), row, row)) == []


def test_red_float64_accumulator() -> None:
    found = compiled_code.float64_values(planted(sum_of_squares, np.zeros(1, F), np.ones(5, F)))
    assert any(value.startswith("total") for value in found), found


def test_red_fma_in_a_third_file() -> None:
    assert names_used("acc = fma32(w, x, acc)") & {"fma32", "fma64"}


# --- threads --------------------------------------------------------------------------------------


def with_threads(count: int, call: Callable[[], Any]) -> Any:
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        return call()
    finally:
        numba.set_num_threads(before)


def output(op_name: str, args: check.Args, specs: tuple[check.Spec, ...]) -> bytes:
    """Every byte that an op leaves: its outputs, and its inputs, which may be state."""
    given = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)
    arrays = (*twin_cases.numba_run(op_name, given, specs), *given)
    return b"".join(np.asarray(array).tobytes() for array in arrays)


def every_case(op_name: str) -> Iterator[tuple[check.Args, tuple[check.Spec, ...]]]:
    if op_name in twin_cases.TABLES:
        yield from ((args, specs) for _, specs, args in twin_cases.cases_of(op_name))
    else:
        yield from ((args, check.output_specs(op_name, args)) for _, args in cases(op_name))


def differing_cases(run: Callable[..., bytes], op_name: str) -> int:
    """How many cases of an op have other bytes with two threads than with one."""
    compared = 0
    differing = 0
    for args, specs in every_case(op_name):
        one, two = (with_threads(n, lambda: run(op_name, args, specs)) for n in (1, 2))  # noqa: B023
        differing += one != two
        compared += 1
    assert compared > 1
    return differing


def test_parallel_ops_are_known(functions: dict[str, Any]) -> None:
    parallel = {n.split(".")[1] for n, f in functions.items() if f.targetoptions.get("parallel")}
    assert parallel == PARALLEL


@needs_two_threads
@pytest.mark.parametrize("op", sorted(PARALLEL))
def test_two_threads_give_the_bits_of_one(op: str) -> None:
    assert differing_cases(output, op) == 0


@njit(parallel=True, error_model="numpy")
def split_sum(w: Any, x: Any) -> Any:
    """1.5 with its one chain shared out among the threads."""
    acc = F(0.0)
    for j in prange(x.shape[1]):
        acc += w[0, j] * x[0, j]
    return acc


@needs_two_threads
def test_red_a_chain_shared_out() -> None:
    def run(op_name: str, args: check.Args, specs: tuple[check.Spec, ...]) -> bytes:
        return np.array(split_sum(*args)).tobytes()

    assert differing_cases(run, "f32_matvec") > 0
