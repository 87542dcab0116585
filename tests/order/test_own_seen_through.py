"""The sums that an op shows through a root or a quotient alone: other orders are seen there too.

Each op is a right shape with one thing wrong in it, in NumPy: the reveal names that order, or
refuses, and never the contract's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.order.naming import named
from parity.order.own.asked import Asked, Launch
from parity.order.own.keys import SCORES, DenominatorOp
from parity.order.own.table import make_own
from parity.order.reveal import reveal
from parity.order.tree import Tree
from parity_cpu.own_functions import own_values
from parity_cpu.sums import launch
from tests.order import contract_trees as trees

F32 = np.float32
Sums = Callable[[np.ndarray], np.ndarray]


def ascending(terms: np.ndarray) -> np.ndarray:
    return np.add.accumulate(terms, axis=-1)[..., -1]


def descending(terms: np.ndarray) -> np.ndarray:
    return ascending(terms[..., ::-1])


def by_size(terms: np.ndarray) -> np.ndarray:
    return ascending(np.sort(terms, axis=-1))


def wide(terms: np.ndarray) -> np.ndarray:
    return terms.astype(np.float64).sum(axis=-1).astype(F32)


def l2norm(sums: Sums) -> Launch:
    def run(op: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
        x = given["x"]
        ss = sums(x * x)
        given["out"][...] = x * (F32(1) / np.sqrt(ss + F32(1e-6)))[..., None] * given["scale"]
        return given

    return run


def attention(sums: Sums) -> Launch:
    """Two passes: the largest score is known before."""

    def run(op: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
        q, k, v = (given[name] for name in "qkv")
        group = q.shape[1] // k.shape[1]
        for head in range(q.shape[1]):
            s = np.einsum("d,td->t", q[-1, head], k[:, head // group])
            p = own_values("expf", s - s.max(), 0)
            with np.errstate(all="ignore"):
                acc = ascending((p[:, None] * v[:, head // group]).T)
            given["out"][-1, head] = acc / sums(p)
        return given

    return run


OPS = {"l2norm": (l2norm, 2), "attention_f32_l": (attention, 3)}


def asked(name: str, sums: Sums) -> Any:
    made, heads = OPS[name]
    return make_own(Asked(f"own.{name}", 40, heads, 1, frozenset()), made(sums))


@pytest.mark.parametrize("name", OPS)
def test_the_order_of_the_planted_op_is_named(name: str) -> None:
    answer = reveal(asked(name, ascending))
    assert answer.verdict == "tree"
    assert answer.order is not None
    assert answer.order.tree == Tree.of(trees.ascending(40))
    assert named(answer.order).startswith("contract 1.")
    assert answer.undecided == ()


@pytest.mark.parametrize("name", OPS)
def test_red_another_order_is_not_the_contracts(name: str) -> None:
    answer = reveal(asked(name, descending))
    assert answer.verdict == "tree"
    assert answer.order is not None
    assert answer.order.tree == Tree.of(trees.chain(range(39, -1, -1)))
    assert named(answer.order) == ""


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("sums", [by_size, wide], ids=lambda sums: sums.__name__)
def test_red_what_is_no_order_is_never_green(name: str, sums: Sums) -> None:
    answer = reveal(asked(name, sums))
    assert answer.verdict in ("no tree", "tree, not explained")
    assert not answer.green


@pytest.mark.parametrize("name", ["attention_f32_l", "attention_int8_l"])
def test_terms_of_noise_are_the_exponentials_to_the_bit(name: str) -> None:
    op = make_own(Asked(f"cpu.{name}", 9, 2, 1, frozenset()), launch)
    assert isinstance(op, DenominatorOp)
    wanted = np.tile(own_values("expf", SCORES, 0)[:, None], (1, 8))
    assert op.table[:, 1:].tobytes() == wanted.tobytes()
    w = np.float32([[0, 1.0, 0, 1.99, 1, 1, 1, 1, 1]])
    assert op.terms_of(w)[0].tolist() == [1, op.table[0, 1], 0, op.table[15, 3], *op.table[0, 4:]]
