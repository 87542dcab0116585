"""Both sides' elementary functions on the same arguments: counted, named, the first difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.explain.attribution import attribute_birth, with_arguments
from parity.keys import Key
from parity.protocol import Call
from parity.tree import FunctionDiff

F = np.float32
KEY = Key(32, 0, "attn")


class Toy:
    """An engine that has functions and nothing else."""

    def __init__(self, capable: bool = True, **functions: Callable[[Any], Any]) -> None:
        self.capabilities = frozenset({"elementary"} if capable else ())
        self.functions = functions
        self.asked: list[tuple[str, int]] = []

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        self.asked.append((function, x.size))
        made = self.functions.get(function, lambda values: values + F(1.0))
        return np.asarray(made(x), F)


def floats(*values: float) -> np.ndarray:
    return np.array(values, F)


def diff(dut: Toy, *calls: Call, ref: Toy | None = None) -> list[FunctionDiff]:
    return attribute_birth(KEY, calls, ref or Toy(), dut)  # type: ignore[arg-type]


def up(steps: int, where: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """x + 1, moved by whole ULP where ``where`` says."""

    def call(x: np.ndarray) -> np.ndarray:
        values = x + F(1.0)
        moved = (values.view(np.uint32) + np.uint32(steps)).view(F)
        return np.where(where(x), moved, values)

    return call


def two_sizes(x: np.ndarray) -> np.ndarray:
    values = x + F(1.0)
    return (values.view(np.uint32) + np.array([0, 2, 9], np.uint32)).view(F)


def test_a_function_is_named_with_its_count_and_first_difference() -> None:
    call = Call("attention", (("expf", floats(1.0, 2.0, 3.0, 4.0)),))
    dut = Toy(expf=up(3, lambda x: x > 2.5))
    assert diff(dut, call) == [FunctionDiff("expf", 4, 2, "40400000", "40800000", "40800003", 3)]


def test_the_largest_distance_need_not_be_the_first() -> None:
    call = Call("attention", (("expf", floats(1.0, 2.0, 3.0)),))
    (found,) = diff(Toy(expf=two_sizes), call)
    assert (found.differ, found.first_input, found.max_ulp) == (2, "40000000", 9)


def test_calls_of_several_ops_follow_each_other() -> None:
    first = Call("headnorm", (("rsqrt", floats(1.0, 2.0)),))
    second = Call("rope", (("cosf", floats(5.0)), ("sinf", floats(5.0))))
    third = Call("headnorm", (("rsqrt", floats(3.0)),))
    dut = Toy(rsqrt=up(1, lambda x: x == 3.0), sinf=up(2, lambda x: x == 5.0))
    assert diff(dut, first, second, third) == [
        FunctionDiff("rsqrt", 3, 1, "40400000", "40800000", "40800001", 1),
        FunctionDiff("sinf", 1, 1, "40a00000", "40c00000", "40c00002", 2),
    ]
    assert dut.asked == [("rsqrt", 3), ("cosf", 1), ("sinf", 1)]


def test_functions_that_agree_are_left_out() -> None:
    call = Call("attention", (("expf", floats(1.0, 2.0)),))
    assert diff(Toy(), call) == []


def test_bits_decide() -> None:
    """-0 is not +0, and NaN of another payload is another value: neither has a distance."""
    call = Call("gate", (("sinf", floats(1.0)), ("expf", floats(1.0))))
    ref = Toy(sinf=lambda x: floats(0.0), expf=lambda x: np.array([0x7FC00000], np.uint32).view(F))
    dut = Toy(sinf=lambda x: floats(-0.0), expf=lambda x: np.array([0x7FFFFFFF], np.uint32).view(F))
    assert diff(dut, call, ref=ref) == [
        FunctionDiff("sinf", 1, 1, "3f800000", "00000000", "80000000", None),
        FunctionDiff("expf", 1, 1, "3f800000", "7fc00000", "7fffffff", None),
    ]
    same = lambda x: np.full(x.shape, np.nan, F)  # noqa: E731
    assert diff(Toy(expf=same), call, ref=Toy(expf=same)) == []


@pytest.mark.parametrize(("ref", "dut"), [(False, True), (True, False)])
def test_nobody_is_asked_where_a_side_has_no_functions(ref: bool, dut: bool) -> None:
    sides = Toy(ref), Toy(dut, expf=up(1, lambda x: x > 0.0))
    call = Call("attention", (("expf", floats(1.0)),))
    assert diff(sides[1], call, ref=sides[0]) == []
    assert sides[0].asked == sides[1].asked == []


def test_calls_without_arguments_name_nothing() -> None:
    dut = Toy(expf=up(1, lambda x: x > 0.0))
    assert diff(dut) == []
    assert diff(dut, Call("q4_matvec"), Call("attention", (("expf", floats()),))) == []


def test_arguments_are_the_refs_where_it_has_any() -> None:
    told, other, none = (
        (Call("norm", (("rsqrt", floats(1.0)),)),),
        (Call("norm", (("rsqrt", floats(2.0)),)),),
        (Call("norm"),),
    )
    assert with_arguments(told, other) is told
    assert with_arguments(none, other) is other
    assert with_arguments((), other) is other
    assert with_arguments(told, none) is told
