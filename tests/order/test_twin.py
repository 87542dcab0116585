"""The twin against exact fractions on random orders, and against NumPy where an order is plain."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.errors import InputError, NotRunError
from parity.order import twin
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from tests.order.exact_order import exact, random_order, random_tree, random_values

ORDERS = 2000


def equal_bits(ref: np.ndarray, dut: np.ndarray) -> bool:
    """Same bits, any NaN standing for any other."""
    both = np.isnan(ref) & np.isnan(dut)
    return bool(np.all(both | (ref.view(np.int32) == dut.view(np.int32))))


def of(nested: Any, **settings: Any) -> Order:
    return Order(Tree.of(nested), **settings)


def one(order: Order, x: list[float], w: list[float]) -> float:
    """The twin's sum of one row, which the exact evaluator must give too."""
    xs, ws = np.array(x, np.float32), np.array([w], np.float32)
    found = evaluate(order, xs, ws)
    assert equal_bits(exact(order, xs, ws), found)
    return float(found[0])


@settings(max_examples=ORDERS, deadline=None)
@given(st.integers(0, 2**32))
def test_random_orders_equal_exact_fractions(seed: int) -> None:
    rng = random.Random(seed)
    order = random_order(rng)
    n = order.tree.n
    x = random_values(rng, n) if order.terms == "products" else None
    w = np.stack([random_values(rng, n) for _ in range(2)])
    assert equal_bits(exact(order, x, w), evaluate(order, x, w)), (seed, order.text())


@pytest.mark.parametrize("bits", [None, 0, 2, 36])
@pytest.mark.parametrize("rounding", ["rz", "rn"])
def test_wide_fused_sums_of_noise_equal_exact_fractions(bits: int | None, rounding: Any) -> None:
    """200 terms whose exact sum is 0: every bit of the answer is rounding."""
    rng = random.Random(5)
    order = of(tuple(range(200)), bits=bits, rounding=rounding)
    x = random_values(rng, 200)
    x[100:], w = x[:100], np.stack([random_values(rng, 200) for _ in range(4)])
    w[:, 100:] = -w[:, :100]
    w[2:, 7] *= np.float32(1 + 2.0**-20)
    assert equal_bits(exact(order, x, w), evaluate(order, x, w))


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
def test_plain_trees_equal_numpy_in_blocks_of_rows(rows: int) -> None:
    """Additions of columns in the tree's order, by NumPy; every row stands in its own place."""
    rng = np.random.default_rng(rows)
    tree = random_tree(random.Random(rows), 77, fused=False)
    x = rng.standard_normal(77, np.float32)
    w = rng.standard_normal((rows, 77), np.float32)
    made = list((w * x).T)
    for left, right in tree.children:
        made.append(made[left] + made[right])
    assert evaluate(Order(tree), x, w).tobytes() == made[-1].tobytes()


def test_a_chain_of_twenty_thousand_terms_needs_one_value() -> None:
    n = 20_000
    nested: Any = 0
    for leaf in range(1, n):
        nested = (nested, leaf)
    order = of(nested, terms="values")
    w = np.random.default_rng(1).standard_normal((2, n), np.float32)
    assert (
        evaluate(order, None, w).tobytes()
        == np.cumsum(w, axis=1, dtype=np.float32)[:, -1].tobytes()
    )
    assert twin._program(order).depth == 1


def test_rows_in_any_layout() -> None:
    w = np.asfortranarray(np.random.default_rng(2).standard_normal((70, 9), np.float32))
    order = of((((0, 1), (2, 3)), ((4, 5), (6, (7, 8)))), terms="squares")
    assert evaluate(order, None, w).tobytes() == evaluate(order, None, w.copy("C")).tobytes()


# --- what each setting of an order does, in one number each ---------------------------------------

A = 1 + 2.0**-12  # its square needs 25 bits: 1 + 2^-11 + 2^-24
CANCEL = -(1 + 2.0**-11)


def test_a_product_that_stays_exact_shows_its_last_bit() -> None:
    assert one(of((0, 1), fma=frozenset({0})), [A, 1], [A, CANCEL]) == 2.0**-24
    assert one(of((0, 1)), [A, 1], [A, CANCEL]) == 0.0


def test_a_multiply_add_is_not_rounded_twice() -> None:
    """p + c lies just below halfway between two float32; rounded to float64 first, it is halfway
    and goes to the even one above."""
    order = of((0, 1), fma=frozenset({0}))
    above = 1 + 2.0**-23
    assert one(order, [above, above], [2.0**-24 * (1 - 2.0**-23), 1.0]) == above


@pytest.mark.parametrize("exponent", [-100, -30, 0, 90])
def test_multiply_adds_beside_every_tie_equal_exact_fractions(exponent: int) -> None:
    """c is even or odd, p half its last place but for 2^-46 of that, either way and either sign."""
    order, up, down = of((0, 1), fma=frozenset({0})), 1 + 2.0**-23, 1 - 2.0**-23
    for c, one_way, other_way, sign in itertools.product([1.0, up], [up, 1.0], [up, down], [1, -1]):
        half = 2.0 ** (exponent - 24)
        found = one(order, [one_way, c], [sign * half * other_way, 2.0**exponent])
        assert found != 0


def test_a_wide_addition_keeps_what_f32_loses() -> None:
    nested, w = ((0, 1), 2), [2.0**30, 1.0, -(2.0**30)]
    wide = of(nested, terms="values", wide=frozenset({3, 4}))
    assert one(wide, [1, 1, 1], w) == 1.0
    assert one(of(nested, terms="values", wide=frozenset({3})), [1, 1, 1], w) == 0.0


@pytest.mark.parametrize("bits", [0, 1, 2, 3])
def test_a_fused_sum_keeps_its_alignment_bits(bits: int) -> None:
    order = of((0, 1, 2), bits=bits, rounding="rz")
    for e, kept in ((23 + bits, 1.0), (24 + bits, 0.0)):
        assert one(order, [1, 1, 1], [2.0**e, 1.0, -(2.0**e)]) == kept


def test_the_exponent_of_a_product_is_not_normalised() -> None:
    """1.5 * 1.5 is 2.25, yet aligned as if it were below 2: one more bit of a small term stays."""
    order = of((0, 1, 2), bits=0, rounding="rz")
    assert one(order, [1.5, 1, 1.5], [1.5, 2.0**-23, -1.5]) == 2.0**-23
    assert one(order, [2.25, 1, 2.25], [1.0, 2.0**-23, -1.0]) == 0.0


def test_a_fused_sum_is_cut_or_rounded() -> None:
    w = [1.0, 2.0**-24, 2.0**-25]
    assert one(of((0, 1, 2), bits=3, rounding="rz"), [1, 1, 1], w) == 1.0
    assert one(of((0, 1, 2), bits=3, rounding="rn"), [1, 1, 1], w) == 1 + 2.0**-23


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("far", [2.0**-30, 2.0**-60, 2.0**-80, 2.0**-140])
def test_an_uncut_sum_sees_a_term_far_below_a_tie(sign: float, far: float) -> None:
    """Halfway between two float32, and a little more or less."""
    order, odd = of((0, 1, 2), bits=None, rounding="rn"), 1 + 2.0**-23
    more = [sign, sign * 2.0**-24, sign * far]
    less = [sign * odd, sign * 2.0**-24, -sign * far]
    assert one(order, [1, 1, 1], more) == sign * odd
    assert one(order, [1, 1, 1], less) == sign * odd


@pytest.mark.parametrize("bits", [None, 2, 300])
def test_a_fused_sum_of_zeros_has_the_sign_of_all(bits: int | None) -> None:
    order = of((0, 1, 2), bits=bits, rounding="rz")
    for w, sign in (([-0.0, -0.0, -0.0], -1.0), ([-0.0, 0.0, -0.0], 1.0), ([-1.0, 1.0, -0.0], 1.0)):
        assert np.copysign(1.0, one(order, [1, 1, 1], w)) == sign


def test_a_partial_sum_is_stored_narrow_and_a_leaf_is_not() -> None:
    order = of(((0, 1), 2), terms="values", narrow=frozenset({3}), stored="bf16")
    assert one(order, [1, 1, 1], [1.0, 2.0**-9, 0.0]) == 1.0
    assert one(order, [1, 1, 1], [1.0, 0.0, 2.0**-9]) == 1 + 2.0**-9


@pytest.mark.parametrize("form", ["bf16", "f16"])
def test_all_roundings_to_a_narrow_format(form: str) -> None:
    """Every pattern of it, and the values halfway to its neighbour, exact by fractions."""
    patterns = np.arange(0, 1 << 16, 31, dtype=np.uint16)
    if form == "bf16":
        values = (patterns.astype(np.uint32) << 16 | np.uint32(0x8000)).view(np.float32)
    else:
        up = (patterns + np.uint16(1)).view(np.float16).astype(np.float32)
        with np.errstate(invalid="ignore"):
            values = (patterns.view(np.float16).astype(np.float32) + up) / np.float32(2)
    values = values[np.isfinite(values)]
    below = np.nextafter(values, np.float32(0))
    w = np.concatenate([values, below, -values, [np.inf, -np.inf, np.nan]])[:, None]
    w = w.astype(np.float32)
    order = of(0, terms="values", out=form)
    assert equal_bits(exact(order, None, w), evaluate(order, None, w))


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"terms": "cubes"}, "order: terms 'cubes'"),
        ({"out": "f64"}, "order: out 'f64'"),
        ({"stored": "tf32"}, "order: stored 'tf32'"),
        ({"rounding": "ru"}, "order: rounding 'ru'"),
        ({"bits": -1}, "order: -1 alignment bits"),
    ],
)
def test_red_an_unknown_setting(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(of((0, 1), **setting), np.ones(2, np.float32), np.ones((1, 2), np.float32))
    assert (caught.value.message, caught.value.exit_status) == (message, 2)


@pytest.mark.parametrize(
    ("x", "w", "message"),
    [
        (np.ones(2, np.float32), np.ones((1, 3), np.float32), "twin: w is float32[1, 3]"),
        (np.ones(2, np.float32), np.ones((1, 2)), "twin: w is float64[1, 2]"),
        (None, np.ones((1, 2), np.float32), "twin: x is None"),
        (np.ones(3, np.float32), np.ones((1, 2), np.float32), "twin: x is float32[3]"),
    ],
)
def test_red_other_shapes(x: Any, w: np.ndarray, message: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(of((0, 1)), x, w)
    assert (caught.value.message, caught.value.exit_status) == (message, 2)


def test_red_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin, "plugins", lambda group: {})
    twin._twin.cache_clear()
    try:
        with pytest.raises(NotRunError) as caught:
            evaluate(of((0, 1)), np.ones(2, np.float32), np.ones((1, 2), np.float32))
    finally:
        twin._twin.cache_clear()
    assert caught.value.message.startswith("no kernel evaluates an order")
    assert caught.value.exit_status == 3


def test_red_every_setting_changes_bits_of_noise() -> None:
    """One planted fault each: a fused sum with another setting gives other rows."""
    rng = np.random.default_rng(3)
    n = 64
    nested: Any = tuple(range(16))
    for begin in range(16, n, 16):
        nested = (nested, *range(begin, begin + 16))
    x = rng.standard_normal(n).astype(np.float32)
    x[n // 2 :] = x[: n // 2]
    w = (rng.standard_normal((256, n)) * np.exp2(rng.integers(-4, 5, (256, n)))).astype(np.float32)
    w[:, n // 2 :] = -w[:, : n // 2]
    known = {"bits": 2, "rounding": "rz", "out": "f32"}
    faults = [{}, {"bits": 1}, {"bits": 3}, {"rounding": "rn"}, {"bits": None}]
    sums = [evaluate(of(nested, **{**known, **fault}), x, w) for fault in faults]
    for ref, dut in itertools.combinations(sums, 2):
        assert (ref.view(np.int32) != dut.view(np.int32)).sum() > 0
