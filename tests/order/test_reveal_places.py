"""Where in a call each sum stands, and that its answer comes back to it."""

import numpy as np
import pytest

from parity.order.asking import Asker
from parity.order.counts import Counter
from parity.order.parts import Question
from parity.order.reveal import reveal
from tests.order import hostile
from tests.order.known_trees import LoopOp, ascending, narrow_accumulator


def test_sums_go_round_the_rows_of_a_call():
    """Seven sums over four rows: each call begins at another row, left-over rows repeat others."""
    calls = []

    def loop(x, w):
        calls.append(w[:, 0].tolist())
        return ascending(x, w)

    asker = Asker(LoopOp("ascending", loop, 3, rows=4), np.random.default_rng(1))

    def fill(first, last, w):
        assert not w.any()
        w[:, 0] = np.arange(first, last)

    begins = set()
    for _ in range(12):
        calls.clear()
        assert asker.ask(7, fill).tolist() == [0, 1, 2, 3, 4, 5, 6]
        whole, part = calls
        begins.add(whole.index(0))
        assert np.roll(whole, -whole.index(0)).tolist() == [0, 1, 2, 3]
        assert sorted(part) == [4, 4, 5, 6]
    assert begins == {0, 1, 2, 3}
    assert (asker.probes, asker.calls) == (12 * 7, 24)


def test_a_product_neither_exact_nor_rounded_is_no_fma():
    with np.errstate(all="ignore"):
        answer = reveal(LoopOp("rounded inputs", hostile.inputs_rounded, 24, rows=64))
    assert answer.order.fma == frozenset()
    assert answer.contradicts[0].startswith("24 products of 24 are neither exact nor rounded once")


@pytest.mark.parametrize(
    ("loop", "dtype", "out", "length"),
    [
        (ascending, "f32", "f32", 1 << 22),
        (ascending, "bf16", "bf16", 256),
        (ascending, "f16", "f16", 2048),
        # Big is 2^39 ones there, and hides 2^11 of them from f32 and four bits more.
        (ascending, "f16", "f32", 2048),
        # It counts to 256 only, whatever it says of its output.
        (narrow_accumulator("bf16"), "f32", "f32", 256),
    ],
)
def test_how_many_ones_a_sum_counts(loop, dtype, out, length):
    op = LoopOp("counting", loop, 2100, rows=3, dtype=dtype, out=out)
    counter = Counter(Asker(op, np.random.default_rng(0)))
    assert counter.slice == length
    pair = Question(np.array([5]), np.array([1]), np.arange(2100))
    assert counter.survivors([pair])[0].tolist() == [2100 - 6]
