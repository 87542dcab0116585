"""Orders with one thing wrong, and an op that sums in the right one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from tests.order.known_trees import (
    chain,
    fused_order,
    later_leaves,
    tail_order,
    tree_of_1_1,
    tree_of_blocks,
    tree_of_lanes,
    tree_of_split,
)


@dataclass
class OrderOp:
    """A ``SummingOp`` that is an order."""

    order: Order
    rows: int = 64

    def __post_init__(self):
        self.name, self.n = "order", self.order.tree.n
        self.terms, self.dtype, self.out = self.order.terms, self.order.dtype, self.order.out
        self.key = {}

    def run(self, x, w):
        return evaluate(self.order, x, w)


def halves(low, high):
    if high - low == 1:
        return low
    middle = (low + high) // 2
    return (halves(low, middle), halves(middle, high))


def split(n, at):
    """Two chains, the second from leaf ``at`` on."""
    return (chain(list(range(at))), chain(list(range(at, n))))


def right_orders(n):
    bf16 = {"dtype": "bf16", "bits": 2, "rounding": "rz"}
    return {
        "chain": Order(Tree.of(chain(list(range(n)))), fma=later_leaves(n)),
        "lanes": Order(Tree.of(tree_of_lanes(n)), fma=frozenset(range(8, n))),
        "1.1": Order(Tree.of(tree_of_1_1(n))),
        "halves": Order(Tree.of(halves(0, n))),
        "blocks": Order(Tree.of(tree_of_blocks(n, 16))),
        "split": Order(Tree.of(split(n, n // 2)), fma=later_leaves(n) - {n // 2}),
        "f64 tail": tail_order(n),
        "fused": replace(fused_order(2)(n), dtype="bf16"),
        "fused split, bf16 out": Order(Tree.of(tree_of_split(n)), out="bf16", **bf16),
    }


def swapped(order, rng):
    """Two leaves of different additions change places; flags stay with the places."""
    while True:
        left, right = (int(v) for v in rng.choice(order.tree.n, 2, replace=False))
        if order.tree.parents[left] != order.tree.parents[right]:
            move = {left: right, right: left}
            return rebuilt(order, [[move.get(k, k) for k in kids] for kids in order.tree.children])


def moved(order, rng):
    """One leaf leaves its addition and is added to another node."""
    tree = order.tree
    while True:
        leaf = int(rng.integers(tree.n))
        target = int(rng.integers(tree.root))
        home, kids = tree.parents[leaf], [list(kids) for kids in tree.children]
        if target in (leaf, home) or tree.parents[target] == home:
            continue
        if len(kids[home - tree.n]) > 2:
            kids[home - tree.n].remove(leaf)
        else:  # the addition has one operand left: that takes its place
            other = next(k for k in kids[home - tree.n] if k != leaf)
            if tree.parents[home] < 0:
                continue
            above = kids[tree.parents[home] - tree.n]
            above[above.index(home)] = other
            kids[home - tree.n] = []
        if tree.sizes[tree.parents[target]] > 2 and len(kids[tree.parents[target] - tree.n]) > 2:
            kids[tree.parents[target] - tree.n].append(leaf)
        else:
            above = kids[tree.parents[target] - tree.n]
            above[above.index(target)] = tree.n + len(kids)
            kids.append([target, leaf])
        return rebuilt(order, kids)


def rebuilt(order, kids):
    """The order with other children; empty additions are dropped. Marks of nodes are found again
    by their leaves where those are still together."""
    n = order.tree.n
    names = [n + k for k, one in enumerate(kids) if one]
    number = {name: n + k for k, name in enumerate(names)}
    lists = [[number.get(k, k) for k in kids[name - n]] for name in names]
    tree = Tree.joined(n, lists)
    places = {frozenset(tree.under(v).tolist()): v for v in range(n, tree.root + 1)}

    def again(nodes):
        found = (places.get(frozenset(order.tree.under(v).tolist())) for v in nodes)
        return frozenset(v for v in found if v is not None)

    return replace(order, tree=tree, wide=again(order.wide), narrow=again(order.narrow))


def split_elsewhere(order, rng):
    n = order.tree.n
    at = n // 2 + int(rng.choice([-8, -2, -1, 1, 2, 8]))
    return Order(Tree.of(split(n, at)), fma=later_leaves(n) - {at})


def other_fma(order, rng):
    """One leaf's flag turned over; not that of an addition in f64, where it often does not show."""
    leaves = [
        leaf
        for leaf in range(order.tree.n)
        if order.tree.parents[leaf] not in order.wide
        and len(order.tree.children[order.tree.parents[leaf] - order.tree.n]) == 2
    ]
    return replace(order, fma=order.fma ^ {int(rng.choice(leaves))})


def other_bits(order, rng):
    return replace(order, bits=order.bits + int(rng.choice([-1, 1])))


def other_rounding(order, rng):
    return replace(order, rounding="rn")


def other_width(order, rng):
    """One f64 addition below the last is called f32."""
    inner = [v for v in sorted(order.wide) if v != order.tree.root]
    return replace(order, wide=order.wide - {int(rng.choice(inner))})


def other_store(order, rng):
    """The two partial sums are called stored in bf16."""
    return replace(order, narrow=frozenset(order.tree.children[-1]), stored="bf16")


# What is wrong: of which orders it can be, and how many of each.
WRONG = {
    "two leaves swapped": (swapped, tuple(right_orders(40)), 6),
    "a leaf moved": (moved, tuple(right_orders(40)), 6),
    "split elsewhere": (split_elsewhere, ("split",), 20),
    "one FMA flag": (other_fma, ("chain", "lanes", "1.1", "split", "halves", "f64 tail"), 5),
    "one bit of alignment": (other_bits, ("fused", "fused split, bf16 out"), 10),
    "rounded instead of cut": (other_rounding, ("fused", "fused split, bf16 out"), 5),
    "one width": (other_width, ("f64 tail",), 6),
    "stored in bf16": (other_store, ("fused split, bf16 out",), 6),
}


def wrong_orders(seed):
    """(what, which, right order, wrong order), for n from 33 to 120."""
    rng = np.random.default_rng(seed)
    for what, (change, names, count) in WRONG.items():
        for name in names:
            for _ in range(count):
                order = right_orders(int(rng.integers(33, 121)))[name]
                yield what, name, order, change(order, rng)
