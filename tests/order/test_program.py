"""A tree as a postfix program: every leaf once, few values that wait."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.order import program as p
from parity.order.program import program_of
from parity.order.tree import Order, Tree
from tests.order.exact_order import chain, random_order, random_tree

OF_LEAF = {p.LEAF, p.EXACT, p.ADD_LEAF, p.ADD_EXACT, p.WIDE_LEAF, p.WIDE_EXACT}
PUSHES = {p.LEAF, p.EXACT}


def walked(order: Order) -> tuple[Counter[int], int, int]:
    """How often each leaf is read; the most values that wait; how many are left."""
    made, leaves, waiting, most = program_of(order), Counter[int](), 0, 0
    for op, a, b, c in made.steps.tolist():
        if op in OF_LEAF:
            leaves[a] += 1
        if op == p.FUSE:
            leaves.update(made.leaves[a : a + b].tolist())
            waiting -= c - 1
        elif op in (p.ADD, p.WIDE):
            waiting -= 1
        elif op in PUSHES:
            waiting += 1
        assert waiting > 0
        most = max(most, waiting)
    assert most == made.depth
    return leaves, most, waiting


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_every_leaf_is_read_once_and_one_value_is_left(seed: int) -> None:
    order = random_order(random.Random(seed), most=40)
    leaves, _, left = walked(order)
    assert leaves == Counter(range(order.tree.n))
    assert left == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_few_values_wait_in_a_binary_tree_of_any_shape(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(2, 300)
    _, most, _ = walked(Order(random_tree(rng, n, fused=False)))
    assert most <= (n - 1).bit_length()


def halves(begin: int, end: int) -> Any:
    middle = (begin + end) // 2
    return begin if end - begin == 1 else (halves(begin, middle), halves(middle, end))


@pytest.mark.parametrize(
    ("nested", "most"),
    [
        (0, 1),
        (chain(range(5000)), 1),
        (chain(range(4999, -1, -1)), 1),
        (halves(0, 1024), 10),
        (tuple(range(300)), 1),
        (tuple(chain(range(b, b + 4)) for b in range(0, 64, 4)), 16),
    ],
    ids=["leaf", "chain", "backwards", "halves", "fused", "fused chains"],
)
def test_the_values_that_wait_in_a_known_tree(nested: Any, most: int) -> None:
    assert walked(Order(Tree.of(nested), bits=2))[1] == most


def test_the_instructions_of_each_addition() -> None:
    order = Order(
        Tree.of((((0, 1), (2, 3, 4)), ((5, 6), 7))),
        fma=frozenset({0, 7}),
        wide=frozenset({11, 13}),
        narrow=frozenset({9}),
        bits=2,
        stored="f16",
    )
    names = {
        value: name for name, value in vars(p).items() if name.isupper() and type(value) is int
    }
    steps = [(names[op], *rest) for op, *rest in program_of(order).steps.tolist()]
    assert steps == STEPS


STEPS = [
    ("LEAF", 1, 0, 0),
    ("ADD_EXACT", 0, 0, 0),  # node 8: one multiply-add
    ("FUSE", 0, 3, 0),  # node 9, three leaves
    ("STORE", 2, 0, 0),  # as f16
    ("ADD", 0, 0, 0),
    ("LEAF", 5, 0, 0),
    ("WIDE_LEAF", 6, 0, 0),  # node 11
    ("NARROW", 0, 0, 0),  # its parent, node 12, is f32
    ("ADD_EXACT", 7, 0, 0),
    ("WIDE", 0, 0, 0),
    ("NARROW", 0, 0, 0),  # the answer is f32
]
