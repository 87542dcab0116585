"""The written form of a tree, and what an order's digest covers."""

from dataclasses import replace

import numpy as np
import pytest

from parity.errors import InputError
from parity.order.tree import Order, Tree
from tests.order.known_trees import chain, tree_of_1_1, tree_of_fused, tree_of_lanes


def test_one_tree_written_in_two_ways_is_one_tree():
    left = Tree.of((((0, 1), 2), (3, 4)))
    right = Tree.of([[4, 3], (2, [1, 0])])
    assert left == right
    assert left.text() == "(((0 1) 2) (3 4))"
    assert left.digest() == right.digest()
    assert left.children == ((0, 1), (5, 2), (3, 4), (6, 7))


def test_what_a_tree_says_of_its_nodes():
    tree = Tree.of(((3, (1, 0)), 2))
    assert tree.root == 6
    assert tree.sizes == (1, 1, 1, 1, 2, 3, 4)
    assert tree.lows == (0, 1, 2, 3, 0, 0, 0)
    assert tree.parents == (4, 4, 6, 5, 5, 6, -1)
    assert tree.under(5).tolist() == [0, 1, 3]
    assert (tree.beside(3), tree.beside(4), tree.beside(6)) == (4, 3, 6)


@pytest.mark.parametrize(
    "nested",
    [0, (0, 1), (2, 1, 0), tree_of_1_1(31), tree_of_lanes(40), tree_of_fused(50)],
    ids=["a leaf", "two", "a fused sum", "1.1", "lanes", "fused"],
)
def test_nested_and_joined_give_the_tree_back(nested):
    tree = Tree.of(nested)
    assert Tree.of(tree.nested()) == tree
    shuffled = [kids[::-1] for kids in tree.children]
    assert Tree.joined(tree.n, shuffled) == tree


def test_a_chain_of_many_terms_needs_no_recursion():
    n = 20_000
    tree = Tree.of(chain(list(range(n))))
    assert tree.sizes[tree.root] == n
    assert Tree.of(tree.nested()) == tree
    assert tree.text().count("(") == n - 1


def test_meet_is_the_lowest_common_addition():
    rng = np.random.default_rng(0)
    for nested in (tree_of_1_1(77), tree_of_lanes(64), tree_of_fused(60), chain(list(range(30)))):
        tree = Tree.of(nested)
        left, right = rng.integers(tree.n, size=(2, 300))
        left, right = left[left != right], right[left != right]
        for i, j, found in zip(left, right, tree.meet(left, right), strict=True):
            above = [int(i)]
            while tree.parents[above[-1]] >= 0:
                above.append(tree.parents[above[-1]])
            node = int(j)
            while node not in above:
                node = tree.parents[node]
            assert found == node


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        (((0, 1), 1), "a tree of 3 leaves uses node 1 twice"),
        ((0, 2), "a tree of 2 leaves goes in a circle"),
        (((0,), 1), "an addition has 1 operands"),
        ((0, -1), "a tree has the leaf -1"),
        ((0, 1.0), "a tree has the leaf 1.0"),
        ((), "a tree has 0 leaves"),
    ],
)
def test_what_is_no_tree_is_refused_in_one_line(nested, message):
    with pytest.raises(InputError) as caught:
        Tree.of(nested)
    assert caught.value.message == message
    assert caught.value.next_step


def test_a_tree_not_in_its_written_form_is_refused():
    with pytest.raises(InputError, match="a tree of 3 leaves is not in its written form"):
        Tree(3, ((1, 0), (3, 2)))
    with pytest.raises(InputError, match="names node 9"):
        Tree(3, ((0, 1), (9, 2)))


def test_each_field_of_an_order_moves_its_digest():
    order = Order(Tree.of(((0, 1, 2), 3)), bits=2, rounding="rz")
    others = [
        replace(order, tree=Tree.of(((0, 1, 3), 2))),
        replace(order, terms="squares"),
        replace(order, dtype="bf16"),
        replace(order, out="bf16"),
        replace(order, fma=frozenset({3})),
        replace(order, wide=frozenset({5})),
        replace(order, fused=frozenset({5})),
        replace(order, bits=3),
        replace(order, rounding="rn"),
        replace(order, narrow=frozenset({4})),
        replace(order, stored="bf16"),
        replace(order, post="mean_rsqrt"),
        replace(order, settings=(("eps", "1e-6"),)),
    ]
    digests = {one.digest() for one in (order, *others)}
    assert len(digests) == len(others) + 1
    assert order.fused_nodes == (4,)
    assert replace(order, fused=frozenset({5})).fused_nodes == (4, 5)
