"""What mutation testing found unseen in where differences come from: edges of model and run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parity.explain.births import START, Flow, name_births
from parity.keys import Key
from parity.tree import Cause, KeyState
from tests.core.test_births_flow import HYBRID, MOE, born, causes, embedded, flowed, visit
from tests.core.test_mutants_births import READERS, detail_of, found_of, start, tree_of


@pytest.mark.parametrize(("layers", "alone"), [(1, False), (2, True)])
def test_embedding_of_a_model_of_few_layers(layers: int, alone: bool) -> None:
    """Of one layer the ops may be wrong themselves: no other layer shows them right."""
    model: Any = replace(MOE.model, config=replace(MOE.model.config, layers=layers))
    run = replace(MOE, model=model)
    flow = flowed(run, visit(run, differ=READERS, forced=READERS))
    assert born(flow) == list(READERS[: 1 if alone else 2])
    assert embedded(flow) == ({Key.parse(READERS[0])} if alone else set())


def test_a_token_is_the_source_before_a_key_of_its_layer() -> None:
    """The first op of the first layer is born wrong as well: what reads both has the token."""
    differ = ("t3_l0_nrm", "t3_l0_qrope", "t3_l0_attn", "t3_l0_ores")
    seen = visit(MOE, differ=differ, forced=("t3_l0_nrm",), tokens=(1, 2))
    told = causes(flowed(MOE, seen))
    assert told["t3_l0_nrm"] == (Cause.BORN, "")
    assert told["t3_l0_attn"] == (Cause.INHERITED, "t3_l0_nrm")
    assert told["t3_l0_ores"] == (Cause.INHERITED, "token at t3")


def test_the_embedding_takes_the_place_of_its_readers_alone() -> None:
    """Another birth stays the source of what it reached, and the earlier of two sources counts."""
    chain = ("t3_l0_x", "t3_l1_nrm", "t3_l1_kraw", "t3_l1_knorm", "t3_l1_k")
    first = visit(MOE, differ=(*READERS, *chain, "t3_l2_v"), forced=(*READERS, "t3_l2_v"))
    later = visit(
        MOE,
        4,
        differ=("t4_l1_qrope", "t4_l1_attn", "t4_l2_attn"),
        forced=("t4_l1_qrope",),
        rows={"l1_k": [3], "l2_v": [3]},
    )
    told = causes(flowed(MOE, first, later))
    assert told["t4_l1_attn"] == (Cause.INHERITED, "t3_l0_nrm")
    assert told["t4_l2_attn"] == (Cause.INHERITED, "t3_l2_v")


@pytest.mark.parametrize(("begin", "known"), [(0, True), (1, False)])
def test_every_position_is_asked_for_the_rows_it_wrote(begin: int, known: bool) -> None:
    seen = [replace(visit(MOE, pos, forced=None), rows=None) for pos in range(begin, 4)]
    last = replace(visit(MOE, 4, differ=("t4_l1_attn",), forced=None), rows=None)
    assert born(flowed(MOE, *seen, last)) == (["t4_l1_attn"] if known else [])


def test_whole_part_of_position_1_is_known_by_position_0() -> None:
    last = replace(visit(HYBRID, 1, differ=("t1_l1_o",), forced=None), rows=None)
    assert born(flowed(HYBRID, last)) == []
    before = replace(visit(HYBRID, 0, forced=None), rows=None)
    assert born(flowed(HYBRID, before, last)) == ["t1_l1_o"]


def test_row_of_the_first_position_that_was_run_is_no_start_state() -> None:
    first = MOE.start
    seen = visit(MOE, first + 1, differ=(f"t{first + 1}_l1_attn",), rows={"l1_k": [first]})
    told = causes(flowed(MOE, seen, start={"l1_k": [first]}))
    source = f"state part l1_k row {first}"
    assert told[f"t{first + 1}_l1_attn"] == (Cause.INHERITED, source)
    before = visit(MOE, first + 1, differ=(f"t{first + 1}_l1_attn",), rows={"l1_k": [first - 1]})
    told = causes(flowed(MOE, before, start={"l1_k": [first - 1]}))
    assert told[f"t{first + 1}_l1_attn"] == (Cause.INHERITED, START)


def test_a_birth_by_its_inputs_shows_the_run_not_the_replay() -> None:
    """The replay gave the ref's bytes on equal inputs: what the run gave is what differs."""
    tag = "t3_l0_attn"
    seen = visit(MOE, differ=(tag,), forced=())
    tree = tree_of((tag, KeyState.DIFFERS), first=tag)
    found = found_of(seen, details={Key(9, 9, "x"): detail_of()})
    name_births(tree, found, (start(MOE),) * 2)
    assert tree.births is not None
    (birth,) = tree.births.found
    key = Key.parse(tag)
    assert (birth.how, birth.dut) == ("inputs", seen.dut[key].value_text())
    assert seen.forced is not None
    assert birth.dut != seen.forced[key].value_text() == birth.ref


def test_a_flow_without_visits_says_nothing() -> None:
    flow = Flow(MOE, {}, ())
    assert (flow.born, flow.causes, flow.doubts, embedded(flow)) == ([], {}, [], set())
