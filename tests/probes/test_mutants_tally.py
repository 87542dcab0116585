"""What mutation testing found unseen in the lists of the tally."""

from __future__ import annotations

import random

import numpy as np
import pytest

from parity.elementary.tally import KEEP, Row
from tests.probes.tally_oracle import words_of
from tests.probes.test_mathfn_tally import MINUS, ONE, TWO, counted


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_best_rows_whatever_their_order(order: str) -> None:
    """Distances that are equal stand by input, and so do rows without a distance."""
    pairs = [(x, ONE, TWO + x % 3) for x in range(3 * KEEP)]
    pairs += [(x, ONE, MINUS | TWO) for x in range(100, 100 + KEEP // 2)]
    if order != "ascending":
        pairs.reverse()
    if order == "shuffled":
        random.Random(5).shuffle(pairs)
    found = counted(pairs)
    assert np.flatnonzero(found.words != words_of(pairs)).tolist() == []
    assert found.rows("first") == [Row(x, ONE, TWO + x % 3) for x in range(KEEP)]


def test_a_row_that_comes_again_is_listed_once() -> None:
    pairs = [(x, ONE, TWO + x) for x in (5, 1, 3)]
    found = counted(pairs * 4)
    assert found.rows("first") == [Row(x, ONE, TWO + x) for x in (1, 3, 5)]
    assert found.rows("worst") == [Row(x, ONE, TWO + x) for x in (5, 3, 1)]


def test_the_same_input_at_two_distances_is_listed_twice() -> None:
    found = counted([(1, ONE, TWO), (1, ONE, TWO + 1)])
    assert found.rows("worst") == [Row(1, ONE, TWO + 1), Row(1, ONE, TWO)]
