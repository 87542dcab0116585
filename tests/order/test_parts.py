"""Pairs that share an x: every one is counted once, no sum is asked of another's x; few calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity.order.own import carried
from parity.order.own.asked import Asked
from parity.order.own.carried import CarriedOp
from parity.order.own.table import make_own
from parity.order.parts import Question, parts_of
from parity.order.reveal import reveal
from parity_cpu.sums import launch


def random_question(n: int, pairs: int, rng: np.random.Generator, *, pivot: bool) -> Question:
    left = np.full(pairs, rng.integers(n)) if pivot else rng.integers(n, size=pairs)
    right = (left + rng.integers(1, n, size=pairs)) % n
    ones = rng.permutation(n)[: int(rng.integers(2, n + 1))]
    return Question(left, right, ones)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("pivot", [True, False])
def test_every_one_of_a_pair_is_counted_once(pivot: bool, shared: bool) -> None:
    rng = np.random.default_rng(3)
    asked = [random_question(40, count, rng, pivot=pivot) for count in (1, 3, 5, 20, 39, 0)]
    counted = [np.zeros((len(one.left), 40), np.int64) for one in asked]
    for part in parts_of(asked, 40, shared=shared):
        whole = asked[part.question]
        assert part.left.tolist() == whole.left[part.pairs].tolist()
        assert part.right.tolist() == whole.right[part.pairs].tolist()
        counted[part.question][np.ix_(part.pairs, part.ones)] += 1
    for found, whole in zip(counted, asked, strict=True):
        for row, (left, right) in enumerate(zip(whole.left, whole.right, strict=True)):
            wanted = np.zeros(40, np.int64)
            wanted[whole.ones] = 1
            found[row, [left, right]] = wanted[[left, right]] = 0  # large numbers, whatever is said
            assert found[row].tolist() == wanted.tolist()


def signs(w: np.ndarray) -> np.ndarray:
    held: np.ndarray = (w == 0) | (np.abs(w) == 1)
    return held


def carried_op(calls: list[int], slots: int = 6) -> CarriedOp:
    """An exact sum whose weights hold -1, 0 and 1."""

    def carry(xs: np.ndarray, w: np.ndarray, places: np.ndarray) -> np.ndarray:
        assert signs(w).all()
        calls.append(len(places))
        terms = xs[:, None].astype(np.float64) * w[places]
        return terms.sum(axis=2).astype(np.float32)

    return CarriedOp("signs", 12, 2, slots, "products", carry, signs, (-1, 1), {})


def test_rows_that_share_a_call_keep_their_own_sums() -> None:
    rng, calls = np.random.default_rng(5), list[int]()
    op, x = carried_op(calls), np.ones(12, np.float32)
    w = rng.choice(np.float32([0, 0, 0, 1, 4, -64]), (300, 12))
    w[100:200] = w[:100]  # as the asker repeats rows
    assert op.run(x, w).tolist() == w.sum(axis=1).tolist()
    assert 25 <= len(calls) < 120  # 300 rows, 12 places a call; one x each would be 150 calls


def test_red_rows_whose_x_contradict_each_other_share_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried._Group, "takes", lambda self, x, asked: True)
    op, w = carried_op([]), np.zeros((2, 12), np.float32)
    w[0, 3], w[1, 3] = 4, 2
    assert op.run(np.ones(12, np.float32), w).tolist() != [4, 2]


def q4(launched: list[str]) -> Any:
    def counting(op: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
        launched.append(op)
        return launch(op, given)

    return make_own(Asked("cpu.q4_matvec", 256, 64, 1, frozenset()), counting)


def test_a_q4_matrix_is_asked_in_few_calls() -> None:
    """One x a probe was 3,000 calls here; the answer is the same."""
    launched: list[str] = []
    answer = reveal(q4(launched), seed=7)
    assert (answer.verdict, answer.certify.contradicted) == ("tree", 0)  # type: ignore[union-attr]
    assert answer.certify.asked == 3 * 256 - 1  # type: ignore[union-attr]
    assert len(launched) < 1000
    assert answer.probes > 4 * len(launched)


def test_red_an_x_of_another_probe_is_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried._Group, "takes", lambda self, x, asked: True)
    assert reveal(q4([]), seed=7).verdict == "no tree"
