"""The greedy choice: ties, signed zeros, values that are not finite, padded ids (contract 7)."""

from __future__ import annotations

import numpy as np
import pytest

from parity.runs.run import greedy

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("logits", "choice"),
    [
        ([0.0, 1.0, 1.0], 1),
        ([2.0, 2.0, 2.0], 0),
        ([-0.0, 0.0], 0),
        ([0.0, -0.0], 0),
        ([-INF, -INF, -INF], 0),
        ([1.0, INF, INF], 1),
        ([NAN, 1.0, 2.0], 0),
        ([1.0, NAN, 2.0], 1),
        ([NAN, NAN], 0),
    ],
    ids=str,
)
def test_lowest_id_among_the_maxima(logits: list[float], choice: int) -> None:
    assert greedy(np.array(logits, np.float32), 0) == choice
    assert greedy(np.array(logits, np.float32), len(logits)) == choice


@pytest.mark.parametrize(
    ("logits", "real_ids", "choice"),
    [
        ([0.0, 1.0, 9.0], 2, 1),
        ([1.0, 0.0, 9.0, INF], 2, 0),
        ([-INF, -INF, 9.0], 2, 0),
        ([1.0, 2.0, NAN], 2, 1),
        ([NAN, 2.0, 9.0], 2, 0),
        ([5.0, 9.0], 1, 0),
    ],
    ids=str,
)
def test_padded_ids_never_win(logits: list[float], real_ids: int, choice: int) -> None:
    row = np.array(logits, np.float32)
    assert greedy(row, real_ids) == choice
    assert greedy(row, 0) == int(np.argmax(row))


def test_red_the_last_of_the_maxima_is_another_choice() -> None:
    logits = np.array([0.0, 1.0, 1.0], np.float32)
    last = logits.size - 1 - int(np.argmax(logits[::-1]))
    assert last != greedy(logits, 0)
