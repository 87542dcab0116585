"""The contract's orders are named, for any length; one changed addition and the name is gone.

The trees here come from the contract's formulas themselves (docs/contract.md), run on symbols that
remember what was added to what; parity.order.known writes the trees down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from parity.order.naming import named, names
from parity.order.tree import Order, Tree

LENGTHS = [1, 2, 3, 7, 8, 9, 15, 31, 32, 33, 64, 96, 100, 128, 160, 256, 1000]
BLOCKS = [n for n in LENGTHS if n % 32 == 0]
ASCENDING = "contract 1.5; contract 1.4 over blocks, 1.8 P V, 2 experts, 3.2 mem and o"


@dataclass
class Value:
    """A sum so far: nested leaves, None for +0.0; ``product``: not yet added to anything."""

    nested: Any = None
    product: bool = False

    def __add__(self, other: Value) -> Value:
        if self.nested is None or other.nested is None:
            return Value(other.nested if self.nested is None else self.nested)
        return Value((self.nested, other.nested))


class Run:
    """Symbols of one run of a formula; ``fma``: the products that entered unrounded."""

    def __init__(self, n: int) -> None:
        self.n, self.fma = n, set[int]()
        self.terms = [Value(leaf, product=True) for leaf in range(n)]

    def fma32(self, product: Value, total: Value) -> Value:
        """fma32(w, x, total), where ``product`` stands for w * x."""
        if total.nested is not None:
            self.fma.add(product.nested)
        return product + total


def norm(run: Run) -> Value:
    """1.1."""
    t, ss = run.terms, Value()
    for b in range(run.n // 8):
        lo = [t[8 * b + k] for k in range(4)]
        hi = [t[8 * b + 4 + k] for k in range(4)]
        for k in range(4):
            lo[k] += hi[k]
        s01, s23 = lo[0] + lo[1], lo[2] + lo[3]
        ss += s01 + s23
    for k in range(run.n - run.n % 8, run.n):
        ss += t[k]
    return ss


def ascending(run: Run) -> Value:
    """1.2, 1.5, 1.8's acc and l."""
    acc = Value()
    for term in run.terms:
        acc = acc + term
    return acc


def ascending_fma(run: Run) -> Value:
    """1.5 by fma."""
    acc = Value()
    for term in run.terms:
        acc = run.fma32(term, acc)
    return acc


def tree(run: Run) -> Value:
    """norm_tree, router_tree, two_pass's l."""
    n = 1
    while n < run.n:
        n *= 2
    x = run.terms + [Value()] * (n - run.n)
    while n > 1:
        for i in range(n // 2):
            x[i] = x[i] + x[i + n // 2]
        n //= 2
    return x[0]


def in_parts(run: Run) -> Value:
    """split_keys's acc and l."""
    parts = [Value() for _ in range(-(-run.n // 128))]
    for t, term in enumerate(run.terms):
        parts[t // 128] = parts[t // 128] + term
    acc = Value()
    for part in parts:
        acc = acc + part
    return acc


def q4_row(fma: bool = False, split_k: bool = False, unpaired: bool = False) -> Any:
    """1.3 and its variants."""

    def formula(run: Run) -> Value:
        partials = [Value() for _ in range(4 if split_k else 1)]
        for b in range(run.n // 32):
            t, s = run.terms[32 * b : 32 * b + 32], Value()
            for e in range(32 if unpaired else 16):
                if unpaired:
                    s = run.fma32(t[e], s) if fma else s + t[e]
                else:
                    s = s + (run.fma32(t[e], t[e + 16]) if fma else t[e] + t[e + 16])
            part = b % len(partials)
            partials[part] = partials[part] + s
        acc = Value()
        for partial in partials:
            acc = acc + partial
        return acc

    return formula


def order_of(formula: Callable[[Run], Value], n: int, terms: Any) -> Order:
    run = Run(n)
    nested = formula(run).nested
    return Order(Tree.of(nested), terms, fma=frozenset(run.fma))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(
    ("formula", "terms", "name"),
    [
        (norm, "squares", "contract 1.1"),
        (ascending, "squares", "contract 1.2"),
        (tree, "squares", "variant norm_tree (1.1, 1.2)"),
        (ascending, "products", ASCENDING),
        (ascending_fma, "products", "variant fma (1.5)"),
        (tree, "products", "variant router_tree (1.5)"),
        (ascending, "values", "contract 1.8 P V and l, 2 softmax"),
        (tree, "values", "variant two_pass (1.8 l)"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_formula_of_the_contract_is_named(formula: Any, terms: Any, n: int, name: str) -> None:
    assert set(name.split("; ")) <= set(names(order_of(formula, n, terms)))


@pytest.mark.parametrize("n", BLOCKS)
@pytest.mark.parametrize("fma", [False, True])
@pytest.mark.parametrize("split_k", [False, True])
@pytest.mark.parametrize("unpaired", [False, True])
def test_a_q4_row_is_named(n: int, fma: bool, split_k: bool, unpaired: bool) -> None:
    chosen = {"fma": fma, "split_k": split_k, "unpaired": unpaired}
    on = [name for name, wanted in chosen.items() if wanted]
    wanted = f"variant{'s' if len(on) > 1 else ''} {', '.join(on)} (1.3)" if on else "contract 1.3"
    assert wanted in names(order_of(q4_row(**chosen), n, "products"))


@pytest.mark.parametrize(
    ("formula", "terms", "name"),
    [
        (norm, "squares", "contract 1.1"),
        (q4_row(), "products", "contract 1.3"),
        (q4_row(fma=True, split_k=True), "products", "variants fma, split_k (1.3)"),
        (ascending, "products", ASCENDING),
        (tree, "values", "variant two_pass (1.8 l)"),
        (in_parts, "values", "variant split_keys (1.8 P V and l)"),
        (in_parts, "products", "variant split_keys (1.8 P V and l)"),
    ],
)
def test_a_long_sum_has_one_name(formula: Any, terms: Any, name: str) -> None:
    assert named(order_of(formula, 256, terms)) == name


def test_a_short_sum_has_every_name_it_fits() -> None:
    assert named(order_of(ascending, 7, "squares")) == "contract 1.1; contract 1.2"
    assert named(order_of(q4_row(), 64, "products")) == "contract 1.3; variant split_k (1.3)"


PLAIN = order_of(ascending, 64, "products")


@pytest.mark.parametrize(
    "setting",
    [
        {"fma": frozenset({5})},
        {"fma": frozenset(range(64))},
        {"wide": frozenset({70})},
        {"fused": frozenset({70}), "bits": 2},
        {"narrow": frozenset({70}), "stored": "bf16"},
        {"out": "bf16"},
        {"terms": "values", "fma": frozenset({5})},
    ],
    ids=str,
)
def test_red_one_other_addition_has_no_name(setting: Any) -> None:
    assert named(PLAIN) == ASCENDING
    assert named(replace(PLAIN, **setting)) == ""


def exchanged(nested: Any, one: int, other: int) -> Any:
    if isinstance(nested, tuple):
        return tuple(exchanged(part, one, other) for part in nested)
    return {one: other, other: one}.get(nested, nested)


def test_red_one_swapped_leaf_has_no_name() -> None:
    for formula, terms in ((norm, "squares"), (ascending, "products"), (q4_row(), "products")):
        order = order_of(formula, 96, terms)
        swapped = Tree.of(exchanged(order.tree.nested(), 40, 41))
        assert swapped != order.tree
        assert names(replace(order, tree=swapped)) == ()


def test_red_a_fused_sum_has_no_name() -> None:
    assert named(Order(Tree.of(tuple(range(32))), bits=2)) == ""


def test_settings_that_touch_nothing_do_not_hide_a_name() -> None:
    other = {"bits": 2, "rounding": "rz", "stored": "bf16", "post": "divide"}
    assert named(replace(PLAIN, **other)) == ASCENDING  # type: ignore[arg-type]
