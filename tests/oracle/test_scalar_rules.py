"""Each rule of contract 1.0 to 1.9 and 2: exact bits, and wrong variants that must show.

The expected bits come from exact fractions rounded by search (exact.py), never from the oracle.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle import (
    check,
    rules_f32,
    rules_heads,
    rules_products,
    rules_rows,
    rules_shared,
    twin,
)
from tests.oracle.inputs import OPS
from tests.oracle.rules import Rule, RuleTable

TABLES: tuple[RuleTable, ...] = (
    rules_rows.norms,
    rules_rows.quantising,
    rules_rows.elements,
    rules_products.embedding,
    rules_products.q4_products,
    rules_products.f32_products,
    rules_products.expert_products,
    rules_products.expert_sums,
    rules_heads.rotations,
    rules_heads.attention,
    rules_heads.routing,
    rules_shared.gates,
    rules_shared.sums,
    rules_f32.embedding,
    rules_f32.experts,
    rules_f32.trees,
    rules_f32.attention,
)
RULES = [rule for table in TABLES for rule in table()]


def _label(rule: Rule) -> str:
    return f"{rule.section} {rule.op}: {rule.name}"


PLANTED = [(rule, fault) for rule in RULES for fault in rule.wrong]


@pytest.mark.parametrize("rule", RULES, ids=_label)
def test_oracle_keeps_the_rule(rule: Rule) -> None:
    """The scalar twin gives the bits that exact arithmetic gives."""
    check.check_case(
        rule.op, rule.name, rule.args, rule.outputs, lambda op, args: check.oracle(op, args)
    )


@pytest.mark.parametrize("rule", RULES, ids=_label)
def test_second_writing_keeps_the_rule(rule: Rule) -> None:
    """So does the vectorised twin without a fault: the next test's reds are the faults' own."""
    check.check_case(rule.op, rule.name, rule.args, rule.outputs, twin.run)


@pytest.mark.parametrize(
    ("rule", "fault"), PLANTED, ids=[f"{_label(rule)} | {fault}" for rule, fault in PLANTED]
)
def test_wrong_variant_shows_on_the_rules_input(rule: Rule, fault: str) -> None:
    """A planted wrong variant gives other bits on the rule's input."""
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_case(
            rule.op, rule.name, rule.args, rule.outputs, lambda op, args: twin.run(op, args, fault)
        )


def test_every_rule_has_a_wrong_variant_and_every_op_a_rule() -> None:
    """No rule without a planted fault; no op without a rule; no name twice."""
    assert [_label(rule) for rule in RULES if not rule.wrong] == []
    assert {rule.op for rule in RULES} == set(OPS)
    assert len({_label(rule) for rule in RULES}) == len(RULES)


def test_rules_are_finite() -> None:
    """No rule leans on the leniency for NaN."""
    outputs = [out for rule in RULES for out in rule.outputs if out.dtype == np.float32]
    assert all(np.isfinite(out).all() for out in outputs)
