"""One line that gives the tree back, and the first difference of two orders in words."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.errors import InputError
from parity.order.file import read_order
from parity.order.notation import parse, text_of
from parity.order.shapes import MOST_ITEMS, IrregularError, expand, form_of
from parity.order.tree import Order, Tree
from parity.order.words import LONGEST, difference, exact_line, one_line, read_tree, tree_line
from tests.order.exact_order import chain, random_tree, regular

GOLDEN = Path(__file__).parents[1] / "golden" / "order"


def golden(name: str) -> Order:
    return read_order(GOLDEN / f"h200_{name}.order.json").order


LINES = [
    (0, "0"),
    ((0, 1), "(0 + 1)"),
    (chain(range(16)), "chain[0..15]"),
    ((7, (6, (5, (4, (3, (2, (0, 1))))))), "chain[0..7]"),
    ((0, (1, (2, (3, 4)))), "chain[4..0 step -1]"),
    (((0, 1), (2, 3)), "pairwise(strides [2, 1]) of 0"),
    (
        tuple((chain(range(k, 64, 4)), chain(range(k + 2, 64, 4))) for k in (0, 1)),
        "pairwise(strides [1, 2]) of chain[0..60 step 4]",
    ),
    (chain(chain(range(b, b + 8)) for b in range(0, 40, 8)), "chain[5 x (step 8) chain[0..7]]"),
    (tuple(range(5)), "fused{0..4}"),
    ((tuple(range(4)), 4, 5, 6, 7), "fused-chain[2 x (step 4) {0..3}]"),
    (((0, 1), 2, 3), "fused-chain[from (0 + 1): {2, 3}]"),
    (((0, 1, 2), (3, 4, 5), (6, 7, 8)), "fused{3 x (step 3) fused{0..2}}"),
    (
        chain([*[(k, k + 8) for k in range(8)], *range(16, 19)]),
        "chain[8 x (step 1) (0 + 8); 16..18]",
    ),
    (
        (chain([0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19]), chain([4, 5, 6, 7, 12, 13, 14, 15])),
        "(chain[3 x (step 8) 0..3] + chain[2 x (step 8) 4..7])",
    ),
]


@pytest.mark.parametrize(("nested", "line"), LINES, ids=[line for _, line in LINES])
def test_the_line_of_a_known_tree(nested: Any, line: str) -> None:
    tree = Tree.of(nested)
    assert tree_line(tree) == line
    assert read_tree(line) == tree


H200 = {
    "linear_f32_k1024_m1": "pairwise(strides [1, 2, 4, 8, 16]) of chain[0..992 step 32]",
    "linear_f32_k1024_m2": "chain[16 x (step 1) chain[4 x (step 256) chain[0..240 step 16]]]",
    "linear_f32_k1024_m8": "chain[16 x (step 64) chain[0..63]]",
    "linear_f32_k1024_m64": "chain[8 x (step 8) chain[16 x (step 64) 0..7]]",
    "linear_bf16_k4096_m1": "pairwise(strides [2048]) of fused-chain[128 x (step 16) {0..15}]",
    "linear_bf16_k4096_m64": "fused-chain[256 x (step 16) {0..15}]",
    "sum_f32_k1024_m1": "pairwise(strides [4, 8, 16, 32, 64, 128, 256, 512]) of chain[0..3]",
}


@pytest.mark.parametrize("name", H200)
def test_the_line_of_an_h200s_tree(name: str) -> None:
    assert exact_line(golden(name).tree) == H200[name]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_a_regular_tree_comes_back_from_its_line(seed: int) -> None:
    rng = random.Random(seed)
    tree = Tree.of(regular(rng, rng.randint(1, 4), 0)[0])
    line = exact_line(tree)
    if line:
        assert read_tree(line) == tree
        assert text_of(parse(line)) == line
    else:
        assert len(text_of(form_of(tree))) > LONGEST


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_any_small_tree_comes_back_from_its_line(seed: int) -> None:
    rng = random.Random(seed)
    tree = random_tree(rng, rng.randint(1, 14))
    form = form_of(tree)
    assert Tree.of(expand(parse(text_of(form)))) == tree


def test_a_tree_of_any_size_is_one_line() -> None:
    for n in (300, 4096):
        tree = random_tree(random.Random(n), n)
        line = tree_line(tree)
        assert line.startswith(f"irregular[{n} terms; additions: ")
        assert tree.digest() in line
        assert len(line) < LONGEST
        assert exact_line(tree) == ""
        with pytest.raises(InputError):
            read_tree(line)


def test_a_deep_alternation_of_sums_is_irregular_not_an_error() -> None:
    nested: Any = 0
    for leaf in range(1, 3 * MOST_ITEMS, 3):
        nested = ((nested, leaf), leaf + 1, leaf + 2)
    with pytest.raises(IrregularError):
        form_of(Tree.of(nested))
    assert tree_line(Tree.of(nested)).startswith(
        "irregular[193 terms; additions: 64 of 2, 64 of 3;"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bits": 2, "rounding": "rz", "out": "bf16"}, " +2 bits, rz, bf16 out"),
        ({"bits": None}, " uncut, rn"),
        ({"bits": 0, "narrow": frozenset({8}), "stored": "bf16"}, " +0 bits, rn, stored bf16: all"),
        ({"bits": 0, "post": "mean_rsqrt"}, " +0 bits, rn, then mean_rsqrt"),
    ],
)
def test_the_line_of_an_order_says_what_its_additions_do(settings: Any, words: str) -> None:
    tree = Tree.of((tuple(range(4)), 4, 5, 6, 7))
    assert one_line(Order(tree, **settings)) == f"fused-chain[2 x (step 4) {{0..3}}]{words}"


def test_the_line_of_a_plain_order() -> None:
    order = Order(
        Tree.of(chain(range(8))), fma=frozenset(range(1, 8)), wide=frozenset(range(8, 15))
    )
    assert one_line(order) == "chain[0..7], fma 7 of 8, f64 additions: all"
    assert one_line(golden("linear_bf16_k4096_m64")) == (
        "fused-chain[256 x (step 16) {0..15}] +2 bits, rz, bf16 out"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "order: the tree cannot be read at character 0: 'its end'"),
        ("chain[0..7", "order: the tree cannot be read at character 10: 'its end'"),
        ("chain[0..7] and", "order: the tree cannot be read at character 12: 'and'"),
        ("chain[0..7 step 3]", "order: 0..7 step 3 is no range"),
        ("chain[0 x (step 2) 1]", "order: 0 x is no repeat"),
        ("chain[0; 0]", "a tree of 2 leaves uses node 0 twice"),
        ("chain[0; 2]", "a tree of 2 leaves goes in a circle"),
        ("chain[0..3; ?]", "order: the tree cannot be read at character 12: '?]'"),
        ("(" * 200, "order: the tree's notation is too deep"),
        ("fused-chain[from 0 {2}]", "order: the tree cannot be read at character 19: '{2}]'"),
        ("chain[9999999999999]", "order: the tree cannot be read at character 6: '9999999999999]'"),
    ],
)  # fmt: skip
def test_red_a_line_that_is_none(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_tree(line)
    assert (caught.value.message, caught.value.exit_status) == (message, 2)


# --- differences ----------------------------------------------------------------------------------

PAIRS = [
    (
        *("linear_bf16_k4096_m1", "linear_bf16_k4096_m64"),
        "REF splits K into 2 x 2048, DUT does not",
    ),
    (
        *("linear_f32_k1024_m1", "linear_f32_k1024_m8"),
        "REF adds K in 32 interleaved runs of 32 (the first: 0..992 step 32), "
        "DUT splits K into 16 x 64",
    ),
    (
        *("linear_f32_k1024_m16", "linear_f32_k1024_m64"),
        "REF adds K in 3 interleaved runs (2 x 344 + 336 terms; the first: 43 x (step 24) 0..7), "
        "DUT adds K in 8 interleaved runs of 128 (the first: 16 x (step 64) 0..7)",
    ),
    (
        *("sum_f32_k1024_m1", "sum_f32_k1024_m4096"),
        "REF splits K into 256 x 4, DUT adds K in 128 interleaved runs of 8 "
        "(the first: 0..896 step 128)",
    ),
    (*("linear_f32_k1024_m1", "mv_f32_k1024"), "REF and DUT: the same order"),
]


@pytest.mark.parametrize(("ref", "dut", "words"), PAIRS)
def test_what_an_h200s_orders_differ_in(ref: str, dut: str, words: str) -> None:
    assert difference(golden(ref), golden(dut), "REF", "DUT") == words


def test_three_runs_of_two_lengths() -> None:
    """As an H200 splits K = 4096 where N is 1024."""
    line = (
        "(pairwise(strides [1408]) of fused-chain[88 x (step 16) {0..15}] + "
        "fused-chain[80 x (step 16) {2816..2831}])"
    )
    split = replace(golden("linear_bf16_k4096_m64"), tree=read_tree(line))
    assert difference(golden("linear_bf16_k4096_m64"), split, "REF", "DUT") == (
        "DUT splits K into 2 x 1408 + 1280, REF does not"
    )


def test_the_same_runs_joined_otherwise() -> None:
    runs = [chain(range(b, b + 4)) for b in range(0, 16, 4)]
    ref, dut = Tree.of(chain(runs)), Tree.of(((runs[0], runs[1]), (runs[2], runs[3])))
    assert difference(Order(ref), Order(dut), "M = 1", "M = 8") == (
        "the 4 runs of terms (4 x 4) are joined as chain[0..3] by M = 1, "
        "as pairwise(strides [2, 1]) of 0 by M = 8 (numbers of runs)"
    )


def test_the_same_runs_added_otherwise_inside() -> None:
    ref = Tree.of((chain(range(4)), chain(range(4, 8))))
    dut = Tree.of((chain(range(4)), chain([7, 6, 5, 4])))
    assert difference(Order(ref), Order(dut), "A", "B") == (
        "the terms 4..7 are added as chain[4..7] by A, as chain[7..4 step -1] by B"
    )


FUSED = Order(Tree.of((tuple(range(4)), 4, 5, 6, 7)), bits=2, rounding="rz")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"terms": "values"}, "A adds products of f32, B adds values of f32"),
        ({"bits": 3}, "A aligns fused sums to +2 bits, B aligns fused sums to +3 bits"),
        ({"rounding": "rn"}, "A ends fused sums by rz, B ends fused sums by rn"),
        (
            {"fma": frozenset({1, 2, 3})},
            "A fuses multiply and add for the products none, "
            "B fuses multiply and add for the products 1..3",
        ),
        (
            {"narrow": frozenset({8}), "stored": "bf16"},
            "A stores as f32 the nodes none, B stores as bf16 the nodes 8",
        ),
        ({"out": "bf16"}, "A answers in f32, B answers in bf16"),
        ({"post": "divide"}, "A and B do other things with the sum"),
    ],
)
def test_one_tree_with_other_additions(setting: Any, words: str) -> None:
    assert difference(FUSED, replace(FUSED, **setting), "A", "B") == f"one tree, but {words}"


def test_other_numbers_of_terms() -> None:
    ref, dut = Order(Tree.of((0, 1))), Order(Tree.of((0, (1, 2))))
    assert difference(ref, dut, "A", "B") == "A adds 2 terms, B 3"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_any_two_trees_have_a_difference_in_words(ref: int, dut: int) -> None:
    trees = [random_tree(random.Random(seed), 40) for seed in (ref, dut)]
    words = difference(Order(trees[0]), Order(trees[1]), "REF", "DUT")
    assert ("same order" in words) == (trees[0] == trees[1])
    assert "\n" not in words
    assert words.count("REF") == 1
    assert words.count("DUT") == 1
