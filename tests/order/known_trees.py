"""Sums of known order: vectorised loops over rows, and their trees written independently.

Each loop adds in the order that its text shows, one column at a time; each tree is written from the
loop's description, not from the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from parity.order.tree import Order, Tree
from tests.order.slow_twin import brought, exponent, narrowed, rounded_once

F32 = np.float32


@dataclass
class LoopOp:
    """A ``SummingOp`` of a loop over columns: ``loop(x, w)``, x float32[n], w float32[rows, n]."""

    name: str
    loop: Callable
    n: int
    rows: int = 256
    terms: str = "products"
    dtype: str = "f32"
    out: str = "f32"
    key: dict = field(default_factory=dict)

    def run(self, x, w):
        assert w.shape == (self.rows, self.n)
        assert w.dtype == np.float32
        if self.terms == "squares":
            return self.loop(w.T, w)  # x[i] is then a column
        return self.loop(np.ones(self.n, F32) if x is None else x, w)


def fma(a, b, c):
    """float32 a*b + c rounded once: the slow twin's rounding, through float64."""
    return rounded_once(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))


# ---- the loops


def ascending(x, w):
    s = x[0] * w[:, 0]
    for i in range(1, len(x)):
        s = s + x[i] * w[:, i]
    return s


def ascending_fma(x, w):
    s = x[0] * w[:, 0]
    for i in range(1, len(x)):
        s = fma(x[i], w[:, i], s)
    return s


def contract_1_1(x, w):
    n = len(x)
    s = np.zeros(len(w), F32)
    for b in range(0, n - n % 8, 8):
        lo = [x[i] * w[:, i] + x[i + 4] * w[:, i + 4] for i in range(b, b + 4)]
        s = s + ((lo[0] + lo[1]) + (lo[2] + lo[3]))
    for i in range(n - n % 8, n):
        s = s + x[i] * w[:, i]
    return s


def four_partials(x, w):
    parts = [np.zeros(len(w), F32) for _ in range(4)]
    for i in range(len(x)):
        parts[i % 4] = parts[i % 4] + x[i] * w[:, i]
    return ((parts[0] + parts[1]) + parts[2]) + parts[3]


def lanes(x, w):
    """8 strided lanes, each a chain of fused multiply-adds, joined by halves."""
    n = len(x)
    lane = []
    for k in range(min(8, n)):
        s = x[k] * w[:, k]
        for i in range(k + 8, n, 8):
            s = fma(x[i], w[:, i], s)
        lane.append(s)
    while len(lane) > 1:
        half = len(lane) // 2
        lane = [lane[k] + lane[k + half] for k in range(half)]
    return lane[0]


def reversed_order(x, w):
    s = x[-1] * w[:, -1]
    for i in range(len(x) - 2, -1, -1):
        s = s + x[i] * w[:, i]
    return s


def blocked(x, w):
    """Chains of 16, their sums added ascending."""
    total = None
    for b in range(0, len(x), 16):
        s = x[b] * w[:, b]
        for i in range(b + 1, min(b + 16, len(x))):
            s = s + x[i] * w[:, i]
        total = s if total is None else total + s
    return total


def f64_tail(x, w):
    """Four f32 partials over whole groups of 4; then, in f64, exact products of the tail and all.

    The tail is the last n mod 4 terms and the 4 before them.
    """
    n = len(x)
    end = max(0, n - n % 4 - 4)
    s = np.zeros(len(w), np.float64)
    for i in range(end, n):
        s = s + x[i].astype(np.float64) * w[:, i].astype(np.float64)
    if end:
        s = s + four_partials(x[:end], w[:, :end]).astype(np.float64)
    return s.astype(F32)


def fused_16(bits, rounding="rz", size=16):
    """``size`` products and the accumulator, aligned ``bits`` below f32's last place."""

    def loop(x, w):
        products = x.astype(np.float64) * w.astype(np.float64)
        powers = np.frexp(x)[1] + np.frexp(w)[1] - 2
        powers = np.where(products == 0, -5000, powers)
        total = None
        for b in range(0, len(x), size):
            terms, largest = products[:, b : b + size], powers[:, b : b + size].max(axis=1)
            if total is not None:
                terms = np.concatenate([terms, total[:, None].astype(np.float64)], axis=1)
                largest = np.maximum(largest, exponent(total.astype(np.float64)))
            quantum = np.exp2(np.where(largest < -4000, 0, largest) - 23.0 - bits)[:, None]
            whole = np.trunc(terms / quantum).sum(axis=1)
            total = brought(whole * quantum[:, 0], rounding)
        return total

    return loop


def split_fused(stored, out="f32"):
    """Two halves of fused sums, the partial sums stored in a format, then added in f32."""

    def loop(x, w):
        half = len(x) // 2
        parts = [
            narrowed(fused_16(2)(x[s], w[:, s]), stored)
            for s in (slice(0, half), slice(half, None))
        ]
        return narrowed(parts[0] + parts[1], out)

    return loop


def narrow_accumulator(form):
    """Ascending, the accumulator stored in bf16 or f16 after every addition."""

    def loop(x, w):
        s = narrowed(x[0] * w[:, 0], form)
        for i in range(1, len(x)):
            s = narrowed(s + x[i] * w[:, i], form)
        return s

    return loop


# ---- their trees, from the description


def chain(parts):
    made = parts[0]
    for part in parts[1:]:
        made = (made, part)
    return made


def tree_of_1_1(n):
    blocks = []
    for b in range(0, n - n % 8, 8):
        left = ((b, b + 4), (b + 1, b + 5))
        right = ((b + 2, b + 6), (b + 3, b + 7))
        blocks.append((left, right))
    return chain(blocks + list(range(n - n % 8, n)))


def tree_of_partials(leaves):
    return chain([chain(leaves[k::4]) for k in range(min(4, len(leaves)))])


def tree_of_lanes(n):
    def joined(lanes):
        if len(lanes) == 1:
            return lanes[0]
        half = len(lanes) // 2
        return joined([(lanes[k], lanes[k + half]) for k in range(half)])

    return joined([chain(list(range(k, n, 8))) for k in range(min(8, n))])


def tree_of_blocks(n, size):
    return chain([chain(list(range(b, min(b + size, n)))) for b in range(0, n, size)])


def tree_of_f64_tail(n):
    end = max(0, n - n % 4 - 4)
    tail = chain(list(range(end, n)))
    return (tail, tree_of_partials(list(range(end)))) if end else tail


def tree_of_fused(n, first=0):
    total = tuple(range(first, min(first + 16, first + n)))
    for b in range(first + 16, first + n, 16):
        total = (total, *range(b, min(b + 16, first + n)))
    return total


def tree_of_split(n):
    half = n // 2
    return (tree_of_fused(half), tree_of_fused(n - half, half))


def later_leaves(n):
    return frozenset(range(1, n))


def wide_of_tail(tree, n):
    """Every addition of the tail and the last one."""
    end = max(0, n - n % 4 - 4)
    tail = range(end, n)
    return frozenset(v for v in range(tree.n, tree.root + 1) if tree.lows[v] in tail) | {tree.root}


@dataclass(frozen=True)
class Known:
    """A loop and the order that it should be found to have."""

    name: str
    loop: Callable
    order: Callable  # n -> Order


def plain(name, loop, nested, fma=None):
    def order(n):
        return Order(Tree.of(nested(n)), fma=fma(n) if fma else frozenset())

    return Known(name, loop, order)


def tail_order(n):
    tree = Tree.of(tree_of_f64_tail(n))
    end = max(0, n - n % 4 - 4)
    return Order(tree, wide=wide_of_tail(tree, n), fma=frozenset(range(end, n)))


def fused_order(bits, rounding="rz"):
    def order(n):
        return Order(Tree.of(tree_of_fused(n)), bits=bits, rounding=rounding)

    return order


KNOWN = (
    plain("ascending", ascending, lambda n: chain(list(range(n)))),
    plain("ascending fma", ascending_fma, lambda n: chain(list(range(n))), later_leaves),
    plain("contract 1.1", contract_1_1, tree_of_1_1),
    plain("4 partials", four_partials, lambda n: tree_of_partials(list(range(n)))),
    plain("lanes fma", lanes, tree_of_lanes, lambda n: frozenset(range(8, n))),
    plain("reversed", reversed_order, lambda n: chain(list(range(n))[::-1])),
    plain("blocked", blocked, lambda n: tree_of_blocks(n, 16)),
    Known("f64 tail", f64_tail, tail_order),
    *(Known(f"fused 16+1, {bits} bits", fused_16(bits), fused_order(bits)) for bits in range(4)),
    Known("fused 16+1, 2 bits, rn", fused_16(2, "rn"), fused_order(2, "rn")),
)
