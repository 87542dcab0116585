"""Cases for the ops on f32 storage: embedding, experts (contract 1.0, 1.5), attention (1.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.oracle.inputs_heads import HD, RANDOM_ATTENTION, Number, score_rows
from tests.oracle.inputs_products import expert_ids
from tests.oracle.values import (
    AROUND_ONE,
    LARGE,
    MIN_NORMAL,
    MIN_SUBNORMAL,
    NON_FINITE,
    SMALL_NORMALS,
    SPECIALS,
    SUBNORMALS,
    ZEROS,
    Args,
    Array,
    Case,
    F,
    any_bits,
    any_exponent,
    filled,
    normal,
    picked,
    rows_of,
    signed,
)


def embed_f32() -> Iterator[Case]:
    """w f32[vocab, hidden], tokens i32[M]."""
    kinds = rows_of(SPECIALS, SPECIALS[::-1], any_bits("embed_f32 bits", SPECIALS.shape[0]))
    for token in range(3):
        yield f"every kind, row {token}", (kinds, np.array([token], np.int32))
    w = normal("embed_f32", 7, 37)
    for name, tokens in (
        ("first token", [0]),
        ("last token", [6]),
        ("a token twice", [3, 0, 3]),
        ("tokens backwards", [6, 5, 4, 3, 2, 1, 0]),
    ):
        yield name, (w, np.array(tokens, np.int32))
    yield "one column", (normal("embed_f32 one", 3, 1), np.array([2, 1], np.int32))


# --- 1.5, chosen experts -------------------------------------------------------------------------


def _expert_rows() -> Iterator[tuple[str, Array]]:
    """Chosen inputs, 16 wide."""
    yield "negative zeros", filled(16, ZEROS[1:])
    yield "subnormals", filled(16, SUBNORMALS)
    yield "small normals", filled(16, SMALL_NORMALS)
    yield "around one", filled(16, AROUND_ONE)
    yield "a large first element absorbs", np.append(F(2.0**24), np.ones(15, F))
    yield "a large last element", np.append(np.ones(15, F), F(2.0**24))


def expert_f32_matvec() -> Iterator[Case]:
    """w f32[E, rows, cols], ids i32[M, k], x f32[M, G, cols]."""
    ids = np.array([[2, 0]], np.int32)
    for name, row in _expert_rows():
        w = normal(f"experts {name}", 3, 4, 16)
        w[:, 0], w[:, 1] = 1.0, -1.0
        yield f"x {name}", (w, ids, row[None, None].astype(F))
    tiny = np.full((3, 2, 9), MIN_NORMAL, F)
    yield "products are subnormal", (tiny, ids, filled(9, signed(0.5, 2.0**-23))[None, None])
    yield "the sum overflows", (np.ones((3, 1, 16), F), ids, np.full((1, 1, 16), F(2.0**126)))
    for experts, rows, cols, tokens, k, inputs in (
        (1, 1, 1, 1, 1, 1),
        (8, 5, 33, 1, 3, 1),
        (8, 5, 40, 1, 3, 3),
        (16, 3, 70, 2, 4, 1),
        (16, 3, 31, 3, 4, 4),
        (4, 33, 5, 2, 4, 4),
        (3, 2, 513, 1, 2, 2),
    ):
        name = f"random, {k} of {experts}, {cols} wide, {tokens} tokens, {inputs} inputs"
        chosen = expert_ids(name, tokens, k, experts)
        x = normal(name, tokens, inputs, cols)
        yield name, (normal(f"{name} w", experts, rows, cols, size=0.1), chosen, x)
        w = any_exponent(f"{name} w any", experts, rows, cols, low=-12, high=12)
        x = any_exponent(f"{name} any", tokens, inputs, cols, low=-12, high=12)
        yield f"{name}, any exponent", (w, chosen, x)
    same = np.array([[2, 0], [2, 0], [0, 2]], np.int32)
    w = normal("same experts w", 3, 4, 20)
    yield "all tokens meet the same experts", (w, same, normal("same experts", 3, 1, 20))
    x = normal("not finite", 1, 2, 20)
    x[0, 0, 3], x[0, 1, 7] = np.nan, np.inf
    yield f"{NON_FINITE}inputs", (w, ids, x)


# --- 1.8 -----------------------------------------------------------------------------------------


def _from_scores(scores: Sequence[Number] | Array, v: Array | None = None) -> Args:
    """One head whose key t has the score scores[t]: q is 1 in one place, k the score there."""
    wanted = np.asarray(scores, F)
    q = np.zeros((1, 1, HD), F)
    q[0, 0, 2] = 1.0
    k = np.zeros((len(wanted), 1, HD), F)
    k[:, 0, 2] = wanted
    if v is None:
        v = normal(f"float v of {len(wanted)} keys", len(wanted), 1, HD)
    return q, k, v, F(1.0), len(wanted) - 1


def _value_cases() -> Iterator[Case]:
    scores = [0.3, -0.2, 0.9, 0.1]
    for name, values in (
        ("zeros", ZEROS),
        ("subnormals", SUBNORMALS),
        ("small normals", SMALL_NORMALS),
        ("around one", AROUND_ONE),
        ("large", LARGE),
    ):
        v = picked(f"attention values {name}", values, 4, 1, HD)
        yield f"values of {name}", _from_scores(scores, v)
    small = np.full((3, 1, HD), F(1e-30))
    yield "values vanish under a small weight", _from_scores([0.0, -80.0, -60.0], small)
    minus = np.full((3, 1, HD), F(-0.0))
    yield "values of minus zero", _from_scores([0.25, 0.5, -1.0], minus)


def _dot_cases() -> Iterator[Case]:
    """Products of q and k that absorb each other, vanish, or are rounded."""
    for name, q, k in (
        ("absorb", [2.0**24, 1, 1, -(2.0**24)], [1, 1, 1, 1]),
        ("are rounded", [4097, 1.1, -4097, 0.3], [4097, 0.7, 4097, 0.1]),
        ("are subnormal", [2.0**-70, 2.0**-75, 1, 0], [2.0**-70, 2.0**-70, MIN_SUBNORMAL, 1]),
    ):
        rows = np.stack([np.array(k, F), np.array(k[::-1], F), np.ones(4, F)])[:, None]
        v = normal(f"dots {name}", 3, 1, 4)
        yield f"products {name}", (np.array([[q]], F), rows, v, F(0.3), 2)


def _random_attention(name: str, shape: tuple[int, int, int, int], pos: int, cap: int) -> Args:
    """shape = (M, n_q, n_kv, hd). Slots past the last key hold NaN."""
    rows, n_q, n_kv, hd = shape
    q = normal(f"{name} float q", rows, n_q, hd)
    k = normal(f"{name} float k", cap, n_kv, hd)
    v = normal(f"{name} float v", cap, n_kv, hd)
    k[pos + rows :], v[pos + rows :] = np.nan, np.nan
    return q, k, v, F(1.0 / np.sqrt(hd)), pos


def attention_f32() -> Iterator[Case]:
    """q, k, v, sm_scale, pos."""
    for name, scores in score_rows():
        yield name, _from_scores(scores)
    yield from _value_cases()
    yield from _dot_cases()
    for shape, pos, cap in RANDOM_ATTENTION:
        rows, n_q, n_kv, hd = shape
        name = f"random, {rows} rows at {pos}, {n_q} heads on {n_kv}, {hd} wide, {cap} slots"
        yield name, _random_attention(name, shape, pos, cap)
    for name, value in (("NaN", np.nan), ("infinite", np.inf)):
        for slot in (0, 2, 4):
            args = _random_attention("not finite", (1, 2, 1, 8), 4, 5)
            args[1][slot, 0, 3] = value
            yield f"{NON_FINITE}{name} key in slot {slot}", args
        args = _random_attention("not finite", (1, 2, 1, 8), 4, 5)
        args[2][2, 0, 5] = value
        yield f"{NON_FINITE}{name} value", args
