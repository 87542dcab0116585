"""An H200's recorded bits come out on this CPU, every one; one bit flipped is seen."""

import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.errors import NotRunError
from parity.order.bits import compare_bits
from parity.order.file import Asked, OrderFile, from_text, read_order, to_text
from parity.order.replay import replay
from parity.order.rows import KIND, OLD, Rows, recorded, seeded
from parity.order.sums import ASKED
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate

GOLDEN = Path(__file__).parents[1] / "golden" / "order"
FILES = sorted(GOLDEN.glob("*.order.json"))
FMA = {
    "h200_linear_f32_k1024_m1": 992,
    "h200_linear_f32_k1024_m8": 1008,
    "h200_linear_f32_k1024_m64": 1016,
    "h200_mv_f32_k1024": 992,
    "h200_linear_bf16_k1024_m1": 0,
    "h200_mm_bf16_f32_k1024_m1": 0,
    "h200_linear_f32_k1024_m2": 960,
    "h200_linear_f32_k1024_m16": 1021,
    "h200_linear_f32_k4096_m1": 3968,
    "h200_linear_f32_k4096_m8": 3840,
    "h200_linear_f32_k4096_m64": 4088,
}  # file -> FMA leaves that the device's probes counted
STUDIED = list(FMA)[:6]  # they hold their inputs
# Two batch sizes of one op that are added in two orders.
PARTED = [
    ("h200_linear_bf16_k4096_m1", "h200_linear_bf16_k4096_m64"),
    ("h200_linear_f32_k4096_m1", "h200_linear_f32_k4096_m64"),
    ("h200_cublas_f32_k4096_m8", "h200_cublas_f32_k4096_m64"),
    ("h200_cublas_bf16_k4096_m8", "h200_cublas_bf16_k4096_m64"),
    ("h200_linear_f32_k1024_m2", "h200_linear_f32_k1024_m16"),
    ("h200_attention_bf16_k1024_m1", "h200_attention_bf16_k1024_m8"),
    ("h200_sum_f32_k1024_m1", "h200_sum_f32_k1024_m4096"),
]


def golden(name: str) -> OrderFile:
    return read_order(GOLDEN / f"{name}.order.json")


@pytest.mark.parametrize("path", FILES, ids=[path.name.partition(".")[0] for path in FILES])
def test_the_bits_of_an_h200_come_out(path: Path) -> None:
    """Every file: there is none without rows."""
    found = replay(path)
    assert found.rows == sum(len(rows.out) for rows in found.file.rows) >= 8
    assert (found.unlike, found.example, found.green) == (0, "", True)
    name = path.name.partition(".")[0]
    assert len(found.file.order.fma) == FMA.get(name, len(found.file.order.fma))


@pytest.mark.parametrize(("one", "other"), PARTED)
def test_red_the_order_of_another_batch_size_gives_other_bits(one: str, other: str) -> None:
    """Either way: all rows, or nearly all."""
    files = golden(one), golden(other)
    assert files[0].order.digest() != files[1].order.digest()
    for file, foreign in (files, files[::-1]):
        found = replay(replace(file, order=foreign.order))
        assert found.unlike >= 0.75 * found.rows
        assert not found.green


def test_every_golden_file_is_canonical_and_small() -> None:
    assert len(FILES) == 25
    assert [path.name for path in FILES if to_text(read_order(path)) != path.read_text()] == []
    assert sum(path.stat().st_size for path in FILES) < 300_000


@pytest.mark.parametrize("name", STUDIED)
@pytest.mark.parametrize("other", ["h200_linear_f32_k1024_m1", "h200_linear_f32_k1024_m64"])
def test_red_another_order_does_not_give_the_bits(name: str, other: str) -> None:
    """The noise is about rounding alone, so that a wrong tree is seen in all or nearly all rows."""
    order = golden(name).order
    wrong = replace(golden(other).order, dtype=order.dtype, out=order.out)
    found = replay(replace(golden(name), order=wrong))
    if wrong.tree == order.tree:
        assert found.unlike == 0
    else:
        assert found.unlike >= 7


@pytest.mark.parametrize(
    ("name", "setting", "unlike"),
    [
        ("h200_linear_bf16_k1024_m1", {"bits": 1}, 8),
        ("h200_linear_bf16_k1024_m1", {"bits": 3}, 8),
        ("h200_linear_bf16_k1024_m1", {"rounding": "rn"}, 8),
        ("h200_linear_bf16_k1024_m1", {"bits": None}, 8),
        ("h200_linear_f32_k1024_m1", {"fma": frozenset()}, 8),
    ],
)
def test_red_a_wrong_setting(name: str, setting: dict[str, Any], unlike: int) -> None:
    found = golden(name)
    wrong = replace(found, order=replace(found.order, **setting))
    assert replay(wrong).unlike >= unlike - 1
    assert not replay(wrong).green


def test_red_one_flipped_bit_is_one_unlike_row() -> None:
    found = golden("h200_linear_f32_k1024_m8")
    out = found.rows[0].out.copy()
    out.view(np.uint32)[5] ^= 1
    told = replay(replace(found, rows=(replace(found.rows[0], out=out),)))
    ref, dut = out.view(np.uint32)[5], found.rows[0].out.view(np.uint32)[5]
    assert (told.rows, told.unlike, told.green) == (8, 1, False)
    assert told.example.startswith(f"row 5: recorded {ref:08x} (")
    assert f"replayed {dut:08x} (" in told.example


def test_red_a_zero_of_the_other_sign_is_another_bit() -> None:
    order = Order(Tree.of((0, 1)), "values")
    rows = Rows(np.array([0.0], np.float32), None, None, np.array([[-0.0, -0.0]], np.float32))
    told = replay(OrderFile("an op", {}, order, 0, 0, Asked(0, 0), Asked(0, 0), (rows,)))
    assert (told.unlike, told.example) == (
        1,
        "row 0: recorded 00000000 (0), replayed 80000000 (-0)",
    )


def test_red_without_rows_nothing_is_replayed() -> None:
    with pytest.raises(NotRunError) as caught:
        replay(replace(golden("h200_linear_f32_k1024_m8"), rows=(), key={}))
    assert caught.value.message == "torch.linear: the file holds no rows to replay"
    assert caught.value.exit_status == 3
    assert caught.value.next_step == "write it with rows"
    callable_again = replace(golden("h200_linear_f32_k1024_m2"), rows=())
    assert ASKED in callable_again.key
    with pytest.raises(NotRunError) as caught:
        replay(callable_again)
    assert caught.value.next_step == "ask the op itself again: --device"


def test_red_what_is_done_with_the_sum_is_not_replayed() -> None:
    found = golden("h200_linear_f32_k1024_m1")
    with pytest.raises(NotRunError) as caught:
        replay(replace(found, order=replace(found.order, post="mean_rsqrt")))
    assert "its rows are what mean_rsqrt makes of the sum" in caught.value.message


# --- rows from a seed -----------------------------------------------------------------------------


class Looped:
    """An op of its own order: the twin's sums of ``order``, 5 a call, ``copies`` times each."""

    name = "looped"

    def __init__(self, order: Order, copies: int = 1, moved: int = 0) -> None:
        self.order, self.n, self.rows = order, order.tree.n, 5
        self.dtype, self.out = order.dtype, order.out
        self.terms, self.copies, self.moved = order.terms, copies, moved

    def run(self, x: np.ndarray | None, w: np.ndarray) -> np.ndarray:
        assert w.shape == (self.rows, self.n)
        sums = np.repeat(evaluate(self.order, x, w)[:, None], self.copies, axis=1)
        sums.view(np.uint32)[2, self.copies - 1] ^= self.moved
        return sums if self.copies > 1 else sums[:, 0]


@pytest.mark.parametrize("terms", ["products", "values", "squares"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_recorded_rows_of_a_seed_replay(terms: Any, dtype: Any) -> None:
    order = Order(Tree.of((((0, 1), (2, 3)), ((4, 5), (6, (7, 8))))), terms, dtype, out=dtype)
    rows = tuple(recorded(Looped(order, copies=3), order, seed=11, count=13))
    found = OrderFile("looped", {"M": "3"}, order, 1, 1, Asked(1, 0), Asked(1, 0), rows)
    text = to_text(found)
    assert '"seed": 11' in text
    assert '"w"' not in text
    told = replay(from_text(text, "it"))
    assert (told.rows, told.unlike) == (13, 0)
    if dtype == "f32":  # nine terms of bf16 and f16 hardly round
        other = replace(order, tree=Tree.of((((0, 2), (1, 3)), ((4, 5), (6, (7, 8))))))
        assert replay(replace(found, order=other)).unlike > 0


def long_chain(n: int, first: int = 0) -> Tree:
    return Tree.of(reduce(lambda total, term: (total, term), np.roll(range(n), -first).tolist()))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("terms", ["products", "values"])
@pytest.mark.parametrize(("dtype", "out"), [("f32", "f32"), ("bf16", "bf16"), ("f16", "f32")])
def test_red_recorded_rows_tell_an_order_from_another(
    dtype: Any, out: str, terms: Any, wide: bool
) -> None:
    """Single values of few bits, and sums in f64, must lie so far apart that they round at all."""
    if wide and dtype == "f16":
        return  # f64 holds every such sum exactly, in whatever order
    trees = [long_chain(64), long_chain(64, first=5)]
    made = frozenset(range(64, 127)) if wide else frozenset()
    order, other = (Order(tree, terms, dtype, out=out, wide=made) for tree in trees)
    rows = tuple(recorded(Looped(order), order, seed=11, count=40))
    found = OrderFile("looped", {}, order, 1, 1, Asked(1, 0), Asked(1, 0), rows)
    assert replay(found).green
    assert replay(replace(found, order=other)).unlike > 12


@pytest.mark.parametrize("terms", ["products", "values"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_rows_of_few_terms_do_not_cancel(n: int, dtype: Any, terms: Any) -> None:
    order = Order(long_chain(n), terms, dtype, out=dtype)
    assert all(rows.out.all() for rows in recorded(Looped(order), order, seed=3, count=9))


def test_red_rows_that_are_all_zero_prove_nothing() -> None:
    order = Order(long_chain(3), "values")
    w = np.array([[1, -1, 0], [2, 0, -2]], np.float32)
    rows = Rows(np.zeros(2, np.float32), None, None, w)
    with pytest.raises(NotRunError) as caught:
        replay(OrderFile("an op", {}, order, 0, 0, Asked(0, 0), Asked(0, 0), (rows,)))
    assert caught.value.message == "an op: its 2 rows are all 0, as any order might give them"
    assert caught.value.exit_status == 3


def test_red_rows_that_the_order_does_not_give_are_not_recorded() -> None:
    order = Order(long_chain(40), "values")
    other = Looped(Order(long_chain(40, first=1), "values"))
    with pytest.raises(NotRunError) as caught:
        recorded(other, order, seed=1, count=30)
    assert re.fullmatch(
        r"looped: [123]\d of 30 rows asked later are not what its tree gives", caught.value.message
    )


@pytest.mark.parametrize(
    ("dtype", "terms", "wide"), [("bf16", "values", False), ("f32", "values", True)]
)
def test_red_outputs_of_two_batches_round(dtype: Any, terms: Any, wide: bool) -> None:
    """Two orders must be seen to differ; equal bits of one order must not all be 0."""
    trees = [long_chain(64), long_chain(64, first=5)]
    made = frozenset(range(64, 127)) if wide else frozenset()
    orders = [Order(tree, terms, dtype, out="f32", wide=made) for tree in trees]
    ops = [Looped(order) for order in orders]
    unlike = compare_bits(*ops, (1, 2), same=False, outputs=4096, seed=1)
    assert unlike.agrees
    alike = compare_bits(ops[0], ops[0], (1, 2), same=True, outputs=4096, seed=1)
    assert (alike.outputs, alike.unlike, alike.agrees) == (4096, 0, True)
    assert not compare_bits(*ops, (1, 2), same=True, outputs=4096, seed=1).agrees


def test_rows_of_a_seed_are_the_same_everywhere() -> None:
    """Pinned: integers alone make them, so no version of NumPy may change them."""
    order = Order(Tree.of(tuple(range(8))), bits=2)
    for kind, xs, ws in ((OLD, PINNED_X, PINNED_W), (KIND, PINNED_X2, PINNED_W2)):
        x, w = seeded(order, 7, 2, kind)
        assert x is not None
        assert x.view(np.uint32).tolist() == xs
        assert w.view(np.uint32).tolist() == ws
        assert not (w.astype(np.float64) @ x.astype(np.float64)).any()


PINNED_X = [
    0xBF962067,
    0xBFEEFC1E,
    0xBF94F254,
    0x3F94F254,
    0x3FEEFC1E,
    0x3F962067,
    0x3FE14B97,
    0xBFE14B97,
]
PINNED_W = [
    [
        0xC006223E,
        0x406F5DDF,
        0xBF9E47AF,
        0xBF9E47AF,
        0x406F5DDF,
        0xC006223E,
        0x404F1EBB,
        0x404F1EBB,
    ],
    [
        0x4045FA3E,
        0xC040C7E0,
        0x40080FF6,
        0x40080FF6,
        0xC040C7E0,
        0x4045FA3E,
        0xC001744D,
        0xC001744D,
    ],
]


def test_red_an_op_whose_equal_rows_differ_is_not_recorded() -> None:
    order = Order(Tree.of((0, 1)))
    with pytest.raises(NotRunError, match="looped: equal rows of one batch have other bits"):
        recorded(Looped(order, copies=2, moved=1), order, seed=1, count=4)


PINNED_X2 = [
    0x3FBC8C29,
    0xBFC19952,
    0xBFBC8C29,
    0xBFE3CDEF,
    0x3FC19952,
    0x3FE3CDEF,
    0x3FA4DCF5,
    0xBFA4DCF5,
]
PINNED_W2 = [
    [
        0x3F4B2F83,
        0x404ABABC,
        0x3F4B2F83,
        0xC0615D75,
        0x404ABABC,
        0xC0615D75,
        0x3F51E665,
        0x3F51E665,
    ],
    [
        0xBF3BB598,
        0xBFB550B5,
        0xBF3BB598,
        0xBF73AFF5,
        0xBFB550B5,
        0xBF73AFF5,
        0x3FFCBAB5,
        0x3FFCBAB5,
    ],
]
