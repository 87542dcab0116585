"""How an op is called: many small calls at once, many x beside one w. No answer may change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity.order.adapters.called import NUMPY, CalledOp, Floats, Library
from parity.order.bits import compare_bits
from parity.order.noise import PLAIN, noise_batch
from parity.order.reveal import reveal
from parity.order.sums import Ask, open_op
from parity.order.tree import Tree
from tests.order.hostile import EveryOtherCall
from tests.order.known_trees import LoopOp, ascending, contract_1_1, reversed_order, tree_of_1_1

N = 24
# Many calls at once, each given an array of its own.
LIBRARY = Library(lambda w, rows: [part.copy() for part in NUMPY.load(w, rows)], NUMPY.fetch)


def batched(M: int, other: int | None = None) -> CalledOp:
    """(5 rows, M): sums of products ascending; of batch row ``other`` from the end."""

    def call(x: Any, w: Floats) -> Floats:
        assert w.shape == (5, N)
        xs = np.broadcast_to(x, (M, N))
        ways = [reversed_order if m == other else ascending for m in range(M)]
        sums = np.stack([way(one, w) for way, one in zip(ways, xs, strict=True)], axis=1)
        return sums if M > 1 else sums[:, 0]

    return CalledOp("batched", N, 5, "products", "f32", "f32", call, {}, M)


@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize(("xs", "rows"), [(1, 1), (3, 5), (7, 12), (2, 10)])
def test_many_x_beside_one_w(M: int, xs: int, rows: int) -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((count, N)).astype(np.float32) for count in (xs, rows))
    found = batched(M).products(x, w)
    wanted = np.stack([ascending(one, w) for one in x], axis=1)
    assert found.shape == (rows, xs)
    assert found.tobytes() == wanted.tobytes()


def test_rows_of_noise_cancel_with_every_x() -> None:
    op = LoopOp("ascending", ascending, N)
    for threes in (False, True):
        batch = noise_batch(op, 1, 1.0, np.random.default_rng(2), 64, xs=6, threes=threes)
        assert batch.x is not None
        assert batch.x.shape == (6, N)
        assert len({x.tobytes() for x in batch.x}) == 6
        sums = batch.w.astype(np.float64) @ batch.x.T.astype(np.float64)
        assert not sums[: 64 - 64 // PLAIN].any()
        assert sums[64 - 64 // PLAIN :].all()


@pytest.mark.parametrize(("outputs", "compared"), [(None, 1_000_000), (12_345, 12_345)])
def test_as_many_outputs_as_asked_for_are_compared(outputs: int | None, compared: int) -> None:
    op = open_op(Ask("numpy.matmul", 64, 256), 8)
    found = compare_bits(op, op, (8, 8), same=True, outputs=outputs, seed=1)
    assert (found.outputs, found.unlike, found.agrees) == (compared, 0, True)


def test_a_batch_has_the_bits_of_its_rows() -> None:
    found = compare_bits(batched(1), batched(3), (1, 3), same=True, outputs=5_000, seed=1)
    assert (found.outputs, found.unlike, found.agrees) == (5_000, 0, True)


@pytest.mark.parametrize("other", [0, 2])
def test_red_one_row_of_the_batch_is_added_otherwise(other: int) -> None:
    found = compare_bits(batched(1), batched(3, other), (1, 3), same=True, outputs=3_000, seed=1)
    assert 800 < found.unlike <= 1_000  # a third of the outputs, nearly all of them
    assert found.example.startswith("M = 1: ")
    assert not found.agrees


def at_once(loop: Any, rows: int) -> CalledOp:
    """Values in calls of ``rows`` rows, thousands of calls at once."""

    def call(x: None, w: Floats) -> Floats:
        assert w.shape == (rows, N)
        sums: Floats = loop(np.ones(N, np.float32), w)
        return sums

    return CalledOp("many", N, rows, "values", "f32", "f32", call, {}, arrays=LIBRARY)


@pytest.mark.parametrize("rows", [1, 3])
def test_calls_at_once_are_calls_of_the_true_shape(rows: int) -> None:
    op = at_once(contract_1_1, rows)
    assert op.calls > 10_000
    answer = reveal(op)
    assert (answer.verdict, answer.contradicts) == ("tree", ())
    assert answer.order is not None
    assert answer.order.tree == Tree.of(tree_of_1_1(N))
    assert answer.calls >= answer.probes / rows


@pytest.mark.parametrize("rows", [1, 3])
def test_red_another_order_at_every_other_call_of_those_at_once(rows: int) -> None:
    answer = reveal(at_once(EveryOtherCall(), rows))
    assert answer.verdict == "no tree"
    assert answer.contradicts[0].startswith("leaf ")


def test_red_one_row_of_a_call_is_added_otherwise() -> None:
    """The last row of each of the calls at once; it is named by its number in the call."""

    def loop(x: Floats, w: Floats) -> Floats:
        found: Floats = ascending(x, w)
        found[-1] = reversed_order(x, w[-1:])[0]
        return found

    answer = reveal(at_once(loop, 3))
    assert answer.verdict == "no tree"
    assert answer.contradicts
