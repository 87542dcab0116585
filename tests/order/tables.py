"""Tables of orders, made without any op, for the tests of their reports."""

from __future__ import annotations

from functools import reduce
from typing import Any

from parity.order.file import plain_of
from parity.order.record import Bits, OrderTable, Row
from parity.order.tree import Order, Tree
from parity.order.words import one_line


def chain(parts: Any) -> Any:
    """((first + second) + third) + ..."""
    return reduce(lambda total, part: (total, part), parts)


def fused(n: int, width: int = 16) -> Any:
    """Fused sums of ``width`` terms, each with the sum before."""
    total: Any = tuple(range(width))
    for at in range(width, n, width):
        total = (total, *range(at, at + width))
    return total


def orders() -> dict[str, Order]:
    """One of each kind of tree and of addition."""
    lanes = chain(chain(range(k, 64, 4)) for k in range(4))
    long = (chain(range(2048)), chain(range(2048, 4096)))
    tree = Tree.of(lanes)
    return {
        "chain": Order(Tree.of(chain(range(24)))),
        "fma": Order(tree, fma=frozenset(range(4, 64))),
        "wide": Order(tree, wide=frozenset({tree.root, tree.root - 1})),
        "fused": Order(Tree.of(fused(64)), dtype="bf16", out="bf16", bits=2, rounding="rz"),
        "narrow": Order(
            Tree.of(((0, 1), (2, 3))), dtype="bf16", narrow=frozenset({4, 5}), stored="bf16"
        ),
        "long": Order(Tree.of(long)),
        "long fused": Order(Tree.of(fused(4096)), dtype="bf16", bits=2, rounding="rz"),
        "one": Order(Tree.of(0), "values"),
    }


def row(M: int, number: int, order: Order, **more: Any) -> Row:
    """A green row."""
    given = {"name": "", "evidence": [], "key": {"op": "made.up", "device": "cpu"}, **more}
    return Row(
        M=M,
        verdict="tree",
        tree=number,
        digest=order.digest(),
        words=one_line(order),
        probes=12_345 * M,
        calls=10,
        seconds=0.25 * M,
        order=plain_of(order),
        **given,
    )


def refused(M: int, verdict: str, *evidence: str) -> Row:
    """A row without an order."""
    return Row(M, verdict, 0, "", "", "", 120, 3, 0.01, list(evidence), {"op": "made.up"})


def green() -> OrderTable:
    """Every kind of order, one M each, and pairs whose bits agree with them."""
    found = orders().values()
    return OrderTable(
        *("made.up", 64, 64, "f32", "cpu", "products"),
        rows=[row(1 << at, at + 1, order) for at, order in enumerate(found)],
        partings=["M = 1 splits K into 2 x 8, M = 2 does not: this is why the bits change"],
        bits=[
            Bits(1, 2, False, 1024, 1000, "M = 1: 3f800000, M = 2: 3f800001"),
            Bits(1, 4, True, 1_000_000, 0, ""),
        ],
        written=["kept.m1.order.json"],
        notes=["no loops for M = 2: no short form"],
        reproduce="parity order made.up --K 64 --M 1,2,4",
        seconds=12.34,
    )


def red(*words: str) -> OrderTable:
    """One M of each refusal, and pairs that contradict; ``words`` stand wherever texts may."""
    told = words or ("the answer is 0.5, no count from 0 to 64",)
    order = orders()["chain"]
    rows = [
        row(1, 1, order, name=told[0], key={"op": told[0], told[-1]: told[0]}),
        refused(2, "no tree", *told),
        refused(1_000_000, "tree, not explained", *told),
    ]
    return OrderTable(
        *(told[0], 4096, 4096, "bf16", "cuda", "products"),
        rows=rows,
        partings=list(told),
        bits=[Bits(1, 2, True, 10**6, 17, told[0]), Bits(1, 4, False, 10**6, 0, "")],
        written=list(told),
        notes=list(told),
        reproduce=told[0],
    )
