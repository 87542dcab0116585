"""Cases for the matrix ops: embedding, 1.3, 1.4, 1.5 products, and the sum over experts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.oracle.values import (
    AROUND_ONE,
    F16_SCALES,
    FLT_MAX,
    HUGE,
    LARGE,
    MIN_NORMAL,
    MIN_SUBNORMAL,
    NON_FINITE,
    SMALL_NORMALS,
    SUBNORMALS,
    TAME,
    ZEROS,
    Array,
    Case,
    F,
    any_exponent,
    any_scales,
    filled,
    generator,
    normal,
    picked,
    ramp_nibbles,
    random_nibbles,
    random_scales,
    rows_of,
    signed,
)

# All low nibbles 9 and high nibbles 9 (weight 1), 7 (weight -1), 8 (weight 0).
ALL_ONE, ALL_MINUS_ONE, ALL_ZERO = 0x99, 0x77, 0x88


def _payload(byte: int, *shape: int) -> Array:
    *outer, blocks = shape
    return np.full((*outer, blocks * 16), byte, np.uint8)


def _scale_column(blocks: int) -> Array:
    """One row of blocks per named binary16 scale."""
    return np.array([[bits] * blocks for bits in F16_SCALES.values()], np.uint16)


# --- embedding -------------------------------------------------------------------------------


def embed() -> Iterator[Case]:
    """d_bits u16[vocab, nb], qs u8[vocab, nb * 16], tokens i32[M]."""
    scales = _scale_column(1)
    every = np.arange(scales.shape[0], dtype=np.int32)
    yield "every nibble under every scale", (scales, ramp_nibbles(scales.shape[0], 1), every)
    for token, name in enumerate(F16_SCALES):
        yield f"scale {name}", (scales, ramp_nibbles(12, 1), np.array([token], np.int32))
    d, qs = random_scales("embed", 7, 5), random_nibbles("embed", 7, 5)
    for name, tokens in (
        ("first token", [0]),
        ("last token", [6]),
        ("a token twice", [3, 0, 3]),
        ("tokens backwards", [6, 5, 4, 3, 2, 1, 0]),
    ):
        yield name, (d, qs, np.array(tokens, np.int32))
    d, qs = any_scales("embed wild", 4, 3), random_nibbles("embed wild", 4, 3)
    yield "any scale bits", (d, qs, np.array([2, 1], np.int32))


# --- 1.3 -------------------------------------------------------------------------------------


def _q4_rows() -> Iterator[tuple[str, Array]]:
    """Chosen activations, two blocks wide."""
    yield "positive zeros", filled(64, ZEROS[:1])
    yield "negative zeros", filled(64, ZEROS[1:])
    yield "both zeros", filled(64, ZEROS)
    yield "subnormals", filled(64, SUBNORMALS)
    yield "small normals", filled(64, SMALL_NORMALS)
    yield "around one", filled(64, AROUND_ONE)
    yield "of every kind", picked("q4 of every kind", TAME, 64)
    absorbing = filled(64, signed(1.0, 3.0))
    absorbing[[0, 37]] = 2.0**24
    yield "two elements absorb", absorbing
    cancelling = normal("q4 cancelling", 64)
    cancelling[16:32] = -cancelling[:16]
    yield "halves cancel", cancelling


def q4_matvec() -> Iterator[Case]:
    """d_bits u16[rows, nb], qs u8[rows, nb * 16], x f32[M, cols]."""
    scales = _scale_column(2)
    count = scales.shape[0]
    for name, row in _q4_rows():
        yield f"x {name}", (scales, random_nibbles(f"q4 {name}", count, 2), row[None])
    x = rows_of(np.ones(64, F), np.arange(64, dtype=F), -np.arange(64, dtype=F))
    yield "every nibble under every scale", (scales, ramp_nibbles(count, 2), x)
    for name, byte in (("one", ALL_ONE), ("minus one", ALL_MINUS_ONE), ("zero", ALL_ZERO)):
        x = rows_of(filled(64, ZEROS[1:]), normal(f"q4 weights {name}", 64))
        yield f"all weights {name}", (scales, _payload(byte, count, 2), x)
    wide = np.full((1, 64), 2.0**125, F)
    yield "block sums overflow", (scales[:1], _payload(ALL_ONE, 1, 2), wide)
    # With zero_point 7 times the one input is finite, 8 times it is not, and the two rounded as one
    # would be.
    alone = np.zeros((1, 64), F)
    alone[0, 3] = 1.1 * 2.0**125
    yield "8 inputs overflow", (scales[:1], _payload(ALL_MINUS_ONE, 1, 2), alone)
    for rows, blocks, tokens in (
        (1, 1, 1),
        (3, 5, 2),
        (33, 2, 1),
        (5, 13, 1),
        (7, 4, 5),
        (4, 64, 2),
    ):
        name = f"random, {rows} rows of {blocks} blocks, {tokens} tokens"
        d, qs = random_scales(name, rows, blocks), random_nibbles(name, rows, blocks)
        yield name, (d, qs, normal(name, tokens, blocks * 32))
        x = any_exponent(f"{name} exponents", tokens, blocks * 32, low=-12, high=12)
        yield f"{name}, any exponent", (any_scales(name, rows, blocks), qs, x)
    for name, value in (("NaN", np.nan), ("infinity", np.inf)):
        x = normal(f"q4 one {name}", 3, 64)
        x[1, 40] = value
        args = (random_scales(name, 4, 2), random_nibbles(name, 4, 2), x)
        yield f"{NON_FINITE}one {name}", args
    # With fma d * s vanishes to -0, which a block of minus zeros adds +0 to.
    for blocks, tokens in ((2, 2), (33, 1)):
        gone = np.full((tokens, blocks * 32), -0.0, F)
        gone[:, -64] = -MIN_SUBNORMAL
        d = np.full((1, blocks), F16_SCALES["smallest normal"], np.uint16)
        name = f"a sum vanishes, then minus zeros, {blocks} blocks, {tokens} tokens"
        yield name, (d, _payload(ALL_ONE, 1, blocks), gone)
    # With zero_point an infinity meets a nibble 0, and itself times 8.
    endless = np.ones((2, 64), F)
    endless[0, 5], endless[1, 40] = np.inf, -np.inf
    yield f"{NON_FINITE}infinity times a nibble 0", (scales[:1], _payload(0, 1, 2), endless)
    opposite = np.full((1, 64), FLT_MAX)
    opposite[0, 32:] = -FLT_MAX
    args = (scales[:1], _payload(ALL_ONE, 1, 2), opposite)
    yield f"{NON_FINITE}infinite blocks of opposite sign", args


# --- 1.5 -------------------------------------------------------------------------------------


def f32_matvec() -> Iterator[Case]:
    """w f32[rows, cols], x f32[M, cols]."""
    ones = np.ones((1, 16), F)
    for name, row in (
        ("positive zeros", filled(16, ZEROS[:1])),
        ("negative zeros", filled(16, ZEROS[1:])),
        ("subnormals", filled(16, SUBNORMALS)),
        ("small normals", filled(16, SMALL_NORMALS)),
        ("around one", filled(16, AROUND_ONE)),
        ("a large first element absorbs", np.append(F(2.0**24), np.ones(15, F))),
        ("a large last element", np.append(np.ones(15, F), F(2.0**24))),
    ):
        weights = rows_of(ones[0], -ones[0], normal(f"f32 {name}", 16), filled(16, SUBNORMALS))
        yield f"x {name}", (weights, row[None].astype(F))
    tiny = np.full((2, 9), MIN_NORMAL, F)
    yield "products are subnormal", (tiny, filled(9, signed(0.5, 2.0**-23, 2.0**-24))[None])
    yield "products vanish", (tiny, filled(9, signed(2.0**-26, MIN_SUBNORMAL))[None])
    yield "the sum overflows", (ones, np.full((1, 16), F(2.0**126)))
    for rows, cols, tokens in (
        (1, 1, 1),
        (2, 5, 2),
        (8, 33, 1),
        (16, 160, 2),
        (3, 257, 1),
        (4, 2048, 2),
    ):
        name = f"random, {rows} rows of {cols}, {tokens} tokens"
        yield name, (normal(f"{name} w", rows, cols, size=0.1), normal(name, tokens, cols))
        w = any_exponent(f"{name} w exponents", rows, cols, low=-12, high=12)
        x = any_exponent(f"{name} exponents", tokens, cols, low=-12, high=12)
        yield f"{name}, any exponent", (w, x)
    for name, value in (("NaN", np.nan), ("infinity", np.inf)):
        x = normal(f"f32 one {name}", 3, 16)
        x[1, 7] = value
        yield f"{NON_FINITE}one {name}", (normal(name, 4, 16), x)
    opposite = filled(16, signed(FLT_MAX))[None]
    yield f"{NON_FINITE}infinities of opposite sign", (opposite, np.full((1, 16), FLT_MAX))


# --- 1.4 -------------------------------------------------------------------------------------


def expert_ids(name: str, tokens: int, k: int, experts: int) -> Array:
    """Distinct experts for each token, in no order."""
    rng = generator(f"{name} ids")
    picks = [rng.permutation(experts)[:k] for _ in range(tokens)]
    return np.array(picks, np.int32)


def _codes(name: str, *shape: int) -> Array:
    return generator(f"{name} codes").integers(-32767, 32768, shape, dtype=np.int16)


def _activation_scales(name: str, *shape: int) -> Array:
    return np.abs(normal(f"{name} s_a", *shape, size=1e-4))


def _expert_tables() -> Iterator[Case]:
    """Two experts of 12 rows, one per named scale; activations one block wide, or two."""
    d = np.stack([_scale_column(2), _scale_column(2)[::-1]])
    ids = np.array([[1, 0]], np.int32)
    qs = random_nibbles("expert table", 2, 12, 2)
    q = _codes("expert table", 1, 1, 64)
    for name, s_a in (
        ("zero", ZEROS[:1]),
        ("smallest subnormal", np.array([MIN_SUBNORMAL])),
        ("subnormal", np.array([2.0**-133, 3 * 2.0**-140])),
        ("smallest normal", np.array([MIN_NORMAL, 1.5 * MIN_NORMAL])),
        ("one", np.ones(1)),
        ("not a power of two", np.array([1.1e-4, 3.3e-5])),
        ("huge, the product overflows", np.array([1e30, 1.0])),
    ):
        yield f"s_a {name}", (d, qs, ids, q, filled(2, s_a)[None, None])
    ones = np.ones((1, 1, 2), F)
    yield "every nibble under every scale", (d, ramp_nibbles(2, 12, 2), ids, q, ones)
    for name, code in (("zero", 0), ("32767", 32767), ("-32767", -32767)):
        full = np.full((1, 1, 64), code, np.int16)
        yield f"all codes {name}, weights -8", (d, _payload(0, 2, 12, 2), ids, full, ones)
        yield f"all codes {name}, weights 7", (d, _payload(0xFF, 2, 12, 2), ids, full, ones)


def _expert_orders() -> Iterator[Case]:
    """Blocks whose sums absorb each other, so that their order shows."""
    d = np.full((1, 1, 4), 0x3C00, np.uint16)
    q = np.ones((1, 1, 128), np.int16)
    for name, s_a in (
        ("a large first block", [2.0**24, 1.0, 1.0, 1.0]),
        ("a large last block", [1.0, 1.0, 1.0, 2.0**24]),
        ("zeros between", [3.0, 0.0, 2.0**-24, 0.0]),
    ):
        args = (d, _payload(ALL_ONE, 1, 1, 4), np.zeros((1, 1), np.int32), q)
        yield f"{name}", (*args, np.array([[s_a]], F))


def expert_matvec() -> Iterator[Case]:
    """d_bits u16[E, rows, nb], qs u8, ids i32[M, k], q i16[M, G, n], s_a f32[M, G, n/32]."""
    yield from _expert_tables()
    yield from _expert_orders()
    for experts, rows, blocks, tokens, k, inputs in (
        (1, 1, 1, 1, 1, 1),
        (8, 5, 5, 1, 3, 1),
        (8, 5, 3, 1, 3, 3),
        (16, 3, 4, 2, 4, 1),
        (16, 3, 2, 3, 4, 4),
        (4, 33, 1, 2, 4, 4),
        (3, 2, 13, 1, 2, 1),
        (9, 4, 64, 2, 8, 1),
        (9, 4, 24, 2, 8, 8),
    ):
        name = f"random, {k} of {experts}, {blocks} blocks, {tokens} tokens, {inputs} inputs"
        qs = random_nibbles(name, experts, rows, blocks)
        ids = expert_ids(name, tokens, k, experts)
        q = _codes(name, tokens, inputs, blocks * 32)
        s_a = _activation_scales(name, tokens, inputs, blocks)
        yield name, (random_scales(name, experts, rows, blocks), qs, ids, q, s_a)
        yield f"{name}, any scale", (any_scales(name, experts, rows, blocks), qs, ids, q, s_a)
    name = "all tokens meet the same experts"
    ids = np.array([[2, 0], [2, 0], [0, 2]], np.int32)
    d, qs = random_scales(name, 3, 4, 2), random_nibbles(name, 3, 4, 2)
    yield name, (d, qs, ids, _codes(name, 3, 1, 64), _activation_scales(name, 3, 1, 2))
    s_a = np.array([[[np.nan, 1.0], [np.inf, 1.0]]], F)
    ids = np.array([[2, 0]], np.int32)
    yield f"{NON_FINITE}scales", (d, qs, ids, _codes("not finite", 1, 2, 64), s_a)


# --- the sum over experts --------------------------------------------------------------------


def combine() -> Iterator[Case]:
    """ores f32[M, hidden], down f32[M, k, hidden], probs f32[M, k]."""
    kinds = TAME.shape[0]
    down = np.stack([picked(f"combine {rank}", TAME, kinds) for rank in range(3)])[None]
    for name, weights in (
        ("unequal", [0.5, 0.3, 0.2]),
        ("one and zeros", [1.0, 0.0, 0.0]),
        ("subnormal", [1.0, MIN_SUBNORMAL, 2.0**-130]),
        ("ones", [1.0, 1.0, 1.0]),
    ):
        yield f"every kind, probabilities {name}", (TAME[None], down, np.array([weights], F))
    ores, down = np.meshgrid(ZEROS, np.append(ZEROS, [1.0, -1.0]).astype(F))
    for p in (0.0, 0.25, 1.0):
        args = (ores.reshape(1, -1), down.reshape(1, 1, -1).copy(), np.full((1, 1), p, F))
        yield f"signed zeros, probability {p}", args
    absorbing = np.array([[[2.0**25], [1.0], [1.0], [1.0]]], F)
    for name, order in (("first", absorbing), ("last", absorbing[:, ::-1].copy())):
        ones = np.ones((1, 4), F)
        yield f"a large {name} rank absorbs", (np.zeros((1, 1), F), order, ones)
        yield f"a large {name} rank beside ores", (np.full((1, 1), -(2.0**25), F), order, ones)
    wide = np.stack([LARGE, LARGE])[None]
    yield "large, the sum overflows", (np.resize(HUGE, (1, LARGE.shape[0])), wide, ones[:, :2])
    for tokens, k, hidden in ((1, 1, 1), (1, 3, 160), (2, 4, 33), (3, 8, 5), (1, 16, 7)):
        name = f"random, {tokens} tokens, {k} ranks, {hidden} wide"
        probs = np.sort(np.abs(normal(f"{name} p", tokens, k, size=0.3)), axis=1)[:, ::-1].copy()
        yield name, (normal(name, tokens, hidden), normal(f"{name} d", tokens, k, hidden), probs)
        down = any_exponent(f"{name} any", tokens, k, hidden, low=-20, high=20)
        yield f"{name}, any exponent", (normal(name, tokens, hidden), down, probs)
    down = np.array([[[np.inf, np.nan, 1.0], [-np.inf, 1.0, 1.0]]], F)
    yield f"{NON_FINITE}down", (np.ones((1, 3), F), down, np.ones((1, 2), F))
