"""What each addition of a revealed tree does to the bits, by sums of three terms.

A large number and its negative stand across an addition and its parent, and a small number beside
the large one: what is left of the small one tells how the addition rounds, and where its result is
stored. Numbers are in units of the op's scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.order.asking import Reals, random_leaves
from parity.order.counts import Counter
from parity.order.fma import fma_leaves
from parity.order.op import Flags, SummingOp
from parity.order.tree import Format, Ints, Order, Rounding, Tree

LARGE = 2.0**30
# Three quarters of the last place of 2^30 in f32, f16 and bf16: rounding to nearest gives a whole
# place, cutting gives none, and a wider addition keeps it as it is.
PART = {"f32": 96.0, "f16": 0.75 * 2.0**20, "bf16": 0.75 * 2.0**23}
PLACE = {name: part / 0.75 for name, part in PART.items()}
NARROW: tuple[Format, ...] = ("f16", "bf16")
# Distances at which a fused sum may still keep a one beside 2^e: all but "exact" lie between.
DISTANCES = np.arange(8.0, 58.0)


@dataclass(frozen=True)
class Measured:
    """The order as far as probes tell, others that they cannot tell from it, and what was odd."""

    order: Order
    others: tuple[Order, ...]
    odd: tuple[str, ...]


def measured(counter: Counter, tree: Tree, rng: np.random.Generator) -> Measured:
    """Measures every addition of the tree of ``counter``'s op (products or values)."""
    op = counter.asker.op
    plain = Order.plain(tree, op.terms, op.dtype, op.out)
    return _Bench(counter, plain, rng).measured()


class _Bench:
    """One tree under measurement."""

    def __init__(self, counter: Counter, order: Order, rng: np.random.Generator) -> None:
        self.counter, self.order, self.rng = counter, order, rng
        self.tree = order.tree
        self.op: SummingOp = counter.asker.op
        self.odd: list[str] = []

    def measured(self) -> Measured:
        tree = self.tree
        plain = [tree.n + k for k, kids in enumerate(tree.children) if len(kids) == 2]
        fused = [tree.n + k for k, kids in enumerate(tree.children) if len(kids) > 2]
        wide, cut, narrow = self._plain(plain)
        others: list[Order] = []
        order = self._stored(replace(self.order, wide=wide, fused=cut), narrow, fused)
        if fused:
            order, others = self._fused(order, fused)
        elif cut:
            order = replace(order, rounding="rz")
            others = [replace(order, bits=bits) for bits in range(4)]
        fma, unseen, odd = fma_leaves(self.counter, order, self.rng)
        self.odd += [odd] if odd else []
        order = replace(order, fma=fma)
        others = [replace(other, fma=fma) for other in others]
        others += [replace(one, fma=more) for one in (order, *others) for more in unseen]
        return Measured(order, tuple(others), tuple(self.odd))

    def _plain(self, nodes: list[int]) -> tuple[frozenset[int], frozenset[int], dict[int, Format]]:
        """The wide ones, those that cut, and those whose result is stored narrower."""
        rest = self._left(nodes, PART["f32"])
        wide = {v for v, left in rest.items() if left == PART["f32"]}
        lost = [v for v, left in rest.items() if left == 0]
        narrow = self._narrow(lost)
        odd = {v: left for v, left in rest.items() if left not in (0, PART["f32"], PLACE["f32"])}
        self._say("an addition of two", odd)
        # The parent of a wide addition took its result as it was: so it is wide as well.
        tree = self.tree
        wide |= {tree.parents[v] for v in wide if len(self._operands(tree.parents[v])) == 2}
        return frozenset(wide), frozenset(v for v in lost if v not in narrow), narrow

    def _narrow(self, nodes: Iterable[int]) -> dict[int, Format]:
        """Of additions that keep nothing below f32's place, the format that they are stored in."""
        found: dict[int, Format] = {}
        left = list(nodes)
        for name in NARROW:
            rest = self._left(left, PART[name])
            found |= {v: name for v, kept in rest.items() if kept == PLACE[name]}
            left = [v for v, kept in rest.items() if kept == 0]
        self._say("an addition", dict.fromkeys(left, 0.0))
        return found

    def _left(self, nodes: Sequence[int], small: float) -> dict[int, float]:
        """What is left of a small number beside 2^30 in each node; of the root, what f32 shows."""
        tree = self.tree
        seen = [v for v in nodes if v != tree.root or self.op.out == "f32"]
        places = self._leaves([[*self._operands(v)[:2], self.tree.beside(v)] for v in seen])
        values = np.tile([LARGE, small, -LARGE], (len(seen), 1))
        values[[k for k, v in enumerate(seen) if v == tree.root], 2] = 0
        rest = self._few(places, values)
        rest -= np.array([LARGE if v == tree.root else 0.0 for v in seen])
        return dict(zip(seen, rest.tolist(), strict=True))

    def _stored(self, order: Order, narrow: dict[int, Format], fused: list[int]) -> Order:
        """The order with its nodes that are stored narrower than f32."""
        narrow = narrow | self._narrow([v for v in fused if v != self.tree.root])
        names = sorted(set(narrow.values()))
        if len(names) > 1:
            self.odd.append(f"partial sums are stored in several formats: {', '.join(names)}")
        if not names:
            return order
        return replace(order, narrow=frozenset(narrow), stored=names[-1])

    def _fused(self, order: Order, fused: list[int]) -> tuple[Order, list[Order]]:
        bits = self._alignment(fused)
        rounding = self._rounding([v for v in fused if v not in order.narrow])
        order = replace(order, bits=bits, rounding=rounding or "rz")
        return order, [] if rounding else [replace(order, rounding="rn")]

    def _alignment(self, fused: list[int]) -> int | None:
        """How far below f32's last place of the largest term a fused sum keeps a one."""
        room = self.counter.scale.big / self.counter.scale.unit
        distances = DISTANCES[np.exp2(DISTANCES) <= room]
        kept = self._kept(np.repeat(fused[:1], len(distances)), distances)
        reach = int(kept.sum())
        if reach == len(distances):
            return None
        if not kept[:reach].all() or reach == 0:
            self.odd.append("a fused sum keeps a one beside 2^e, but not beside a smaller one")
            return None
        last = int(distances[reach - 1])
        others = np.array(fused[1:], np.int64)
        unlike = ~self._kept(others, np.full(len(others), float(last)))
        unlike |= self._kept(others, np.full(len(others), last + 1.0))
        if unlike.any():
            self.odd.append(
                f"{int(unlike.sum())} of {len(fused)} fused sums align otherwise than the first"
            )
        return last - 23

    def _kept(self, nodes: Ints, distances: Reals) -> Flags:
        """Does a one beside 2^distance and its negative, all in one fused sum, survive?"""
        places = self._leaves([list(self._operands(int(v))[:3]) for v in nodes])
        large = np.exp2(distances)
        rest = self._few(places, np.stack([large, np.ones(len(large)), -large], axis=1))
        kept: Flags = rest == 1
        return kept

    def _rounding(self, fused: list[int]) -> Rounding | None:
        """How a fused sum's exact 2^24 + 3, two of its terms 2^23, comes to f32; None: unseen."""
        tree = self.tree
        seen = [v for v in fused if v != tree.root or self.op.out == "f32"]
        places = self._leaves([[*self._operands(v)[:3], self.tree.beside(v)] for v in seen])
        values = np.tile([2.0**23, 2.0**23, 3.0, -(2.0**24)], (len(seen), 1))
        values[[k for k, v in enumerate(seen) if v == tree.root], 3] = 0
        rest = self._few(places, values)
        rest -= np.array([2.0**24 if v == tree.root else 0.0 for v in seen])
        found = {v: left for v, left in zip(seen, rest.tolist(), strict=True)}
        self._say("a fused sum", {v: left for v, left in found.items() if left not in (2, 4)})
        ways = {left for left in found.values() if left in (2, 4)}
        if len(ways) > 1:
            self.odd.append("some fused sums cut their result and some round it to nearest")
        if len(ways) != 1:
            return None
        return "rz" if ways == {2} else "rn"

    def _operands(self, node: int) -> tuple[int, ...]:
        return self.tree.children[node - self.tree.n]

    def _leaves(self, rows: list[list[int]]) -> Ints:
        """int64[rows, k]: a leaf under each node."""
        groups = [self.tree.under(v) for row in rows for v in row]
        return random_leaves(self.rng, groups).reshape(len(rows), len(rows[0]) if rows else 0)

    def _few(self, places: Ints, values: Reals) -> Reals:
        return self.counter.few(places, values) if len(places) else np.zeros(0)

    def _say(self, what: str, odd: dict[int, float]) -> None:
        if odd:
            node, left = next(iter(odd.items()))
            low, size = self.tree.lows[node], self.tree.sizes[node]
            self.odd.append(
                f"{len(odd)} times {what} left {left:.9g} of a small number, first that of "
                f"{size} leaves from leaf {low}"
            )
