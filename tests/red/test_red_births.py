"""Planted faults: the birthplace is the planted op, the whole of it and nothing else.

Ops are spoiled at the first, a middle and the last layer and position of both families; values are
moved at every field; two faults at once are both named; what follows is inherited from the right
one, and what absorbs a difference is masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from parity.explain.dataflow import step_keys
from parity.families import every_field
from parity.keys import Key
from parity.model.config import preset
from parity.tree import Cause, KeyState
from tests.red.birth_pairs import (
    FIRST,
    LAST,
    births,
    born,
    compared,
    planted,
    row,
    run_of,
    sources,
)

EVERY = "+ffn,+s"
FAULTS = "tests.red.faults"


class Case(NamedTuple):
    """An op, its call for the n-th layer that has it, and the fields it makes there: those that
    must be born, and those that may be equal (int8 codes of a value that moved by 1 ULP)."""

    op: str
    call: Callable[[int], int]
    born: tuple[str, ...]
    may: tuple[str, ...] = ()


def every(op: str, born: str, calls: int = 1, offset: int = 0, may: str = "") -> Case:
    """An op that every layer calls ``calls`` times."""
    return Case(op, lambda n: calls * n + offset, tuple(born.split()), tuple(may.split()))


MOE = (
    *(every("rmsnorm", "nrm", 2), every("rmsnorm", "fnrm", 2, 1)),
    *(every("q4_matvec", "kraw", 4), every("q4_matvec", "vs", 4, 1, may="v")),
    *(every("q4_matvec", "qrope", 4, 2), every("q4_matvec", "ores", 4, 3)),
    *(every("headnorm", "knorm", 2), every("headnorm", "qrope", 2, 1)),
    *(every("rope", "ks", 2, may="k"), every("rope", "qrope", 2, 1)),
    *(every("quant8", "k", 3), every("quant8/1", "ks", 3), every("quant8", "v", 3, 1)),
    *(every("quant8/1", "vs", 3, 1), every("quant8", "attn", 3, 2)),
    *(every("attention_int8", "attn"), every("add", "ores"), every("f32_matvec", "rlogits")),
    *(every("router_topk", "topk"), every("router_topk/1", "topp")),
    *(every("quant16", "gate up", 2), every("quant16", "down", 2, 1)),
    *(every("expert_matvec", "gate", 3), every("expert_matvec", "up", 3, 1)),
    *(every("expert_matvec", "down", 3, 2), every("swiglu", "act"), every("combine", "x")),
)
# In a hybrid a Gated DeltaNet layer calls q4_matvec six times (qkv, z, out, gate, up, down), one
# of full attention seven times (k, v, q with its gate, o, gate, up, down).
GDN = (
    *(every("f32_matvec", "beta", 2, 1), every("f32_matvec", "g", 2)),
    *(every("conv_step", "conv"), every("conv_step/1", "hist")),
    *(every("l2norm", "qn", 2), every("l2norm", "kn", 2, 1)),
    *(every("delta_gates", "beta"), every("delta_gates/1", "g")),
    *(every("delta_step", "o"), every("delta_step/1", "s"), every("silu_gate", "gn")),
)
FULL = (
    *(every("rope", "k", 2), every("rope", "qrope", 2, 1), every("attention_f32", "attn")),
    *(every("sigmoid_gate", "gated"), every("split_gate", "qrope"), every("split_gate/1", "gated")),
)
BOTH = (
    *(every("rmsnorm", "nrm", 2), every("rmsnorm", "fnrm", 2, 1), every("swiglu", "act")),
    *(every("add", "ores", 2), every("add", "x", 2, 1)),
)
# The shared expert's own product goes through swiglu after that of the chosen ones.
NEXT = (
    *(every("shared_gate", "gs"), every("swiglu", "act", 2), every("swiglu", "sh", 2, 1)),
    every("combine_shared", "x"),
)
# For each kind of layer: the n-th that has it, its number, and a position: first, middle and last.
# hybrid-tiny has Gated DeltaNet in layers 0 to 2 and 4 to 6.
MOE_AT = ((0, 0, FIRST), (2, 2, FIRST + 1), (3, 3, LAST))
HYBRID_AT = ((0, 0, FIRST), (4, 4, FIRST + 1), (7, 7, LAST))
GDN_AT = ((0, 0, FIRST), (3, 4, FIRST + 1), (5, 6, LAST))
FULL_AT = ((0, 3, FIRST), (1, 7, LAST))
TABLE = [
    (model, case, places)
    for model, cases, places in (
        ("moe-tiny", MOE, MOE_AT),
        ("hybrid-tiny", BOTH, HYBRID_AT),
        ("hybrid-tiny", GDN, GDN_AT),
        ("hybrid-tiny", FULL, FULL_AT),
        ("next-tiny", NEXT, HYBRID_AT),
    )
    for case in cases
]
EMBEDDING = ("t4_l0_nrm",)  # the embedding is no key: this is the first that reads it


def name(value: object) -> str | None:
    """``quant8/1-ks``."""
    return f"{value.op}-{'.'.join(value.born)}" if isinstance(value, Case) else None


@pytest.mark.parametrize(("model", "case", "places"), TABLE, ids=name)
def test_op_is_the_birthplace(model: str, case: Case, places: tuple[tuple[int, ...], ...]) -> None:
    """Three places at once: first, middle and last layer and position."""
    ops = [f"{case.op}.{case.call(n)}.{pos}" for n, _, pos in places]
    tree = planted(model, ops=ops, fields="" if model == "hybrid-tiny" else "+ffn")
    found = set(born(tree))
    wanted = {Key(pos, layer, f).tag for _, layer, pos in places for f in case.born}
    may = {Key(pos, layer, f).tag for _, layer, pos in places for f in case.may}
    assert wanted <= found <= wanted | may
    assert {birth.how for birth in births(tree)} == {"replay"}
    assert births(tree)[0].clean
    assert sources(tree, Cause.INHERITED) <= found


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("embed.0.4", EMBEDDING),
        ("rmsnorm.8.5", ("t5_final_normed",)),
        ("q4_matvec.16.3", ("t3_logits",)),
    ],
)
def test_op_outside_the_layers(op: str, wanted: tuple[str, ...]) -> None:
    assert tuple(born(planted("moe-tiny", ops=[op]))) == wanted


def moved_keys() -> list[tuple[str, tuple[str, ...]]]:
    """Every field of the families, three at a time: at the first, a middle and the last layer that
    has it, each at its own position."""
    found = []
    for model in ("moe-tiny", "hybrid-tiny", "next-tiny"):
        config = preset(model)
        places: dict[str, list[int | None]] = {}
        for key in step_keys(config, 0, every_field(config)):
            places.setdefault(key.field, []).append(key.layer)
        fields = [*places, *list(places)[: -len(places) % 3]]
        for at in range(0, len(fields), 3):
            chosen = []
            for turn, field in enumerate(fields[at : at + 3]):
                layers = places[field]
                layer = (layers[0], layers[len(layers) // 2], layers[-1])[turn]
                chosen.append(Key(FIRST + turn, layer, field).tag)
            found.append((model, tuple(chosen)))
    return found


@pytest.mark.parametrize(("model", "keys"), moved_keys())
def test_moved_values_are_the_birthplaces(model: str, keys: tuple[str, ...]) -> None:
    tree = planted(model, keys=keys, fields=EVERY)
    assert tree.first == keys[0]
    assert born(tree) == list(keys)
    assert births(tree)[0].clean
    assert row(tree, keys[0]).cause == Cause.BORN
    assert sources(tree, Cause.INHERITED) | sources(tree, Cause.MASKED) <= set(keys)
    differing = [row for row in tree.keys if row.state == KeyState.DIFFERS]
    assert {row.cause for row in differing} <= {Cause.BORN, Cause.INHERITED}


# --- two faults -----------------------------------------------------------------------------------


def test_two_faults_in_two_layers_are_both_named() -> None:
    tree = planted("moe-tiny", ops=["attention_int8.1.4", "swiglu.3.4"])
    assert born(tree) == ["t4_l1_attn", "t4_l3_act"]
    first, second = births(tree)
    assert (first.clean, first.dumped, first.state) == (True, True, KeyState.DIFFERS)
    assert (second.clean, second.dumped, second.state) == (False, False, "")
    assert row(tree, "t4_l2_x").source == "t4_l1_attn"


def test_two_faults_at_two_positions_keep_their_own_heirs() -> None:
    tree = planted("moe-tiny", ops=["expert_matvec.11.3", "attention_int8.2.5"])
    assert born(tree) == ["t3_l3_down", "t5_l2_attn"]
    assert row(tree, "t3_l3_x").source == "t3_l3_down"
    assert row(tree, "t3_logits").source == "t3_l3_down"
    assert row(tree, "t5_l2_ores").source == "t5_l2_attn"
    assert row(tree, "t5_logits").source == "t5_l2_attn"
    assert {row.cause for row in tree.keys if row.key.startswith("t4")} == {""}


def test_two_faults_in_one_op_that_makes_two_fields() -> None:
    tree = planted("hybrid-tiny", ops=["delta_step.1.4", "delta_step/1.1.4"])
    assert born(tree) == ["t4_l1_s", "t4_l1_o"]


def test_birth_in_both_a_value_and_what_it_feeds() -> None:
    tree = planted("moe-tiny", keys=["t3_l0_nrm", "t3_l0_kraw"])
    assert born(tree) == ["t3_l0_nrm", "t3_l0_kraw"]
    assert [birth.clean for birth in births(tree)] == [True, False]
    assert row(tree, "t3_l0_knorm").source == "t3_l0_kraw"
    assert row(tree, "t3_l0_qrope").source == "t3_l0_nrm"


# --- inherited through the state, masked ----------------------------------------------------------


def test_hidden_state_brings_it_to_the_next_position() -> None:
    """s is not dumped: its difference is born at t3, and first seen where o reads it."""
    tree = planted("hybrid-tiny", ops=["delta_step/1.1.3"])
    (birth,) = births(tree)
    assert (birth.key, birth.dumped, birth.state) == ("t3_l1_s", False, "")
    assert tree.first is not None
    assert Key.parse(tree.first) > Key(4, 0, "")
    assert sources(tree, Cause.INHERITED) == {"t3_l1_s"}


def test_cached_row_brings_it_to_later_positions() -> None:
    tree = planted("moe-tiny", keys=["t3_l3_vs"])
    assert row(tree, "t3_l3_attn").source == "t3_l3_vs"
    later = [row for row in tree.keys if row.key in ("t4_l3_attn", "t5_l3_attn")]
    assert {(row.cause, row.source) for row in later} == {(Cause.INHERITED, "t3_l3_vs")}


def test_rounding_to_int8_masks_a_difference() -> None:
    tree = planted("moe-tiny", keys=["t3_l1_knorm"])
    assert born(tree) == ["t3_l1_knorm"]
    masked = [row.key for row in tree.keys if row.cause == Cause.MASKED]
    assert masked == ["t3_l1_k", "t3_l1_ks"]
    assert sources(tree, Cause.MASKED) == {"t3_l1_knorm"}
    assert tree.counts.differ == 1


def test_top_k_masks_a_difference() -> None:
    tree = planted("moe-tiny", keys=["t3_l2_rlogits"], fields="+ffn")
    assert born(tree) == ["t3_l2_rlogits"]
    assert row(tree, "t3_l2_topk").cause == Cause.MASKED
    assert row(tree, "t3_l2_topk").source == "t3_l2_rlogits"
    # Nothing differs in what reads the ids alone.
    assert row(tree, "t3_l2_gate").cause == ""


def test_birth_that_another_cancels_is_named_as_equal() -> None:
    """Two projections change the norm's sign and back: the second birth is equal in the run."""
    tree = compared("tests.red.birth_engines:Cancelling", run_of("moe-tiny", n=1))
    assert born(tree) == ["t3_l1_nrm", "t3_l1_kraw"]
    second = births(tree)[1]
    assert (second.state, second.clean) == (KeyState.SAME, False)
    assert row(tree, "t3_l1_kraw").cause == Cause.MASKED


def test_equal_pair_has_no_births() -> None:
    for model in ("moe-tiny", "hybrid-tiny"):
        tree = planted(model)
        assert (tree.verdict, tree.births, tree.stability) == ("same", None, None)
        assert {row.cause for row in tree.keys} == {""}


# --- kernels --------------------------------------------------------------------------------------

PATCHED = {
    "headnorm_descending": {"knorm", "qrope"},
    "wrong_position": {"k", "ks", "qrope"},
    "visible_length": {"attn"},
    "router_descending": {"rlogits"},
    "scale_order": {"gate", "up", "down"},
    "rank_order": {"x"},
}


@pytest.mark.parametrize("fault", PATCHED)
def test_changed_kernel_is_the_birthplace(fault: str) -> None:
    run = run_of("moe-tiny", n=1, fields="+ffn")
    tree = compared(f"{FAULTS}:Patched@fault={fault}", run)
    found = {Key.parse(tag).field for tag in born(tree)}
    assert found == PATCHED[fault]
