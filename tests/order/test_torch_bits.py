"""Acceptance D: torch's CPU sum, mv and linear, at every M and dtype, every bit by the twin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parity.order.tree import Format
from tests.order.torch_bits import BATCHES, DTYPES, ROWS, XS, compare, judged, torch_op

pytest.importorskip("torch")

K, N = 200, 48  # a tail for every vector width
CASES = [(name, dtype, M) for dtype in DTYPES for name, batches in BATCHES.items() for M in batches]


@pytest.mark.parametrize(("name", "dtype", "M"), CASES)
def test_every_bit_of_torch_comes_from_the_revealed_order(name: str, dtype: Format, M: int) -> None:
    answer, bits = judged(name, dtype, K, N, M)
    assert answer.verdict == "tree", answer
    assert bits is not None
    assert (bits.rows, bits.unlike) == (XS * ROWS, 0)
    assert bits.telling > bits.rows // 4  # the rows would tell another order


@pytest.mark.parametrize("dtype", DTYPES)
def test_red_a_swapped_leaf_differs(dtype: Format) -> None:
    """The nearest wrong order, two neighbours exchanged, is seen in some of the rows."""
    answer, _ = judged("linear", dtype, K, N, 4)
    assert answer.order is not None
    tree = answer.order.tree
    leaf = next(v for v in range(1, K) if tree.parents[v] != tree.parents[0])
    swap = {0: leaf, leaf: 0}
    children = [[swap.get(kid, kid) for kid in kids] for kids in tree.children]
    wrong = replace(answer.order, tree=type(tree).joined(K, children))
    assert wrong.tree.digest() != tree.digest()
    assert compare(torch_op("linear", dtype, K, N, 4), wrong).unlike > 20
