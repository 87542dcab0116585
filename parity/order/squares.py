"""What the additions of a sum of squares do: only "larger than a number" is asked of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.order.asking import random_leaves
from parity.order.fma import beside_leaves, usual_leaves
from parity.order.op import Blurring, Flags, SummingOp
from parity.order.tree import Ints, Order, Tree
from parity.order.triples import SIZES, Sizes, Triples

# 64^2 = 4096: its last place in f32 is 2^-11. Beside it A^2 = 1 + 2^-12 + 2^-26 is a hair above a
# tie, and A^2 rounded to f32 is the tie, which goes down to the even 4097. So near to a power of
# two, one last place is still seen after the op has divided its sum by n.
_BASE = 64.0
_FACTOR = 1 + 2.0**-13
_ROUNDED = 4097.0
# Of outputs in f32, which may be read through a division by n. The square of ``small`` is 3/4 of
# half that place: one is lost in f32, two that come together are not.
_WIDE = {**SIZES, "f32": Sizes(_BASE, 1.75 * 2.0**-7, _BASE**2)}


def measured_squares(triples: Triples, tree: Tree, rng: np.random.Generator) -> Order:
    """The order of a tree of squares: the products that enter unrounded, the wide additions.

    An addition whose parent rounds its result gives the same bits wide or not, and is not wide.
    """
    op = triples.asker.op
    plain = Order.plain(tree, op.terms, op.dtype, op.out)
    fma = products_of_squares(triples, plain, rng)
    return replace(plain, fma=fma, wide=_wide(triples, tree, rng))


def others_of_squares(op: SummingOp, order: Order) -> tuple[Order, ...]:
    """The orders that the probes cannot tell from it: an output of few bits hides the products."""
    if order.terms != "squares" or order.dtype != "f32" or shows_products(op, order):
        return ()
    return (replace(order, fma=usual_leaves(order.tree)),)


def shows_products(op: SummingOp, order: Order) -> bool:
    """Whether the op's answers tell how the squares enter."""
    if isinstance(op, Blurring):
        return False
    return order.dtype == "f32" and order.terms == "squares" and order.out == "f32"


def products_of_squares(triples: Triples, order: Order, rng: np.random.Generator) -> frozenset[int]:
    """The leaves whose square enters its addition unrounded."""
    leaves, beside = beside_leaves(order, rng)
    if not len(leaves) or not shows_products(triples.asker.op, order):
        return frozenset()
    places = np.stack([beside, leaves], axis=1)
    unrounded = _exceeds(triples, places, (_BASE, _FACTOR), _ROUNDED)
    return frozenset(leaves[unrounded].tolist())


def _wide(triples: Triples, tree: Tree, rng: np.random.Generator) -> frozenset[int]:
    """Nodes that hand what f32 would lose to a parent that keeps it: both are wide."""
    nodes = [v for v in range(tree.n, tree.root)]
    if not nodes:
        return frozenset()
    groups = []
    for v in nodes:
        kids = tree.children[v - tree.n]
        groups += [tree.under(side) for side in (*kids[:2], tree.beside(v))]
    places = random_leaves(rng, groups).reshape(-1, 3)
    sizes = _WIDE[triples.asker.op.out]
    kept = _exceeds(triples, places, (sizes.big, sizes.small, sizes.small), sizes.alone)
    seen = {v for v, flag in zip(nodes, kept.tolist(), strict=True) if flag}
    return frozenset(seen | {tree.parents[v] for v in seen})


def _exceeds(triples: Triples, places: Ints, weights: tuple[float, ...], big: float) -> Flags:
    values = np.tile(weights, (len(places), 1))
    asker = triples.asker
    return asker.exceeds(len(places), asker.entries(places, values), big)
