"""Cases for the row and element ops: norms, quantising, RoPE, add, swiglu (contract 1.1-1.9)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.oracle.scalar import inv_freq
from tests.oracle.values import (
    AROUND_ONE,
    FLT_MAX,
    HUGE,
    LARGE,
    MIN_NORMAL,
    MIN_SUBNORMAL,
    NON_FINITE,
    SMALL_NORMALS,
    SPECIALS,
    SUBNORMALS,
    TAME,
    ZEROS,
    Array,
    Case,
    F,
    any_bits,
    any_exponent,
    down,
    f32_words,
    filled,
    normal,
    picked,
    rows_of,
    signed,
    up,
)

EPS = F(1e-6)
NORM_LENGTHS = (1, 5, 7, 8, 9, 13, 16, 32, 96, 160)


# --- norms -----------------------------------------------------------------------------------


def _norm_rows(length: int) -> Iterator[tuple[str, Array]]:
    """Chosen rows of one length."""
    yield "positive zeros", filled(length, ZEROS[:1])
    yield "negative zeros", filled(length, ZEROS[1:])
    yield "both zeros and one subnormal", filled(length, np.append(ZEROS, MIN_SUBNORMAL))
    yield "subnormals, squares vanish", filled(length, SUBNORMALS)
    yield "squares are subnormal", filled(length, signed(2.0**-74, 3 * 2.0**-74, 2.0**-68))
    yield "smallest normal square", filled(length, signed(2.0**-63, up(2.0**-63), down(2.0**-63)))
    yield "around one", filled(length, AROUND_ONE)
    yield "small normals", filled(length, SMALL_NORMALS)
    yield "huge, the square sum is infinite", filled(length, HUGE)
    yield "the square sum alone overflows", filled(length, signed(down(2.0**64), 2.0**62))
    yield "the square sum is the largest power", filled(length, signed(2.0**61))
    absorbing = np.ones(length, F)
    absorbing[0] = 4096.0
    yield "a large first element absorbs", absorbing
    yield "a large last element", absorbing[::-1].copy()
    yield "alternating large and small", filled(length, np.array([4096, 1, 1.5, -1, 4097], F))


def _norm_args(rows: Array, weights: Array, eps: np.float32, heads: bool) -> tuple[object, ...]:
    """rmsnorm takes rows as they are; headnorm takes them two to a row where they pair up."""
    if not heads:
        return rows, weights, eps
    per_row = 2 if rows.shape[0] % 2 == 0 else 1
    return rows.reshape(-1, per_row, rows.shape[1]), weights, eps


def _norm(heads: bool) -> Iterator[Case]:
    for length in NORM_LENGTHS:
        for name, row in _norm_rows(length):
            args = _norm_args(row[None], normal(f"norm w {length}", length), EPS, heads)
            yield f"{name}, {length} wide", args
    unusual = {
        "weights of both zeros": filled(13, ZEROS),
        "weights of every kind": filled(13, TAME),
        "huge weights": filled(13, HUGE),
    }
    for name, weights in unusual.items():
        yield name, _norm_args(normal(name, 2, 13), weights, EPS, heads)
    for eps in (F(0.0), MIN_SUBNORMAL, F(1e-12), F(1e-5), F(1.0), F(1e30)):
        rows = rows_of(normal(f"eps {eps}", 13), filled(13, SUBNORMALS[2:3] + F(2.0**-60)))
        yield f"eps {eps}", _norm_args(rows, np.ones(13, F), eps, heads)
    for eps in (F(0.0), MIN_SUBNORMAL):
        tiny = filled(13, signed(2.0**-74, 3 * 2.0**-73, 2.0**-68))[None]
        yield f"squares are subnormal, eps {eps}", _norm_args(tiny, np.ones(13, F), eps, heads)
    for length in (*NORM_LENGTHS, 128, 257, 2048):
        name = f"random, {length} wide"
        rows = np.concatenate([normal(name, 3, length), any_exponent(name, 3, length)])
        yield name, _norm_args(rows, normal(f"{name} w", length), EPS, heads)
        wild = any_bits(f"wild {length}", 2, length)
        yield f"any bits, {length} wide", _norm_args(wild, np.ones(length, F), EPS, heads)
    zeros = rows_of(normal("eps zero", 8), np.zeros(8, F))
    yield f"{NON_FINITE}zeros with eps 0", _norm_args(zeros, np.ones(8, F), F(0.0), heads)
    for name, value in (("NaN", np.nan), ("infinity", np.inf)):
        rows = normal(f"one {name}", 4, 13)
        rows[1, 5] = value
        yield f"{NON_FINITE}one {name}", _norm_args(rows, np.ones(13, F), EPS, heads)


def rmsnorm() -> Iterator[Case]:
    """x f32[M, d], w f32[d], eps."""
    return _norm(heads=False)


def headnorm() -> Iterator[Case]:
    """x f32[M, heads, hd], w f32[hd], eps."""
    return _norm(heads=True)


def norm_tree() -> Iterator[Case]:
    """x f32[R, d], w f32[d], eps."""
    return _norm(heads=False)


# --- quantising ------------------------------------------------------------------------------


def _quant_rows(limit: int, length: int) -> Iterator[tuple[str, Array]]:
    """Chosen groups of one length for codes -limit..limit; limit itself gives scale 1."""
    tiny = MIN_SUBNORMAL
    top = F(limit)

    def group(name: str, values: Array) -> tuple[str, Array]:
        return name, filled(length, values)

    halves = np.arange(length, dtype=F) + F(0.5)
    yield group("positive zeros", ZEROS[:1])
    yield group("negative zeros", ZEROS[1:])
    yield group("ties at k + 0.5, positive", np.append(top, halves))
    yield group("ties at k + 0.5, negative", np.append(top, -halves))
    yield group("ties just below the limit", np.append(top, signed(top - F(0.5), top - F(1.5))))
    yield group("neighbours of ties", np.append(top, signed(up(0.5), down(0.5), up(2.5))))
    yield group("ties of half the size", np.append(-top, halves) * F(0.5))
    yield group("ties at scale 2^-149 * 2", np.array([2 * limit, 1, 3, -5, 7, -9], F) * tiny)
    yield group("amax subnormal, scale is zero", np.array([1, -1, 0, limit // 2], F) * tiny)
    yield group("amax just below half a scale step", np.array([limit // 2, -3], F) * tiny)
    yield group("amax just above half a scale step", np.array([limit // 2 + 1, -3, 1], F) * tiny)
    widest = (3 * limit - 1) // 2
    yield group("clamped above at scale 2^-149", np.array([widest, 1, limit], F) * tiny)
    yield group("clamped below at scale 2^-149", np.array([-widest, 1, -limit - 1], F) * tiny)
    yield group("amax / limit underflows to a subnormal", signed(F(1e-38), F(3e-39), F(7e-40)))
    yield group("smallest normal", signed(MIN_NORMAL, up(MIN_NORMAL), down(MIN_NORMAL)))
    yield group("largest", signed(FLT_MAX, down(FLT_MAX), F(2.0**126), F(1.0)))
    yield group("amax is negative", np.array([-3.0, 2.9, -0.0, 1.0], F))
    yield group("powers of two", signed(*(F(2.0**-k) for k in range(0, 20))))
    yield group("around one", AROUND_ONE)
    yield group("amax far above the rest", np.append(F(1e30), SUBNORMALS))
    late = np.full(length, 0.25, F)
    late[-1] = -7.0
    yield "amax stands last", late


def _quant_random(limit: int, groups: int, length: int) -> Iterator[tuple[str, Array]]:
    yield from (
        ("random", normal(f"quant {limit}", groups, length)),
        ("random, any exponent", any_exponent(f"quant {limit} exponents", groups, length)),
        ("random, any bits", any_bits(f"quant {limit} bits", groups, length)),
        ("random, whole steps", np.rint(normal(f"quant {limit} steps", groups, length, size=40.0))),
        ("random subnormals", normal(f"quant {limit} tiny", groups, length, size=2.0**-144)),
    )


def _not_finite(groups: int, length: int) -> Iterator[tuple[str, Array]]:
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf)):
        values = normal(f"quant one {name}", groups, length)
        values[1, length // 2] = value
        yield f"{NON_FINITE}one {name}", values


def quant8() -> Iterator[Case]:
    """x f32[M, heads, hd]."""
    for length in (5, 32, 96):
        table = dict(_quant_rows(127, length))
        for name, row in table.items():
            yield f"{name}, {length} wide", (row[None, None],)
        yield f"every chosen row, {length} wide", (rows_of(*table.values())[:, None],)
    for name, values in _quant_random(127, 6, 128):
        yield name, (values.astype(F).reshape(2, 3, 128),)
    yield "one element a head", (SPECIALS.reshape(-1, 2, 1),)
    for name, values in _not_finite(4, 32):
        yield name, (values.reshape(2, 2, 32),)


def quant16() -> Iterator[Case]:
    """x f32[R, n]."""
    table = dict(_quant_rows(32767, 32))
    for name, row in table.items():
        yield name, (row[None],)
    yield "every chosen block in one row", (np.concatenate(list(table.values()))[None],)
    yield "every chosen block in its own row", (rows_of(*table.values()),)
    for name, values in _quant_random(32767, 3, 160):
        yield name, (values.astype(F),)
    for name, values in _not_finite(3, 64):
        yield name, (values,)


# --- RoPE ------------------------------------------------------------------------------------

# Arguments at the branch bounds of cosf and sinf and at results that are not correctly rounded.
ANGLES = f32_words("""
    00000001 38ffffff 39000000 3bffffff 3c000000 3f490fda 3f490fdb 3fc90fdb 40490fdb 42c80000
    461c4000 4b800455 4b800456 4f490fda 4f490fdb 50a3e87f 73daadec 7f7fffff 80000000 bf490fdb
    c2c80000 00000000 cf490fdb f3daadec
""")


def _rope_positions() -> Iterator[Case]:
    frequencies = inv_freq(1e4, 8)
    for pos in (0, 1, 40, 2000, 48039, 131071, 500000, 16777215, 16777217, 16779434):
        x = normal(f"rope at {pos}", 3, 2, 8)
        yield f"3 rows at position {pos}", (x, frequencies, pos)
    yield "last positions of int32", (normal("rope last", 2, 1, 8), frequencies, 2**31 - 3)


def rope() -> Iterator[Case]:
    """x f32[M, heads, hd], inv_freq f32[rot/2], pos."""
    zeros = np.array(np.meshgrid([0.0, -0.0, 1.0, -1.0], [0.0, -0.0, 1.0, -1.0]), F).reshape(2, 16)
    pairs = np.concatenate([zeros[0], zeros[1]])[None, None]
    for pos in (0, 1, 3):
        yield f"signed zeros at position {pos}", (pairs, np.full(16, 0.5, F), pos)
    yield from _rope_positions()
    half = ANGLES.shape[0]
    x = normal("rope angles", 1, 2, 2 * half)
    yield "angles at every bound", (x, ANGLES, 1)
    yield "unit vectors, cosines", (filled(2 * half, np.ones(1, F))[None, None], ANGLES, 1)
    table = np.concatenate([picked("rope left", TAME, half), picked("rope right", TAME, half)])
    yield "elements of every kind", (table[None, None], inv_freq(1e6, 2 * half), 7)
    yield "huge elements overflow", (filled(8, HUGE[2:])[None, None], inv_freq(1e4, 8), 1)
    for rot, hd, theta in ((24, 96, 1e7), (96, 96, 1e6), (8, 32, 1e7), (2, 8, 1e4), (2, 2, 1e4)):
        name = f"{rot} of {hd} rotate"
        yield name, (normal(name, 2, 3, hd), inv_freq(theta, rot), 29)
    rest = np.concatenate([normal("rope rest", 8), SPECIALS, np.array([np.nan], F)])
    rest[-1:] = f32_words("7fc12345")
    yield f"{NON_FINITE}a NaN passes in the rest", (rest[None, None], inv_freq(1e4, 8), 5)


# --- elements --------------------------------------------------------------------------------

# -x where expf is not correctly rounded, its bounds, and where sigmoid saturates.
SIGMOID_POINTS = np.concatenate(
    [
        -f32_words("bf008732 bfe55c35 c0d7bffa c14e4ee7 c239b2d3 c2890f89"),
        -f32_words("42b17217 42b17218 c2cff1b4 c2cff1b5 c2aeac4f be3510e2"),
        signed(16.0, 17.0, up(16.63), 20.0, 88.0, 89.0, 104.0),
    ]
)


def _crossed(left: Array, right: Array) -> tuple[Array, Array]:
    a, b = np.meshgrid(left, right, indexing="ij")
    return np.ascontiguousarray(a, F), np.ascontiguousarray(b, F)


def add() -> Iterator[Case]:
    """a, b f32[M, n]."""
    yield "every pair of chosen values", _crossed(SPECIALS, SPECIALS[:-2])
    odd = np.array([1.0, up(1.0), 3.0, up(3.0)], F)
    yield "exact ties", _crossed(odd, signed(2.0**-24, 3 * 2.0**-24, 2.0**-23, up(2.0**-24)))
    yield "the sum is subnormal", _crossed(signed(up(MIN_NORMAL)), signed(MIN_NORMAL, 2.0**-140))
    yield "one element", (np.ones((1, 1), F), np.ones((1, 1), F))
    for rows, n in ((1, 160), (3, 33)):
        name = f"random, {rows} rows of {n}"
        yield name, (normal(f"{name} a", rows, n), any_exponent(f"{name} b", rows, n))
    yield "random, any bits", (any_bits("add a", 2, 40), any_bits("add b", 2, 40))
    both = np.array([[np.inf, np.inf, -np.inf, np.nan, 1.0]], F)
    yield f"{NON_FINITE}infinities", (both, np.array([[-np.inf, 1.0, 1.0, 1.0, np.nan]], F))


def swiglu() -> Iterator[Case]:
    """gate, up f32[M, n]."""
    yield "every pair of chosen values", _crossed(SPECIALS, SPECIALS)
    yield "points of the sigmoid", _crossed(SIGMOID_POINTS, signed(0.0, 1.0, 3.0, 1e-30))
    yield "gate far below zero", _crossed(-LARGE[::2], signed(1.0, 0.0))
    yield "one element", (np.ones((1, 1), F), np.ones((1, 1), F))
    for rows, n in ((1, 96), (3, 33)):
        name = f"random swiglu, {rows} rows of {n}"
        yield name, (normal(f"{name} gate", rows, n, size=4.0), normal(f"{name} up", rows, n))
    yield "random, any bits", (any_bits("swiglu gate", 2, 40), normal("swiglu up", 2, 40))
    gate = np.array([[-np.inf, np.inf, np.nan, 0.0, -np.inf]], F)
    yield f"{NON_FINITE}gates", (gate, np.array([[1.0, 1.0, 1.0, np.inf, -2.0]], F))
