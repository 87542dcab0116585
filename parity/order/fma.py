"""Which products enter their addition unrounded (fused multiply-add), one probe a leaf."""

from __future__ import annotations

import numpy as np

from parity.errors import InputError
from parity.order.asking import random_leaves
from parity.order.counts import Counter
from parity.order.op import Levelled, SummingOp
from parity.order.tree import Ints, Order, Tree


def fma_leaves(
    counter: Counter, order: Order, rng: np.random.Generator
) -> tuple[frozenset[int], list[frozenset[int]], str]:
    """The leaves, other sets that probes cannot tell from them, and what was odd, in words.

    Leaf i holds a product A*L that f32 does not hold, a leaf beside it -A: what is left tells
    whether A*L was rounded first. x is A everywhere, so one call asks many leaves.
    """
    op = counter.asker.op
    if order.terms != "products" or order.dtype != "f32":
        return frozenset(), [], ""  # products of bf16 and f16 are exact in f32
    if order.out != "f32" or order.narrow:  # fewer bits do not hold what is left
        return frozenset(), [usual_leaves(order.tree)], ""
    leaves, beside = beside_leaves(order, rng)
    if not len(leaves):
        return frozenset(), [], ""
    factor, level = _inexact(op)
    exact = float(factor) * level - float(factor)
    rounded = float(np.float32(np.float64(np.float32(factor * level)) - factor))
    fill = counter.asker.entries(
        np.stack([leaves, beside], axis=1), np.tile([level, -1.0], (len(leaves), 1))
    )
    rest = counter.asker.ask(len(leaves), fill, np.full(op.n, factor, np.float32))
    odd = np.flatnonzero((rest != exact) & (rest != rounded))
    found = frozenset(leaves[rest == exact].tolist())
    if not odd.size:
        return found, [], ""
    k = odd[0]
    said = (
        f"{odd.size} products of {len(leaves)} are neither exact nor rounded once (are inputs "
        f"rounded?), first leaf {leaves[k]}: {rest[k]:.9g}, not {exact:.9g} or {rounded:.9g}"
    )
    return found, [], said


def beside_leaves(order: Order, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Every leaf that enters a plain addition of two, and a leaf under the other operand."""
    tree = order.tree
    leaves: list[int] = []
    groups: list[Ints] = []
    for k, kids in enumerate(tree.children):
        if len(kids) == 2 and tree.n + k not in order.fused:
            for leaf, other in (kids, kids[::-1]):
                if leaf < tree.n:
                    leaves.append(leaf)
                    groups.append(tree.under(other))
    return np.array(leaves, np.int64), random_leaves(rng, groups)


def usual_leaves(tree: Tree) -> frozenset[int]:
    """The leaves of ``s = fma(x, w, s)``: of an addition of two leaves only the later one."""
    pairs = (kids for kids in tree.children if len(kids) == 2)
    later = (right if right < tree.n else left for left, right in pairs)
    return frozenset(leaf for leaf in later if leaf < tree.n)


def _inexact(op: SummingOp) -> tuple[np.float32, float]:
    """A and L: L is a weight of the op, and A*L - A shows in f32 whether A*L was rounded."""
    if not isinstance(op, Levelled):
        factor = np.float32(1 + 2.0**-12)
        return factor, float(factor)
    for level in (v for v in op.levels if v > 2):
        for last in range(1, 64, 2):
            factor = np.float32(1 + last * 2.0**-23)
            exact = float(factor) * level - float(factor)
            rounded = float(np.float32(factor * np.float32(level))) - float(factor)
            if np.float32(exact) == exact and np.float32(rounded) != exact:
                return factor, float(level)
    raise InputError(
        f"op {op.name}: no product of its levels {op.levels} is inexact",
        "give it levels with an odd number above 2",
    )
