"""Wrong orders at each format, 200 of squares: the rows of an order file tell every one of them.

Nothing certifies here: a file is replayed by its rows alone. At a narrow output they lie beside its
ties, or cancel over magnitudes that round.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.order.answer import Answer
from parity.order.file import Asked, OrderFile, from_text, to_text
from parity.order.judge import judge
from parity.order.noise import BATCHES, batches, twin_bits
from parity.order.replay import replay
from parity.order.rows import OLD, Rows, recorded, seeded
from parity.order.ties import rows_at_ties
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from tests.order.known_trees import chain
from tests.order.wrong_trees import OrderOp, moved, right_orders, swapped

FORMS = (("f32", "f32"), ("bf16", "bf16"), ("f32", "bf16"), ("f16", "f16"))
NAMES = [name for name in right_orders(40) if "fused" not in name and "f64" not in name]
ROWS = 256


def pairs(terms: Any, dtype: Any, out: str, seed: int, count: int) -> Iterator[tuple[Order, Order]]:
    """A right order, and it with a leaf moved or two swapped; ``count`` of them."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        order = right_orders(int(rng.integers(33, 121)))[NAMES[number % len(NAMES)]]
        fma = order.fma if terms == "products" and dtype == "f32" else frozenset()
        right = replace(order, terms=terms, dtype=dtype, out=out, fma=fma)
        yield right, (swapped if number % 2 else moved)(right, rng)


def file_of(order: Order, rows: list[Rows]) -> OrderFile:
    return OrderFile("op", {}, order, 1, 1, Asked(1, 0), Asked(1, 0), tuple(rows))


@pytest.mark.parametrize(
    ("terms", "count"), [("squares", 200), ("products", 60), ("values", 60)], ids=str
)
@pytest.mark.parametrize(("dtype", "out"), FORMS)
def test_no_wrong_order_is_replayed(terms: Any, count: int, dtype: Any, out: str) -> None:
    rejected = []
    for number, (right, wrong) in enumerate(pairs(terms, dtype, out, 5, count)):
        found = file_of(right, recorded(OrderOp(right), right, number, ROWS))
        if number == 0:
            assert replay(from_text(to_text(found), "it")).unlike == 0
            assert [len(part.out) for part in found.rows] == [64] * 4
        rejected.append(replay(replace(found, order=wrong)).unlike)
    assert sum(unlike > 0 for unlike in rejected) == count, sorted(rejected)[:5]


@pytest.mark.parametrize(("dtype", "out"), FORMS[1:])
def test_red_rows_away_from_ties_tell_no_order_of_squares(dtype: Any, out: str) -> None:
    """What rows were before: the same wrong orders pass, all of the first twenty."""
    for right, wrong in pairs("squares", dtype, out, 5, 20):
        w = seeded(right, 3, ROWS, OLD)[1]
        old = [Rows(evaluate(right, None, w), 3, kind=OLD)]
        assert replay(replace(file_of(right, old), order=wrong)).green


@pytest.mark.parametrize(("dtype", "out"), FORMS[1:])
def test_noise_alone_tells_wrong_orders_of_squares(dtype: Any, out: str) -> None:
    """Without the certificate, which sees them all: in the rows that the judge asks."""
    seen = []
    for number, (right, wrong) in enumerate(pairs("squares", dtype, out, 6, 20)):
        op, rng = OrderOp(right), np.random.default_rng(number)
        made = itertools.islice(batches(op, right, rng), BATCHES)
        unlike = 0
        for batch in made:
            bits = [twin_bits(op, one, evaluate, batch).view(np.int32) for one in (right, wrong)]
            unlike += int((bits[0] != bits[1]).sum())
        seen.append(unlike)
    assert np.median(seen) > 60  # of 1024 rows
    assert sum(unlike > 0 for unlike in seen) >= 19  # a leaf that moved by one place hardly rounds


@pytest.mark.parametrize(("dtype", "out"), FORMS[1:])
@pytest.mark.parametrize("n", [1, 4, 5, 64, 4099])
def test_rows_beside_ties_are_values_of_the_dtype_and_round_both_ways(
    n: int, dtype: Any, out: str
) -> None:
    order = Order(Tree.of(chain(list(range(n)))), "squares", dtype, out=out)
    w = seeded(order, 7, 16)[1]
    assert w.shape == (16, n)
    exact = w if dtype == "f32" else w.astype(np.float16 if dtype == "f16" else _bf16())
    assert exact.astype(np.float32).tobytes() == w.tobytes()
    sums = np.square(w.astype(np.float64)).sum(axis=1)
    assert np.isfinite(sums.astype(np.float16 if out == "f16" else np.float32)).all()
    if n > 5:  # within one last place of f32 from a tie of the output
        digits = 11 if out == "f16" else 8
        place = np.ldexp(1.0, np.frexp(sums)[1] - digits)
        off = np.abs(sums / place - np.floor(sums / place) - 0.5) * 2.0 ** (24 - digits)
        assert np.median(off) <= 1


def _bf16() -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16


def test_rows_beside_ties_are_the_same_everywhere() -> None:
    """Pinned: integers alone make them."""
    order = Order(Tree.of(chain(list(range(6)))), "squares", "bf16", out="bf16")
    bits = np.arange(12, dtype=np.uint64).reshape(2, 6) * np.uint64(0x9E3779B97F4A7C15)
    assert rows_at_ties(order, bits).view(np.uint32).tolist() == PINNED


PINNED: list[list[int]] = [
    [0x3E850000, 0xC0950000, 0x3B900000, 0xC0BF0000, 0x3A800000, 0x3CF00000],
    [0x3A800000, 0x3DDD0000, 0xC1A80000, 0x3BF00000, 0x3FAB0000, 0xBEE70000],
]


def test_a_wrong_order_of_narrow_squares_is_never_green() -> None:
    """The whole judge, as a user meets it."""
    for number, (right, wrong) in enumerate(pairs("squares", "bf16", "bf16", 7, 8)):
        answer: Answer = judge(OrderOp(right), wrong, seed=number)
        assert answer.verdict == "no tree", number
        assert judge(OrderOp(right), right, seed=number).green
