"""An element of any dtype is moved by the smallest step of its own format."""

import numpy as np
import pytest

from parity.comparison.elements import compare_tensors
from parity.inject import move_element

VALUES = (1.5, -0.75, 0.0, -0.0)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("value", VALUES)
def test_a_float_moves_one_ulp_away_from_zero(name: str, value: float) -> None:
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name) if name[0] == "b" else name)
    before = np.full(3, value, dtype)
    after = before.copy()
    move_element(after, 1)
    found = compare_tensors("x", before, after)
    assert (found.differ, found.max_ulp, found.places[0][0]) == (1, 1, 1)
    assert abs(float(after[1])) > abs(value)
    assert np.signbit(after[1]) == np.signbit(before[1])


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_largest_float_moves_towards_zero(name: str) -> None:
    largest = np.finfo(name).max
    array = np.array([-largest], name)
    move_element(array, 0)
    assert array[0] == np.nextafter(-largest, np.array(0, name))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (np.int8(5), 4),
        (np.int32(0), 1),
        (np.int64(-2), -1),
        (np.bool_(1), False),
        (np.bool_(0), True),
    ],
)
def test_integers_move_one_step_and_booleans_turn_over(before: np.generic, after: int) -> None:
    array = np.array([before])
    move_element(array, 0)
    assert array[0] == after
    assert array.dtype == before.dtype
