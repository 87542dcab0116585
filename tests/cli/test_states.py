"""comparison/states.py: every kind of difference is found, where it was written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parity.comparison.states import compare_states, differing_weights
from parity.dump import TensorType
from parity.tree import StateDiff

State = dict[str, np.ndarray]


def state(rows: int = 4) -> State:
    """Two layers of int8 K and V rows with their scales, and the length."""
    made: State = {"lengths": np.array([rows], np.int32)}
    generator = np.random.default_rng(7)
    for layer in range(2):
        for field in ("k", "v"):
            made[f"l{layer}_{field}"] = generator.integers(-127, 127, (rows, 2, 8), np.int8)
            made[f"l{layer}_{field}s"] = generator.random((rows, 2), np.float32)
    return made


def compared(change: Callable[[State], object]) -> StateDiff:
    """A state against a copy with one change."""
    ref, dut = state(), state()
    change(dut)
    return compare_states("start", ref, dut)


def test_equal_states() -> None:
    diff = compare_states("end", state(), state())
    assert (diff.when, diff.equal, diff.first) == ("end", True, None)
    assert sum(part.rows for part in diff.parts) == 1 + 8 * 4


def test_same_nan_is_no_difference() -> None:
    ref, dut = state(), state()
    for side in (ref, dut):
        side["l0_ks"][1, 0] = np.float32(np.nan)
    assert compare_states("start", ref, dut).equal


def _one_ulp(made: State) -> None:
    made["l1_vs"][2, 1:].view(np.uint32)[0] += 1


def _negative_zero(made: State) -> None:
    made["l0_ks"][1, 0] = -0.0


def _swapped_rows(made: State) -> None:
    made["l0_k"][[1, 2]] = made["l0_k"][[2, 1]]


def _stale_row(made: State) -> None:
    made["l1_k"][3] = made["l1_k"][2]


def _longer(made: State) -> None:
    made["l0_v"] = np.concatenate([made["l0_v"], made["l0_v"][:1]])


def _shorter(made: State) -> None:
    made["l1_ks"] = made["l1_ks"][:2]


def _empty(made: State) -> None:
    made["l1_ks"] = made["l1_ks"][:0]


def _other_length(made: State) -> None:
    made["lengths"][0] += 1
    made["l0_k"][0, 0, 0] += 1


@pytest.mark.parametrize(
    ("change", "first", "part", "rows"),
    [
        (_one_ulp, "l1_vs row 2 (position 2)", "l1_vs", 1),
        (_swapped_rows, "l0_k row 1 (position 1)", "l0_k", 2),
        (_stale_row, "l1_k row 3 (position 3)", "l1_k", 1),
        (_longer, "l0_v row 4 (position 4)", "l0_v", 1),
        (_shorter, "l1_ks row 2 (position 2)", "l1_ks", 2),
        (_empty, "l1_ks row 0 (position 0)", "l1_ks", 4),
        (_other_length, "lengths", "lengths", 1),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else None,
)
def test_red_change(change: Callable[[State], object], first: str, part: str, rows: int) -> None:
    diff = compared(change)
    assert (diff.equal, diff.first) == (False, first)
    assert {found.name: found.differ for found in diff.parts}[part] == rows


def test_red_sign_of_zero() -> None:
    ref, dut = state(), state()
    ref["l0_ks"][1, 0] = 0.0
    _negative_zero(dut)
    assert compare_states("start", ref, dut).first == "l0_ks row 1 (position 1)"


@pytest.mark.parametrize(
    ("dtype", "shape", "note"),
    [
        (np.float64, (4, 2), "ref float32[4, 2], dut float64[4, 2]"),
        (np.uint32, (4, 2), "ref float32[4, 2], dut uint32[4, 2]"),
        (np.float32, (4, 1, 2), "ref float32[4, 2], dut float32[4, 1, 2]"),
        (np.float32, (8,), "ref float32[4, 2], dut float32[8]"),
        (np.float32, (), "ref float32[4, 2], dut float32[]"),
    ],
)
def test_red_other_dtype_or_shape(dtype: type, shape: tuple[int, ...], note: str) -> None:
    ref, dut = state(), state()
    values = ref["l0_ks"].view(dtype) if dtype is np.uint32 else ref["l0_ks"].astype(dtype)
    dut["l0_ks"] = values.reshape(shape) if shape else values.reshape(-1)[0].reshape(())
    diff = compare_states("start", ref, dut)
    part = next(part for part in diff.parts if part.name == "l0_ks")
    assert (part.differ, part.note) == (4, note)
    assert diff.first == "l0_ks row 0 (position 0)"


def test_red_part_on_one_side_only() -> None:
    for sides, role in (((state(), {}), "dut"), (({}, state()), "ref")):
        diff = compare_states("start", *sides)
        assert {part.note for part in diff.parts} == {f"missing in {role}"}
        assert diff.first == "lengths"
    ref, dut = state(), state()
    del dut["l1_v"]
    diff = compare_states("start", ref, dut)
    assert (diff.first, diff.equal) == ("l1_v row 0 (position 0)", False)


def test_first_is_what_was_written_first() -> None:
    """A position is written through all layers before the next one."""
    ref, dut = state(), state()
    dut["l0_k"][3, 0, 0] += 1
    dut["l1_k"][2, 0, 0] += 1
    assert compare_states("start", ref, dut).first == "l1_k row 2 (position 2)"
    dut["l0_v"][2, 0, 0] += 1
    assert compare_states("start", ref, dut).first == "l0_v row 2 (position 2)"


def test_no_rows_on_both_sides() -> None:
    assert compare_states("start", state(0), state(0)).equal


def test_single_value_without_rows() -> None:
    ref, dut = {"step": np.array(3, np.int32)}, {"step": np.array(3, np.int32)}
    assert compare_states("start", ref, dut).equal
    dut["step"] = np.array(4, np.int32)
    assert compare_states("start", ref, dut).first == "step"


# Weights.


F32 = TensorType("f32", (2, 2))


def test_equal_weights() -> None:
    assert differing_weights({"a": (F32, 1)}, {"a": (F32, 1)}) == []


@pytest.mark.parametrize(
    "dut",
    [
        {"a": (F32, 1), "b": (F32, 3)},
        {"a": (F32, 1), "b": (TensorType("f32", (4,)), 2)},
        {"a": (F32, 1), "b": (TensorType("f16", (2, 2)), 2)},
        {"a": (F32, 1)},
    ],
    ids=["digest", "shape", "dtype", "missing"],
)
def test_red_other_weights(dut: dict[str, tuple[TensorType, int]]) -> None:
    ref = {"a": (F32, 1), "b": (F32, 2)}
    assert differing_weights(ref, dut) == ["b"]
    assert differing_weights(dut, ref) == ["b"]
