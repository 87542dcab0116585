"""Every op of the CPU engine against the scalar oracle, case by case: dtype, shape and bytes.

Exact tier first, then every variant of contract 5 and every set of them that may stand together.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
import pytest

from parity.variants import VARIANTS, variant_mask
from tests.oracle import check, variants
from tests.oracle.inputs import OPS
from tests.oracle.rules_variants import VariantRule, rules

NONE: variants.Names = frozenset()
SETS = [(op, names) for op in variants.OF_OP for names in variants.sets_of(op)]
SET_IDS = [f"{op} {'+'.join(sorted(names))}" for op, names in SETS]


def compiled(op_name: str) -> Any:
    """parity_cpu.ops.<op>.<op>."""
    return getattr(import_module(f"parity_cpu.ops.{op_name}"), op_name)


WITH_MASK = [op for op in OPS if "variants" in signature(compiled(op).py_func).parameters]


def run_cpu(op_name: str, args: check.Args, names: variants.Names = NONE) -> check.Outputs:
    """The op's outputs, which start as garbage, so that gaps show."""
    outputs = tuple(_garbage(spec) for spec in check.output_specs(op_name, args))
    compiled(op_name)(*outputs, *_inputs(op_name, args, names))
    return outputs


def _garbage(spec: check.Spec) -> np.ndarray[Any, np.dtype[Any]]:
    """Every byte ff: NaN as float32, -1 as integer."""
    shape, dtype = spec
    out = np.empty(shape, dtype)
    out.view(np.uint8)[...] = 0xFF
    return out


def _inputs(op_name: str, args: check.Args, names: variants.Names) -> check.Args:
    """The oracle's inputs in the op's order, and the mask of the variants where it takes one."""
    mask = (variant_mask(names),) if op_name in WITH_MASK else ()
    if op_name == "router_topk":
        # k is the length of the outputs.
        return args[0], args[2], *mask
    if op_name == "expert_matvec":
        # Probabilities that the exact tier must not read are NaN.
        probs = args[5] if len(args) > 5 else np.full(args[2].shape, np.nan, np.float32)
        return *args[:3], probs, *args[3:5], *mask
    return *args, *mask


@pytest.mark.parametrize("op", OPS)
def test_op_has_the_oracles_bytes(op: str) -> None:
    """All cases of one op."""
    assert check.check_op(op, run_cpu) > 5


@pytest.mark.parametrize(("op", "names"), SETS, ids=SET_IDS)
def test_variant_has_the_oracles_bytes(op: str, names: variants.Names) -> None:
    """All cases of one op under one set of its variants."""
    assert check.check_variants(op, names, run_cpu) > 5


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.label)
def test_variant_keeps_the_rule(rule: VariantRule) -> None:
    """Bits from exact arithmetic on chosen inputs, where the exact tier has others."""
    check.check_case(
        rule.op, rule.label, rule.args, rule.outputs, lambda op, args: run_cpu(op, args, rule.names)
    )


@pytest.mark.parametrize("op", WITH_MASK)
def test_other_ops_variants_change_nothing(op: str) -> None:
    """Every bit that is not the op's own is ignored, alone and beside the op's own."""
    own = frozenset(variants.OF_OP[op])
    foreign = frozenset(VARIANTS) - own
    check.check_op(op, lambda name, args: run_cpu(name, args, foreign))
    for name in sorted(own):
        check.check_variants(
            op, frozenset({name}), lambda o, args, names: run_cpu(o, args, names | foreign)
        )


# --- planted faults -----------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_red_one_flipped_bit(op: str) -> None:
    """The op's own result with its very last bit of output changed."""

    def flipped(op_name: str, args: check.Args) -> check.Outputs:
        outputs = run_cpu(op_name, args)
        outputs[-1].view(np.uint8).reshape(-1)[-outputs[-1].itemsize] ^= 1
        return outputs

    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, flipped)


# What says nothing more where another one is named (contract 5).
SAID_BY = {"zero_point": "unpaired", "split_keys": "two_pass"}


@pytest.mark.parametrize(("op", "names"), SETS, ids=SET_IDS)
def test_red_variant_left_out(op: str, names: variants.Names) -> None:
    """The op without the variants, or with one of several: its bits are not the set's."""
    acting = names - {SAID_BY[name] for name in names & SAID_BY.keys()}
    for less in [NONE, *(frozenset({name}) for name in names if len(acting) > 1)]:
        with pytest.raises(check.OpMismatch, match="differ, first at"):
            check.check_variants(op, names, lambda o, args, _, less=less: run_cpu(o, args, less))


@pytest.mark.parametrize(("op", "names"), SETS, ids=SET_IDS)
def test_red_variant_where_none_was_asked_for(op: str, names: variants.Names) -> None:
    """The exact cases; fold_p meets the probabilities that are NaN there."""
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, lambda name, args: run_cpu(name, args, names))
