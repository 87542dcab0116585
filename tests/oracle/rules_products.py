"""Rules of the embedding, the matrix products and the sum over experts (1.0, 1.3-1.5, 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.oracle.exact import Exact
from tests.oracle.rules import (
    F,
    Number,
    Rule,
    exacts,
    f32s,
    from_bits,
    packed,
    row,
    spread,
    total,
)

ONE_F16, THIRD_F16, TENTH_F16, SUBNORMAL_F16 = 0x3C00, 0x3555, 0x2E66, 0x0001
ABSORBING = (2**24 + 2, 1, 3, -(2**24), 2**24)


def half_of(bits: int) -> Exact:
    """A positive binary16 pattern as an exact value."""
    exponent, fraction = bits >> 10, bits & 1023
    if exponent == 0:
        return Exact(fraction * 2.0**-24)
    return Exact((1024 + fraction) * 2.0 ** (exponent - 25))


# --- 1.0 -------------------------------------------------------------------------------------

RAMP = bytes.fromhex("f0e1d2c3b4a5968778695a4b3c2d1e0f")


def embedding() -> Iterator[Rule]:
    """Block layout, nibble - 8, signs and widening of d."""
    token = np.zeros(1, np.int32)
    qs = np.frombuffer(RAMP, np.uint8)[None]
    values = [*range(-8, 8), *range(7, -9, -1)]
    pairs = ("nibbles in neighbouring pairs", "nibbles in two's complement")
    name = "low nibbles are weights 0..15, high ones 16..31, each minus 8"
    args = (np.array([[ONE_F16]], np.uint16), qs, token)
    yield Rule("1.0", name, "embed", args, (f32s(*exacts(values))[None],), pairs)
    args = (np.array([[0xBC00]], np.uint16), packed({})[None], token)
    zeros = from_bits(*[0x80000000] * 32)[None]
    name = "weight 0 under a negative scale is -0"
    yield Rule("1.0", name, "embed", args, (zeros,), ("offset subtracted after scaling",))
    args = (np.array([[SUBNORMAL_F16]], np.uint16), qs, token)
    tiny = [Exact(v) * half_of(SUBNORMAL_F16) for v in values]
    name = "a subnormal scale widens exactly"
    yield Rule("1.0", name, "embed", args, (f32s(*tiny)[None],), ("subnormal scales flushed",))


# --- 1.3 -------------------------------------------------------------------------------------


def _q4_block(w: dict[int, int], x: dict[int, Number]) -> Exact:
    pairs = []
    for e in range(16):
        low = Exact(w.get(e, 0)) * Exact(x.get(e, 0))
        high = Exact(w.get(e + 16, 0)) * Exact(x.get(e + 16, 0))
        pairs.append(low + high)
    return total(pairs)


def _q4_rule(
    name: str, scale: int, w: dict[int, int], x: dict[int, Number], wrong: tuple[str, ...]
) -> Rule:
    out = Exact(0) + half_of(scale) * _q4_block(w, x)
    args = (np.array([[scale]], np.uint16), packed(w)[None], row(*spread(x)))
    return Rule("1.3", name, "q4_matvec", args, (f32s(out)[None],), wrong)


def q4_products() -> Iterator[Rule]:
    """Pairs inside a block, d after the block's sum, blocks ascending from +0."""
    yield _q4_rule(
        "w[e]*x[e] joins w[e+16]*x[e+16] before s",
        ONE_F16,
        {0: -1, 1: -5, 2: -3, 16: 1, 17: -3},
        {0: 5, 1: 4194305, 2: 0.5, 16: 3, 17: 2**24, 18: 2**24 - 3},
        ("unpaired", "zero point out of the sum", "fused"),
    )
    x = {0: float(F(1.1)), 1: float(F(0.1))}
    yield _q4_rule("d multiplies the sum", THIRD_F16, {0: 3, 1: 5}, x, ("weights scaled first",))
    layout = {0: 1, 1: 2, 16: 3, 17: 5}
    pairs = ("nibbles in neighbouring pairs",)
    yield _q4_rule("low and high nibbles", ONE_F16, layout, {0: 1, 1: 10, 16: 100, 17: 1000}, pairs)
    yield _q4_rule(
        "a subnormal scale", SUBNORMAL_F16, {0: 1}, {0: 3}, ("subnormal scales flushed",)
    )
    yield _q4_rule("a subnormal result", ONE_F16, {0: 1}, {0: 2.0**-140}, ("results flushed",))
    blocks = [Exact(v) for v in ABSORBING]
    wide = [v for first in ABSORBING for v in spread({0: first})]
    args = (np.full((1, 5), ONE_F16, np.uint16), packed({0: 1}, 5)[None], row(*wide))
    wrong = ("four partial sums", "blocks descending", "summed in binary64")
    out = f32s(total(blocks))[None]
    yield Rule("1.3", "blocks ascend, one rounding each", "q4_matvec", args, (out,), wrong)
    # The one block's s is +0, d * s is -0, and acc starts from +0.
    args = (np.array([[0xBC00]], np.uint16), packed({})[None], row(*[1] * 32))
    wrong = ("starts from the first term",)
    yield Rule("1.3", "acc starts from +0", "q4_matvec", args, (from_bits(0)[None],), wrong)


# --- 1.5 -------------------------------------------------------------------------------------


def _f32_rule(name: str, w: Sequence[Number], x: Sequence[Number], wrong: tuple[str, ...]) -> Rule:
    weights, values = exacts(w), exacts(x)
    out = total([a * b for a, b in zip(weights, values, strict=True)])
    args = (f32s(*weights)[None], f32s(*values)[None])
    return Rule("1.5", name, "f32_matvec", args, (f32s(out)[None],), wrong)


def f32_products() -> Iterator[Rule]:
    """Strictly ascending from +0, product and sum rounded apart."""
    orders = ("descending", "four partial sums", "summed in binary64")
    yield _f32_rule("ascending", (1, 1, 1, 1, 1), ABSORBING, orders)
    yield _f32_rule("the product is rounded", (4097, 1.1, 4097), (4097, 4097, 4097), ("fused",))
    yield _f32_rule("a subnormal result", (2.0**-100, 1), (2.0**-40, 0), ("results flushed",))
    minus_zero = (row(1, 1), from_bits(0x80000000, 0x80000000)[None])
    wrong = ("starts from the first term",)
    yield Rule("1.5", "acc starts from +0", "f32_matvec", minus_zero, (from_bits(0)[None],), wrong)


# --- 1.4 -------------------------------------------------------------------------------------


def _expert_rule(
    name: str,
    scale: int,
    weight: int,
    codes: Sequence[int],
    s_a: Sequence[Number],
    wrong: tuple[str, ...],
) -> Rule:
    """One expert, one row; block b holds one weight and the code codes[b]."""
    scales = exacts(s_a)
    terms = [
        (Exact(weight * code) * half_of(scale)) * s for code, s in zip(codes, scales, strict=True)
    ]
    count = len(codes)
    q = np.zeros((1, 1, count * 32), np.int16)
    q[0, 0, ::32] = codes
    d = np.full((1, 1, count), scale, np.uint16)
    qs = packed({0: weight}, count)[None, None]
    args = (d, qs, np.zeros((1, 1), np.int32), q, f32s(*scales)[None, None])
    return Rule("1.4", name, "expert_matvec", args, (f32s(total(terms))[None, None],), wrong)


def _two_experts(inputs: int) -> tuple[np.ndarray, ...]:
    """Experts 0, 1, 2 multiply their input by 1, 2, 3; the token wants 2, then 1."""
    d = np.full((3, 1, 1), ONE_F16, np.uint16)
    qs = np.stack([packed({0: 1 + e})[None] for e in range(3)])
    q = np.zeros((1, inputs, 32), np.int16)
    q[0, :, 0] = [100 * 10**g for g in range(inputs)]
    return d, qs, np.array([[2, 1]], np.int32), q, np.ones((1, inputs, 1), F)


def expert_products() -> Iterator[Rule]:
    """(f32(dot) * s_w) * s_a, blocks ascending from +0, ids and inputs by rank."""
    orders = ("scales multiplied first", "activation scale first")
    s_a = (float(F(0.00011)),)
    yield _expert_rule("dot times s_w, then s_a", TENTH_F16, -5, (1003,), s_a, orders)
    absorbing = (2**24, 1, 2**24 + 2, 1)
    wrong = ("blocks descending",)
    yield _expert_rule("blocks ascend", ONE_F16, 1, (1, 1, 1, 1), absorbing, wrong)
    terms = (float(F(0.1)), float(F(0.3)))
    yield _expert_rule("each term is rounded", THIRD_F16, 7, (4403, 18652), terms, ("fused",))
    tiny = ("subnormal scales flushed",)
    yield _expert_rule("a subnormal weight scale", SUBNORMAL_F16, 3, (5,), (1,), tiny)
    small = ("results flushed",)
    yield _expert_rule("a subnormal result", ONE_F16, 1, (1,), (2.0**-140,), small)
    d = np.array([[[0xBC00]]], np.uint16)
    ids, q = np.zeros((1, 1), np.int32), np.zeros((1, 1, 32), np.int16)
    args = (d, packed({0: 1})[None, None], ids, q, np.ones((1, 1, 1), F))
    out = from_bits(0)[None, None]
    wrong = ("starts from the first term",)
    yield Rule("1.4", "acc starts from +0", "expert_matvec", args, (out,), wrong)
    out = np.array([[[300], [200]]], F)
    wrong = ("rank taken for the id",)
    name = "the id picks the expert, one input for all"
    yield Rule("1.4", name, "expert_matvec", _two_experts(1), (out,), wrong)
    out = np.array([[[300], [2000]]], F)
    wrong = ("first input for all ranks", "rank taken for the id")
    yield Rule("1.4", "an input per rank", "expert_matvec", _two_experts(2), (out,), wrong)


# --- 2: the sum over experts -----------------------------------------------------------------


def _combine_rule(
    name: str, ores: Number, down: Sequence[Number], p: Sequence[Number], wrong: tuple[str, ...]
) -> Rule:
    values, probs = exacts(down), exacts(p)
    ffn = total([b * a for a, b in zip(values, probs, strict=True)])
    out = Exact(ores) + ffn
    args = (row(ores), f32s(*values)[None, :, None], f32s(*probs)[None])
    return Rule("2", name, "combine", args, (f32s(out)[None],), wrong)


def expert_sums() -> Iterator[Rule]:
    """ffn in rank order from +0.0, then ores + ffn."""
    orders = ("starts from ores", "ranks descending", "neighbouring ranks summed first")
    yield _combine_rule("rank order, ores last", -(2**24), (2**24, 1, 1, 1), (1, 1, 1, 1), orders)
    yield _combine_rule("p * down is rounded", 0, (-0.7, 1.1), (0.6, 0.4), ("fused",))
    yield _combine_rule("a subnormal result", 0, (2.0**-140,), (1,), ("results flushed",))
    minus_zero = from_bits(0x80000000)
    args = (minus_zero[None], minus_zero[None, None], row(1))
    wrong = ("ffn starts from the first term", "starts from ores")
    yield Rule("2", "ffn starts from +0", "combine", args, (from_bits(0)[None],), wrong)
