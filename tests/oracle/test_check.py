"""The comparison itself turns red: dtype, shape, one bit, -0, NaN, inputs changed, no cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.oracle import check

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
A = np.array([[0.0, 1.5, -2.0]], F)
B = np.array([[0.0, 0.25, 2.0]], F)
SUM = (np.array([[0.0, 1.75, 0.0]], F),)


def _bits(array: Array, index: int, bits: int) -> Array:
    changed = array.copy()
    changed.view(np.uint32)[0, index] = bits
    return changed


def _run(change: Callable[[Array], Any]) -> check.Runner:
    return lambda op, args: (change(args[0] + args[1]),)


def _check(change: Callable[[Array], Any], name: str = "sums", ref: Array = SUM[0]) -> None:
    check.check_case("add", name, (A, B), (ref,), _run(change))


def test_equal_bytes_pass() -> None:
    """The unchanged sum is the same."""
    _check(lambda out: out)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "one unit in the last place",
            lambda out: _bits(out, 1, 0x3FE00001),
            r"\[0, 1\]: ref 3fe0",
        ),
        ("minus zero", lambda out: _bits(out, 2, 0x80000000), "dut 80000000"),
        ("NaN", lambda out: _bits(out, 0, 0x7FC00000), "1 of 3 differ"),
        ("another dtype", lambda out: out.astype(np.float64), "dut float64"),
        ("another shape", lambda out: out[0], r"dut float32\[3\]"),
        ("a list", lambda out: out.tolist(), "dut is a list"),
    ],
)
def test_differences_are_red(name: str, change: Callable[[Array], Any], message: str) -> None:
    """Each planted difference is reported with its place and both values."""
    with pytest.raises(check.OpMismatch, match=message):
        _check(change, name)


def test_nan_payloads_pass_only_under_the_label() -> None:
    """Both NaN with other bits: its own class, allowed in labelled cases alone."""
    ref = _bits(SUM[0], 0, 0x7FC00000)
    other = _run(lambda out: _bits(out, 0, 0xFFC00001))
    check.check_case("add", "non-finite: a NaN", (A, B), (ref,), other)
    with pytest.raises(check.OpMismatch, match=r"ref 7fc00000 \(nan\), dut ffc00001"):
        check.check_case("add", "a NaN", (A, B), (ref,), other)


def test_number_against_nan_is_red_under_the_label() -> None:
    """The leniency needs NaN on both sides, and covers nothing else."""
    ref = _bits(SUM[0], 0, 0x7FC00000)
    with pytest.raises(check.OpMismatch, match="1 of 3"):
        _check(lambda out: out, "non-finite: a number", ref)
    with pytest.raises(check.OpMismatch, match=r"first at \[0, 1\]"):
        _check(lambda out: _bits(_bits(out, 0, 0x7FC00001), 1, 0), "non-finite: other", ref)


def test_codes_of_a_nan_group_are_not_compared_but_its_neighbours_are() -> None:
    """1.10: a group with a NaN defines neither code nor scale; an infinite one has a scale."""
    x = np.array([[[np.nan, 1.0], [np.inf, 1.0], [2.0, 1.0]]], F)
    ref = check.oracle("quant8", (x,))
    codes, scale = (out.copy() for out in ref)
    codes[0, :2], scale[0, 0] = 99, 3.0
    name = "non-finite: groups"
    check.check_case("quant8", name, (x,), ref, lambda op, args: (codes, scale))
    scale[0, 1] = 3.0
    with pytest.raises(check.OpMismatch, match=r"output 1: 1 of 3 differ, first at \[0, 1\]"):
        check.check_case("quant8", name, (x,), ref, lambda op, args: (codes, scale))
    codes[0, 2, 1] += 1
    with pytest.raises(check.OpMismatch, match=r"output 0: 1 of 6 differ, first at \[0, 2, 1\]"):
        check.check_case("quant8", name, (x,), ref, lambda op, args: (codes, scale))


def test_changed_inputs_are_red() -> None:
    """A run that writes into its inputs is no twin, even if its output is right."""

    def run(op: str, args: tuple[Any, ...]) -> tuple[Array, ...]:
        out = args[0] + args[1]
        args[0][0, 0] = -0.0
        return (out,)

    with pytest.raises(check.OpMismatch, match="changed its inputs"):
        check.check_case("add", "sums", (A, B), SUM, run)
    assert A.view(np.uint32)[0, 0] == 0


def test_missing_output_is_red() -> None:
    """An op that returns fewer arrays than it should is not compared on the rest alone."""
    with pytest.raises(check.OpMismatch, match="2 outputs expected, the run gave 1"):
        check.check_op("quant8", lambda op, args: check.oracle(op, args)[:1])


def test_no_cases_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero cases compared is never a pass."""
    monkeypatch.setattr(check, "expected", lambda op: ())
    with pytest.raises(check.OpMismatch, match="no case was compared"):
        check.check_op("add", check.oracle)
