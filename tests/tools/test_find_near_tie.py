"""The search for a near-tie seed: what it calls a flip, and what it calls graded."""

from __future__ import annotations

import pytest

from tests.tools import find_near_tie
from tests.tools.find_near_tie import Flips, graded

EARLY, LATE, LATER = (33, 1, 2), (40, 3, 4), (50, 5, 6)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"fast": EARLY, "a": LATE, "b": LATER, "exact": None}, True),
        ({"fast": LATE, "a": EARLY, "b": LATER, "exact": None}, False),
        ({"fast": EARLY, "a": EARLY, "b": LATER, "exact": None}, False),
        ({"fast": EARLY, "a": LATE, "b": None, "exact": None}, False),
        ({"fast": EARLY, "a": LATE, "b": LATER, "exact": (60, 7, 8)}, False),
    ],
)
def test_graded(found: Flips, wanted: bool) -> None:
    assert graded(found) is wanted


def test_one_line_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    find_near_tie.main(["--model", "moe-tiny", "--n", "12", "--seeds", "7:8"])
    (line,) = capsys.readouterr().out.splitlines()
    # The flip that parity ladder reports for the same run, at a tie that is near.
    assert line.startswith("seed 7     fast t42 180/464 gap 4.")
    assert line.endswith("exact+libm_exp none, exact+exp_via_double none, exact none")
