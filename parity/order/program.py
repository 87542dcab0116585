"""A tree of additions as a postfix program: what the twin's kernel runs, one instruction a step.

The operand that needs more values is made first, so that few wait at once: a binary tree of n
leaves needs at most log2(n) + 1 of them, whatever its shape. Trees are walked without recursion: a
chain of a million terms is a million deep. What each addition does to the bits is said by
``Order``; here it becomes instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from parity.order.tree import Order, Tree

# Instructions (op, a, b, c); `top` is the value made last.
LEAF = 0  # push leaf a, rounded to f32
EXACT = 1  # push leaf a unrounded
ADD = 2  # top two -> their sum in f32
ADD_LEAF = 3  # top + leaf a in f32
ADD_EXACT = 4  # top + leaf a unrounded, rounded once to f32
WIDE = 5  # as ADD in f64
WIDE_LEAF = 6  # as ADD_LEAF in f64
WIDE_EXACT = 7  # as ADD_EXACT in f64
NARROW = 8  # round top to f32
STORE = 9  # round top to f32, then to the format a: FORMATS[a]
FUSE = 10  # the b leaves from a on in `leaves`, and the top c values -> their fused sum

TERMS = ("products", "values", "squares")
FORMATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Program:
    """``steps``: int32[steps, 4]; ``leaves``: int32[...] of the fused sums; ``depth``: values that
    wait at most."""

    steps: np.ndarray
    leaves: np.ndarray
    depth: int


def program_of(order: Order) -> Program:
    """The program of an order."""
    import numpy as np

    needs = _needs(order.tree)
    writer = _Writer(order, frozenset(order.fused_nodes))
    for node in _postorder(order.tree, needs):
        writer.node(node)
    if not writer.steps:  # a tree of one leaf
        writer.step(LEAF)
    steps, leaves = np.array(writer.steps, np.int32), np.array(writer.leaves, np.int32)
    return Program(steps, leaves, needs[order.tree.root])


def _operands(tree: Tree, node: int, needs: list[int]) -> list[int]:
    """The children of ``node`` that are nodes, the one that needs most values first."""
    kids = [kid for kid in tree.children[node - tree.n] if kid >= tree.n]
    return sorted(kids, key=lambda kid: -needs[kid])


def _needs(tree: Tree) -> list[int]:
    """How many values wait while each node is made; a leaf beside a node never waits."""
    needs = [1] * tree.n
    for kids in tree.children:
        inner = sorted((needs[kid] for kid in kids if kid >= tree.n), reverse=True)
        needs.append(max((need + place for place, need in enumerate(inner)), default=1))
    return needs


def _postorder(tree: Tree, needs: list[int]) -> Iterator[int]:
    """Every node after its operands, in the order in which they are made."""
    waiting = [(tree.root, False)] if tree.children else []
    while waiting:
        node, ready = waiting.pop()
        if ready:
            yield node
            continue
        waiting.append((node, True))
        waiting += [(kid, False) for kid in reversed(_operands(tree, node, needs))]


@dataclass
class _Writer:
    order: Order
    fused: frozenset[int]
    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)

    def step(self, op: int, a: int = 0, b: int = 0, c: int = 0) -> None:
        self.steps.append((op, a, b, c))

    def node(self, node: int) -> None:
        kids = self.order.tree.children[node - self.order.tree.n]
        own = [kid for kid in kids if kid < self.order.tree.n]
        if node in self.fused:
            self.step(FUSE, len(self.leaves), len(own), len(kids) - len(own))
            self.leaves += own
        elif own:
            self.with_leaves(node, own)
        else:
            self.step(WIDE if self.is_wide(node) else ADD)
        self.leave(node)

    def with_leaves(self, node: int, own: list[int]) -> None:
        """One leaf or two: an exact one comes last, so that a lone one is one multiply-add."""
        *first, last = sorted(own, key=lambda leaf: (leaf in self.order.fma, leaf))
        for leaf in first:
            self.step(EXACT if leaf in self.order.fma else LEAF, leaf)
        exact = last in self.order.fma
        if self.is_wide(node):
            self.step(WIDE_EXACT if exact else WIDE_LEAF, last)
        else:
            self.step(ADD_EXACT if exact else ADD_LEAF, last)

    def leave(self, node: int) -> None:
        """What happens to a node's value before its parent, or the answer, takes it."""
        parent = self.order.tree.parents[node]
        if node in self.order.narrow:
            self.step(STORE, FORMATS.index(self.order.stored))
        elif self.is_wide(node) and not self.is_wide(parent):  # the root's parent is -1
            self.step(NARROW)

    def is_wide(self, node: int) -> bool:
        return node in self.order.wide and node not in self.fused
