"""Ops that are no tree, or not always the same one: none is green, and the answer says why."""

import numpy as np
import pytest

from parity.errors import InputError
from parity.order.asking import Asker
from parity.order.counts import Counter, tree_by_counts
from parity.order.reveal import reveal
from tests.order import hostile
from tests.order.known_trees import LoopOp, ascending, ascending_fma, contract_1_1

UNLIKE_ROWS = "the same sum came out unlike in two rows of one call"
MISCOUNT = "leaves by their count, but"
UNEXPLAINED = "tree, not explained"

# name: the op, the verdict, and a part of what contradicts (or "" where only the noise does).
HOSTILE = {
    "Kahan": (hostile.kahan, UNEXPLAINED, ""),
    "Neumaier": (hostile.neumaier, "no tree", MISCOUNT),
    "fsum": (hostile.exact_sum, "no tree", MISCOUNT),
    "random order": (hostile.RandomOrder(), "no tree", UNLIKE_ROWS),
    "partials in random order": (hostile.RandomPartials(), "no tree", UNLIKE_ROWS),
    "sort first": (hostile.sort_first, UNEXPLAINED, ""),
    "drop zeros": (hostile.drop_zeros, "no tree", MISCOUNT),
    "zeros of x skipped": (hostile.skip_zeros_of_x, UNEXPLAINED, ""),
    "bf16 accumulator": (hostile.bf16_accumulator, UNEXPLAINED, ""),
    "branch on magnitude": (hostile.by_magnitude, UNEXPLAINED, ""),
    "last row otherwise": (hostile.last_row_otherwise, "no tree", UNLIKE_ROWS),
    "every other call": (hostile.EveryOtherCall(), "no tree", ""),
    "last of a batch otherwise": (hostile.last_of_a_batch_otherwise, "no tree", "batch row 2 gave"),
    "stochastic rounding": (hostile.StochasticRounding(), "no tree", UNLIKE_ROWS),
    "inputs rounded": (hostile.inputs_rounded, UNEXPLAINED, "(are inputs rounded?)"),
    "rare fault": (hostile.rare_fault, UNEXPLAINED, ""),
    "small terms dropped": (hostile.flush_small, UNEXPLAINED, ""),
    "other data than noise": (hostile.other_than_noise, UNEXPLAINED, ""),
}


def answered(loop, n, seed=0, rows=128, **settings):
    with np.errstate(all="ignore"):
        return reveal(LoopOp("hostile", loop, n, rows=rows, **settings), seed=seed)


@pytest.mark.parametrize("n", [24, 61])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_op_is_never_green(name, n):
    loop, verdict, said = HOSTILE[name]
    for seed in range(3):
        answer = answered(loop, n, seed)
        assert not answer.green
        assert answer.verdict == verdict
        if verdict == "no tree":
            assert said in answer.contradicts[0]
        else:
            assert said in "".join(answer.contradicts)
            assert answer.noise.unlike > 0
            assert "the op gave" in answer.noise.example


def test_an_f64_accumulator_is_truly_a_tree():
    answer = answered(hostile.f64_accumulator, 40)
    assert answer.verdict == "tree"
    assert answer.order.wide == frozenset(range(40, 79))
    assert answer.order.fma == frozenset(range(40))


def test_pairs_stored_in_bf16_are_truly_a_tree():
    """The order says which partial sums are stored in fewer bits, and is then explained."""
    answer = answered(hostile.pairs_through_bf16, 41)
    assert answer.verdict == "tree"
    pairs = {v for v in range(41, answer.order.tree.root) if answer.order.tree.sizes[v] == 2}
    assert len(pairs) == 20
    assert (answer.order.narrow, answer.order.stored) == (pairs, "bf16")


@pytest.mark.parametrize("calls", [5, 10, 15, 20, 25, 30, 35])
def test_an_op_that_changes_while_it_is_asked(calls):
    """Whenever it changes, a later stage sees it; only after the last call nobody could."""
    loop = hostile.AfterSomeCalls(calls)
    answer = answered(loop, 200)
    assert loop.left < 0
    assert not answer.green
    assert answer.contradicts or answer.noise.unlike


@pytest.mark.parametrize("row", [0, 63, 127])
def test_a_row_that_only_rounds_otherwise_is_found_by_noise(row):
    """Masks and counts are the same with fused multiply-adds: the noise asks every row."""

    def loop(x, w):
        found = ascending(x, w)
        found[row] = ascending_fma(x, w[row : row + 1])[0]
        return found

    answer = answered(loop, 40)
    assert answer.verdict == "no tree"
    assert answer.contradicts[0].startswith(UNLIKE_ROWS)
    assert f"row {row} gave" in answer.contradicts[0]
    assert answer.contradicts[0].endswith(f" and 1 did not: {row}")


def test_a_lost_term_is_no_tree():
    answer = answered(lambda x, w: ascending(x[:-1], w[:, :-1]), 20)
    assert answer.verdict == "no tree"
    assert answer.contradicts == (f"big and -big alone gave {2.0**100:.9g}",)


def test_a_term_added_twice_is_no_tree():
    answer = answered(lambda x, w: ascending(x, w) + x[3] * w[:, 3], 20)
    assert answer.verdict == "no tree"
    assert answer.contradicts == ("20 ones gave 21",)


def test_a_constant_answer_is_no_tree():
    answer = answered(lambda x, w: np.full(len(w), np.nan, np.float32), 20)
    assert answer.verdict == "no tree"
    assert answer.contradicts == ("big and -big alone gave nan",)


def test_an_op_of_another_shape_is_refused_in_one_line():
    with pytest.raises(InputError) as caught:
        answered(lambda x, w: ascending(x, w)[:-1], 20)
    assert caught.value.message == "op hostile returned float32[127] for 128 rows"
    assert caught.value.next_step == "return float32 or float64 [128], or [128, M]"


def test_the_second_reveal_must_give_the_same_tree():
    """An op that changes right after the first reveal, consistent in itself before and after."""
    first = Asker(LoopOp("1.1", contract_1_1, 48, rows=128), np.random.default_rng(7))
    tree_by_counts(Counter(first), first.rng)
    answer = answered(hostile.AfterSomeCalls(first.calls), 48, seed=7)
    assert answer.verdict == "no tree"
    assert answer.contradicts[0].startswith("two reveals differ: leaves ")
    assert "in the first, of " in answer.contradicts[0]


def test_certify_sees_what_changes_after_two_reveals():
    """Two reveals of one tree are not believed without the counts that follow."""
    asked = LoopOp("1.1", contract_1_1, 48, rows=128)
    whole = reveal(asked, seed=7)
    calls = whole.calls - 16 - 2  # before certify's two calls and the noise's sixteen
    answer = answered(hostile.AfterSomeCalls(calls), 48, seed=7)
    assert answer.verdict == "no tree"
    assert answer.certify.asked == 3 * 48 - 1
    assert f"{answer.certify.contradicted} of 143 counts contradict" in answer.contradicts[0]


def test_an_answer_that_is_no_count_is_told():
    def loop(x, w):
        masked = (np.abs(w) > 2.0**50).any(axis=1) & (np.abs(w) == 1).any(axis=1)
        return (ascending(x, w) + np.float32(0.25) * masked).astype(np.float32)

    answer = answered(loop, 20)
    assert answer.verdict == "no tree"
    assert answer.contradicts[0].startswith("big at leaf ")
    assert answer.contradicts[0].endswith(".25, no count from 0 to 20")


def test_a_twin_that_cannot_evaluate_explains_nothing():
    def refuses(order, x, w):
        raise InputError("order: -10 alignment bits", "give others")

    op = LoopOp("ascending", ascending, 20)
    answer = reveal(op, evaluate=refuses)
    assert answer.verdict == UNEXPLAINED
    assert answer.contradicts == ("order: -10 alignment bits",)
    assert answer.noise is None
