"""200 wrong orders, each one thing off: certify and noise together let none of them through."""

import itertools
from collections import Counter

import numpy as np
import pytest

from parity.errors import InputError
from parity.order.judge import judge
from parity.order.noise import BATCHES, PLAIN, ROWS, batches, twin_bits
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from tests.order.known_trees import LoopOp, ascending, chain
from tests.order.wrong_trees import WRONG, OrderOp, right_orders, wrong_orders

# Wrong in what an addition does: the tree is right, so the counts are.
MARKS = set(WRONG) - {"two leaves swapped", "a leaf moved", "split elsewhere"}
UNEXPLAINED = "tree, not explained"


def test_200_wrong_orders_are_rejected():
    rejected, by = [], Counter()
    for number, (what, name, right, wrong) in enumerate(wrong_orders(5)):
        assert right.digest() != wrong.digest()
        answer = judge(OrderOp(right), wrong, seed=number)
        assert not answer.green, (what, name, right.tree.n, right.text(), wrong.text())
        rejected.append(what)
        by[what in MARKS, answer.verdict] += 1
        if what in MARKS:  # the counts are those of the right tree: the noise has to tell
            assert answer.certify.contradicted == 0
            assert answer.noise.unlike > 0
            said = "1 products enter otherwise than in the order, first leaf "
            seen = [one for one in answer.contradicts if one.startswith(said)]
            assert len(seen) == (what == "one FMA flag")
        else:
            assert "counts contradict the tree: leaves" in answer.contradicts[0]
    assert len(rejected) == 200
    assert set(rejected) == set(WRONG)
    structure = sum(what not in MARKS for what in rejected)
    assert by == {(False, "no tree"): structure, (True, UNEXPLAINED): 200 - structure}


@pytest.mark.parametrize("n", [33, 64, 120])
@pytest.mark.parametrize("name", list(right_orders(40)))
def test_the_right_order_is_green(name, n):
    order = right_orders(n)[name]
    answer = judge(OrderOp(order), order, seed=n)
    assert (answer.verdict, answer.contradicts) == ("tree", ())
    assert (answer.certify.asked, answer.certify.contradicted) == (3 * n - 1, 0)
    assert (answer.noise.rows, answer.noise.unlike) == (1024, 0)


def test_squares_in_a_wrong_order_are_rejected():
    right = Order(Tree.of(chain(list(range(30)))), terms="squares", fma=frozenset(range(1, 30)))
    op = OrderOp(right)
    assert judge(op, right).green
    swapped = [5, *range(1, 5), 0, *range(6, 30)]
    wrong = Order(Tree.of(chain(swapped)), terms="squares", fma=frozenset(range(1, 30)))
    answer = judge(op, wrong)
    assert answer.verdict == "no tree"
    assert "by the tree, and" in answer.contradicts[0]
    flag = judge(op, Order(right.tree, terms="squares", fma=frozenset(range(2, 30))))
    assert flag.verdict == UNEXPLAINED
    assert flag.noise.unlike > 0


def test_an_order_of_other_sums_is_refused_in_one_line():
    op = LoopOp("ascending", ascending, 8)
    tree = Tree.of(chain(list(range(8))))
    for order, what in (
        (Order(Tree.of(chain(list(range(9))))), "n 8, the order 9"),
        (Order(tree, dtype="bf16"), "dtype f32, the order bf16"),
        (Order(tree, terms="values"), "terms products, the order values"),
    ):
        with pytest.raises(InputError) as caught:
            judge(op, order)
        assert caught.value.message == f"op ascending has {what}"


@pytest.mark.parametrize("terms", ["products", "values"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_every_batch_of_noise_rounds(dtype, terms):
    """Rows that cancel give 0 where magnitudes lie too close for a sum to round: they prove
    nothing."""
    order = Order(Tree.of(chain(list(range(64)))), terms, dtype, out="f32")
    op = OrderOp(order)
    for batch in itertools.islice(batches(op, order, np.random.default_rng(3)), BATCHES):
        cancelled = twin_bits(op, order, evaluate, batch)[: ROWS - ROWS // PLAIN]
        assert np.count_nonzero(cancelled) >= 4


def test_noise_that_cannot_tell_is_not_green():
    """An op that gives 0 wherever x is not constant, and a twin that gives 0: they agree."""
    tree = Tree.of(chain(list(range(12))))

    def zero(x, w):
        return ascending(x, w) if len(np.unique(x)) == 1 else np.zeros(len(w), np.float32)

    def blind(order, x, w):
        return np.zeros(len(w), np.float32)

    answer = judge(LoopOp("zero", zero, 12), Order(tree), evaluate=blind)
    assert answer.noise.unlike == 0
    assert answer.noise.blind
    assert answer.verdict == UNEXPLAINED
    said = ("no row of noise tells this order from one with two leaves swapped",)
    assert answer.contradicts == said
