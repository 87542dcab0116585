"""Ops that are no tree of f32 additions, or not always the same one: none may come out green.

Each is ``loop(x, w) -> [rows]`` over float32 terms; those that change from call to call carry their
own generator. ``f64_accumulator`` and ``pairs_through_bf16`` are trees of other additions: green is
right there.
"""

from __future__ import annotations

import math

import numpy as np

from tests.order.known_trees import ascending, contract_1_1, reversed_order
from tests.order.slow_twin import narrowed

F32 = np.float32


def kahan(x, w):
    s = np.zeros(len(w), F32)
    c = np.zeros(len(w), F32)
    for i in range(len(x)):
        y = x[i] * w[:, i] - c
        t = s + y
        c = (t - s) - y
        s = t
    return s


def neumaier(x, w):
    s = np.zeros(len(w), F32)
    c = np.zeros(len(w), F32)
    for i in range(len(x)):
        v = x[i] * w[:, i]
        t = s + v
        c = c + np.where(np.abs(s) >= np.abs(v), (s - t) + v, (v - t) + s)
        s = t
    return s + c


def f64_accumulator(x, w):
    s = np.zeros(len(w), np.float64)
    for i in range(len(x)):
        s = s + np.float64(x[i]) * w[:, i].astype(np.float64)
    return s.astype(F32)


def exact_sum(x, w):
    products = x.astype(np.float64) * w.astype(np.float64)
    return np.array([math.fsum(row) for row in products], F32)


class RandomOrder:
    """Another permutation for every row of every call."""

    def __init__(self):
        self.rng = np.random.default_rng(1)

    def __call__(self, x, w):
        order = np.argsort(self.rng.random(w.shape), axis=1)
        return ascending(np.ones(len(x), F32), np.take_along_axis(x * w, order, axis=1))


class RandomPartials:
    """Four fixed partial sums, added in the order in which they happen to be ready (atomics)."""

    def __init__(self):
        self.rng = np.random.default_rng(2)

    def __call__(self, x, w):
        parts = np.stack([ascending(x[k::4], w[:, k::4]) for k in range(4)], axis=1)
        order = np.argsort(self.rng.random(parts.shape), axis=1)
        return ascending(np.ones(4, F32), np.take_along_axis(parts, order, axis=1))


def sort_first(x, w):
    return ascending(np.ones(len(x), F32), np.sort(x * w, axis=1))


def drop_zeros(x, w):
    """Zeros go to the end, so the pairs of the others depend on where zeros stand."""
    products = x * w
    order = np.argsort(products == 0, axis=1, kind="stable")
    return contract_1_1(np.ones(len(x), F32), np.take_along_axis(products, order, axis=1))


def skip_zeros_of_x(x, w):
    """Zero activations are left out, so which lane a term is dealt to depends on those before."""
    kept = x != 0
    return contract_1_1(x[kept], w[:, kept])


def bf16_accumulator(x, w):
    """It says that its output is f32, and stores every sum in bf16."""
    s = np.zeros(len(w), F32)
    for i in range(len(x)):
        s = narrowed(s + x[i] * w[:, i], "bf16")
    return s


def by_magnitude(x, w):
    """Large terms take another path than small ones."""
    large = np.abs(x * w).max(axis=1) > 2.0**16
    return np.where(large, ascending(x, w), reversed_order(x, w))


def last_row_otherwise(x, w):
    """An edge tile: the last row is summed in another order."""
    found = ascending(x, w)
    found[-1] = reversed_order(x, w[-1:])[0]
    return found


class EveryOtherCall:
    """Two orders, in turn by call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x, w):
        self.calls += 1
        return ascending(x, w) if self.calls % 2 else reversed_order(x, w)


class AfterSomeCalls:
    """One order for the first calls, another for all later ones (autotuning)."""

    def __init__(self, calls):
        self.left = calls

    def __call__(self, x, w):
        self.left -= 1
        return contract_1_1(x, w) if self.left >= 0 else ascending(x, w)


def last_of_a_batch_otherwise(x, w):
    """[rows, M]: the last batch row is summed in another order."""
    return np.stack([ascending(x, w), ascending(x, w), reversed_order(x, w)], axis=1)


class StochasticRounding:
    """Ascending, every sum rounded up or down by chance."""

    def __init__(self):
        self.rng = np.random.default_rng(3)

    def __call__(self, x, w):
        s = np.zeros(len(w), F32)
        for i in range(len(x)):
            exact = s.astype(np.float64) + x[i] * w[:, i]
            near = exact.astype(F32)
            way = np.where(exact > near, np.inf, -np.inf).astype(F32)
            other = np.nextafter(near, way)
            gap = np.abs(other.astype(np.float64) - near)
            chance = np.abs(exact - near) / np.where(gap == 0, 1, gap)
            s = np.where(self.rng.random(len(s)) < chance, other, near)
        return s


def other_than_noise(x, w):
    """It tells rows that cancel, and masks, from all other data: those it adds from the end."""
    products = x * w
    size = np.sort(np.abs(products), axis=1)
    twice = (size[:, 1:] == size[:, :-1]).any(axis=1)
    zero = np.abs(products.sum(axis=1, dtype=np.float64)) < 2.0**-20 * size[:, -1]
    return np.where(twice | zero, ascending(x, w), reversed_order(x, w))


def inputs_rounded(x, w):
    """A fast mode that rounds its f32 inputs to 11 bits."""

    def cut(values):
        mantissa, power = np.frexp(values)
        return np.ldexp(np.rint(np.ldexp(mantissa, 11)), power - 11).astype(F32)

    return ascending(cut(x), cut(w))


def rare_fault(x, w):
    """One sum of about a hundred, chosen by its bits, is one last place off; no whole number is."""
    found = ascending(x, w)
    hit = (found.view(np.uint32) * np.uint32(2654435761)) % np.uint32(97) == 0
    return np.where(hit & (found != np.rint(found)), np.nextafter(found, F32(np.inf)), found)


def flush_small(x, w):
    """Terms below 2^-16 are dropped."""
    products = x * w
    return contract_1_1(np.ones(len(x), F32), np.where(np.abs(products) < 2.0**-16, 0, products))


def pairs_through_bf16(x, w):
    """Sums of two neighbours are stored in bf16, then added in f32: truly a tree as well."""
    n = len(x) - len(x) % 2
    pairs = narrowed(x[:n:2] * w[:, :n:2] + x[1:n:2] * w[:, 1:n:2], "bf16")
    rest = x[n:] * w[:, n:]
    return ascending(np.ones(n // 2 + len(x) - n, F32), np.concatenate([pairs, rest], axis=1))
