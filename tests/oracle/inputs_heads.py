"""Cases for attention (contract 1.8) and the router (contract 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.oracle.values import (
    FLT_MAX,
    MIN_NORMAL,
    MIN_SUBNORMAL,
    NON_FINITE,
    SPECIALS,
    Args,
    Array,
    Case,
    F,
    any_exponent,
    f32_words,
    filled,
    generator,
    normal,
    rows_of,
    up,
)

Number = float | np.floating[Any]


# --- attention -------------------------------------------------------------------------------

# Arguments of expf at its bounds and where it is not correctly rounded; all below zero.
EXP_POINTS = f32_words("""
    bf008732 bfe55c35 c0d7bffa c14e4ee7 c239b2d3 c2890f89 be3510e2
    c2cff1b4 c2cff1b5 c2aeac4f c2af0000 80000001 b3000000 bf800000
""")
HD = 8


def _from_scores(scores: Sequence[Number] | Array, v_scale: Array | None = None) -> Args:
    """One head whose key t has exactly the score scores[t]: q = 1, k = +-1, scale = |score|."""
    wanted = np.asarray(scores, F)
    keys = wanted.shape[0]
    q = np.zeros((1, 1, HD), np.int8)
    q[0, 0, 0] = 1
    k = np.zeros((keys, 1, HD), np.int8)
    k[:, 0, 0] = np.where(np.signbit(wanted), -1, 1)
    k_scale = np.abs(wanted).reshape(keys, 1)
    v = generator(f"v of {keys} keys").integers(-127, 128, (keys, 1, HD), dtype=np.int8)
    if v_scale is None:
        v_scale = np.abs(normal(f"v scales of {keys}", keys, 1, size=0.02))
    one = np.ones((1, 1), F)
    return q, one, k, k_scale, v, v_scale.astype(F), F(1.0), keys - 1


def score_rows() -> Iterator[tuple[str, Sequence[Number] | Array]]:
    """Chosen scores of one head, key by key."""
    ramp = np.arange(9, dtype=F) * F(0.37)
    yield "first key only", [1.25]
    yield "first key only, score zero", [0.0]
    yield "ascending scores", ramp
    yield "descending scores", ramp[::-1]
    yield "all scores equal", np.full(7, 0.6)
    yield "a later score equals the maximum", [0.5, 2.5, 1.0, 2.5, 0.25, 2.5]
    yield "one step above the maximum", [1.0, up(1.0), 1.0, up(1.0)]
    yield "scores of both zeros", [0.0, -0.0, 0.0, -0.0, 1.0, -0.0]
    yield "scores far apart, rising", [-300.0, 0.0, 300.0]
    yield "scores far apart, falling", [300.0, 0.0, -300.0]
    yield "weights are subnormal", [0.0, -90.0, -100.0, -103.9, -104.0]
    yield "the old sum becomes subnormal", [-95.0, 0.0, 1.0]
    yield "huge scores", [FLT_MAX, -FLT_MAX, 1e30, FLT_MAX]
    yield "subnormal scores", [MIN_SUBNORMAL, -MIN_SUBNORMAL, MIN_NORMAL]
    yield "weights at points of expf", np.append(F(0.0), EXP_POINTS)
    for point in EXP_POINTS[:7]:
        yield f"correction at {float(point):.9g}", [point, 0.0, point]
    yield "sawtooth", [0.0, 3.0, 1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 4.0]


def _value_cases() -> Iterator[Case]:
    scores = [0.3, -0.2, 0.9, 0.1]
    for name, values in (
        ("zero", [0.0]),
        ("smallest subnormal", [MIN_SUBNORMAL]),
        ("subnormal", [2.0**-133, 3 * 2.0**-140]),
        ("smallest normal", [MIN_NORMAL]),
        ("large", [1e30, 3e29]),
        ("not powers of two", [0.1, 0.3, 0.7]),
    ):
        v_scale = filled(4, np.array(values)).reshape(4, 1)
        yield f"value scales {name}", _from_scores(scores, v_scale)
    yield (
        "values vanish under a small weight",
        _from_scores([0.0, -80.0, -60.0], np.full((3, 1), F(1e-30))),
    )
    args = list(_from_scores([0.25, 0.5, -1.0], np.zeros((3, 1), F)))
    args[4] = np.full((3, 1, HD), -5, np.int8)
    yield "negative values under a zero scale", tuple(args)


def _random_attention(name: str, shape: tuple[int, int, int, int], pos: int, cap: int) -> Args:
    """shape = (M, n_q, n_kv, hd). Slots past the last key hold q = 127, NaN scales."""
    rows, n_q, n_kv, hd = shape
    rng = generator(name)
    q = rng.integers(-127, 128, (rows, n_q, hd), dtype=np.int8)
    k = rng.integers(-127, 128, (cap, n_kv, hd), dtype=np.int8)
    v = rng.integers(-127, 128, (cap, n_kv, hd), dtype=np.int8)
    # Scores of a few units, as a trained model has them.
    q_scale = np.abs(normal(f"{name} q_scale", rows, n_q, size=0.02))
    k_scale = np.abs(normal(f"{name} k_scale", cap, n_kv, size=0.02))
    v_scale = np.abs(normal(f"{name} v_scale", cap, n_kv, size=0.02))
    used = pos + rows
    k[used:], v[used:] = 127, 127
    k_scale[used:], v_scale[used:] = np.nan, np.nan
    return q, q_scale, k, k_scale, v, v_scale, F(1.0 / np.sqrt(hd)), pos


RANDOM_ATTENTION = (
    # (M, n_q, n_kv, hd), pos, capacity
    ((1, 1, 1, 1), 0, 1),
    ((1, 1, 1, 1), 4, 8),
    ((1, 4, 2, 96), 0, 4),
    ((1, 4, 2, 96), 9, 10),
    ((1, 4, 2, 32), 31, 33),
    ((1, 4, 2, 32), 32, 40),
    ((1, 4, 2, 32), 63, 64),
    ((1, 2, 1, 32), 64, 70),
    ((3, 6, 2, 8), 0, 3),
    ((4, 6, 2, 8), 30, 40),
    ((5, 3, 3, 5), 5, 16),
    ((2, 8, 1, 13), 3, 8),
    ((4, 2, 1, 16), 62, 80),
    ((1, 2, 1, 128), 127, 130),
    ((2, 4, 2, 32), 254, 288),
    ((4, 2, 2, 32), 255, 288),
    ((1, 2, 1, 256), 287, 288),
)


def attention_int8() -> Iterator[Case]:
    """q, q_scale, k, k_scale, v, v_scale, sm_scale, pos."""
    for name, scores in score_rows():
        yield name, _from_scores(scores)
    yield from _value_cases()
    for shape, pos, cap in RANDOM_ATTENTION:
        rows, n_q, n_kv, hd = shape
        name = f"random, {rows} rows at {pos}, {n_q} heads on {n_kv}, {hd} wide, {cap} slots"
        yield name, _random_attention(name, shape, pos, cap)
    args = list(_random_attention("zero rows", (2, 2, 1, 8), 5, 8))
    args[0] = np.zeros_like(args[0])
    args[1] = np.zeros_like(args[1])
    yield "the query is zero with scale zero", tuple(args)
    args = list(_random_attention("extreme codes", (1, 2, 1, 256), 3, 4))
    args[0], args[2] = np.full_like(args[0], 127), np.full_like(args[2], -127)
    args[2][::2] = 127
    yield "all codes at the limit, 256 wide", tuple(args)
    for name, value in (("NaN", np.nan), ("infinite", np.inf)):
        for slot in (0, 2, 4):
            args = list(_random_attention("not finite", (1, 2, 1, 8), 4, 5))
            args[3][slot] = value
            yield f"{NON_FINITE}{name} key scale in slot {slot}", tuple(args)
        args = list(_random_attention("not finite", (1, 2, 1, 8), 4, 5))
        args[5][2] = value
        yield f"{NON_FINITE}{name} value scale", tuple(args)


# --- router ----------------------------------------------------------------------------------


def _logits(*rows: Sequence[Number]) -> Array:
    return rows_of(*(np.array(row, F) for row in rows))


# One step apart, yet both get one and the same probability beside the larger logit 30.
NEAR = up(0.1)


def _router_tables() -> Iterator[tuple[str, Array, int]]:
    yield "all equal", np.zeros((1, 8), F), 2
    yield "all equal, all chosen", np.full((1, 8), 3.5, F), 8
    yield "a tie at the cut", _logits([1, 3, 2, 2, 0, 0, 0, 0]), 2
    yield "a tie inside the cut", _logits([1, 3, 2, 2, 0, 0, 0, 0]), 3
    yield "ties around the cut", _logits([2, 1, 2, 1, 2, 1, 2, 1]), 5
    yield "both zeros", _logits([0.0, -0.0, -1, -1, -1, -1, -1, -1]), 1
    yield "both zeros, negative first", _logits([-0.0, 0.0, -1, -1, -1, -1, -1, -1]), 2
    yield "the last is largest", _logits([0, 0, 0, 0, 0, 0, 0, 1]), 3
    yield "unequal logits, equal probabilities", _logits([0.1, 30.0, NEAR, 0.1, NEAR]), 3
    yield "probabilities vanish", _logits([-200, 0, -300, -150, -250, -200]), 5
    yield "probabilities are subnormal", _logits([0, -90, -95, -100, -103, -104]), 6
    yield "all logits negative", _logits([-5, -3, -4, -3, -9, -3.5]), 3
    yield "all logits large", _logits([500, 501, 500.5, 499, 501, 500]), 3
    yield "logits at both ends of the range", _logits([FLT_MAX, -FLT_MAX, FLT_MAX, 0]), 4
    yield "subnormal logits", _logits([MIN_SUBNORMAL, 0, -MIN_SUBNORMAL, MIN_NORMAL, 0]), 4
    yield "logits of every kind", SPECIALS[None], 7
    yield "logits at points of expf", np.append(F(0.0), EXP_POINTS)[None], 15
    yield "one expert", np.full((1, 1), -2.5, F), 1
    swapped = _logits([1.0, 2.0, up(1.0), 0.5], [up(1.0), 2.0, 1.0, 0.5])
    yield "rows one step apart swap experts", swapped, 2


def router_topk() -> Iterator[Case]:
    """logits f32[M, E], k, norm."""
    for name, logits, k in _router_tables():
        for norm in (True, False):
            yield f"{name}, {'renormalised' if norm else 'as they are'}", (logits, k, norm)
    for rows, experts, k in ((1, 8, 3), (3, 16, 4), (2, 128, 8), (5, 8, 8), (2, 60, 7)):
        name = f"random, {rows} rows, {k} of {experts}"
        for norm in (True, False):
            label = f"{name}, {'renormalised' if norm else 'as they are'}"
            yield label, (normal(name, rows, experts, size=1.5), k, norm)
        coarse = np.rint(normal(f"{name} coarse", rows, experts)).astype(F)
        yield f"{name}, whole numbers with ties", (coarse, k, True)
        wide = any_exponent(f"{name} any", rows, experts, low=-10, high=7)
        yield f"{name}, any exponent", (wide, k, True)
    logits = _logits([-np.inf, 0.5, -np.inf, 1.0, -0.5])
    yield f"{NON_FINITE}logits of minus infinity", (logits, 4, True)
