"""How far what differs moved, in the dump's own dtype, and what becomes of the greedy choice."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from parity.dump import Entry, TensorType
from parity.explain.margin import Risk, greedy_risk
from parity.keys import Key
from parity.protocol import Call, Step
from parity.runs.probe import Moved, Size
from parity_probes.isodiff import Isodiff
from parity_probes.moves import (
    Moves,
    calls_text,
    greedy_text,
    key_size,
    logits_size,
    move_facts,
    size_text,
    tensor_size,
)
from tests.probes.asking import ask_for, run_probe
from tests.red import row_faults

F = np.float32
KEY = Key(3, None, "logits")


def row(*values: float) -> np.ndarray:
    return np.array(values, F)


def step(logits: np.ndarray, dtype: str = "f32") -> Step:
    """A step whose dump has its logits in ``dtype``."""
    return Step(logits, [Entry(KEY, 1, TensorType(dtype, logits.shape))])


def bf16(*bits: int) -> np.ndarray:
    """float32 widened from bit patterns of bf16."""
    return (np.array(bits, np.uint32) << np.uint32(16)).view(F)


# --- the greedy choice ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "dut", "risk", "gap", "largest"),
    [
        (row(1, 3, 2), row(1, 2, 3), Risk.FLIPPED, 1, 1),
        (row(1, 3, 2), row(1.5, 3, 2), Risk.AT_RISK, 1, 0.5),  # exactly twice the move
        (row(1, 3, 2), row(1.25, 3, 2), Risk.SAFE, 1, 0.25),
        (row(1, 3, 3), row(1, 3, 3.5), Risk.FLIPPED, 0, 0.5),
        (row(1, 3, 3), row(1.25, 3, 3), Risk.AT_RISK, 0, 0.25),
        (row(1, 3, 3), row(1, 3, 3), Risk.SAFE, 0, 0),  # nothing moved: nothing can flip
        (row(-0.0, 0.0), row(0.0, -0.0), Risk.SAFE, 0, 0),
    ],
)
def test_greedy_risk(
    ref: np.ndarray, dut: np.ndarray, risk: Risk, gap: float, largest: float
) -> None:
    found = greedy_risk(ref, dut)
    assert (found.risk, found.gap, found.largest) == (risk, gap, largest)


def test_padding_ids_never_win() -> None:
    ref, dut = row(1, 3, 9), row(1, 3, 8)
    assert greedy_risk(ref, dut, 2).risk is Risk.SAFE
    assert greedy_risk(ref, dut).ref == 2


def test_what_is_not_finite_is_no_safe_choice() -> None:
    found = greedy_risk(row(1, 3, 2), row(1, 3, math.nan))
    assert found.risk is Risk.FLIPPED  # the first NaN's id
    assert math.isnan(found.gap)
    assert found.closeness == 0
    assert greedy_risk(row(1, math.inf), row(1, math.inf)).risk is Risk.AT_RISK


# --- sizes ----------------------------------------------------------------------------------------


def test_logits_of_bf16_are_measured_in_bf16() -> None:
    ref, dut = bf16(0x3F80, 0x4000, 0xBF80), bf16(0x3F82, 0x4000, 0xBF81)
    assert logits_size(step(ref, "bf16"), step(dut, "bf16")) == Size(
        "logits", "bf16", 2, 3, 2, 0.015625
    )
    assert logits_size(step(ref), step(dut)) == Size("logits", "f32", 2, 3, 2 << 16, 0.015625)


def test_logits_of_f16_are_measured_in_f16() -> None:
    ref = np.array([1, 2], np.float16)
    dut = np.nextafter(ref, np.float16(9))
    found = logits_size(step(ref.astype(F), "f16"), step(dut.astype(F), "f16"))
    assert (found.dtype, found.differ, found.ulp) == ("f16", 2, 1)


def test_logits_that_no_narrower_format_holds_are_measured_in_f32() -> None:
    ref, dut = row(1, 2), row(1, 2.0000002)
    for dtype in ("bf16", "f16"):
        assert logits_size(step(ref, dtype), step(dut, dtype)).dtype == "f32"


def test_infinity_has_no_largest_move() -> None:
    found = tensor_size("x", row(1, math.inf, math.inf), row(2, math.inf, 1))
    assert found is not None
    assert (found.differ, found.largest) == (2, None)


def test_other_shapes_and_dtypes_have_no_size() -> None:
    assert tensor_size("x", row(1, 2), row(1)) is None
    assert tensor_size("x", row(1), np.array([1], np.int32)) is None


def test_sizes_of_a_key_need_it_on_both_sides() -> None:
    key = Key(3, 0, "k")
    kept = [Step(row(0), tensors={key: np.array([value], np.int8)}) for value in (3, 5)]
    found = key_size("t3_l0_k", kept[:1], kept[1:])
    assert found == Size("t3_l0_k", "int8", 1, 1, 2, 2.0)
    assert key_size("t3_l0_k", kept[:1], []) is None
    told = size_text(Moved(found, None, 1, 0, 0))
    assert told == "t3_l0_k: 1 of 1 differ, by up to 2 step of int8 and 2"


def test_calls_are_told_where_they_are_not_the_same() -> None:
    key = Key(3, 0, "k")
    one, other = (Step(row(0), calls={key: (Call(op), Call("rope"))}) for op in ("gemv", "gemm"))
    assert calls_text("t3_l0_k", [one], [other]) == "ref gemv, rope; dut gemm, rope"
    assert calls_text("t3_l0_k", [one], [one]) == ""
    assert calls_text("t3_l0_k", [one], [Step(row(0))]) == ""


# --- rows of logits together ----------------------------------------------------------------------


def told(*pairs: tuple[np.ndarray, np.ndarray]) -> Moved:
    moves = Moves()
    for at, (ref, dut) in enumerate(pairs):
        moves.add(f"t{at}", step(ref), step(dut))
    return moves.told(None)


def test_the_row_nearest_a_flip_is_named() -> None:
    same, safe = (row(1, 3), row(1, 3)), (row(1, 3), row(1.25, 3))
    near, flip = (row(1, 3), row(2, 3)), (row(1, 3), row(3.5, 3))
    assert greedy_text(told(same)) == "safe: no logits differ in 1 rows"
    text = "safe in 2 of 2 rows; closest at t1: 1 leads by 2, logits moved by up to 0.25"
    assert greedy_text(told(same, safe)) == text
    text = "at risk in 1 of 2 rows; closest at t1: 1 leads by 2, logits moved by up to 1"
    assert greedy_text(told(safe, near)) == text
    text = "flipped in 1 of 3 rows, at risk in 1 of 3 rows; closest at t2: 1 led by 2, logits "
    assert greedy_text(told(safe, near, flip)) == f"{text}moved by up to 2.5, now 0"


def test_nothing_measured_has_no_facts() -> None:
    assert move_facts(None) == []
    assert [label for label, _ in move_facts(told((row(1, 3), row(1, 3))))] == ["greedy"]


# --- in isodiff -----------------------------------------------------------------------------------


def ulp_of(lines: Sequence[str]) -> int:
    """The largest distance that the published lines tell, of each row's first element."""
    return max(int(line.split("ulp=")[1]) for line in lines if "ulp=" in line)


@pytest.mark.parametrize("fault", ["key_too_few", "split_by_rows"])
def test_red_isodiff_of_a_contract_engine_tells_how_far(fault: str) -> None:
    ask = ask_for("dense-tiny", (6,), (3,))
    found = run_probe(Isodiff, row_faults.OnCpu, ask, options={"fault": fault})
    moved, facts = found.moved, dict(found.facts)
    assert moved is not None
    assert moved.first is not None
    assert moved.logits is not None
    assert moved.first.what == found.first
    assert 0 < moved.first.differ <= moved.first.total
    assert (moved.logits.dtype, moved.rows) == ("f32", 6)
    assert moved.logits.ulp is not None
    assert moved.logits.ulp >= ulp_of(found.lines)
    assert facts["size"] == size_text(moved)
    assert facts["greedy"] == greedy_text(moved)
    flips = sum(
        line.split("top1=")[1].split()[0] != line.split("[ISODIFF]")[0].split()[-1]
        for line in found.lines
    )
    assert moved.flipped == flips
