"""Sums of squares, by triples: of the sum itself, and of a norm that shows finite or not."""

from dataclasses import replace

import numpy as np
import pytest

from parity.errors import InputError
from parity.order.reveal import reveal
from parity.order.tree import Order, Tree
from tests.order.known_trees import (
    KNOWN,
    LoopOp,
    ascending,
    ascending_fma,
    chain,
    contract_1_1,
    lanes,
    reversed_order,
    tree_of_1_1,
    tree_of_fused,
)
from tests.order.slow_twin import narrowed

F32 = np.float32
# f64 tail and fused sums are no trees of f32 additions of two.
SQUARES = KNOWN[:7]


def found(op, **settings):
    with np.errstate(all="ignore"):
        return reveal(op, **settings)


class Norm(LoopOp):
    """RMSNorm as a user calls it: only 1/sqrt(mean + eps) is seen."""

    eps = F32(1e-6)

    def run(self, x, w):
        return self.finish(super().run(x, w))

    def finish(self, sums):
        return F32(1) / np.sqrt(sums / F32(self.n) + self.eps)

    def exceeds(self, w, big):
        mean = super().run(None, w) / F32(self.n)
        root = np.sqrt(mean + F32(-big / self.n))
        return np.isfinite(F32(1) / root)


@pytest.mark.parametrize("n", [9, 31, 64, 300])
@pytest.mark.parametrize("known", SQUARES, ids=[known.name for known in SQUARES])
def test_known_order_of_squares(known, n):
    answer = found(LoopOp(known.name, known.loop, n, terms="squares"))
    assert (answer.verdict, answer.contradicts) == ("tree", ())
    assert answer.order == replace(known.order(n), terms="squares")


FORMS = [("bf16", "bf16"), ("f32", "bf16"), ("f16", "f16")]


@pytest.mark.parametrize(("dtype", "out"), FORMS)
@pytest.mark.parametrize("n", [9, 64])
@pytest.mark.parametrize("known", [KNOWN[0], KNOWN[2]], ids=lambda known: known.name)
def test_a_narrow_output_shows_the_order_beside_a_tie(known, n, dtype, out):
    def loop(x, w):
        return narrowed(known.loop(x, w), out)

    answer = found(LoopOp(known.name, loop, n, terms="squares", dtype=dtype, out=out))
    assert (answer.verdict, answer.contradicts) == ("tree", ())
    assert answer.order == replace(known.order(n), terms="squares", dtype=dtype, out=out)


@pytest.mark.parametrize(("dtype", "out"), FORMS)
def test_red_a_narrow_output_of_another_order(dtype, out):
    """Masks show ascending, noise adds from the end: in half of the rows at a tie that is seen."""

    def loop(x, w):
        masked = (w == 0).sum(axis=1) > 20
        return narrowed(np.where(masked, ascending(x, w), reversed_order(x, w)), out)

    answer = found(LoopOp("other", loop, 40, terms="squares", dtype=dtype, out=out))
    assert (answer.verdict, answer.noise.blind) == ("tree, not explained", False)
    assert answer.noise.unlike > 200


def test_fma_of_squares_that_the_output_hides_is_told_by_noise():
    def loop(x, w):
        return narrowed(ascending_fma(x, w), "bf16")

    answer = found(LoopOp("fma", loop, 40, terms="squares", out="bf16"))
    assert answer.verdict == "tree"
    assert answer.order.fma == frozenset(range(1, 40))


@pytest.mark.parametrize("n", [8, 31, 100])
@pytest.mark.parametrize(("loop", "known"), [(contract_1_1, KNOWN[2]), (lanes, KNOWN[4])])
def test_a_norm_is_seen_through_its_eps(loop, known, n):
    answer = found(Norm("norm", loop, n, terms="squares"))
    assert (answer.verdict, answer.contradicts) == ("tree", ())
    assert answer.order == replace(known.order(n), terms="squares")


def test_a_norm_that_cannot_be_compared_is_refused_by_name():
    op = Norm("norm", contract_1_1, 16, terms="squares")
    op.__class__ = type("Hidden", (LoopOp,), {"run": Norm.run, "finish": Norm.finish, "eps": 0})
    with pytest.raises(InputError) as caught:
        found(op)
    assert caught.value.message == "op norm: its sums are not shown, and it has no exceeds()"


def test_a_fused_sum_of_squares_is_no_tree_of_two_term_additions():
    def loop(x, w):
        total = np.zeros(len(w))
        for b in range(0, len(x), 4):
            block = (w[:, b : b + 4].astype(np.float64) ** 2).sum(axis=1)
            total = (total + block).astype(F32).astype(np.float64)
        return total.astype(F32)

    answer = found(LoopOp("fused", loop, 24, terms="squares"))
    assert answer.verdict == "no tree"
    assert "three terms in one addition, or a sum wider than f32" in answer.contradicts[0]


def test_squares_in_f64_cannot_be_told():
    """In f64 a one beside 2^24 is never absorbed, so every pair seems to meet first."""

    def loop(x, w):
        s = np.zeros(len(w))
        for i in range(18, 24):
            s = s + w[:, i].astype(np.float64) ** 2
        return (s + ascending(x[:18], w[:, :18])).astype(F32)

    answer = found(LoopOp("tail", loop, 24, terms="squares"))
    assert answer.verdict == "no tree"
    assert "three terms in one addition, or a sum wider than f32" in answer.contradicts[0]


def test_squares_of_another_order_are_not_explained():
    class Other(Norm):
        """Its noise runs in another order than its triples."""

        def run(self, x, w):
            return self.finish(ascending(w.T, w))

    answer = found(Other("norm", contract_1_1, 40, terms="squares"))
    assert answer.verdict == "tree, not explained"
    assert answer.order.tree == Tree.of(tree_of_1_1(40))
    assert answer.noise.unlike > 100
    assert answer.noise.example.startswith("row ")


def test_order_of_two_squares_is_told():
    answer = found(LoopOp("two", ascending, 2, terms="squares"))
    assert answer.order == Order(Tree.of(chain([0, 1])), terms="squares")
    assert Tree.of(tree_of_fused(3)).children == ((0, 1, 2),)


def test_red_small_squares_in_another_order() -> None:
    """Noise lies at several sizes: an op that looks at them is not explained."""

    def loop(x, w):
        small = (np.abs(w) < F32(2**-3)).all(axis=1)
        return np.where(small, contract_1_1(x, w), ascending(x, w))

    answer = found(LoopOp("by size", loop, 24, terms="squares"))
    assert answer.verdict == "tree, not explained"
    assert answer.noise.unlike > 20
