"""The greedy choice at a near-tie: how far apart the ref's two logits are, and what moved them.

A flip is *explained* when closing the gap takes no larger moves than other logits of the same row
made: with ``a`` and ``b`` the ref's logits of its own and of the dut's choice, and ``m`` the
largest absolute move of any other logit, when ``a - b <= 2 m`` (the one comes down by m, the other
goes up by m). Where only these two moved that far the flip is no near-tie: something is wrong with
them. The rule compares sizes, not ULP counts, since a logit near zero moves by many ULP for the
same size; the exact distances stand beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from parity.tree import Margin

Choices = tuple[int, int]  # ids that ref and dut chose


def measure(
    pos: int, choices: Choices, ref: np.ndarray, dut: np.ndarray, other_input: str = ""
) -> Margin:
    """The margin at ``pos``. ``ref``, ``dut``: logits float32[vocab]; ``other_input``: what else
    explains the flip, where both rows do not answer the same tokens."""
    problem = _unmeasurable(ref, dut)
    if problem:
        return Margin(pos, *choices, None, None, None, None, False, problem)
    places = _places(ref), _places(dut)
    moves = places[1] - places[0]
    gap = int(places[0][choices[0]] - places[0][choices[1]])
    ref_move, dut_move = (int(moves[choice]) for choice in choices)
    explained, why, largest = _judge(choices, ref, dut)
    if other_input:
        explained, why = False, other_input
    head = f"ref {choices[0]} over {choices[1]} by {gap:,} ULP"
    text = f"{head}; the dut moved them by {ref_move:+,} and {dut_move:+,}: {why}"
    return Margin(pos, *choices, gap, ref_move, dut_move, largest, explained, text)


class Risk(StrEnum):
    """What a difference of two rows of logits does to the greedy choice; the worst comes first."""

    FLIPPED = "flipped"
    AT_RISK = "at risk"
    SAFE = "safe"


@dataclass(frozen=True)
class Greedy:
    """The greedy choice of a row of logits that moved. ``gap``: from the ref's choice to its next
    best; ``largest``: the largest absolute move of any logit."""

    risk: Risk
    ref: int
    dut: int
    gap: float
    largest: float

    @property
    def closeness(self) -> float:
        """How near a flip is: the gap in largest moves, 0 for a tie or a flip."""
        if self.risk is Risk.FLIPPED or not self.gap > 0:  # a tie, or not measurable
            return 0.0
        return self.gap / self.largest if self.largest else math.inf


def greedy_risk(ref: np.ndarray, dut: np.ndarray, real_ids: int = 0) -> Greedy:
    """Whether the ref's choice stands in the dut. ``ref``, ``dut``: logits float32[vocab];
    ``real_ids``: ids from here on are padding, 0: none is.

    At risk: the gap is not larger than twice the largest move, so that moves of this size could
    close it (see above). A row that is not finite has no gap to speak of: at risk, gap NaN.
    """
    ref, dut = ref[: real_ids or None], dut[: real_ids or None]
    choices = int(np.argmax(ref)), int(np.argmax(dut))
    if _unmeasurable(ref, dut):
        risk = Risk.FLIPPED if choices[0] != choices[1] else Risk.AT_RISK
        return Greedy(risk, *choices, math.nan, math.nan)
    rest = np.delete(ref, choices[0])
    gap = float(ref[choices[0]]) - float(rest.max(initial=-math.inf))
    largest = float(np.abs(dut.astype(np.float64) - ref.astype(np.float64)).max())
    if choices[0] != choices[1]:
        risk = Risk.FLIPPED
    else:
        risk = Risk.AT_RISK if largest and gap <= 2 * largest else Risk.SAFE
    return Greedy(risk, *choices, gap, largest)


def _unmeasurable(ref: np.ndarray, dut: np.ndarray) -> str:
    if ref.shape != dut.shape:
        return f"not measured: the ref has {ref.size:,} logits, the dut {dut.size:,}"
    bad = [side for side, row in (("ref", ref), ("dut", dut)) if not np.isfinite(row).all()]
    return f"not measured: logits of {' and '.join(bad)} are not finite" if bad else ""


def _judge(choices: Choices, ref: np.ndarray, dut: np.ndarray) -> tuple[bool, str, int]:
    """Whether a near-tie explains the flip, why, and the largest move of another logit in ULP of
    the size of both: its own ULP count says nothing where it stands near zero."""
    a, b = (float(ref[choice]) for choice in choices)
    sizes = np.abs(dut.astype(np.float64) - ref.astype(np.float64))
    largest = np.delete(sizes, choices).max(initial=0.0)
    unit = math.ldexp(1.0, max(math.frexp(max(abs(a), abs(b)))[1] - 24, -149))
    steps = round(largest / unit)
    if a == b and not sizes[list(choices)].any():
        return False, "equal logits on both sides: the tie was broken in another way", steps
    moved = f"other logits moved by up to {steps:,} ULP of that size"
    if a - b <= 2 * largest:
        return True, f"explained, {moved}", steps
    return False, f"not explained, {moved}", steps


def _places(row: np.ndarray) -> np.ndarray:
    """Places of float32[n] on the line of all floats, int64[n]: +0 and -0 are both 0, neighbours 1
    apart, so that differences are the distances of parity.comparison.elements."""
    bits = row.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
