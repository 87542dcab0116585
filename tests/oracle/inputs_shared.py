"""Cases for the shared expert's ops (contract 2)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.oracle import inputs_products
from tests.oracle.inputs_rows import SIGMOID_POINTS
from tests.oracle.values import (
    NON_FINITE,
    SPECIALS,
    Case,
    F,
    any_bits,
    any_exponent,
    normal,
    signed,
)


def shared_gate() -> Iterator[Case]:
    """x f32[M, 1], or any rows."""
    yield "every chosen value", (SPECIALS[None],)
    yield "points of the sigmoid", (SIGMOID_POINTS[None],)
    yield "the sigmoid is subnormal", (-signed(87.5, 88.7, 100.0)[None],)
    yield "one element", (np.ones((1, 1), F),)
    for rows in (3, 64):
        yield f"random, {rows} rows", (normal(f"gate of {rows}", rows, 1, size=4.0),)
    yield "random, any bits", (any_bits("shared gate", 2, 40),)
    yield f"{NON_FINITE}values", (np.array([[-np.inf, np.inf, 0.0]], F),)


def combine_shared() -> Iterator[Case]:
    """The cases of combine, with gs f32[M, 1] and sh f32[M, hidden]."""
    for name, (ores, down, probs) in inputs_products.combine():
        rows = ores.shape[0]
        gs = np.abs(normal(f"{name} gs", rows, 1, size=0.4))
        yield name, (ores, down, probs, gs, normal(f"{name} sh", *ores.shape))
        if not name.startswith(NON_FINITE):
            sh = any_exponent(f"{name} any sh", *ores.shape, low=-20, high=20)
            yield f"{name}, any shared", (ores, down, probs, gs, sh)
    ones = np.ones((1, 1), F)
    big = np.full((1, 1), 2.0**24, F)
    yield "the shared one is absorbed last", (-big, big[None], ones, ones, ones)
    tiny = np.full((1, 1), 2.0**-149, F)
    zero = np.zeros((1, 1), F)
    yield "a subnormal shared one", (zero, zero[None], ones, ones, tiny)
    for p, gate in ((0.0, -0.0), (1.0, 0.0)):
        minus = np.full((1, 1), -0.0, F)
        yield (
            f"signed zeros, {p} and {gate}",
            (minus, minus[None], ones * F(p), ones * F(gate), -ones),
        )
    yield f"{NON_FINITE}shared", (zero, zero[None], ones, ones, np.full((1, 1), np.nan, F))
