"""B03, ULP distances that overflow or lie: the reported pairs, in both orders of arguments."""

from __future__ import annotations

import numpy as np
import pytest

from parity.comparison.elements import compare_tensors

F32 = np.float32
MAX, INF, TINY = np.finfo(F32).max, F32(np.inf), F32(1.4e-45)
PAIRS = {
    "1 and the next above": (F32(1), np.nextafter(F32(1), INF), 1),
    "the smallest of either sign": (-TINY, TINY, 2),
    "zeros of either sign": (F32(0), -F32(0), None),
    "largest and infinity": (MAX, INF, 1),
    "2 and -2": (F32(2), F32(-2), 2147483648),
    "largest of either sign": (-MAX, MAX, 4278190078),
    "infinities": (-INF, INF, 4278190080),
    "NaN and 1": (F32(np.nan), F32(1), None),
    "NaN and infinity": (F32(np.nan), -INF, None),
}


@pytest.mark.parametrize("name", PAIRS)
def test_b03_distances_are_right_symmetric_and_never_wrapped(name: str) -> None:
    one, other, ulp = PAIRS[name]
    there = compare_tensors("t0_x", np.array([one]), np.array([other]))
    back = compare_tensors("t0_x", np.array([other]), np.array([one]))
    assert (there.differ, back.differ) == (1, 1)
    assert there.max_ulp == back.max_ulp == ulp
    signed = there.rows[0].ulp, back.rows[0].ulp
    assert signed == (None, None) if ulp is None else signed[0] == -(signed[1] or 0)
    assert there.unit == "ULP"
    kinds = {there.rows[0].kind, back.rows[0].kind}
    if "NaN" in name:
        assert kinds == {"NaN in ref", "NaN in dut"}
    elif ulp is None:
        assert kinds == {"zero sign"}


@pytest.mark.parametrize(("ref", "dut", "steps"), [(-128, 127, 255), (127, -128, -255), (0, 1, 1)])
def test_b03_integers_are_told_in_steps(ref: int, dut: int, steps: int) -> None:
    found = compare_tensors("t0_k", np.array([ref], np.int8), np.array([dut], np.int8))
    assert (found.unit, found.max_ulp, found.rows[0].ulp) == ("step", abs(steps), steps)
