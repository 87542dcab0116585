"""Rules of the ops on f32 storage (1.0, 1.5, 1.8) and of sums by tree (5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.oracle.exact import Exact
from tests.oracle.rules import (
    Array,
    F,
    Number,
    Rule,
    exacts,
    f32s,
    from_bits,
    inverse_root,
    row,
    total,
    tree,
)
from tests.oracle.rules_heads import exp_of
from tests.oracle.rules_products import ABSORBING

EPS = 2.0**-20
MINUS_ZERO = 0x80000000


def embedding() -> Iterator[Rule]:
    """Rows as they are stored."""
    w = np.concatenate([row(1, 2, 3), from_bits(MINUS_ZERO, 1, 0x7F7FFFFF)[None], row(4, 5, 6)])
    args, out = (w, np.array([1, 0], np.int32)), w[[1, 0]]
    wrong = ("token index one too high", "first token for all", "subnormals flushed")
    name = "the stored bits, whatever they are"
    yield Rule("1.0", name, "embed_f32", args, (out,), (*wrong, "minus zero lost"))


# --- 1.5, chosen experts -------------------------------------------------------------------------


def _expert_rule(
    name: str, w: Sequence[Number], x: Sequence[Number], wrong: tuple[str, ...]
) -> Rule:
    weights, values = exacts(w), exacts(x)
    out = total([a * b for a, b in zip(weights, values, strict=True)])
    args = (f32s(*weights)[None, None], np.zeros((1, 1), np.int32), f32s(*values)[None, None])
    return Rule("1.5", name, "expert_f32_matvec", args, (f32s(out)[None, None],), wrong)


def experts() -> Iterator[Rule]:
    """Ascending from +0, rounded apart; ids and inputs by rank."""
    orders = ("descending", "four partial sums", "summed in binary64")
    yield _expert_rule("ascending", (1, 1, 1, 1, 1), ABSORBING, orders)
    yield _expert_rule("the product is rounded", (4097, 1.1, 4097), (4097, 4097, 4097), ("fused",))
    yield _expert_rule("a subnormal result", (2.0**-100, 1), (2.0**-40, 0), ("results flushed",))
    minus = from_bits(MINUS_ZERO, MINUS_ZERO)[None, None]
    args = (np.ones((1, 1, 2), F), np.zeros((1, 1), np.int32), minus)
    wrong = ("starts from the first term",)
    out = from_bits(0)[None, None]
    yield Rule("1.5", "acc starts from +0", "expert_f32_matvec", args, (out,), wrong)
    # Experts 0, 1, 2 multiply by 1, 2, 3; the token wants 2, then 1.
    w, ids = np.array([[[1]], [[2]], [[3]]], F), np.array([[2, 1]], np.int32)
    args, out = (w, ids, np.array([[[10]]], F)), np.array([[[30], [20]]], F)
    name, wrong = "the id picks the expert, one input for all", ("rank taken for the id",)
    yield Rule("1.5", name, "expert_f32_matvec", args, (out,), wrong)
    args, out = (w, ids, np.array([[[10], [100]]], F)), np.array([[[30], [200]]], F)
    wrong = ("first input for all ranks", "rank taken for the id")
    yield Rule("1.5", "an input per rank", "expert_f32_matvec", args, (out,), wrong)


# --- 5, sums by tree -----------------------------------------------------------------------------


def _tree_rule(name: str, w: Sequence[Number], x: Sequence[Number], wrong: tuple[str, ...]) -> Rule:
    weights, values = exacts(w), exacts(x)
    out = tree([a * b for a, b in zip(weights, values, strict=True)])
    args = (f32s(*weights)[None], f32s(*values)[None])
    return Rule("5", name, "router_tree", args, (f32s(out)[None],), wrong)


def trees() -> Iterator[Rule]:
    """Element i meets i + n/2; padding; no accumulator; norms by the same tree."""
    apart = (2**24, 1, -(2**24), 1)
    wrong = ("strictly ascending", "tree of neighbours")
    yield _tree_rule("i joins i + n/2", (1, 1, 1, 1), apart, wrong)
    wrong = ("strictly ascending", "summed in binary64")
    yield _tree_rule("three are padded to four", (1, 1, 1), (2**24 + 2, 1, 3), wrong)
    wrong = ("products not rounded",)
    yield _tree_rule("the product is rounded", (4097, -1), (4097, 16785408), wrong)
    yield _tree_rule("a subnormal result", (2.0**-100, 1), (2.0**-40, 0), ("results flushed",))
    minus = (row(1, 1), from_bits(MINUS_ZERO, MINUS_ZERO)[None])
    out = from_bits(MINUS_ZERO)[None]
    wrong = ("strictly ascending",)
    yield Rule("5", "no +0 where nothing is padded", "router_tree", minus, (out,), wrong)
    x = (-3, -1, 1, 7, 1, 2, -3, 2, -1, 4096, 2)
    values = exacts(x)
    r = inverse_root(tree([v * v for v in values]) / Exact(len(x)) + Exact(EPS))
    out = f32s(*((v * r) * Exact(1) for v in values))[None]
    orders = ("strictly ascending", "blocks of 8", "tree of neighbours", "neighbouring pairs")
    args = (row(*x), np.ones(len(x), F), F(EPS))
    name = "the squares of a norm by tree"
    yield Rule("5", name, "norm_tree", args, (out,), (*orders, "summed in binary64"))
    values, weights = exacts((2, 6, 1)), exacts((3, 5, 7))
    r = inverse_root(Exact(41) / Exact(3) + Exact(EPS))
    out = f32s(*((v * r) * u for v, u in zip(values, weights, strict=True)))[None]
    args = (f32s(*values)[None], f32s(*weights), F(EPS))
    yield Rule("5", "x times r, then w", "norm_tree", args, (out,), ("weight times r first",))


# --- 1.8, f32 rows -------------------------------------------------------------------------------


def _online(scores: Sequence[Exact], v: Sequence[Exact]) -> Exact:
    """Contract 1.8, f32 form, for one element of v."""
    m, c, p = scores[0], Exact(0), Exact(1)
    length, acc = Exact(0), Exact(0)
    for t, score in enumerate(scores):
        if t > 0:
            new_m = score if score.value > m.value else m
            c, p, m = exp_of(m - new_m), exp_of(score - new_m), new_m
        length = length * c + p
        acc = acc * c + p * v[t]
    return acc / length


def attention_args(scores: Sequence[Exact], v: Sequence[Exact]) -> tuple[Array, Array, Array]:
    """One head, one element: q is 1, k the score."""
    keys = len(scores)
    shape = (keys, 1, 1)
    return np.ones((1, 1, 1), F), f32s(*scores).reshape(shape), f32s(*v).reshape(shape)


def _attention_rule(
    name: str, scores: Sequence[Number], v: Sequence[Number], wrong: tuple[str, ...]
) -> Rule:
    s, values = exacts(scores), exacts(v)
    out = f32s(_online(s, values)).reshape(1, 1, 1)
    args = (*attention_args(s, values), F(1), len(s) - 1)
    return Rule("1.8", name, "attention_f32", args, (out,), wrong)


def attention() -> Iterator[Rule]:
    """The running softmax on f32 rows, the dot, the heads, the mask."""
    corrections = ("correction skipped", "correction of the values alone")
    passes = ("two passes", "two passes, summed by tree")
    wrong = (*passes, *corrections, "keys descending", "times the reciprocal of the sum")
    yield _attention_rule("one pass, keys ascend", (-1, -1, 0), (7, 0.1, 0.1), wrong)
    yield _attention_rule("no fma", (-1, 0, -1, -1), (0.1, 3, 0.3, 0.7), ("fused",))
    wrong = ("maximum not subtracted",)
    yield _attention_rule("maximum", (100, 99, 100, 100), (3, -1.3, 3, 1.1), wrong)
    args = (*attention_args(exacts((0,)), exacts((-0.0,))), F(1), 0)
    args[2].view(np.uint32)[...] = MINUS_ZERO
    wrong = ("starts from the first term",)
    out = from_bits(0).reshape(1, 1, 1)
    yield Rule("1.8", "acc starts from +0", "attention_f32", args, (out,), wrong)
    yield from _scores()
    yield _heads()
    yield _mask()


def _scored(name: str, q: Sequence[Number], k: Sequence[Number], sm: Number, wrong: str) -> Rule:
    """Two keys: score 0, and a score that must come out as exactly -1."""
    a, b, scale = exacts(q), exacts(k), Exact(sm)
    score = total([left * right for left, right in zip(a, b, strict=True)]) * scale
    out = f32s(_online([Exact(0), score], exacts((0, 1))))
    keys = np.stack([np.zeros(len(q), F), f32s(*b)])[:, None]
    v = np.zeros((2, 1, len(q)), F)
    v[1] = 1.0
    args = (f32s(*a)[None, None], keys, v, f32s(scale)[0], 1)
    return Rule("1.8", name, "attention_f32", args, (np.resize(out, (1, 1, len(q))),), (wrong,))


def _scores() -> Iterator[Rule]:
    absorbed = (2**24, 1, -(2**24), -1)
    yield _scored("the dot ascends", absorbed, (1, 1, 1, 1), 1, "dot descending")
    yield _scored("the dot is rounded", (-1, 4097, -1), (16785408, 4097, 1), 1, "dot fused")
    wrong = "softmax scale in the query"
    yield _scored("dot, then sm_scale", (-3, 1), (25, 45), 1 / 30, wrong)


def _heads() -> Rule:
    """Four query heads on two KV heads with one key: each head returns its v."""
    k, v = np.ones((1, 2, 1), F), np.array([[[3], [5]]], F)
    args = (np.ones((1, 4, 1), F), k, v, F(1), 0)
    out = np.array([[[3], [3], [5], [5]]], F)
    wrong = ("heads interleaved",)
    return Rule("1.8", "head h reads KV head h / group", "attention_f32", args, (out,), wrong)


def _mask() -> Rule:
    """Two rows at position 1 of a cache of four: they see two and three keys."""
    scores, v = exacts((0, -1, 0, 0)), exacts((10, 20, 30, 90))
    _, k, values = attention_args(scores, v)
    seen = [_online(scores[:n], v[:n]) for n in (2, 3)]
    wrong = (
        "every row sees the whole block",
        "mask at the top left",
        "one slot too many",
        "newest key left out",
    )
    args = (np.ones((2, 1, 1), F), k, values, F(1), 1)
    out = f32s(*seen).reshape(2, 1, 1)
    return Rule("1.8", "row m sees keys 0 .. pos + m", "attention_f32", args, (out,), wrong)
