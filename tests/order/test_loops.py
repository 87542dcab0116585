"""The loops that are written for an order give the twin's bits; what is not regular is refused."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from parity.errors import InputError
from parity.order.file import read_order
from parity.order.known import norm_blocks
from parity.order.loops import loops
from parity.order.rows import seeded
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from parity_cpu import summing
from tests.order.exact_order import random_tree, regular

GOLDEN = Path(__file__).parents[1] / "golden" / "order"


def compiled(source: str) -> dict[str, Any]:
    """The module of a source, compiled by Numba when it is called."""
    module: dict[str, Any] = {}
    exec(compile(source, "loops", "exec"), module)
    return module


def interpreted(source: str) -> dict[str, Any]:
    """The module of a source, run by Python: fast for a few small rows, as compiling it is not."""
    module = compiled(source.replace('@njit(error_model="numpy")\n', ""))

    def single(name: str) -> Callable[..., Any]:
        return lambda *given: np.float32(getattr(summing, name)(*given))

    module.update({name: single(name) for name in ("fma", "fused") if name in module})
    return module


@pytest.mark.parametrize("name", ["linear_f32_k1024_m64", "mm_bf16_f32_k1024_m1"])
def test_compiled_loops_give_an_h200s_bits(name: str) -> None:
    found = read_order(GOLDEN / f"h200_{name}.order.json")
    (recorded,) = found.rows
    row = compiled(loops(found.order))["row"]
    dut = np.array([row(recorded.x, w) for w in recorded.w], np.float32)  # type: ignore[union-attr]
    assert dut.tobytes() == recorded.out.tobytes()


def test_rows_are_rounded_to_bf16() -> None:
    order = Order(Tree.of(norm_blocks(19)), "squares", "bf16", out="bf16")
    x, w = seeded(order, 3, 40)
    dut = interpreted(loops(order))["rows"](np.zeros(0, np.float32), w)
    assert x is None
    assert dut.tobytes() == evaluate(order, x, w).tobytes()
    assert (dut.view(np.uint32) & 0xFFFF == 0).all()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_loops_of_any_regular_order_give_the_twins_bits(seed: int) -> None:
    rng = random.Random(seed)
    tree = Tree.of(regular(rng, rng.randint(1, 3), 0)[0])
    pairs = [kids for kids in tree.children if len(kids) == 2 and min(kids) < tree.n]
    fma = [max(k for k in kids if k < tree.n) for kids in pairs]
    order = Order(
        tree,
        terms=rng.choice(["products", "values", "squares"]),
        fma=frozenset(fma if rng.random() < 0.5 else []),
        bits=rng.choice([None, 0, 2, 30]),
        rounding=rng.choice(["rz", "rn"]),
    )
    try:
        source = loops(order)
    except InputError:
        reject()
    x, w = seeded(order, seed, 3)
    row = interpreted(source)["row"]
    dut = np.array([row(x, one) for one in w], np.float32)
    assert dut.tobytes() == evaluate(order, x, w).tobytes(), (seed, order.text())


def test_loops_say_what_they_are() -> None:
    order = read_order(GOLDEN / "h200_linear_bf16_k4096_m64.order.json").order
    source = loops(order)
    assert source.startswith('"""fused-chain[256 x (step 16) {0..15}] +2 bits, rz, bf16 out.\n')
    assert order.digest() in source
    assert "for j2 in range(16, 4081, 16):" in source
    assert "import fused, put, round_values\n" in source
    assert len(source) < 1500


CHAIN = Order(Tree.of((((0, 1), 2), 3)))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (Order(random_tree(random.Random(2), 500)), "no loops: the tree is not regular"),
        (replace(CHAIN, wide=frozenset({4})), "no loops: the order adds in f64"),
        (replace(CHAIN, narrow=frozenset({4})), "no loops: the order stores narrow"),
        (replace(CHAIN, fused=frozenset({4})), "no loops: the order fuses pairs"),
        (
            replace(CHAIN, fma=frozenset({2})),
            "no loops: products stay exact at irregular places",
        ),
        (
            replace(CHAIN, fma=frozenset({0, 1, 2, 3})),
            "no loops: the first product of a chain stays exact",
        ),
    ],
)
def test_red_an_order_without_loops(order: Order, message: str) -> None:
    with pytest.raises(InputError) as caught:
        loops(order)
    assert (caught.value.message, caught.value.exit_status) == (message, 2)


def test_red_loops_of_another_order_give_other_bits() -> None:
    order = Order(Tree.of(norm_blocks(40)))
    x, w = seeded(order, 3, 16)
    row = interpreted(loops(replace(order, tree=Tree.of(tuple(range(40))), bits=2)))["row"]
    dut = np.array([row(x, one) for one in w], np.float32)
    assert (dut.view(np.uint32) != evaluate(order, x, w).view(np.uint32)).sum() > 8
