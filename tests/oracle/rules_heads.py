"""Rules of RoPE, attention and the router (contract 1.7, 1.8, 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.oracle.exact import Exact
from tests.oracle.rules import Array, F, Number, Rule, exacts, f32s, from_bits, row, total

MINUS_ZERO = 0x80000000
# cosf and sinf of 100 and of 10000, and expf of two arguments: worked examples of section 4.
COS_100, SIN_100 = 0x3F5CC0EE, 0xBF01A12E
COS_10000, SIN_10000 = 0xBF73C074, 0xBE9C797D
EXP_MINUS_1 = 0x3EBC5AB2
# Not correctly rounded: expf(bf008732).
POINT, EXP_POINT = 0xBF008732, 0x3F1AF3AD


# --- 1.7 -------------------------------------------------------------------------------------


def _turned(x1: Exact, x2: Exact, cos: int, sin: int) -> tuple[Exact, Exact]:
    c, s = Exact.from_bits(cos), Exact.from_bits(sin)
    return x1 * c - x2 * s, x2 * c + x1 * s


def _rope_args(x: Sequence[Number], frequencies: Array, pos: int) -> tuple[Any, ...]:
    return row(*x)[None], frequencies, pos


def rotations() -> Iterator[Rule]:
    """Pairs, formula, angle, cosine and sine, the rest, signs at position 0."""
    x = exacts((1.1, 0.7))
    out = f32s(*_turned(x[0], x[1], COS_100, SIN_100))[None, None]
    args = (f32s(*x)[None, None], np.array([100], F), 1)
    wrong = ("fused", "rotated the other way")
    yield Rule("1.7", "each product is rounded", "rope", args, (out,), wrong)
    yield from _pairs()
    yield from _angles()
    # o1 = -0*1 - 1*0 = -0, o1 = -0*1 - (-1)*0 = +0; o2 = x2 + x1*0.
    x = from_bits(MINUS_ZERO, MINUS_ZERO, 0x3F800000, 0xBF800000)[None, None]
    out = from_bits(MINUS_ZERO, 0, 0x3F800000, 0xBF800000)[None, None]
    args = (x, np.ones(2, F), 0)
    wrong = ("position 0 skipped",)
    yield Rule("1.7", "position 0 is computed like any other", "rope", args, (out,), wrong)


def _pairs() -> Iterator[Rule]:
    """6 wide, the first 4 rotate: (0, 2) by 100, (1, 3) by 10000."""
    x = exacts((1, 2, 3, 4, 5, -0.0))
    first = _turned(x[0], x[2], COS_100, SIN_100)
    second = _turned(x[1], x[3], COS_10000, SIN_10000)
    rotated = f32s(first[0], second[0], first[1], second[1])
    rest = from_bits(x[4].bits, MINUS_ZERO)
    out = np.concatenate([rotated, rest])[None, None]
    args = _rope_args((1, 2, 3, 4, 5, -0.0), np.array([100, 10000], F), 1)
    wrong = ("neighbouring pairs", "halves of the whole head", "rest set to zero")
    yield Rule("1.7", "halves of rot_dim pair up, the rest passes", "rope", args, (out,), wrong)


def _angles() -> Iterator[Rule]:
    # 16785047 becomes 16785048 as a float, and that times the frequency rounds to 100.
    turned = f32s(*_turned(*exacts((1, 0)), COS_100, SIN_100))[None, None]
    args = _rope_args((1, 0), from_bits(0x36C7E81C), 16785047)
    wrong = ("angle in binary64",)
    yield Rule("1.7", "the position is rounded to f32", "rope", args, (turned,), wrong)
    # Positions 0 and 1 at frequency 100; the angle 0 has cosine 1 and sine 0.
    rows = np.concatenate([row(1, 0)[None], row(1, 0)[None]])
    out = np.concatenate([row(1, 0)[None], turned])
    wrong = ("one position for all rows",)
    yield Rule(
        "1.7", "row m stands at pos + m", "rope", (rows, np.array([100], F), 0), (out,), wrong
    )
    # A huge angle whose cosine the UCRT does not round correctly.
    out = f32s(*_turned(*exacts((1, 0)), 0xBEED5AC6, 0x3F62D466))[None, None]
    args = _rope_args((1, 0), from_bits(0x73DAADEC), 1)
    wrong = ("correctly rounded cosine and sine",)
    yield Rule("1.7", "cosf and sinf are the UCRT's", "rope", args, (out,), wrong)


# --- 1.8 -------------------------------------------------------------------------------------


def exp_of(x: Exact) -> Exact:
    """expf at the few arguments that rules meet."""
    known = {0: 0x3F800000, 0xBF800000: EXP_MINUS_1, POINT: EXP_POINT}
    return Exact.from_bits(known[x.bits])


def _online(scores: Sequence[Exact], v: Sequence[int], v_scale: Sequence[Exact]) -> Exact:
    """Contract 1.8 for one element of v, key after key."""
    m, c, p = scores[0], Exact(0), Exact(1)
    length, acc = Exact(0), Exact(0)
    for t, score in enumerate(scores):
        if t > 0:
            new_m = score if score.value > m.value else m
            c, p, m = exp_of(m - new_m), exp_of(score - new_m), new_m
        length = length * c + p
        acc = acc * c + (p * v_scale[t]) * Exact(v[t])
    return acc / length


def _attention_args(
    scores: Sequence[Exact], v: Sequence[int], v_scale: Sequence[Exact]
) -> tuple[Any, ...]:
    """One head, one element: q is 1, k the score's sign, its scale the score's size."""
    keys = len(scores)
    signs = [(s.value > 0) - (s.value < 0) for s in scores]
    sizes = f32s(*scores).view(np.uint32) & np.uint32(0x7FFFFFFF)
    return (
        np.ones((1, 1, 1), np.int8),
        np.ones((1, 1), F),
        np.array(signs, np.int8).reshape(keys, 1, 1),
        sizes.view(F).reshape(keys, 1),
        np.array(v, np.int8).reshape(keys, 1, 1),
        f32s(*v_scale).reshape(keys, 1),
        F(1),
        keys - 1,
    )


def _attention_rule(
    name: str,
    scores: Sequence[Number],
    v: Sequence[int],
    v_scale: Sequence[Number],
    wrong: tuple[str, ...],
) -> Rule:
    s, vs = exacts(scores), exacts(v_scale)
    out = f32s(_online(s, v, vs)).reshape(1, 1, 1)
    return Rule("1.8", name, "attention_int8", _attention_args(s, v, vs), (out,), wrong)


# What the step does: scores, v, value scales, the variant that must show.
STEPS = (
    ("(p*vs)*v", (0, -1, -1), (2, 0, -123), (0.3, 0.7, 0.3), "value scaled before the weight"),
    ("one pass", (-1, 0, 0), (38, -84, -84), (0.7, 0.1, 0.1), "two passes"),
    ("acc / l", (-1, 0, 0), (67, -12, -7), (0.7, 0.3, 0.1), "times the reciprocal of the sum"),
    ("no fma", (0, -1, 0), (-3, -120, 101), (0.3, 0.3, 0.7), "fused"),
    ("c on acc", (-1, 0, -1), (18, 89, 78), (0.1, 0.3, 0.1), "correction skipped"),
    ("c on l", (-1, 0, -1), (18, 89, 78), (0.1, 0.3, 0.1), "correction of the values alone"),
    ("keys ascend", (0, -1, 0), (8, -71, 68), (0.3, 0.3, 0.7), "keys descending"),
    ("maximum", (100, 99, 100), (3, 5, 7), (0.1, 0.3, 0.7), "maximum not subtracted"),
)


def attention() -> Iterator[Rule]:
    """The running softmax, step by step."""
    for name, scores, v, v_scale, fault in STEPS:
        yield _attention_rule(name, scores, v, v_scale, (fault,))
    point = float(Exact.from_bits(POINT).value)
    wrong = ("correctly rounded exp",)
    yield _attention_rule("expf is the UCRT's", (0, point), (0, 127), (1, 1), wrong)
    wrong = ("starts from the first term",)
    yield _attention_rule("acc starts from +0", (0,), (-5,), (0,), wrong)
    yield from _attention_shapes()


def _attention_shapes() -> Iterator[Rule]:
    # 81 * 81 * (0.02 * ks) * 0.1 is exactly 1 in the contract's order, and only there.
    scale, k_scale, sm_scale = Exact(0.02), Exact.from_bits(0x3D9C12E3), Exact(0.1)
    score = (Exact(-81 * 81) * (scale * k_scale)) * sm_scale
    out = f32s(_online([Exact(0), score], (0, 1), exacts((1, 1)))).reshape(1, 1, 1)
    args = (
        np.array([[[81]]], np.int8),
        f32s(scale)[None],
        np.array([[[0]], [[-81]]], np.int8),
        f32s(Exact(1), k_scale)[:, None],
        np.array([[[0]], [[1]]], np.int8),
        np.ones((2, 1), F),
        f32s(sm_scale)[0],
        1,
    )
    wrong = ("scores scaled left to right", "softmax scale joins the scales")
    name = "(f32(dot) * (q_scale * k_scale)) * sm_scale"
    yield Rule("1.8", name, "attention_int8", args, (out,), wrong)
    yield _heads()
    yield _mask()


def _heads() -> Rule:
    """Four query heads on two KV heads with one key: each head returns its v."""
    shape = (np.ones((1, 4, 1), np.int8), np.ones((1, 4), F))
    k, ones = np.ones((1, 2, 1), np.int8), np.ones((1, 2), F)
    args = (*shape, k, ones, np.array([[[3], [5]]], np.int8), ones, F(1), 0)
    out = np.array([[[3], [3], [5], [5]]], F)
    wrong = ("heads interleaved",)
    return Rule("1.8", "head h reads KV head h / group", "attention_int8", args, (out,), wrong)


def _mask() -> Rule:
    """Two rows at position 1 of a cache of four: they see two and three keys."""
    scores, v = exacts((0, -1, 0, 0)), (10, 20, 30, 90)
    one = exacts((1, 1, 1, 1))
    args = _attention_args(scores, v, one)
    rows = (np.ones((2, 1, 1), np.int8), np.ones((2, 1), F))
    seen = [_online(scores[:n], v[:n], one[:n]) for n in (2, 3)]
    wrong = (
        "every row sees the whole block",
        "mask at the top left",
        "one slot too many",
        "newest key left out",
    )
    out = f32s(*seen).reshape(2, 1, 1)
    args = (*rows, *args[2:7], 1)
    return Rule("1.8", "row m sees keys 0 .. pos + m", "attention_int8", args, (out,), wrong)


# --- 2: the router ---------------------------------------------------------------------------

ROUTER_EXP = {
    0x00000000: 0x3F800000,
    0xBF008732: EXP_POINT,
    0xBFE55C35: 0x3E2AA58E,
    0xC0D7BFFA: 0x3A9AAC74,
    0xBF800000: EXP_MINUS_1,
}
ZERO, POINT_2, POINT_3, MINUS_ONE = 0x00000000, 0xBFE55C35, 0xC0D7BFFA, 0xBF800000


def _router_rule(
    name: str, logits: Sequence[int], ids: Sequence[int], norm: bool, wrong: tuple[str, ...]
) -> Rule:
    """Logits by bit pattern, the largest of them +0; the expected ids are given by hand."""
    e = [Exact.from_bits(ROUTER_EXP[bits]) for bits in logits]
    below = total(e)
    probs = [e[i] / below for i in ids]
    if norm:
        chosen = total(probs)
        probs = [p / chosen for p in probs]
    outputs = (np.array([ids], np.int32), f32s(*probs)[None])
    args = (from_bits(*logits)[None], len(ids), norm)
    return Rule("2", name, "router_topk", args, outputs, wrong)


def _softmax_rules() -> Iterator[Rule]:
    m = MINUS_ONE
    tree = ("summed by tree",)
    yield _router_rule("the sum ascends", (m, m, m, 0, 0), (3, 4), False, tree)
    mixed = (POINT_2, ZERO, POINT_3, m)
    wrong = ("times the reciprocal of the sum", "summed by tree")
    yield _router_rule("e divided by the sum", mixed, (1, 3, 0, 2), False, wrong)
    wrong = ("softmax over the chosen",)
    yield _router_rule("softmax over all, then the cut", (0, m, m), (0, 1), True, wrong)
    wrong = ("correctly rounded exp",)
    yield _router_rule("expf is the UCRT's", (POINT, 0, 0), (1, 2, 0), False, wrong)
    wrong = ("renormalised in order of ids",)
    yield _router_rule("rank order sums", (0, m, 0, POINT_2), (0, 2, 1), True, wrong)
    yield _router_rule("asked to renormalise", (0, m, m), (0, 1), True, ("never renormalised",))
    yield _router_rule("not asked to", (0, m, m), (0, 1), False, ("always renormalised",))


def routing() -> Iterator[Rule]:
    """Softmax, the choice, ties, renormalising."""
    yield from _softmax_rules()
    ties, p = ("ties to the higher id",), Exact.from_bits(EXP_MINUS_1)
    yield _router_rule("equal logits: lower ids", [0] * 8, (0, 1), True, ties)
    yield _router_rule("a tie at the cut", (MINUS_ONE, 0, MINUS_ONE), (1, 0), True, ties)
    yield _router_rule("ranks, not ids, order it", (MINUS_ONE, 0), (1, 0), True, ("sorted by id",))
    signed = (from_bits(MINUS_ZERO, 0)[None], 1, False)
    half = (np.zeros((1, 1), np.int32), row(0.5))
    yield Rule("2", "-0 ties with +0", "router_topk", signed, half, ties)
    # Below 2^-25 expf is 1: unequal logits, equal probabilities, and those decide.
    near = (row(0, 2.0**-26), 1, False)
    yield Rule(
        "2", "probability decides, not the logit", "router_topk", near, half, ("ranked by logit",)
    )
    large = (row(500, 501), 2, False)
    below = Exact(0) + p + Exact(1)
    out = (np.array([[1, 0]], np.int32), f32s(Exact(1) / below, p / below)[None])
    wrong = ("maximum not subtracted",)
    yield Rule("2", "the maximum is subtracted", "router_topk", large, out, wrong)
