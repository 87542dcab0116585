"""Rules of the variants (contract 5): chosen inputs on which each set gives bits of its own.

The expected bits come from exact fractions, as in rules_rows.py and its neighbours; ``fused`` is
one product and one sum with a single rounding. The library's exp, cos and sin have no rule: their
bits are the platform's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tests.oracle.exact import LARGEST, Exact, magnitude
from tests.oracle.rules import (
    Array,
    F,
    Number,
    exacts,
    f32s,
    inverse_root,
    packed,
    row,
    total,
    tree,
)
from tests.oracle.rules_f32 import attention_args
from tests.oracle.rules_heads import EXP_POINT, POINT, exp_of
from tests.oracle.rules_products import THIRD_F16, half_of
from tests.oracle.variants import Names, sets_of

NONE: Names = frozenset()


@dataclass(frozen=True)
class VariantRule:
    """op(args) with ``names`` must give exactly these outputs, and without them must not."""

    op: str
    names: Names
    args: tuple[Any, ...]
    outputs: tuple[Array, ...]

    @property
    def label(self) -> str:
        return f"{self.op} {'+'.join(sorted(self.names))}"


def fused(a: Exact, b: Exact, c: Exact) -> Exact:
    """a * b + c, one rounding."""
    return Exact(a.value * b.value + c.value)


def _product_sum(w: Exact, x: Exact, acc: Exact, names: Names) -> Exact:
    return fused(w, x, acc) if "fma" in names else acc + w * x


def _told_apart(
    op: str, args: tuple[Any, ...], outputs: Callable[[Names], tuple[Array, ...]]
) -> Iterator[VariantRule]:
    """Every set of an op on one input, whose outputs are all different; but unpaired says nothing
    more with zero_point."""
    sets = [NONE, *sets_of(op)]
    found = [outputs(names) for names in sets]
    seen = {b"".join(out.tobytes() for out in made) for made in found}
    orders = {names - {"unpaired"} if "zero_point" in names else names for names in sets}
    assert len(seen) == len(orders), f"{op}: the input does not tell its variants apart"
    for names, made in zip(sets[1:], found[1:], strict=True):
        yield VariantRule(op, names, args, made)


# --- norms ---------------------------------------------------------------------------------------


def _nearest_inverse_root(value: Exact) -> Exact:
    """The float nearest to 1/sqrt(value): r is too low as long as r * r * value is below 1."""
    low, high = 0, LARGEST
    while low < high:
        middle = (low + high + 1) // 2
        fits = magnitude(middle) ** 2 * value.value <= 1
        low, high = (middle, high) if fits else (low, middle - 1)
    beside = (magnitude(low) + magnitude(low + 1)) / 2
    return Exact.from_bits(low + (beside**2 * value.value < 1))


def norms() -> Iterator[VariantRule]:
    """r by reciprocal square root; 9, 7, 9 have one square sum in any order."""
    values, eps = exacts((9, 7, 9)), Exact(2.0**-20)
    shifted = Exact(211) / Exact(3) + eps
    assert _nearest_inverse_root(shifted).bits != inverse_root(shifted).bits
    r = _nearest_inverse_root(shifted)
    out, x = f32s(*(v * r for v in values))[None], row(9, 7, 9)
    for op in ("rmsnorm", "norm_tree"):
        yield VariantRule(op, frozenset({"rsqrt"}), (x, np.ones(3, F), f32s(eps)[0]), (out,))
    args = (x[None], np.ones(3, F), f32s(eps)[0])
    yield VariantRule("headnorm", frozenset({"rsqrt"}), args, (out[None],))


# --- products ------------------------------------------------------------------------------------


def _q4_block(w: Sequence[Exact], x: Sequence[Exact], names: Names) -> Exact:
    s = Exact(0)
    if "zero_point" in names:
        for weight, value in zip(w, x, strict=True):
            s = _product_sum(weight + Exact(8), value, s, names)
        return s - Exact(8) * total(x)
    if "unpaired" in names:
        for weight, value in zip(w, x, strict=True):
            s = _product_sum(weight, value, s, names)
        return s
    for e in range(16):
        s = s + _product_sum(w[e], x[e], w[e + 16] * x[e + 16], names)
    return s


def _q4_row(d: Exact, w: Sequence[Exact], x: Sequence[Exact], names: Names) -> Exact:
    """Blocks of the same weights and scale."""
    partial = [Exact(0)] * 4
    for b in range(len(x) // 32):
        s = _q4_block(w, x[32 * b : 32 * b + 32], names)
        at = b % 4 if "split_k" in names else 0
        partial[at] = _product_sum(d, s, partial[at], names)
    return total(partial) if "split_k" in names else partial[0]


def q4_products() -> Iterator[VariantRule]:
    """Five blocks, the fewest for split_k, tell every set and the exact tier apart."""
    weights = {e: (5 * e) % 16 - 8 for e in range(32)}
    x = [float(F(((29 * i) % 101 - 50) / 7)) for i in range(160)]
    args = (np.full((1, 5), THIRD_F16, np.uint16), packed(weights, 5)[None], row(*x))
    w, values = exacts(weights.values()), exacts(x)

    def outputs(names: Names) -> tuple[Array, ...]:
        return (f32s(_q4_row(half_of(THIRD_F16), w, values, names))[None],)

    yield from _told_apart("q4_matvec", args, outputs)


def f32_products() -> Iterator[VariantRule]:
    """The router's rows and the experts'."""
    w, x = exacts((4097, 1.1, 4097)), exacts((4097, 4097, 4097))
    acc = Exact(0)
    for weight, value in zip(w, x, strict=True):
        acc = fused(weight, value, acc)
    rows, out, names = (f32s(*w)[None], f32s(*x)[None]), f32s(acc)[None], frozenset({"fma"})
    yield VariantRule("f32_matvec", names, rows, (out,))
    args = (rows[0][None], np.zeros((1, 1), np.int32), rows[1][None])
    yield VariantRule("expert_f32_matvec", names, args, (out[None],))


def expert_products() -> Iterator[VariantRule]:
    """Two blocks of one weight each tell all three sets and the exact tier apart."""
    d, weight, codes, p = half_of(0x2E66), 5, (2877, -1975), Exact(0.85)
    s_a = exacts((0.00027, 0.00079))
    q = np.zeros((1, 1, 64), np.int16)
    q[0, 0, ::32] = codes
    args = (
        np.full((1, 1, 2), 0x2E66, np.uint16),
        packed({0: weight}, 2)[None, None],
        np.zeros((1, 1), np.int32),
        q,
        f32s(*s_a)[None, None],
        f32s(p)[None],
    )

    def outputs(names: Names) -> tuple[Array, ...]:
        terms = []
        for code, scale in zip(codes, s_a, strict=True):
            dot = Exact(weight * code)
            term = (d * scale) * dot if "scale_assoc" in names else (dot * d) * scale
            terms.append(term * p if "fold_p" in names else term)
        return (f32s(total(terms))[None, None],)

    yield from _told_apart("expert_matvec", args, outputs)


def expert_sums() -> Iterator[VariantRule]:
    """down holds p already."""
    args = (row(1), np.array([[[3.0], [5.0]]], F), row(0.5, 0.25))
    yield VariantRule("combine", frozenset({"fold_p"}), args, (row(9),))
    args = (*args, row(0.5), row(4))
    yield VariantRule("combine_shared", frozenset({"fold_p"}), args, (row(11),))


# --- quantising ----------------------------------------------------------------------------------


def _codes(limit: int, x: Sequence[Number]) -> list[int]:
    """Codes by the inverse of the scale."""
    inverse = Exact(1) / (Exact(max(abs(v) for v in x)) / Exact(limit))
    codes = [(Exact(v) * inverse).nearest_integer() for v in x]
    return [max(-limit, min(limit, code)) for code in codes]


def quantising() -> Iterator[VariantRule]:
    """Times the inverse; an infinite inverse counts as scale 0, the scale itself stands."""
    names = frozenset({"div_by_inverse"})
    x = (7620, 3630)
    scale = f32s(Exact(60))[None]
    codes = np.array([[_codes(127, x)]], np.int8)
    yield VariantRule("quant8", names, (row(*x)[None],), (codes, scale))
    wide = (*(float(F(v)) for v in (0.7, 0.45, 0.18)), *[0] * 29)
    scale = f32s(Exact(wide[0]) / Exact(32767))[None]
    codes = np.array([_codes(32767, wide)], np.int16)
    yield VariantRule("quant16", names, (row(*wide),), (codes, scale))
    # 2^-128 is the largest scale whose inverse is infinite.
    scale = f32s(Exact(2.0**-128))[None]
    tiny = (row(127 * 2.0**-128, -(2.0**-128))[None],)
    yield VariantRule("quant8", names, tiny, (np.zeros((1, 1, 2), np.int8), scale))
    tiny = (row(32767 * 2.0**-128, *[2.0**-128] * 31),)
    yield VariantRule("quant16", names, tiny, (np.zeros((1, 32), np.int16), scale))


# --- exp ------------------------------------------------------------------------------------------


def _nearest_exp(x: Exact) -> Exact:
    with localcontext() as context:
        context.prec = 60
        exact = (Decimal(x.value.numerator) / Decimal(x.value.denominator)).exp()
    return Exact(Fraction(exact))


def _exp(x: Exact, names: Names) -> Exact:
    return _nearest_exp(x) if "exp_via_double" in names else exp_of(x)


SPLIT = frozenset({"split_keys"})


def _attention(scores: Sequence[Exact], v: Sequence[Exact], names: Names) -> Exact:
    """One element of 1.8, f32 form, or int8 with value scales of 1."""
    if names & {"two_pass", "split_keys"}:
        top = max(scores, key=lambda score: score.value)
        p = [_exp(score - top, names) for score in scores]
        products = [a * b for a, b in zip(p, v, strict=True)]
        if "split_keys" in names:
            return _by_parts(products) / _by_parts(p)
        return total(products) / tree(p)
    m, length, acc = scores[0], Exact(1), Exact(0) + v[0]
    for score, value in zip(scores[1:], v[1:], strict=True):
        new_m = score if score.value > m.value else m
        c, p1, m = _exp(m - new_m, names), _exp(score - new_m, names), new_m
        length, acc = length * c + p1, acc * c + p1 * value
    return acc / length


def _by_parts(x: Sequence[Exact]) -> Exact:
    return total([total(x[i : i + 128]) for i in range(0, len(x), 128)])


def _many_keys() -> tuple[list[float], list[int]]:
    """Scores and values of a part and some keys, which tell a cut from none."""
    at = range(150)
    return [-float(i % 2) for i in at], [(37 * i) % 101 - 40 for i in at]


def attention() -> Iterator[VariantRule]:
    """Two passes, l by tree; in parts; exp by way of binary64 where expf is not correctly
    rounded."""
    point = float(Exact.from_bits(POINT).value)
    many = tuple(map(exacts, _many_keys()))
    found = {_attention(*many, frozenset(names)).bits for names in ((), ("two_pass",), SPLIT)}
    assert len(found) == 3, "the keys do not tell the orders apart"
    for names, scores, v in (
        ({"two_pass"}, (-1, -1, -1, -1, 0), (3, -7, 11, 2, 5)),
        ({"exp_via_double"}, (0, point), (0, 127)),
        (SPLIT, *_many_keys()),
        (SPLIT | {"two_pass"}, *_many_keys()),
        (
            {"two_pass", "exp_via_double"},
            (0, -1, point, point, point, -1, -1),
            (-27, 90, 13, -119, 67, 58, 88),
        ),
    ):
        s, values = exacts(scores), exacts(v)
        out = (f32s(_attention(s, values, frozenset(names))).reshape(1, 1, 1),)
        q, k, floats = attention_args(s, values)
        args = (q, k, floats, F(1), len(s) - 1)
        yield VariantRule("attention_f32", frozenset(names), args, out)
        ones, rows = np.ones((len(s), 1), F), np.array(v, np.int8).reshape(-1, 1, 1)
        signs = np.where(k < 0, -1, np.where(k > 0, 1, 0)).astype(np.int8)
        sizes = np.abs(k[:, :, 0])
        args8 = (q.astype(np.int8), np.ones((1, 1), F), signs, sizes, rows, ones, F(1), len(s) - 1)
        yield VariantRule("attention_int8", frozenset(names), args8, out)


def activations() -> Iterator[VariantRule]:
    """swiglu and the router, exp by way of binary64."""
    names, point = frozenset({"exp_via_double"}), Exact.from_bits(POINT)
    near = _nearest_exp(point)
    assert near.bits != EXP_POINT
    gate = Exact(-point.value)
    out = (gate * (Exact(1) / (Exact(1) + near))) * Exact(1)
    yield VariantRule("swiglu", names, (f32s(gate)[None], row(1)), (f32s(out)[None],))
    gs = Exact(1) / (Exact(1) + near)
    yield VariantRule("shared_gate", names, (f32s(gate)[None],), (f32s(gs)[None],))
    e = (near, Exact(1), Exact(1))
    probs = [value / total(e) for value in (e[1], e[2], e[0])]
    logits = f32s(point, Exact(0), Exact(0))[None]
    ids = np.array([[1, 2, 0]], np.int32)
    yield VariantRule("router_topk", names, (logits, 3, False), (ids, f32s(*probs)[None]))


TABLES: tuple[Callable[[], Iterator[VariantRule]], ...] = (
    *(norms, q4_products, f32_products, expert_products, expert_sums),
    *(quantising, attention, activations),
)


@cache
def rules() -> tuple[VariantRule, ...]:
    """All of them; a second of exact arithmetic, once a process."""
    return tuple(rule for table in TABLES for rule in table())
