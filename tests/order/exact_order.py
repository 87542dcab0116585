"""A second, slow evaluator of orders: Python's fractions, one row at a time, from Order's own text.

It shares nothing with the twin: no program, no float arithmetic but reading and writing values.
"""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np

from parity.order.tree import Order, Tree

# (significant bits, exponent of the smallest normal, of the largest)
F16, BF16, F32, F64 = (11, -14, 15), (8, -126, 127), (24, -126, 127), (53, -1022, 1023)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32}


def rounded(value: Fraction, form: tuple[int, int, int], to_zero: bool = False) -> float:
    """The nearest of a format, ties to even, or the next toward zero; not 0 and finite before."""
    digits, least, most = form
    exponent = max(_log2(value), least) - digits + 1
    quantum = Fraction(2) ** exponent
    count, rest = divmod(abs(value), quantum)
    if not to_zero and (2 * rest > quantum or (2 * rest == quantum and count % 2)):
        count += 1
    found = count * quantum
    if found >= Fraction(2) ** (most + 1):
        found = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** most
        return math.copysign(float(found) if to_zero else math.inf, value)
    return math.copysign(float(found), value)


def _log2(value: Fraction) -> int:
    """floor(log2 |value|)."""
    top, bottom = abs(value.numerator), value.denominator
    guess = top.bit_length() - bottom.bit_length()
    return guess if Fraction(2) ** guess <= abs(value) else guess - 1


def total(terms: list[float], form: tuple[int, int, int], to_zero: bool = False) -> float:
    """The exact sum of floats, rounded once, as IEEE has it for zeros, infinities and NaNs."""
    if not all(map(math.isfinite, terms)):
        odd = [t for t in terms if not math.isfinite(t)]
        return odd[0] if len(set(odd)) == 1 and not math.isnan(odd[0]) else math.nan
    value = sum(map(Fraction, terms))
    if value:
        return rounded(value, form, to_zero)
    return -0.0 if all(math.copysign(1, t) < 0 for t in terms) and not any(terms) else 0.0


def again(value: float, form: tuple[int, int, int]) -> float:
    """A value brought to a format."""
    return rounded(Fraction(value), form) if math.isfinite(value) and value else value


class Row:
    """One row of an order's sums: x[n], w[n] as Python floats."""

    def __init__(self, order: Order, x: list[float], w: list[float]) -> None:
        self.order, self.x, self.w = order, x, w
        self.fused = {
            k + order.tree.n for k, kids in enumerate(order.tree.children) if len(kids) > 2
        } | order.fused

    def leaf(self, j: int) -> float:
        """The exact product, value or square: a float64 holds it."""
        factor = {"products": self.x[j], "values": 1.0, "squares": self.w[j]}[self.order.terms]
        return factor * self.w[j]

    def exponent(self, node: int, value: float) -> int:
        if node >= self.order.tree.n or self.order.terms == "values":
            return _log2(Fraction(value))
        other = self.x[node] if self.order.terms == "products" else self.w[node]
        return _log2(Fraction(other)) + _log2(Fraction(self.w[node]))

    def cut(self, kids: tuple[int, ...], values: list[float]) -> list[float]:
        if self.order.bits is None or not all(map(math.isfinite, values)):
            return values
        sizes = [self.exponent(k, v) for k, v in zip(kids, values, strict=True) if v]
        if not sizes:
            return values
        quantum = Fraction(2) ** (max(sizes) - 23 - self.order.bits)
        cut = [int(Fraction(v) / quantum) * quantum for v in values]
        return [math.copysign(float(c), v) for c, v in zip(cut, values, strict=True)]

    def operand(self, kid: int, parent: int, made: dict[int, float]) -> float:
        """What a node's parent takes."""
        order = self.order
        if kid < order.tree.n:
            exact = parent in self.fused or kid in order.fma
            return self.leaf(kid) if exact else again(self.leaf(kid), F32)
        value = made[kid]
        if kid in order.narrow:
            return again(again(value, F32), FORMATS[order.stored])
        wide = parent in order.wide and parent not in self.fused
        return value if wide else again(value, F32)

    def sum(self) -> float:
        order, n, made = self.order, self.order.tree.n, dict[int, float]()
        for number, kids in enumerate(order.tree.children):
            node = n + number
            values = [self.operand(kid, node, made) for kid in kids]
            if node in self.fused:
                cut = self.cut(kids, values)
                made[node] = total(cut, F32, order.rounding == "rz")
            else:
                made[node] = total(values, F64 if node in order.wide else F32)
        root = made[order.tree.root] if made else self.leaf(0)
        if order.tree.root in order.narrow:
            root = again(again(root, F32), FORMATS[order.stored])
        return again(again(root, F32), FORMATS[order.out])


def exact(order: Order, x: np.ndarray | None, w: np.ndarray) -> np.ndarray:
    """float32[rows]: as ``parity.order.twin.evaluate``."""
    shared = [1.0] * order.tree.n if x is None else [float(v) for v in x]
    sums = [Row(order, shared, [float(v) for v in row]).sum() for row in w]
    return np.array(sums, np.float32)


# --- random orders --------------------------------------------------------------------------------


def random_nested(rng: random.Random, leaves: list[int], fused: bool) -> Any:
    """Nested tuples over ``leaves``, nodes of two or (``fused``) up to five operands."""
    if len(leaves) == 1:
        return leaves[0]
    widest = min(len(leaves), 5 if fused and rng.random() < 0.5 else 2)
    cuts = sorted(rng.sample(range(1, len(leaves)), rng.randint(2, widest) - 1))
    parts = [leaves[i:j] for i, j in zip([0, *cuts], [*cuts, len(leaves)], strict=True)]
    return tuple(random_nested(rng, part, fused) for part in parts)


def random_tree(rng: random.Random, n: int, fused: bool = True) -> Tree:
    """A tree of n leaves in random places."""
    leaves = list(range(n))
    rng.shuffle(leaves)
    return Tree.of(random_nested(rng, leaves, fused))


def random_order(rng: random.Random, most: int = 8) -> Order:
    """An order with every setting left to chance."""
    tree = random_tree(rng, rng.randint(1, most))
    nodes = range(tree.n, tree.n + len(tree.children))

    def some(of: Any, chance: float) -> frozenset[int]:
        share = rng.choice([0.0, chance, 1.0])
        return frozenset(v for v in of if rng.random() < share)

    return Order(
        tree,
        terms=rng.choice(["products", "products", "values", "squares"]),
        out=rng.choice(["f32", "f32", "bf16", "f16"]),
        fma=some(range(tree.n), 0.5),
        wide=some(nodes, 0.3),
        fused=some([v for v in nodes if len(tree.children[v - tree.n]) == 2], 0.2),
        bits=rng.choice([None, 0, 1, 2, 3, 9, 34, 50, 300]),
        rounding=rng.choice(["rz", "rn"]),
        narrow=some(nodes, 0.3),
        stored=rng.choice(["f32", "bf16", "f16"]),
    )


def chain(parts: Any) -> Any:
    """((first + second) + third) + ..."""
    total, *rest = parts
    for part in rest:
        total = (total, part)
    return total


def shifted(nested: Any, by: int) -> Any:
    if isinstance(nested, int):
        return nested + by
    return tuple(shifted(part, by) for part in nested)


def regular(rng: random.Random, depth: int, at: int) -> tuple[Any, int]:
    """A tree of repeated parts from leaf ``at`` on, and the leaf after it."""
    kind = rng.choice(["leaf", "chain", "pairs", "fused", "mixed"]) if depth else "leaf"
    if kind == "leaf":
        return at, at + 1
    part, end = regular(rng, depth - 1, at)
    size, count = end - at, rng.randint(2, 5)
    parts = [shifted(part, k * size) for k in range(count)]
    if kind == "pairs":
        return (part, shifted(part, size)), at + 2 * size
    if kind == "fused" and count > 2:
        return tuple(parts), at + count * size
    if kind == "mixed":
        return chain([*parts[::-1], at + count * size]), at + count * size + 1
    return chain(parts), at + count * size


ODD = [0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149, -(2.0**-126), 3.4e38, -1e-40]


def random_values(rng: random.Random, count: int) -> np.ndarray:
    """float32[count]: of one size, of all sizes, or with subnormals, huge values and no numbers."""
    spread, odd = rng.choice([(2, 0.0), (12, 0.02), (70, 0.1)])
    values = [
        rng.choice(ODD)
        if rng.random() < odd
        else rng.choice([1.0, -1.0, rng.uniform(-2, 2)]) * 2.0 ** rng.randint(-spread, spread)
        for _ in range(count)
    ]
    return np.array(values, np.float32)
