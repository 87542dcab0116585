"""Rules of the norms, of quantising and of the elementwise ops (1.1, 1.2, 1.4, 1.6, 1.9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.oracle.exact import Exact
from tests.oracle.rules import F, Number, Rule, exacts, f32s, from_bits, inverse_root, row, total

EPS = 2.0**-20
ULP = 2.0**-149


# --- 1.1, 1.2 --------------------------------------------------------------------------------


def _block_sum(x: Sequence[Exact]) -> Exact:
    """The square sum of one block of 8, term by term as the contract has it."""
    a, b, c, d, e, f, g, h = (v * v for v in x)
    return ((a + e) + (b + f)) + ((c + g) + (d + h))


def _scaled(ss: Exact, x: Sequence[Exact], w: Sequence[Exact], eps: float) -> list[Exact]:
    mean = ss / Exact(len(x))
    r = inverse_root(mean + Exact(eps))
    return [(v * r) * u for v, u in zip(x, w, strict=True)]


def _norm_rule(
    name: str,
    x: Sequence[Number],
    wrong: tuple[str, ...],
    w: Sequence[Number] | None = None,
    eps: float = EPS,
    heads: bool = False,
) -> Rule:
    values = exacts(x)
    weights = exacts(w or [1] * len(x))
    whole = 0 if heads else len(x) - len(x) % 8
    terms = [_block_sum(values[i : i + 8]) for i in range(0, whole, 8)]
    ss = total([*terms, *(v * v for v in values[whole:])])
    out = f32s(*_scaled(ss, values, weights, eps))[None]
    args = (row(*x), f32s(*weights), F(eps))
    if heads:
        args, out = (args[0][None], *args[1:]), out[None]
    op, section = ("headnorm", "1.2") if heads else ("rmsnorm", "1.1")
    return Rule(section, name, op, args, (out,), wrong)


def norms() -> Iterator[Rule]:
    """Order of the square sum, the two roundings of r, the order of the factors."""
    yield _norm_rule(
        "a block adds x[k] to x[k + 4], then two and two",
        (7, -1, 3, 7, 7, 4097, 100, 4097),
        ("strictly ascending", "neighbouring pairs", "summed by tree", "summed in binary64"),
    )
    yield _norm_rule(
        "blocks ascend",
        (3, -3, 2, 7, 2, 4097, 4097, 4097, 4096, 5, 2, 4097, 1, 4096, 4096, -3),
        ("strictly ascending", "neighbouring pairs", "summed by tree", "summed in binary64"),
    )
    yield _norm_rule(
        "the tail ascends, d = 13",
        (4096, -1, 5, 7, 7, -3, 4097, -1, 4096, -3, 1, 4097, 5),
        ("tail joins the blocks", "strictly ascending"),
    )
    yield _norm_rule("all is tail, d = 5", (100, -1, 4096, -1, 5), ("tail joins the blocks",))
    root = ("reciprocal root by way of binary64",)
    yield _norm_rule("r is 1 over the rounded root", (9, 7, 9), root)
    yield _norm_rule("x times r, then w", (2, 6, 1), ("weight times r first",), w=(3, 5, 7))
    yield _norm_rule("ss divided by d", (8, 9, 7), ("mean by reciprocal",))
    yield _norm_rule("eps under the root", (3, 2, 5), ("eps outside the root",), eps=0.5)
    yield _norm_rule(
        "a subnormal square sum is kept", (2.0**-70, 2.0**-71), ("squares flushed",), eps=0.0
    )
    top = 1.25 * 2.0**63
    huge = row(top, -top, top, -top, 1.0)
    yield Rule(
        "1.1",
        "an infinite square sum gives zeros of x's sign",
        "rmsnorm",
        (huge, np.ones(5, F), F(EPS)),
        (from_bits(0, 0x80000000, 0, 0x80000000, 0)[None],),
        ("mean taken in binary64",),
    )
    yield _norm_rule(
        "a head's square sum strictly ascends",
        (1, 4097, 7, 5, -3, 2, 100, 1),
        ("blocks of 8", "summed by tree", "summed in binary64", "neighbouring pairs"),
        heads=True,
    )
    factors = ("weight times r first", "reciprocal root by way of binary64")
    yield _norm_rule("a head's r and factors", (9, 4, 7), factors, w=(3, 5, 7), heads=True)


# --- 1.4, 1.6: quantising --------------------------------------------------------------------


def _quant_rule(
    limit: int, name: str, x: Sequence[Number], codes: Sequence[int], wrong: tuple[str, ...]
) -> Rule:
    """Chosen codes; the scale is amax / limit, rounded once. 1.4's blocks are filled with +0."""
    scale = Exact(max(abs(v) for v in x)) / Exact(limit)
    if limit == 127:
        outputs = np.array([[codes]], np.int8), f32s(scale)[None]
        return Rule("1.6", name, "quant8", (row(*x)[None],), outputs, wrong)
    rest = (0,) * (32 - len(x))
    outputs = np.array([[*codes, *rest]], np.int16), f32s(scale)[None]
    return Rule("1.4", name, "quant16", (row(*x, *rest),), outputs, wrong)


def _exact_codes(limit: int, x: Sequence[Number]) -> list[int]:
    scale = Exact(max(abs(v) for v in x)) / Exact(limit)
    ratios = [Exact(v) / scale for v in x]
    return [max(-limit, min(limit, ratio.nearest_integer())) for ratio in ratios]


def _quant_rules(limit: int) -> Iterator[Rule]:
    halves = (limit, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, limit - 0.5)
    yield _quant_rule(
        limit,
        "ties go to even codes",
        halves,
        (limit, 0, 2, 2, 0, -2, -2, limit - 1),
        ("half away from zero", "half towards zero", "truncated"),
    )
    below, clamps = (3 * limit - 1) // 2, ("clamped after conversion",)
    yield _quant_rule(
        limit,
        "clamped above as float",
        (below * ULP, ULP, -limit * ULP),
        (limit, 1, -limit),
        (*clamps, "not clamped above"),
    )
    yield _quant_rule(
        limit,
        "clamped below as float, at -limit",
        (-below * ULP, ULP, -(limit + 1) * ULP),
        (-limit, 1, -limit),
        (*clamps, "one more negative code"),
    )
    under = (limit // 2 * ULP, -ULP)
    name = "scale 0 makes every code 0, although x is not"
    yield _quant_rule(limit, name, under, (0, 0), ("zero guard on amax",))
    above = ((limit // 2 + 1) * ULP, -3 * ULP, ULP)
    name = "the smallest scale is used"
    yield _quant_rule(limit, name, above, (limit // 2 + 1, -3, 1), ("subnormals flushed",))
    zeros = ("floor under the scale",)
    yield _quant_rule(limit, "zeros of both signs: codes 0, scale +0", (-0.0, 0.0), (0, 0), zeros)
    negative = (-3.0, 2.0, 0.7)
    yield _quant_rule(
        limit,
        "amax is of sizes, and the scale is rounded once",
        negative,
        _exact_codes(limit, negative),
        ("amax of signed values",),
    )


def quantising() -> Iterator[Rule]:
    """Rounding, clamping, the zero guard, the division."""
    yield from _quant_rules(127)
    yield from _quant_rules(32767)
    divided, inverse = (7620, 3630), ("inverse scale",)
    yield _quant_rule(127, "x divided by the scale", divided, (127, 60), inverse)
    divided = tuple(float(F(v)) for v in (0.7, 0.45, 0.18))
    codes = _exact_codes(32767, divided)
    yield _quant_rule(32767, "x divided by the scale", divided, codes, inverse)
    two = np.concatenate([row(*[32767] * 32), row(*[3.0] * 32)], axis=1)
    scales = f32s(Exact(1), Exact(3) / Exact(32767))[None]
    codes16 = np.full((1, 64), 32767, np.int16)
    args = ("1.4", "every block of 32 has its own scale", "quant16", (two,), (codes16, scales))
    yield Rule(*args, ("neighbour's scale",))


# --- 1.9, and the residual sum ---------------------------------------------------------------

# expf at recorded points: argument -> result. The first two are not correctly rounded.
EXP = {
    0xBF008732: 0x3F1AF3AD,
    0xBFE55C35: 0x3E2AA58E,
    0xBF800000: 0x3EBC5AB2,
}


def _swiglu_rule(name: str, minus_gate: int, up: Number, wrong: tuple[str, ...]) -> Rule:
    gate = Exact(-Exact.from_bits(minus_gate).value)
    sigmoid = Exact(1) / (Exact(1) + Exact.from_bits(EXP[minus_gate]))
    out = (gate * sigmoid) * Exact(up)
    args = (f32s(gate)[None], row(up))
    return Rule("1.9", name, "swiglu", args, (f32s(out)[None],), wrong)


def elements() -> Iterator[Rule]:
    """silu and swiglu; the residual sum's zeros, ties and subnormals."""
    yield _swiglu_rule("silu multiplies by sigmoid", 0xBFE55C35, 1, ("x over 1 + exp",))
    yield _swiglu_rule("expf is the UCRT's", 0xBF008732, 1, ("correctly rounded exp",))
    yield _swiglu_rule("silu first, then up", 0xBF008732, 3, ("gate times up first",))
    yield _swiglu_rule("the gate goes through silu", 0xBF800000, 3, ("gate and up swapped",))
    minus_zero = from_bits(0x80000000)[None]
    args = ("1.9", "expf(100) is infinite, so silu(-100) is -0", "swiglu")
    yield Rule(*args, (row(-100), row(2)), (minus_zero,), ("exp over 1 + exp",))
    half = Exact(2.0**-127) * Exact(0.5)
    # Below 2^-25 expf gives 1, so sigmoid is a half.
    args = ("1.9", "a subnormal result is kept", "swiglu", (row(2.0**-127), row(1)))
    yield Rule(*args, (f32s(half)[None],), ("subnormals flushed",))
    left = from_bits(0x80000000, 0x80000000, 0x00000000)[None]
    right = from_bits(0x00000000, 0x80000000, 0x80000000)[None]
    out = from_bits(0, 0x80000000, 0)[None]
    yield Rule("2", "only -0 + -0 is -0", "add", (left, right), (out,), ("zero is skipped",))
    ties = exacts((1, 1 + 2.0**-23)), exacts((2.0**-24, 2.0**-24))
    sums = f32s(*(a + b for a, b in zip(*ties, strict=True)))[None]
    args = ("2", "ties of a sum go to even", "add", tuple(f32s(*t)[None] for t in ties), (sums,))
    yield Rule(*args, ("half away from zero",))
    pair = from_bits(0x00800001)[None], from_bits(0x80800000)[None]
    args = ("2", "a subnormal sum is kept", "add", pair, (from_bits(1)[None],))
    yield Rule(*args, ("subnormals flushed",))
