"""An order that is not the contract's, planted in a kernel's text or in an op, is another tree."""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import pytest

from parity.errors import InputError, ParityBug
from parity.order.naming import named
from parity.order.own.asked import Asked, Launch
from parity.order.own.table import make_own
from parity.order.reveal import reveal
from parity.order.tree import Order, Tree
from parity.order.words import difference
from parity.protocol import EngineSettings
from parity_cpu.sums import launch
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.ops import Ops
from parity_cuda.own_sums import launcher
from parity_cuda.sources import HASH, kernel_sources
from tests.order import contract_trees as trees

f32 = np.float32


# Inputs of some sizes take another way through the same order: a fault of the order is in both.
ALSO = {
    "q4_row.cuh": (
        "q4_row.cuh",
        "s = __fadd_rn(s, product_sum(__fsub_rn((float)low, eight), x[j], second, FIXED));",
        "s = __fadd_rn(product_sum(__fsub_rn((float)low, eight), x[j], s, FIXED), second);",
    )
}


def planted_kernel(op: str, name: str, old: str, new: str) -> Launch:
    """Launches of an emulated device with one op's kernel alone, and one text changed."""
    sources = kernel_sources()
    for file, before, after in ((name, old, new), *([ALSO[name]] if name in ALSO else [])):
        assert sources[file].count(before) == 1
        sources[file] = sources[file].replace(before, after)
    tap = {path.name for path in HASH}
    needed = {
        file: text
        for file, text in sources.items()
        if file not in tap and (file.endswith(".cuh") or file.startswith(op))
    }
    return launcher(Ops(EmuBackend(EngineSettings(), needed)))


def revealed(op: str, K: int, N: int, run: Launch, M: int = 1) -> Order:
    """The order of a planted op, which is one all the same."""
    answer = reveal(make_own(Asked(f"planted.{op}", K, N, M, frozenset()), run))
    assert answer.verdict == "tree", answer
    assert answer.order is not None
    return answer.order


def parting(nested: Any, found: Order) -> str:
    """Where a planted order leaves the contract's."""
    right = Order(Tree.of(nested), found.terms)
    return difference(right, found, "the contract", "the plant")


KERNELS = {
    "two lanes of 1.1 swapped": (
        *("rmsnorm", 64, 1, "norm.cuh"),
        "__fadd_rn(__fadd_rn(lo0, lo1), __fadd_rn(lo2, lo3))",
        "__fadd_rn(__fadd_rn(lo0, lo2), __fadd_rn(lo1, lo3))",
        trees.rmsnorm,
    ),
    "1.5 with its tail from the end": (
        *("f32_matvec", 83, 5, "chain.cuh"),
        "acc = product_sum(w[j], x[j], acc, FIXED)",
        "acc = product_sum(w[n - 1 - j + whole], x[n - 1 - j + whole], acc, FIXED)",
        trees.ascending,
    ),
    "1.3 with the pairs added one by one": (
        *("q4_matvec", 96, 5, "q4_row.cuh"),
        "__fadd_rn(__fmaf_rn(low, x.scaled[e], x.minus8(e)), second);\n        s = begins ? made",
        "__fmaf_rn(low, x.scaled[e], x.minus8(e));\n        s = begins ? __fadd_rn(made, second)"
        "\n : __fadd_rn(__fadd_rn(s, made), second); if (false) s = begins ? made",
        trees.q4,
    ),
    "2 with the ranks from the last": (
        *("combine", 9, 40, "ranks.cuh"),
        "for (int r = 0; r < ranks; ++r)",
        "for (int r = ranks - 1; r >= 0; --r)",
        trees.residual,
    ),
}
# Where each leaves the contract, in the words that a report has.
SAID = {
    "two lanes of 1.1 swapped": (
        "as chain[8 x (step 4) pairwise(strides [2, 1]) of 0] by the contract, as"
        " chain[8 x (step 4) pairwise(strides [1, 2]) of 0] by the plant"
    ),
    "1.5 with its tail from the end": (
        "the terms 0..82 are added as chain[0..82] by the contract, as chain[0..79, 82..80 step -1]"
        " by the plant"
    ),
    "1.3 with the pairs added one by one": "the plant splits K into 3 x 32",
    "2 with the ranks from the last": (
        "the terms 0..8 are added as chain[0..8] by the contract, as chain[7..0 step -1, 8] by the"
        " plant"
    ),
}
RUNS = r"{} adds K in one run, {} adds K in 2 interleaved runs.*0..62 step 2.*"


@pytest.mark.parametrize("plant", KERNELS)
def test_red_an_order_planted_in_a_kernel(plant: str) -> None:
    op, K, N, name, old, new, tree = KERNELS[plant]
    found = revealed(op, K, N, planted_kernel(op, name, old, new))
    assert found.tree.digest() != Tree.of(tree(K)).digest()
    assert named(found) == ""
    assert SAID[plant] in parting(tree(K), found)


@numba.njit(error_model="numpy")
def two_accumulators(out: Any, w: Any, x: Any, variants: int) -> None:
    """1.5 as a fast loop has it: even columns, odd columns, then their sum."""
    for m in range(x.shape[0]):
        for r in range(w.shape[0]):
            even, odd = f32(0.0), f32(0.0)
            for j in range(0, w.shape[1] - 1, 2):
                even = f32(even + f32(w[r, j] * x[m, j]))
                odd = f32(odd + f32(w[r, j + 1] * x[m, j + 1]))
            out[m, r] = f32(even + odd)


@numba.njit(error_model="numpy")
def split_from_two_rows(out: Any, w: Any, x: Any, variants: int) -> None:
    """1.5, but with two accumulators where there is more than one row: M changes the order."""
    if x.shape[0] > 1:
        two_accumulators(out, w, x, variants)
        return
    for r in range(w.shape[0]):
        acc = f32(0.0)
        for j in range(w.shape[1]):
            acc = f32(acc + f32(w[r, j] * x[0, j]))
        out[0, r] = acc


@numba.njit(error_model="numpy")
def last_row_otherwise(out: Any, w: Any, x: Any, variants: int) -> None:
    """1.5, but the last row of a batch has two accumulators: no order holds for the forward."""
    last = x.shape[0] - 1
    split_from_two_rows(out[last:], w, x[last:], variants)
    two_accumulators(out[:last], w, x[:last], variants)


def planted_op(op: Any) -> Launch:
    """Launches of one function for every op."""

    def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
        op(*(given[part] for part in ("out", "w", "x", "variants")))
        return given

    return run


def test_red_an_order_planted_in_an_op() -> None:
    found = revealed("f32_matvec", 64, 5, planted_op(two_accumulators))
    assert named(found) == ""
    said = parting(trees.ascending(64), found)
    assert re.fullmatch(RUNS.format("the contract", "the plant"), said), said


def test_red_an_order_that_changes_with_the_rows() -> None:
    one, two = (revealed("f32_matvec", 64, 5, planted_op(split_from_two_rows), M) for M in (1, 2))
    assert named(one).startswith("contract 1.5")
    assert named(two) == ""
    said = difference(one, two, "M = 1", "M = 2")
    assert re.fullmatch(RUNS.format("M = 1", "M = 2"), said), said


def test_red_one_row_of_a_batch_that_adds_otherwise() -> None:
    op = make_own(
        Asked("planted.f32_matvec", 64, 5, 4, frozenset()), planted_op(last_row_otherwise)
    )
    answer = reveal(op)
    assert answer.verdict == "no tree"
    (said,) = answer.contradicts
    assert re.fullmatch(
        r"row \d: batch row 3 gave \d+ and batch row 0 \d+ for the same sum", said
    ), said


def test_red_products_that_enter_unrounded() -> None:
    """The same tree: the products of all leaves but the first are not rounded."""

    def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
        return launch(name, {**given, "variants": 1 << 2})

    found = revealed("f32_matvec", 64, 5, run)
    assert found.tree.digest() == Tree.of(trees.ascending(64)).digest()
    assert sorted(found.fma) == list(range(1, 64))
    assert parting(trees.ascending(64), found) == (
        "one tree, but the contract fuses multiply and add for the products none, the plant fuses"
        " multiply and add for the products 1..63"
    )


def test_red_a_norm_whose_eps_stands_elsewhere() -> None:
    """The sum is read back through eps: where half of it is added, no order comes out."""

    def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
        return launch(name, {**given, "eps": f32(0.5) * given["eps"]})

    op = make_own(Asked("planted.rmsnorm", 64, 1, 1, frozenset()), run)
    assert reveal(op).verdict == "no tree"
    with pytest.raises(ParityBug, match="its eps is not added to ss / d"):
        op.run(None, np.full((1, 64), 1.25, f32))


@pytest.mark.parametrize("rows", [1, 3])
def test_red_a_row_that_reads_anothers_x(rows: int) -> None:
    """Each batch row carries probes of its own: one that reads its neighbour's x is seen."""

    def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
        return launch(name, {**given, "x": np.roll(given["x"], 1, axis=0)})

    answer = reveal(make_own(Asked("planted.q4_matvec", 64, 6, rows, frozenset()), run))
    assert answer.verdict == ("tree" if rows == 1 else "no tree")


def test_red_a_variant_that_does_not_exist() -> None:
    with pytest.raises(InputError, match=r"planted.delta_o takes no variant fma"):
        make_own(Asked("planted.delta_o", 64, 2, 1, frozenset({"fma"})), launch)
