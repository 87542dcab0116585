"""An order evaluated the slow way, node by node in plain NumPy: the oracle beside the twin.

Written from the text of ``parity.order.tree.Order`` alone. All rows at once, one node at a time.
"""

from __future__ import annotations

import numpy as np


def evaluate(order, x, w):
    """float32[rows]: x float32[n] or None, w float32[rows, n]."""
    tree = order.tree
    fused = set(order.fused_nodes)
    values = {}
    for k, kids in enumerate(tree.children):
        v = tree.n + k
        if v in fused:
            values[v] = fused_sum(order, [operand(order, values, x, w, kid) for kid in kids])
        else:
            values[v] = plain_sum(order, values, x, w, v, kids)
        if v in order.narrow:
            values[v] = narrowed(values[v].astype(np.float32), order.stored)
    root = values[tree.root] if tree.children else leaf(order, x, w, 0)[0].astype(np.float32)
    return narrowed(root.astype(np.float32), order.out)


def leaf(order, x, w, i):
    """The exact term and its exponent."""
    factor = w[:, i].astype(np.float64)
    other = {"products": lambda: float(x[i]), "squares": lambda: factor, "values": lambda: 1.0}
    second = other[order.terms]()
    return factor * second, exponent(factor) + exponent(np.float64(second))


def operand(order, values, x, w, kid):
    """What a fused sum takes: exact value and exponent."""
    if kid < order.tree.n:
        return leaf(order, x, w, kid)
    value = values.pop(kid).astype(np.float32).astype(np.float64)
    return value, exponent(value)


def plain_sum(order, values, x, w, v, kids):
    terms = []
    for kid in kids:
        if kid >= order.tree.n:
            terms.append(values.pop(kid))
        else:
            exact = leaf(order, x, w, kid)[0]
            terms.append(exact if kid in order.fma else exact.astype(np.float32))
    if v in order.wide:
        return terms[0].astype(np.float64) + terms[1].astype(np.float64)
    for k, kid in enumerate(kids):
        if kid >= order.tree.n:
            terms[k] = terms[k].astype(np.float32)
    return rounded_once(terms[0].astype(np.float64), terms[1].astype(np.float64))


def rounded_once(a, b):
    """float32 nearest to the exact a + b: through the float64 that is odd where it is inexact."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    up = np.where(error > 0, np.inf, -np.inf)
    odd = (s.view(np.int64) & 1) == 1
    return np.where((error == 0) | odd, s, np.nextafter(s, up)).astype(np.float32)


def exponent(value):
    return np.where(value == 0, -5000, np.frexp(value)[1] - 1)


def fused_sum(order, operands):
    values = np.stack([value for value, _ in operands])
    largest = np.max(np.stack([e for _, e in operands]), axis=0)
    largest = np.where(largest < -4000, 0, largest)
    if order.bits is None:
        return np.array([cut_exactly(column, order.rounding) for column in values.T], np.float32)
    quantum = largest - 23 - order.bits
    whole = np.trunc(np.ldexp(values, -quantum)).sum(axis=0)
    return brought(np.ldexp(whole, quantum), order.rounding)


def cut_exactly(column, rounding):
    from fractions import Fraction

    exact = sum((Fraction(float(v)) for v in column), Fraction(0))
    near = np.float32(float(exact))  # float(Fraction) rounds once to f64
    if rounding == "rn":
        middle = Fraction(float(near))
        for other in (
            np.nextafter(near, np.float32(-np.inf)),
            np.nextafter(near, np.float32(np.inf)),
        ):
            if abs(Fraction(float(other)) - exact) < abs(middle - exact):
                near = other
        return near
    while abs(Fraction(float(near))) > abs(exact):
        near = np.nextafter(near, np.float32(0))
    return near


def brought(exact, rounding):
    """float64 exact sums to float32."""
    near = exact.astype(np.float32)
    if rounding == "rn":
        return near
    over = np.abs(near.astype(np.float64)) > np.abs(exact)
    return np.where(over, np.nextafter(near, np.float32(0)), near).astype(np.float32)


def narrowed(values, form):
    if form == "bf16":
        bits = values.view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        return bits.astype(np.uint32).view(np.float32)
    if form == "f16":
        return values.astype(np.float16).astype(np.float32)
    return values
