"""Named inputs for contract 3's own ops, and for RoPE and attention in the family's shapes.

Chosen boundary cases first, then seeded random ones. A case whose name starts with NON_FINITE may
give a NaN, and then any NaN will do (contract 1.10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.oracle import hybrid_scalar
from tests.oracle.hybrid_scalar import query_scale
from tests.oracle.inputs_rows import SIGMOID_POINTS
from tests.oracle.model import softmax_scale
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

# Arguments of expf: where it is not correctly rounded, its bounds, subnormal results.
EXP_POINTS = -SIGMOID_POINTS
# Where expf overflows and underflows, with neighbours; results that are subnormal.
EXP_BOUNDS = np.concatenate(
    [f32_words("42b17217 42b17218 c2cff1b4 c2cff1b5 c2aeac4f"), signed(103.0, 104.0, 88.0)]
)


def _crossed(left: Array, right: Array) -> tuple[Array, Array]:
    a, b = np.meshgrid(left, right, indexing="ij")
    return np.ascontiguousarray(a, F), np.ascontiguousarray(b, F)


# --- 3.1 ------------------------------------------------------------------------------------------


def split_gate() -> Iterator[Case]:
    """both f32[M, n_q, 2 * hd]."""
    kinds = np.append(SPECIALS, f32_words("7fc12345 ffc54321 7f800000 ff800000"))
    yield "every kind of bits", (filled(4 * len(kinds), kinds).reshape(1, 2, -1),)
    yield "one element a half", (normal("split one", 2, 3, 2),)
    for rows, heads, hd in ((1, 4, 96), (3, 4, 32), (1, 24, 256), (2, 5, 7)):
        name = f"{rows} rows, {heads} heads of {hd}"
        yield name, (any_bits(f"split {name}", rows, heads, 2 * hd),)


def _gates(op: str) -> Iterator[Case]:
    """x, gate f32[R, n]."""
    yield "every pair of chosen values", _crossed(SPECIALS, SPECIALS)
    yield "points of the sigmoid", _crossed(signed(0.0, 1.0, 3.0, 1e-30), SIGMOID_POINTS)
    yield "the sigmoid is subnormal", _crossed(signed(1.0, 1e-3, 3e4), -signed(87.5, 88.7)[::2])
    yield "gate far below zero", _crossed(signed(1.0, 0.0, FLT_MAX), -LARGE[::2])
    yield "one element", (np.ones((1, 1), F), np.ones((1, 1), F))
    for rows, n in ((1, 384), (3, 33), (2, 257)):
        name = f"random {op}, {rows} rows of {n}"
        yield name, (any_exponent(f"{name} x", rows, n), normal(f"{name} gate", rows, n, size=4.0))
    yield "random, any bits", (any_bits(f"{op} x", 2, 40), any_bits(f"{op} gate", 2, 40))
    gate = np.array([[-np.inf, np.inf, np.nan, 0.0, np.inf]], F)
    yield f"{NON_FINITE}gates", (np.array([[1.0, 1.0, 1.0, np.nan, 0.0]], F), gate)


def sigmoid_gate() -> Iterator[Case]:
    """x, gate f32[R, n]."""
    return _gates("sigmoid_gate")


# --- 3.2, elements --------------------------------------------------------------------------------


def silu_gate() -> Iterator[Case]:
    """x, z f32[R, n]."""
    return _gates("silu_gate")


def decay_rates() -> Iterator[Case]:
    """a_log f32[vh]."""
    for name, values in (
        ("zeros", ZEROS),
        ("subnormals", SUBNORMALS),
        ("around one", AROUND_ONE),
        ("points of expf", EXP_POINTS),
        ("bounds of expf", EXP_BOUNDS),
        ("every kind", SPECIALS),
        ("one head", np.ones(1, F)),
    ):
        yield name, (values,)
    for heads in (4, 6, 48, 257):
        yield f"random, {heads} heads", (normal(f"a_log of {heads}", heads, size=1.5),)
    yield f"{NON_FINITE}a_log", (np.array([np.nan, np.inf, -np.inf], F),)


def _on_gates(name: str, a: Array, b: Array, rates: Array, bias: Array) -> Case:
    """One row of heads, each argument repeated to the longest."""
    heads = max(map(len, (a, b, rates, bias)))
    one, two, three, four = (filled(heads, values) for values in (a, b, rates, bias))
    return name, (one[None], two[None], three, four)


def delta_gates() -> Iterator[Case]:
    """a, b f32[M, vh], rates (nA) and dt_bias f32[vh]."""
    none, minus = ZEROS[:1], np.full(1, -1.0, F)
    border = np.array([down(20.0), 20.0, up(20.0), 19.0, 21.0, 15.0, 10.5, 9.5], F)
    far = np.array([88.0, 89.0, 100.0, 1e4, 1e30, FLT_MAX], F)
    small = np.concatenate([-far, signed(1e-20, 2.0**-24, 16.0, 17.0, 104.0)])
    yield _on_gates("zeros", ZEROS, ZEROS, -ZEROS, ZEROS)
    yield _on_gates("subnormals", SUBNORMALS, SUBNORMALS, -np.abs(SUBNORMALS), SUBNORMALS)
    yield _on_gates("b at the points of the sigmoid", none, SIGMOID_POINTS, minus, none)
    yield _on_gates("softplus at its bound", border, none, np.full(1, -0.01, F), none)
    yield _on_gates("softplus at its bound by the bias", none, none, np.full(1, -0.03, F), border)
    yield _on_gates("a and bias meet at 20", border - F(12.5), none, minus / F(64), minus * -12.5)
    yield _on_gates("softplus above the range of expf", far, none, np.full(1, -1e-4, F), none)
    yield _on_gates("softplus near zero", small, none, minus, none)
    yield _on_gates("softplus near zero, large rates", small, none, np.full(1, -1e6, F), none)
    yield _on_gates("a and bias cancel", signed(3.0, 1e-3), none, minus, -signed(3.0, up(1e-3)))
    # softplus(21) is 21: the power is exact, so g runs through expf's lower bounds.
    lows = np.array([-88.0, -103.0, -103.9, -103.97, -104.0, -110.0, -1e4, -FLT_MAX], F)
    yield _on_gates("g goes to zero", np.full(1, 32.0, F), none, lows / F(32.0), none)
    yield _on_gates("rates of minus zero", border, SIGMOID_POINTS, np.full(1, -0.0, F), none)
    yield _on_gates("the power overflows", far[-2:], none, np.full(1, -FLT_MAX, F), none)
    for rows, heads in ((1, 6), (1, 1), (3, 48), (2, 70)):
        name = f"random, {rows} rows of {heads} heads"
        a, b = (normal(f"gates {name} {part}", rows, heads, size=4.0) for part in "ab")
        rates = -np.exp(normal(f"gates {name} rates", heads)).astype(F)
        yield name, (a, b, rates, normal(f"gates {name} bias", heads))
    bad = np.array([np.nan, np.inf, -np.inf, 1.0], F)
    yield _on_gates(f"{NON_FINITE}a and b", bad, bad[::-1], minus, none)
    yield _on_gates(f"{NON_FINITE}rates", none, none, -np.abs(bad), -far[:1])


# --- 3.2, rows ------------------------------------------------------------------------------------


def _conv_args(name: str, taps: Array, w: Array) -> Case:
    """taps f32[4, C], the newest last."""
    return name, (np.ascontiguousarray(taps[:3], F), taps[3].astype(F), np.asarray(w, F))


def _chosen_taps() -> Iterator[Case]:
    ones = np.ones((6, 4), F)
    for name, values in (("zeros", ZEROS[:1]), ("minus zeros", ZEROS[1:])):
        yield _conv_args(f"{name}, positive taps", filled(24, values).reshape(4, 6), ones)
        yield _conv_args(f"{name}, negative taps", filled(24, values).reshape(4, 6), -ones)
    for t in range(4):
        w = np.zeros((6, 4), F)
        w[:, t] = 1.0
        yield _conv_args(f"tap {t} alone", normal("one tap", 4, 6), w)
        lone = np.zeros((4, len(SIGMOID_POINTS)), F)
        lone[t] = SIGMOID_POINTS
        w = np.full((len(SIGMOID_POINTS), 4), 1.0, F)
        yield _conv_args(f"points of the sigmoid at tap {t}", lone, w)
    big, odd = F(2.0**24), F(4097.0)
    rows = [[big, 1, 1, -big], [-big, 1, big, 1], [1, big, -big, 1], [odd, 1.1, -odd, 0.3]]
    absorbing = np.array(rows, F).T
    yield _conv_args("products absorb each other", absorbing, ones[:4])
    yield _conv_args("products are rounded", absorbing, normal("rounded taps", 4, 4))
    for name, values in (
        ("subnormals", SUBNORMALS),
        ("small normals", SMALL_NORMALS),
        ("around one", AROUND_ONE),
        ("tame values", TAME),
    ):
        picks = picked(f"taps {name}", values, 4, 40)
        yield _conv_args(name, picks, picked(f"taps w {name}", AROUND_ONE, 40, 4))
    tiny = filled(20, signed(MIN_NORMAL, 2.0**-120)).reshape(4, 5)
    yield _conv_args("products are subnormal", tiny, np.full((5, 4), F(2.0**-9)))


def conv_step() -> Iterator[Case]:
    """hist f32[3, C], qkv f32[C], w f32[C, 4]."""
    yield from _chosen_taps()
    raw, w = normal("conv steps", 4, 40), normal("conv steps w", 40, 4)
    for steps in range(4):
        # From +0.0: rows that were not there yet are zero.
        taps = np.concatenate([np.zeros((3, 40), F), raw[: steps + 1]])[-4:]
        yield _conv_args(f"after {steps} steps", taps, w)
    for channels in (1, 33, 256, 960):
        name = f"random, {channels} channels"
        taps = any_exponent(name, 4, channels, low=-12, high=6)
        yield _conv_args(name, taps, normal(f"{name} w", channels, 4))
    huge = filled(40, HUGE[::2]).reshape(4, 10)
    yield _conv_args("the sum overflows", huge, np.ones((10, 4), F))
    yield _conv_args(f"{NON_FINITE}the sum overflows below", -huge, np.ones((10, 4), F))
    taps = normal("not finite taps", 4, 6)
    taps[0, 1], taps[2, 3], taps[3, 5] = np.nan, np.inf, -np.inf
    yield _conv_args(f"{NON_FINITE}taps", taps, np.ones((6, 4), F))


def _l2_rows(width: int) -> Iterator[tuple[str, Array]]:
    yield "positive zeros", filled(width, ZEROS[:1])
    yield "minus zeros", filled(width, ZEROS[1:])
    yield "subnormals", filled(width, SUBNORMALS)
    yield "squares are subnormal", filled(width, signed(2.0**-74, 3 * 2.0**-74, 2.0**-68))
    yield "as small as the 1e-6", filled(width, signed(1e-4, 3e-4, 1e-5))
    yield "around one", filled(width, AROUND_ONE)
    yield "the square sum overflows", filled(width, HUGE)
    yield "the square sum is large", filled(width, signed(2.0**59))
    absorbing = np.ones(width, F)
    absorbing[0] = 4096.0
    yield "a large first element absorbs", absorbing
    yield "a large last element", absorbing[::-1].copy()


def l2norm() -> Iterator[Case]:
    """x f32[M, heads, width], scale."""
    for width in (1, 7, 32, 96):
        table = dict(_l2_rows(width))
        for name, values in table.items():
            yield f"{name}, {width} wide", (values[None, None], F(1.0))
        every = rows_of(*table.values()).reshape(5, 2, width)
        yield f"every chosen row, {width} wide", (every, query_scale(width))
    for rows, heads, width in ((1, 2, 96), (3, 2, 32), (1, 16, 128), (2, 3, 5)):
        name = f"random l2norm, {rows} rows, {heads} heads of {width}"
        yield name, (normal(name, rows, heads, width), query_scale(width))
        yield f"{name}, as k", (any_exponent(name, rows, heads, width, low=-16, high=8), F(1.0))
    yield "random, any bits", (any_bits("l2norm bits", 2, 2, 33), F(0.3))
    one_bad = normal("not finite l2norm", 4, 1, 7)
    one_bad[1, 0, 3], one_bad[2, 0, 5] = np.nan, np.inf
    yield f"{NON_FINITE}elements", (one_bad, F(1.0))


# --- 3.2, the delta rule --------------------------------------------------------------------------


def _delta_args(name: str, kh: int, vh: int, kd: int, vd: int) -> dict[str, Array]:
    """Arguments of model size, by name."""
    q, k = (normal(f"{name} {part}", kh, kd, size=kd**-0.5) for part in "qk")
    beta, g = (1 / (1 + np.exp(normal(f"{name} {part}", vh))) for part in ("beta", "g"))
    return {
        "s": normal(f"{name} s", vh, kd, vd),
        "q": q,
        "k": k,
        "v": normal(f"{name} v", vh, vd),
        "beta": beta.astype(F),
        "g": g.astype(F),
    }


def _changed(name: str, **arrays: Array | np.float32 | float) -> Case:
    """A small case, 2/4 heads of 5 x 3, with some arguments replaced."""
    args = _delta_args(f"delta {name}", 2, 4, 5, 3)
    for part, values in arrays.items():
        args[part] = filled(args[part].size, np.atleast_1d(values)).reshape(args[part].shape)
    return name, tuple(args.values())


def _delta_chosen() -> Iterator[Case]:
    yield _changed("all zero", **dict.fromkeys(("s", "q", "k", "v", "beta", "g"), 0.0))
    yield _changed("all minus zero", **dict.fromkeys(("s", "q", "k", "v", "beta", "g"), -0.0))
    yield _changed("the first step: S is zero", s=0.0)
    yield _changed("S is minus zero", s=-0.0, k=-1.0)
    yield _changed("nothing is kept: g is zero", g=0.0)
    yield _changed("g is subnormal", g=MIN_SUBNORMAL)
    yield _changed("all is kept: g is one", g=1.0)
    yield _changed("nothing is written: beta is zero", beta=0.0)
    yield _changed("all is written: beta is one", beta=1.0)
    yield _changed("v is what S answers", s=1.0, k=np.array([1, 0, 0, 0, 0], F), v=1.0, g=1.0)
    yield _changed("k is zero", k=0.0)
    yield _changed("q is zero", q=0.0)
    for name, values in (
        ("subnormals", SUBNORMALS),
        ("small normals", SMALL_NORMALS),
        ("around one", AROUND_ONE),
        ("tame values", TAME),
        ("powers of two that absorb", signed(2.0**24, 1.0, 2.0**12)),
    ):
        yield _changed(f"S of {name}", s=picked(f"delta s {name}", values, 60))
        yield _changed(f"k of {name}", k=picked(f"delta k {name}", values, 10))
        yield _changed(f"q of {name}", q=picked(f"delta q {name}", values, 10))
        yield _changed(f"v of {name}", v=picked(f"delta v {name}", values, 12))
    yield _changed("huge v, S stays finite", v=HUGE[0], k=F(0.25))
    yield _changed("S vanishes into subnormals", s=MIN_NORMAL, g=F(2.0**-20), v=-0.0)


def delta_step() -> Iterator[Case]:
    """s f32[vh, kd, vd], q, k f32[kh, kd], v f32[vh, vd], beta, g f32[vh]."""
    yield from _delta_chosen()
    s = np.zeros((6, 8, 8), F)
    for steps in range(3):
        args = {**_delta_args(f"delta step {steps}", 2, 6, 8, 8), "s": s}
        yield f"after {steps} steps from zero", tuple(args.values())
        s = hybrid_scalar.delta_step(*args.values())[1]
    for kh, vh, kd, vd in (
        *((1, 1, 1, 1), (2, 4, 32, 32), (2, 6, 96, 96), (2, 4, 33, 70), (3, 9, 7, 5)),
        *((4, 4, 16, 24), (1, 5, 8, 130)),
    ):
        name = f"random, {kh}/{vh} heads of {kd} x {vd}"
        args = _delta_args(name, kh, vh, kd, vd)
        yield name, tuple(args.values())
        if kd < 40:
            wild = {
                part: any_exponent(f"{name} {part} any", *args[part].shape, low=-12, high=12)
                for part in ("s", "q", "k", "v")
            }
            yield f"{name}, any exponent", tuple({**args, **wild}.values())
    yield _changed(f"{NON_FINITE}S overflows", s=FLT_MAX, k=2.0)
    yield _changed(f"{NON_FINITE}v", v=np.array([np.nan, np.inf, 1.0], F))


# --- shared ops in the family's shapes ------------------------------------------------------------


def rope() -> Iterator[Case]:
    """x f32[M, heads, hd], inv_freq f32[rot/2], pos: a part of each head rotates."""
    for rot, hd, heads in ((24, 96, 4), (8, 32, 2), (64, 256, 3)):
        for pos in (0, 1, 35, 4096, 262_141):
            name = f"{rot} of {hd} at position {pos}"
            yield name, (normal(name, 3, heads, hd), inv_freq(1e7, rot), pos)
    ends = np.concatenate([picked("rope ends", TAME, 8), SPECIALS])
    yield "specials pass in the rest", (ends[None, None], inv_freq(1e7, 8), 3)


def attention_f32() -> Iterator[Case]:
    """q, k, v, sm_scale, pos; slots past the last key hold NaN."""
    for rows, n_q, n_kv, hd, pos in (
        *((1, 4, 2, 96, 0), (1, 4, 2, 96, 17), (3, 4, 2, 32, 5), (1, 24, 4, 256, 2)),
        (5, 4, 2, 32, 30),
    ):
        name = f"{rows} rows at {pos}, {n_q} heads on {n_kv}, {hd} wide"
        k, v = (normal(f"hybrid {name} {part}", pos + rows + 2, n_kv, hd) for part in "kv")
        k[pos + rows :], v[pos + rows :] = np.nan, np.nan
        q = normal(f"hybrid {name} q", rows, n_q, hd, size=1.5)
        yield name, (q, k, v, softmax_scale(hd), pos)


TABLES: dict[str, Callable[[], Iterator[Case]]] = {
    "split_gate": split_gate,
    "sigmoid_gate": sigmoid_gate,
    "silu_gate": silu_gate,
    "decay_rates": decay_rates,
    "conv_step": conv_step,
    "l2norm": l2norm,
    "delta_gates": delta_gates,
    "delta_step": delta_step,
    "rope": rope,
    "attention_f32": attention_f32,
}
