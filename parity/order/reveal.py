"""The order of an op: revealed twice, measured, certified, and held to rows of noise."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from parity.errors import InputError
from parity.order.answer import Answer
from parity.order.asking import NoTree
from parity.order.counts import tree_by_counts
from parity.order.judge import Bench
from parity.order.measures import Measured, measured
from parity.order.noise import Evaluate, unlike_rows
from parity.order.op import SummingOp, by_threes
from parity.order.squares import measured_squares, others_of_squares
from parity.order.tree import Order, Tree
from parity.order.triples import tree_by_triples

SETTLING = 4  # batches of noise that choose among orders which probes do not tell apart


def reveal(op: SummingOp, *, seed: int = 0, evaluate: Evaluate | None = None) -> Answer:
    """The order in which ``op`` adds, or why there is none.

    Two reveals with different random pivots must give one tree; then every addition is measured,
    and certify and noise judge. ``evaluate``: the twin, by default parity's own.
    """
    bench = Bench(op, np.random.default_rng(seed), evaluate)
    try:
        tree = _tree(bench)
        bench.staged("reveal")
        _require_same(tree, _tree(bench))
        bench.staged("again")
        found = _measured(bench, tree)
        bench.staged("measures")
        order, undecided = _settled(bench, found)
        bench.staged("settle")
        return bench.judged(order, found.odd, undecided)
    except NoTree as said:
        return bench.answer("no tree", None, contradicts=tuple(said.args))


def _tree(bench: Bench) -> Tree:
    if by_threes(bench.op):
        return tree_by_triples(bench.triples, bench.rng)
    return tree_by_counts(bench.counter, bench.rng)


def _measured(bench: Bench, tree: Tree) -> Measured:
    if by_threes(bench.op):
        order = measured_squares(bench.triples, tree, bench.rng)
        return Measured(order, others_of_squares(bench.op, order), ())
    return measured(bench.counter, tree, bench.rng)


def _require_same(tree: Tree, again: Tree) -> None:
    """NoTree with two leaves that meet elsewhere in the second tree."""
    if tree.children == again.children:
        return
    for one in (tree, again):  # of some neighbours in one of the trees the sizes differ
        left, right = one.leaves[:-1], one.leaves[1:]
        sizes = [np.array(t.sizes)[t.meet(left, right)] for t in (tree, again)]
        unlike = np.flatnonzero(sizes[0] != sizes[1])
        if unlike.size:
            k = unlike[0]
            raise NoTree(
                f"two reveals differ: leaves {left[k]} and {right[k]} meet in an addition of "
                f"{sizes[0][k]} leaves in the first, of {sizes[1][k]} in the second"
            )
    raise NoTree("two reveals gave two trees")


def _settled(bench: Bench, found: Measured) -> tuple[Order, tuple[str, ...]]:
    """The order that noise supports best, and what it does not tell."""
    orders = [found.order, *found.others]
    if len(orders) == 1:
        return found.order, ()
    try:
        unlike = unlike_rows(bench.asker, orders, bench.evaluate, bench.rng, SETTLING)
    except InputError:  # the twin refuses one of them; the judge says so of the one that is left
        return found.order, ()
    best = orders[unlike.index(min(unlike))]
    tied = [one for one, rows in zip(orders, unlike, strict=True) if rows == min(unlike)]
    return best, tuple(_unlike(best, one) for one in tied if one != best)


def _unlike(order: Order, other: Order) -> str:
    """``rounding rz or rn``: what two orders differ in."""
    parts = []
    for field in fields(Order):
        one, two = getattr(order, field.name), getattr(other, field.name)
        if one != two:
            is_set = isinstance(one, frozenset)
            shown = (f"{len(one)} leaves", f"{len(two)} leaves") if is_set else (one, two)
            parts.append(f"{field.name} {shown[0]} or {shown[1]}")
    return ", ".join(parts)
