"""The order of a sum: its tree of additions, and what each addition does to the bits.

Nodes are numbered: 0..n-1 are the leaves (the terms, by their index), n.. are the additions, so
``children[v - n]`` are the operands of addition v. A tree has one written form: operands ascend by
their lowest leaf and additions stand in the postorder of that, the last addition (root) last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from parity.errors import InputError

Ints = npt.NDArray[np.int64]
Terms = Literal["products", "values", "squares"]
Format = Literal["f32", "bf16", "f16"]
Rounding = Literal["rz", "rn"]


TERMS: tuple[Terms, ...] = ("products", "values", "squares")
FORMATS: tuple[Format, ...] = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Tree:
    """n leaves and ``children``: for each addition its operands, two or more, ascending.

    An addition of more than two operands is one fused sum. Raises InputError for children that are
    no tree of n leaves, or not in the written form; ``Tree.of`` and ``Tree.joined`` bring any tree
    into it.
    """

    n: int
    children: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if _written_form(self.n, [list(kids) for kids in self.children]) != self.children:
            raise InputError(
                f"a tree of {self.n} leaves is not in its written form",
                "operands ascend by lowest leaf, additions stand in postorder",
            )

    @classmethod
    def of(cls, nested: Any) -> Tree:
        """The tree of nested tuples (or lists) of leaf numbers, of any depth: ``((0, 1), 2)``."""
        children: list[list[int]] = []
        leaves = 0
        open_nodes: list[tuple[list[int], Any]] = [([], iter((nested,)))]
        while open_nodes:
            kids, rest = open_nodes[-1]
            item = next(rest, None)
            if isinstance(item, tuple | list):
                open_nodes.append(([], iter(item)))
            elif item is not None:
                kids.append(_leaf(item))
                leaves += 1
            else:
                open_nodes.pop()
                if open_nodes:
                    children.append(kids)
                    open_nodes[-1][0].append(-len(children))
        # Leaves were not counted yet when an addition got its number: -1 is the first.
        numbered = [[k if k >= 0 else leaves - 1 - k for k in kids] for kids in children]
        return cls.joined(leaves, numbered)

    @classmethod
    def joined(cls, n: int, children: Sequence[Sequence[int]]) -> Tree:
        """The tree of additions in any order: ``children[k]`` are the operands of node n + k."""
        return cls(n, _written_form(n, [list(kids) for kids in children]))

    def nested(self) -> Any:
        """Nested tuples of leaf numbers, as ``Tree.of`` reads them."""
        made: list[Any] = list(range(self.n))
        for kids in self.children:
            made.append(tuple(made[k] for k in kids))
        return made[-1]

    @property
    def root(self) -> int:
        """The last addition; of one leaf, that leaf."""
        return self.n + len(self.children) - 1

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Leaves under each node."""
        sizes = [1] * self.n
        for kids in self.children:
            sizes.append(sum(sizes[k] for k in kids))
        return tuple(sizes)

    @cached_property
    def lows(self) -> tuple[int, ...]:
        """The lowest leaf under each node."""
        lows = list(range(self.n))
        for kids in self.children:
            lows.append(lows[kids[0]])
        return tuple(lows)

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """The addition that each node enters; -1 for the root."""
        parents = [-1] * (self.n + len(self.children))
        for k, kids in enumerate(self.children):
            for kid in kids:
                parents[kid] = self.n + k
        return tuple(parents)

    @cached_property
    def leaves(self) -> Ints:
        """int64[n]: the leaves from left to right; those under one node stand together."""
        starts = self.starts
        leaves = np.empty(self.n, np.int64)
        leaves[list(starts[: self.n])] = np.arange(self.n)
        return leaves

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where in ``leaves`` each node's leaves begin."""
        starts = [0] * (self.n + len(self.children))
        for k in range(len(self.children) - 1, -1, -1):
            at = starts[self.n + k]
            for kid in self.children[k]:
                starts[kid] = at
                at += self.sizes[kid]
        return tuple(starts)

    def under(self, node: int) -> Ints:
        """int64[sizes[node]]: the leaves under a node."""
        at = self.starts[node]
        return self.leaves[at : at + self.sizes[node]]

    def beside(self, node: int) -> int:
        """Another operand of the node's parent; of the root, the root."""
        parent = self.parents[node]
        if parent < 0:
            return node
        return next(kid for kid in self.children[parent - self.n] if kid != node)

    @cached_property
    def _meeting(self) -> list[Ints]:
        """Row k: the largest node among 2^k neighbours' first common additions, from each place."""
        first = np.zeros(max(self.n - 1, 1), np.int64)
        for k, kids in enumerate(self.children):
            for kid in kids[1:]:
                first[self.starts[kid] - 1] = self.n + k
        table = [first]
        while len(table[-1]) > 1 << (len(table) - 1):
            step = 1 << (len(table) - 1)
            table.append(np.maximum(table[-1][:-step], table[-1][step:]))
        return table

    def meet(self, left: Ints, right: Ints) -> Ints:
        """int64[...]: the lowest common addition of each pair of (different) leaves.

        The leaves between two stand under it, and an addition has a larger number than all below:
        so it is the largest number between them.
        """
        starts = np.array(self.starts[: self.n])
        low = np.minimum(starts[left], starts[right])
        length = np.abs(starts[left] - starts[right])
        level = np.frexp(length)[1] - 1
        nodes = np.zeros(length.shape, np.int64)
        for k, row in enumerate(self._meeting):
            at = level == k
            nodes[at] = np.maximum(row[low[at]], row[low[at] + length[at] - (1 << k)])
        return nodes

    def text(self) -> str:
        """The written form: ``((0 1) 2)``."""
        parts: list[str] = []
        waiting: list[int | str] = [self.root]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                parts.append(item)
            elif item < self.n:
                parts.append(str(item))
            else:
                parts.append("(")
                waiting.append(")")
                kids = self.children[item - self.n]
                for kid in reversed(kids[1:]):
                    waiting += [kid, " "]
                waiting.append(kids[0])
        return "".join(parts)

    def digest(self) -> str:
        """16 digits: sha256 of the written form."""
        return _digest(self.text())


@dataclass(frozen=True)
class Order:
    """A tree and what its additions do: enough to make the op's bits again.

    A leaf's value is x*w rounded to f32 (products; of bf16 and f16 this is exact), w (values), or
    w*w rounded to f32 (squares). Every addition gives an f32, unless it is wide. By addition v:

    * more than two operands, or v in ``fused``: a *fused sum*. Its leaves enter as exact products.
      Each operand is cut toward zero to a multiple of 2^(E - 23 - bits), E being the largest of the
      operands' exponents; the exponent of a product is the sum of its factors' (its value may reach
      4 times 2^that), of any other operand floor(log2). ``bits`` None: nothing is cut. The exact
      sum of those is then brought to f32 by ``rounding``: "rz" cuts, "rn" is to nearest even.
    * v in ``wide``: the sum of its operands in f64, kept as f64 for a wide parent; any other parent
      takes it rounded to f32. A leaf of ``fma`` enters as its exact product.
    * any other: the exact sum of its two operands, rounded once to f32, to nearest even; a leaf of
      ``fma`` is the exact product there (one fused multiply-add), any other leaf is rounded first.

    ``narrow``: nodes (additions) whose result is stored in the format ``stored`` before the parent
    takes it. The root is rounded to f32 if wide, then to ``out``. ``post`` names what the op does
    with the sum afterwards ("mean_rsqrt", ...; "" nothing), ``settings`` its constants ("eps").
    """

    tree: Tree
    terms: Terms = "products"
    dtype: Format = "f32"
    out: str = "f32"
    fma: frozenset[int] = field(default=frozenset())
    wide: frozenset[int] = field(default=frozenset())
    fused: frozenset[int] = field(default=frozenset())
    bits: int | None = None
    rounding: Rounding = "rn"
    narrow: frozenset[int] = field(default=frozenset())
    stored: Format = "f32"
    post: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def plain(cls, tree: Tree, terms: str, dtype: str, out: str) -> Order:
        """Every addition rounded to f32, every product before. InputError for unknown names."""
        for what, value, known in (
            ("terms", terms, TERMS),
            ("dtype", dtype, FORMATS),
            ("out", out, FORMATS),
        ):
            if value not in known:
                raise InputError(f"a sum has the {what} {value!r}", f"{what}: {', '.join(known)}")
        return cls(tree, cast(Terms, terms), cast(Format, dtype), out)

    @property
    def fused_nodes(self) -> tuple[int, ...]:
        """Every fused sum, whatever its number of operands, ascending."""
        many = (k + self.tree.n for k, kids in enumerate(self.tree.children) if len(kids) > 2)
        return tuple(sorted({*many, *self.fused}))

    def text(self) -> str:
        """Everything that decides a bit, on one line."""
        sets = {"fma": self.fma, "wide": self.wide, "fused": self.fused, "narrow": self.narrow}
        parts = [f"{name}={','.join(map(str, sorted(nodes)))}" for name, nodes in sets.items()]
        settings = ",".join(f"{name}={value}" for name, value in self.settings)
        rest = (f"bits={self.bits}", self.rounding, self.stored, self.post, settings)
        return " ".join((self.tree.text(), self.terms, self.dtype, self.out, *parts, *rest))

    def digest(self) -> str:
        """16 digits: sha256 over everything."""
        return _digest(self.text())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _leaf(item: Any) -> int:
    if type(item) is not int or item < 0:
        raise InputError(f"a tree has the leaf {item!r}", "leaves are numbered from 0")
    return item


def _written_form(n: int, children: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """Operands ascending by lowest leaf, additions in postorder.

    Raises InputError unless each node but one is the operand of one addition, without circles.
    """
    nodes = n + len(children)
    _require_tree(n, children)
    entered = {kid for kids in children for kid in kids}
    (root,) = (v for v in range(nodes) if v not in entered)
    downward = [root]
    for v in downward:  # grows while it is read: parents before children
        if v >= n:
            downward += children[v - n]
    if len(downward) != nodes:
        raise InputError(
            f"a tree of {n} leaves goes in a circle", "an addition follows its operands"
        )
    lows = list(range(nodes))
    for v in reversed(downward):
        if v >= n:
            children[v - n].sort(key=lows.__getitem__)
            lows[v] = lows[children[v - n][0]]
    number = list(range(n)) + [-1] * len(children)
    written: list[tuple[int, ...]] = []
    waiting = [root]
    while waiting:
        v = waiting.pop()
        if v < 0:  # its operands have their numbers now
            number[~v] = n + len(written)
            written.append(tuple(number[kid] for kid in children[~v - n]))
        elif v >= n:
            waiting.append(~v)
            waiting += reversed(children[v - n])
    return tuple(written)


def _require_tree(n: int, children: list[list[int]]) -> None:
    if n < 1:
        raise InputError(f"a tree has {n} leaves", "give one at least")
    nodes = n + len(children)
    seen = [0] * nodes
    for kids in children:
        if len(kids) < 2:
            raise InputError(f"an addition has {len(kids)} operands", "give two at least")
        for kid in kids:
            if not 0 <= kid < nodes:
                raise InputError(
                    f"a tree of {n} leaves names node {kid}", f"the last is {nodes - 1}"
                )
            seen[kid] += 1
    free = [v for v in range(nodes) if not seen[v]]
    twice = [v for v in range(nodes) if seen[v] > 1]
    if twice or len(free) != 1:
        what = f"uses node {twice[0]} twice" if twice else f"leaves {len(free)} nodes unused"
        raise InputError(f"a tree of {n} leaves {what}", "each leaf is added exactly once")
