"""The scalar twins of the variants: exact bits, a second writing, and bits unlike the exact tier's.

Every twin written with no variant gives the bits of scalar.py, so a difference is the variant's.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from parity.variants import EXCLUSIVE, VARIANTS
from tests.oracle import check, platform_math, rounding, twin, variants
from tests.oracle.elementary import bits32
from tests.oracle.exact import Exact
from tests.oracle.inputs import cases, variant_cases
from tests.oracle.rules_variants import VariantRule, rules
from tests.oracle.values import any_bits, any_exponent, normal
from tests.oracle.variants_shared import fma32, tree_sum

F = np.float32
RULES = rules()
SETS = [(op, names) for op in variants.OF_OP for names in variants.sets_of(op)]
SET_IDS = [f"{op} {'+'.join(sorted(names))}" for op, names in SETS]
# A single variant that the second writing knows as a fault of the exact form.
AS_FAULT = {
    ("rmsnorm", "rsqrt"): "reciprocal root by way of binary64",
    ("headnorm", "rsqrt"): "reciprocal root by way of binary64",
    ("norm_tree", "rsqrt"): "reciprocal root by way of binary64",
    ("q4_matvec", "fma"): "fused",
    ("q4_matvec", "split_k"): "four partial sums",
    ("q4_matvec", "unpaired"): "unpaired",
    ("q4_matvec", "zero_point"): "zero point out of the sum",
    ("f32_matvec", "fma"): "fused",
    ("expert_f32_matvec", "fma"): "fused",
    ("rope", "libm_sincos"): "platform's cosine and sine",
    ("quant8", "div_by_inverse"): "inverse scale",
    ("quant16", "div_by_inverse"): "inverse scale",
    ("combine", "fold_p"): "probabilities left out",
    ("combine_shared", "fold_p"): "probabilities left out",
    **{
        (op, name): fault
        for op in ("attention_int8", "attention_f32", "swiglu", "router_topk", "shared_gate")
        for name, fault in (
            ("libm_exp", "platform's exp"),
            ("exp_via_double", "correctly rounded exp"),
        )
    },
    ("attention_int8", "two_pass"): "two passes, summed by tree",
    ("attention_f32", "two_pass"): "two passes, summed by tree",
    ("attention_int8", "split_keys"): "two passes, summed by parts",
    ("attention_f32", "split_keys"): "two passes, summed by parts",
}


def without(op: str, args: check.Args) -> check.Args:
    """The inputs of the exact form."""
    return args[:5] if op == "expert_matvec" else args


# --- the pieces ----------------------------------------------------------------------------------


def _triples() -> Iterator[tuple[np.float32, np.float32, np.float32]]:
    """Random products and sums that stay finite, then a double-rounding trap."""
    yield from normal("fma", 300, 3)
    yield from any_exponent("fma any", 300, 3, low=-90, high=60)
    for a, b, c in any_bits("fma bits", 900, 3):
        if abs(float(a) * float(b) + float(c)) < 2.0**126:
            yield a, b, c
    yield TRAP


# 24929 * 673 is 2^24 + 1, a tie of binary32; the third term lies above it and is lost in binary64.
TRAP = (F(24929.0), F(673.0), F(2.0**-60))


def test_fma32_rounds_once() -> None:
    """The quick fused product sum against exact fractions, subnormal and absorbed terms too."""
    for a, b, c in _triples():
        got = bits32(fma32(a, b, c))
        want = Exact(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
        assert got & 0x7FFFFFFF == want.bits & 0x7FFFFFFF
        assert got == bits32(rounding.fma32(a, b, c))


def test_double_rounding_would_be_noticed() -> None:
    """The planted way by binary64 gives another float at the trap."""
    a, b, c = map(float, TRAP)
    assert (fma32(*TRAP), F(a * b + c)) == (F(2.0**24 + 2), F(2.0**24))


def test_tree_halves() -> None:
    """Element i meets i + n/2, and a missing one is +0.0."""
    big = F(2.0**24)
    assert tree_sum([big, F(1), -big, F(1)]) == F(2)
    assert bits32(tree_sum([F(-0.0), F(-0.0)])) == 0x80000000
    assert bits32(tree_sum([F(-0.0)] * 3)) == 0


def test_platform_functions_are_functions_of_this_machine() -> None:
    """Close to NumPy's binary64 functions; exact at 0; infinities as C has them."""
    for x in (-3.5, -0.1, 0.7, 20.0):
        for ours, theirs in (("expf", np.exp), ("cosf", np.cos), ("sinf", np.sin)):
            got = getattr(platform_math, ours)(F(x))
            assert abs(float(got) - theirs(x)) <= 2.0**-22 * abs(theirs(x))
    assert platform_math.expf(F(0.0)) == platform_math.exp_via_double(F(0.0)) == 1.0
    assert platform_math.expf(F(-np.inf)) == platform_math.exp_via_double(F(-np.inf)) == 0.0
    assert platform_math.exp_via_double(F(800.0)) == np.inf
    assert platform_math.reciprocal_root(F(4.0)) == 0.5


def test_names_are_the_projects() -> None:
    """Every variant is an op's or an op; pairs that exclude each other never stand together."""
    named = {name for names in variants.OF_OP.values() for name in names}
    assert named | {"norm_tree", "router_tree"} == set(VARIANTS)
    assert not any(names.issuperset(pair) for _, names in SETS for pair in EXCLUSIVE)
    assert len(SETS) == 56


def test_unknown_variant_is_refused() -> None:
    with pytest.raises(KeyError, match="has no variant"):
        variants.run("add", (np.zeros((1, 1), F),) * 2, frozenset({"fma"}))


# --- against the exact tier ----------------------------------------------------------------------


@pytest.mark.parametrize("op", sorted(set(variants.OPS) - {"norm_tree", "router_tree"}))
def test_no_variant_is_the_exact_tier(op: str) -> None:
    """Two scalar writings of the exact form agree in every case."""
    for name, args in variant_cases(op):
        ref = check.oracle(op, without(op, args))
        check.check_case(op, name, args, ref, lambda o, given: variants.run(o, given))


@pytest.mark.parametrize(("op", "names"), SETS, ids=SET_IDS)
def test_variant_shows_in_the_cases(op: str, names: variants.Names) -> None:
    """Other bits than the exact tier's in at least one case."""
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_variants(op, names, lambda o, args, _: check.oracle(o, without(o, args)))


@pytest.mark.parametrize(("op", "name"), AS_FAULT, ids=[f"{op} {name}" for op, name in AS_FAULT])
def test_second_writing_agrees(op: str, name: str) -> None:
    """The vectorised writing of the same departure gives the same bytes in every case."""
    fault = AS_FAULT[op, name]
    run = check.check_variants(op, frozenset({name}), lambda o, args, _: twin.run(o, args, fault))
    assert run == len(list(cases(op)))


def test_second_writing_of_one_variant_more() -> None:
    """scale_assoc, on the inputs of the exact form; norm_tree as a fault of the norm."""
    check.check_variants(
        "expert_matvec",
        frozenset({"scale_assoc"}),
        lambda op, args, _: twin.run(op, without(op, args), "scales multiplied first"),
    )
    for name, args in cases("norm_tree"):
        ref = check.oracle("norm_tree", args)
        check.check_case(
            "norm_tree",
            name,
            args,
            ref,
            lambda _, given: twin.run("rmsnorm", given, "summed by tree"),
        )


# --- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_twin_keeps_the_rule(rule: VariantRule) -> None:
    """The bits that exact arithmetic gives, and not those of the exact tier."""
    check.check_case(
        rule.op, rule.label, rule.args, rule.outputs,
        lambda op, args: variants.run(op, args, rule.names),
    )  # fmt: skip
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_case(
            rule.op, rule.label, rule.args, rule.outputs,
            lambda op, args: check.oracle(op, without(op, args)),
        )  # fmt: skip


def test_every_variant_of_every_op_has_a_rule() -> None:
    """But for the library's functions, whose bits no rule can know."""
    singles = {(op, name) for op, names in variants.OF_OP.items() for name in names}
    library = {pair for pair in singles if pair[1].startswith("libm_")}
    ruled = {(rule.op, name) for rule in RULES for name in rule.names}
    assert ruled == singles - library
