"""Is it this tree? Questions that the tree has answers to: across every sibling, and at random."""

from __future__ import annotations

import itertools

import numpy as np

from parity.order.answer import Certified
from parity.order.asking import random_leaves
from parity.order.counts import Counter
from parity.order.parts import Question
from parity.order.tree import Ints, Tree
from parity.order.triples import Triples

RANDOM_PAIRS = 2  # times n


def certify(counter: Counter, tree: Tree, rng: np.random.Generator) -> Certified:
    """Asks how many ones survive pairs of large numbers: across siblings with every other leaf
    set; at random, where a count needs slices, with one slice of the leaves, in turn."""
    across = across_siblings(tree, rng)
    chance = random_tuples(tree.n, RANDOM_PAIRS * tree.n, 2, rng)
    slices = [rng.permutation(tree.n)[: counter.slice] for _ in range(-(-tree.n // counter.slice))]
    questions = [Question(across[:, 0], across[:, 1], np.arange(tree.n))]
    for ones, pairs in zip(slices, np.array_split(chance, len(slices)), strict=True):
        questions.append(Question(pairs[:, 0], pairs[:, 1], ones))
    asked, contradicted, example = 0, 0, ""
    for question, found in zip(questions, counter.survivors(questions), strict=True):
        wanted = survivors(tree, question)
        wrong = np.flatnonzero(found != wanted)
        if wrong.size and not example:
            example = _contradiction(question, int(wrong[0]), found, wanted)
        asked, contradicted = asked + len(found), contradicted + len(wrong)
    return Certified(asked, contradicted, example)


def survivors(tree: Tree, question: Question) -> Ints:
    """int64[pairs]: the ones outside the lowest common addition of each pair, by the tree."""
    nodes = tree.meet(question.left, question.right)
    starts = np.array(tree.starts)
    places = np.sort(starts[question.ones])
    first = starts[nodes]
    last = first + np.array(tree.sizes)[nodes]
    under: Ints = np.searchsorted(places, last) - np.searchsorted(places, first)
    return len(places) - under


def _contradiction(question: Question, k: int, found: Ints, wanted: Ints) -> str:
    ones = len(question.ones)
    return (
        f"leaves {question.left[k]} and {question.right[k]} meet in an addition that holds "
        f"{ones - wanted[k]} of {ones} leaves by the tree, {ones - found[k]} by the op"
    )


def certify_squares(triples: Triples, tree: Tree, rng: np.random.Generator) -> Certified:
    """Asks which two of three leaves meet first: across every sibling with a leaf outside, and of
    random leaves all three pairs."""
    inner = [v for v in range(tree.n, tree.root)]
    groups = [
        tree.under(side) for v in inner for side in (*tree.children[v - tree.n][:2], tree.beside(v))
    ]
    across = random_leaves(rng, groups).reshape(-1, 3)
    chance = random_tuples(tree.n, RANDOM_PAIRS * tree.n, 3, rng)
    asked = np.concatenate([across, *(np.roll(chance, k, axis=1) for k in range(3))])
    left, right, third = asked.T
    wanted = tree.meet(left, right) < tree.meet(left, third)
    found = triples.first(left, right, third)
    wrong = np.flatnonzero(found != wanted)
    example = ""
    if wrong.size:
        k = wrong[0]
        says = "before" if wanted[k] else "not before"
        example = (
            f"leaves {left[k]} and {right[k]} meet {says} leaf {third[k]} by the tree, and "
            f"{'not ' if wanted[k] else ''}so by the op"
        )
    return Certified(len(asked), len(wrong), example)


def across_siblings(tree: Tree, rng: np.random.Generator) -> Ints:
    """int64[pairs, 2]: for each addition, in its nodes' order, a leaf of each two neighbours among
    its operands."""
    groups = [
        tree.under(side)
        for kids in tree.children
        for pair in itertools.pairwise(kids)
        for side in pair
    ]
    return random_leaves(rng, groups).reshape(-1, 2)


def random_tuples(n: int, count: int, width: int, rng: np.random.Generator) -> Ints:
    """int64[rows, width]: ``count`` rows of different leaves; none where n < width."""
    if n < width:
        return np.zeros((0, width), np.int64)
    rows = rng.integers(n, size=(count, width))
    for k in range(1, width):  # a leaf that stands already moves on to the next free one
        for _ in range(k):
            rows[:, k] = (rows[:, k] + (rows[:, :k] == rows[:, k : k + 1]).any(axis=1)) % n
    return rows
