"""explain/margin.py: the gap at a greedy choice, what moved it, whether that explains the flip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.comparison.elements import compare_tensors
from parity.explain.margin import measure

F = np.float32


def logits(*values: float) -> np.ndarray:
    """A row of float32."""
    return np.array(values, F)


def moved(row: np.ndarray, **ulp: int) -> np.ndarray:
    """``row`` with element ``i3`` moved by that many bit patterns."""
    other = row.copy()
    for name, distance in ulp.items():
        other.view(np.int32)[int(name[1:])] += distance
    return other


REF = logits(1.0, 2.0, moved(logits(2.0), i0=-3)[0], -4.0, 0.5)


def test_near_tie_is_explained() -> None:
    """3 ULP apart; all moved by up to 2."""
    dut = moved(REF, i0=1, i1=-2, i2=2, i3=1)
    margin = measure(7, (1, 2), REF, dut)
    assert (margin.pos, margin.ref_id, margin.dut_id) == (7, 1, 2)
    assert (margin.gap, margin.ref_move, margin.dut_move) == (3, -2, 2)
    assert margin.largest == 2
    assert margin.explained
    assert margin.text == (
        "ref 1 over 2 by 3 ULP; the dut moved them by -2 and +2: explained, other logits moved by "
        "up to 2 ULP of that size"
    )


def test_two_logits_alone_that_moved_far_are_not_explained() -> None:
    dut = moved(REF, i0=1, i1=-400, i2=400)
    margin = measure(7, (1, 2), REF, dut)
    assert margin.gap == 3
    assert margin.largest == 0  # of the other logits, half an ULP rounds to even
    assert margin.explained == (3 <= 2 * 0.5)  # element 0 moved by half an ULP of 2.0
    assert margin.text.endswith("not explained, other logits moved by up to 0 ULP of that size")


def test_gap_that_the_others_just_close() -> None:
    """The rule's edge: a - b = 2 m."""
    ref, unit = logits(8.0, 8.0, 0.0), np.spacing(F(4.0))
    ref[1] -= 2 * unit
    for size, explained in ((unit, True), (np.nextafter(unit, F(0.0)), False)):
        dut = ref.copy()
        dut[0], dut[1], dut[2] = ref[1], ref[0], size
        assert measure(0, (0, 1), ref, dut).explained == explained


def test_size_counts_and_not_the_distance_of_a_logit_near_zero() -> None:
    ref = logits(8.0, 4.0, 0.0)
    dut = logits(4.0, 8.0, 1e-30)
    margin = measure(0, (0, 1), ref, dut)
    assert margin.gap == 1 << 23
    assert margin.largest == 0  # though 1e-30 is 20 times the gap from 0, in places
    assert not margin.explained


def test_equal_logits_are_a_tie_broken_otherwise() -> None:
    row = logits(3.0, 3.0, 1.0)
    margin = measure(4, (0, 1), row, row.copy())
    assert (margin.gap, margin.ref_move, margin.dut_move, margin.explained) == (0, 0, 0, False)
    assert margin.text.endswith("equal logits on both sides: the tie was broken in another way")


def test_tie_of_the_ref_that_the_dut_moved_apart_is_explained() -> None:
    row = logits(3.0, 3.0, 1.0)
    margin = measure(4, (0, 1), row, moved(row, i1=1))
    assert (margin.gap, margin.dut_move, margin.explained) == (0, 1, True)


def test_both_zeros_are_one_place() -> None:
    ref, dut = logits(0.0, -0.0, -1.0), logits(-0.0, 0.0, -1.0)
    margin = measure(1, (0, 1), ref, dut)
    assert (margin.gap, margin.ref_move, margin.dut_move, margin.largest) == (0, 0, 0, 0)
    assert not margin.explained


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_value_that_is_not_finite(bad: float) -> None:
    row = logits(1.0, 2.0)
    margin = measure(1, (1, 0), row, logits(bad, 2.0))
    assert (margin.gap, margin.largest, margin.explained) == (None, None, False)
    assert margin.text == "not measured: logits of dut are not finite"
    both = measure(1, (1, 0), logits(1.0, bad), logits(bad, 2.0))
    assert both.text == "not measured: logits of ref and dut are not finite"


def test_other_number_of_logits() -> None:
    margin = measure(1, (1, 0), logits(1.0, 2.0), logits(3.0, 2.0, 1.0))
    assert (margin.gap, margin.explained) == (None, False)
    assert margin.text == "not measured: the ref has 2 logits, the dut 3"


def test_other_tokens_explain_the_flip() -> None:
    dut = moved(REF, i1=-2, i2=2, i3=2)
    margin = measure(7, (1, 2), REF, dut, "other tokens were fed from t5 on")
    assert (margin.gap, margin.explained) == (3, False)
    assert margin.text.endswith(": other tokens were fed from t5 on")


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
def test_distances_are_those_of_elements(values: list[float]) -> None:
    ref, dut = logits(*values[:2]), logits(*values[2:])
    margin = measure(0, (0, 1), ref, dut)
    rows = {row.index[0]: row.ulp for row in compare_tensors("k", ref, dut).rows}
    assert margin.ref_move == (rows.get(0) or 0)
    assert margin.dut_move == (rows.get(1) or 0)
    gap = compare_tensors("k", ref[1:], ref[:1]).rows
    assert margin.gap == (gap[0].ulp or 0 if gap else 0)
