"""Sums of known order: the order that is found equals one written independently, to its digest."""

from dataclasses import replace

import numpy as np
import pytest

from parity.order.reveal import reveal
from parity.order.tree import Order, Tree
from tests.order.known_trees import (
    KNOWN,
    LoopOp,
    ascending,
    ascending_fma,
    chain,
    contract_1_1,
    four_partials,
    fused_16,
    narrow_accumulator,
    split_fused,
    tree_of_1_1,
    tree_of_fused,
    tree_of_split,
)
from tests.order.slow_twin import evaluate as slow_twin
from tests.order.slow_twin import narrowed
from tests.order.wrong_trees import OrderOp

IDS = [known.name for known in KNOWN]


def found(op, **settings):
    with np.errstate(all="ignore"):
        return reveal(op, **settings)


def assert_found(answer, order):
    """Green, and this order in every part."""
    assert (answer.verdict, answer.contradicts, answer.undecided) == ("tree", (), ())
    assert answer.order.tree.text() == order.tree.text()
    assert answer.order == order
    assert answer.noise.unlike == 0
    assert not answer.noise.blind
    assert answer.certify.contradicted == 0
    assert sum(stage.probes for stage in answer.stages.values()) == answer.probes


@pytest.mark.parametrize("n", [8, 31, 64, 256, 1000])
@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_known_order(known, n):
    fused = known.name.startswith("fused")
    op = LoopOp(known.name, known.loop, n, rows=256, dtype="bf16" if fused else "f32")
    answer = found(op, seed=n)
    assert_found(answer, replace(known.order(n), dtype=op.dtype))
    assert (answer.noise.rows, answer.noise.places) == (1024, 16 * op.rows)
    assert answer.certify.asked == (n - 1) + 2 * n
    if not fused:  # near n log n, far from the n(n-1)/2 of all pairs
        assert answer.stages["reveal"].probes < n * np.log2(n)


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_known_order_judged_by_the_slow_twin(known):
    """The evaluator of the tests is independent of the twin; both must say green."""
    dtype = "bf16" if known.name.startswith("fused") else "f32"
    op = LoopOp(known.name, known.loop, 37, rows=64, dtype=dtype)
    answer = found(op, evaluate=slow_twin)
    assert_found(answer, replace(known.order(37), dtype=dtype))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_terms(n):
    answer = found(LoopOp("ascending", ascending, n, rows=7))
    assert_found(answer, Order(Tree.of(chain(list(range(n))))))


def test_sums_of_values():
    answer = found(LoopOp("1.1", contract_1_1, 45, terms="values"))
    assert_found(answer, Order(Tree.of(tree_of_1_1(45)), terms="values"))


def test_one_row_a_call():
    answer = found(LoopOp("partials", four_partials, 19, rows=1))
    assert_found(answer, KNOWN[3].order(19))
    assert answer.calls == answer.probes


def test_a_count_beyond_the_output_is_made_of_slices():
    """bf16 counts to 256: 600 terms take three slices, and the tree is the same."""

    def loop(x, w):
        return split_fused("f32", "bf16")(x, w)

    op = LoopOp("split", loop, 600, rows=512, dtype="bf16", out="bf16")
    order = Order(Tree.of(tree_of_split(600)), dtype="bf16", out="bf16", bits=2, rounding="rz")
    answer = found(op)
    assert_found(answer, order)
    wide = found(LoopOp("fused", fused_16(2), 600, rows=512, dtype="bf16"))
    assert answer.stages["reveal"].probes > wide.stages["reveal"].probes


@pytest.mark.parametrize("stored", ["bf16", "f16"])
def test_partial_sums_stored_in_fewer_bits(stored):
    """Two fused chains whose sums are stored narrow before they are added."""
    dtype = stored
    op = LoopOp("split", split_fused(stored, stored), 64, dtype=dtype, out=stored)
    tree = Tree.of(tree_of_split(64))
    order = Order(tree, dtype=dtype, out=stored, bits=2, rounding="rz")
    assert_found(found(op), replace(order, narrow=frozenset(tree.children[-1]), stored=stored))


def test_every_partial_sum_of_four_stored_in_bf16():
    """Fused sums and the plain sums of two of them alike."""

    def loop(x, w):
        two = split_fused("bf16", "bf16")
        return narrowed(two(x[:64], w[:, :64]) + two(x[64:], w[:, 64:]), "bf16")

    answer = found(LoopOp("split", loop, 128, dtype="bf16", out="bf16"))
    tree = Tree.of(tuple((tree_of_fused(32, k), tree_of_fused(32, k + 32)) for k in (0, 64)))
    halves = tree.children[-1]
    narrow = {*halves, *(part for half in halves for part in tree.children[half - 128])}
    order = Order(tree, dtype="bf16", out="bf16", bits=2, rounding="rz", stored="bf16")
    assert_found(answer, replace(order, narrow=frozenset(narrow)))


@pytest.mark.parametrize("stored", ["bf16", "f16"])
def test_an_accumulator_of_fewer_bits(stored):
    loop = narrow_accumulator(stored)
    op = LoopOp("narrow", loop, 40, terms="values", dtype=stored, out=stored)
    tree = Tree.of(chain(list(range(40))))
    order = Order(tree, "values", stored, stored, stored=stored)
    assert_found(found(op), replace(order, narrow=frozenset(range(40, tree.root))))


def test_f16_has_room_for_masks():
    """Its range is 2^40: ones are subnormal, big is 2^15; 3000 terms are counted in slices."""
    op = LoopOp("f16", ascending, 3000, rows=256, dtype="f16")
    assert_found(found(op), Order(Tree.of(chain(list(range(3000)))), dtype="f16"))


def test_f64_accumulator_of_f16_is_refused_for_its_range():
    """In f16 big is 2^39 ones: f64 keeps both, so no one is absorbed and no tree can be told."""

    def loop(x, w):
        return (x.astype(np.float64) * w.astype(np.float64)).sum(axis=1).astype(np.float32)

    answer = found(LoopOp("f16 in f64", loop, 40, dtype="f16"))
    assert answer.verdict == "no tree"
    assert "meet in an addition of 2 leaves by their count, but 40 leaves" in answer.contradicts[0]


class Quantised(LoopOp):
    """Weights are masks, or integers from -8 to 7."""

    levels = tuple(range(-8, 8))

    def run(self, x, w):
        small = np.isin(w, self.levels)
        assert (small | (np.abs(w) > 2**20) | np.isin(np.abs(w), (96,))).all()
        return super().run(x, w)


@pytest.mark.parametrize("loop", [ascending, ascending_fma])
def test_weights_of_few_values(loop):
    answer = found(Quantised("quantised", loop, 50))
    fma = frozenset(range(1, 50)) if loop is ascending_fma else frozenset()
    assert_found(answer, Order(Tree.of(chain(list(range(50)))), fma=fma))


def test_a_root_that_no_probe_sees_is_told_by_noise():
    """One fused sum with a bf16 output: cut or rounded, noise decides, or says that it cannot."""

    def rounded(way):
        def loop(x, w):
            return narrowed(fused_16(2, way)(x, w), "bf16")

        return found(LoopOp("fused", loop, 16, dtype="bf16", out="bf16"))

    for way in ("rz", "rn"):
        answer = rounded(way)
        assert answer.verdict == "tree"
        assert answer.order.tree == Tree.of(tree_of_fused(16))
        assert answer.order.bits == 2
        told = answer.order.rounding == way
        assert told or answer.undecided == (f"rounding {answer.order.rounding} or {way}",)


@pytest.mark.parametrize(("n", "size"), [(17, 16), (33, 16), (24, 1)])
def test_a_fused_sum_of_two_terms(n, size):
    """The last term alone with the accumulator, or every term: told from a plain addition."""
    answer = found(LoopOp("fused", fused_16(2, size=size), n, rows=64, dtype="bf16"))
    nested = tree_of_fused(n) if size == 16 else chain(list(range(n)))
    tree = Tree.of(nested)
    twos = frozenset(v for v in range(n, tree.root + 1) if len(tree.children[v - n]) == 2)
    order = Order(tree, dtype="bf16", fused=twos, bits=2, rounding="rz")
    assert_found(answer, order)
    assert len(twos) == (1 if size == 16 else n - 1)


def test_fma_that_the_output_hides_is_told_by_noise():
    """A bf16 output does not show what a probe of one product leaves."""

    def loop(x, w):
        return narrowed(ascending_fma(x, w), "bf16")

    answer = found(LoopOp("fma", loop, 40, out="bf16"))
    order = Order(Tree.of(chain(list(range(40)))), out="bf16", fma=frozenset(range(1, 40)))
    assert_found(answer, order)
    assert answer.stages["settle"].probes > 0


def test_a_long_row_is_revealed_by_few_probes():
    """n = 4096 in f32: 32 lanes of 128, joined pairwise; at most 30,000 probes a reveal."""
    n = 4096
    joined = [chain(list(range(k, n, 32))) for k in range(32)]
    while len(joined) > 1:
        joined = list(zip(joined[::2], joined[1::2], strict=True))
    order = Order(Tree.of(joined[0]))
    answer = found(OrderOp(order, rows=1024))
    assert_found(answer, order)
    assert answer.stages["reveal"].probes < 30_000
    assert answer.stages["certify"].probes < 3 * n
