"""Rules of the shared expert (contract 2): exact bits, and wrong variants that must show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.oracle.exact import Exact
from tests.oracle.rules import Number, Rule, exacts, f32s, from_bits, row, total
from tests.oracle.rules_rows import EXP


def _gate_rule(name: str, minus_x: int, wrong: tuple[str, ...]) -> Rule:
    x = Exact(-Exact.from_bits(minus_x).value)
    out = Exact(1) / (Exact(1) + Exact.from_bits(EXP[minus_x]))
    return Rule("2", name, "shared_gate", (f32s(x)[None],), (f32s(out)[None],), wrong)


def gates() -> Iterator[Rule]:
    """gs is a sigmoid with the UCRT's exponential."""
    yield _gate_rule("gs is squashed", 0xBF800000, ("not squashed", "sign lost"))
    yield _gate_rule("expf is the UCRT's", 0xBF008732, ("correctly rounded exp", "silu"))
    args = ("2", "expf(100) is infinite, so gs is +0", "shared_gate")
    yield Rule(*args, (row(-100),), (row(0),), ("not squashed", "sign lost"))


def _sum_rule(
    name: str,
    ores: Number,
    experts: Sequence[tuple[Number, Number]],
    shared: tuple[Number, Number],
    wrong: tuple[str, ...],
) -> Rule:
    """``experts``: p and down by rank; ``shared``: gs and sh."""
    probs, down = (exacts(values) for values in zip(*experts, strict=True))
    gate, value = exacts(shared)
    terms = [p * d for p, d in zip(probs, down, strict=True)]
    out = Exact(ores) + (total(terms) + gate * value)
    args = (
        row(ores),
        f32s(*down)[None, :, None],
        f32s(*probs)[None],
        row(shared[0]),
        row(shared[1]),
    )
    return Rule("2", name, "combine_shared", args, (f32s(out)[None],), wrong)


def sums() -> Iterator[Rule]:
    """ffn in rank order from +0.0, then + gs * sh, then ores + ffn."""
    big = 2.0**24
    yield _sum_rule(
        *("after the chosen experts", 0, ((1, big), (1, -big)), (1, 1)),
        ("shared expert first", "shared expert left out"),
    )
    yield _sum_rule(
        *("before the residual", -big, ((1, big),), (1, 1)),
        ("shared expert after the residual",),
    )
    yield _sum_rule(
        *("gs weighs the shared one alone", 1, ((1, 2),), (0.5, 8)),
        ("gate not applied", "gate times ffn too", "shared expert left out"),
    )
    yield _sum_rule("gs * sh is rounded", 0, ((1, -0.7),), (0.6, 1.1), ("fused",))
    yield _sum_rule("a subnormal result", 0, ((1, 0),), (1, 2.0**-140), ("results flushed",))
    yield _sum_rule("rank order", 0, ((1, big), (1, 1), (1, 1)), (1, 0), ("ranks descending",))
    minus_zero = from_bits(0x80000000)
    args = (minus_zero[None], minus_zero[None, None], row(1), row(1), minus_zero[None])
    yield Rule(
        *("2", "ffn with a shared expert starts from +0", "combine_shared", args),
        (from_bits(0)[None],),
        ("starts from the first term",),
    )
    two = np.array([[1.0], [1.0]], np.float32)
    args = (two, two[:, None], two, np.array([[1.0], [0.5]], np.float32), two)
    out = np.array([[3.0], [2.5]], np.float32)
    wrong = ("gate of the first row for all",)
    yield Rule("2", "every row has its own gs", "combine_shared", args, (out,), wrong)
