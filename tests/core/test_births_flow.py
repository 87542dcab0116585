"""parity.explain.births on visits made by hand: what is born, inherited, masked, and from where."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from parity.dump import Entry
from parity.explain.births import START, Flow
from parity.explain.dataflow import feeds_of, step_keys
from parity.explain.rerun import Visit
from parity.families import every_field, field_type
from parity.keys import Key
from parity.model.config import preset
from parity.runs.run import Run
from parity.tree import EMBEDDED, EMBEDDING, Cause
from tests.red.birth_pairs import run_of

Tags = Collection[str]


def entries(run: Run, pos: int, salt: int, changed: Tags) -> dict[Key, Entry]:
    """All keys of a position; those ``changed`` have a digest of their own for each ``salt``."""
    config = run.model.config
    return {
        key: Entry(key, salt if key.tag in changed else 0, field_type(config, key.field))
        for key in step_keys(config, pos, every_field(config))
    }


def visit(
    run: Run,
    pos: int = 3,
    *,
    differ: Tags = (),
    forced: Tags | None = (),
    rows: Mapping[str, Collection[int]] | None = None,
    tokens: tuple[int, int] = (1, 1),
) -> Visit:
    """``differ``: keys that differ in the run; ``forced``: where the dut's op departs from the ref
    on the ref's inputs, None where no step was forced."""
    ref, dut = entries(run, pos, 1, ()), entries(run, pos, 2, differ)
    told = None if forced is None else entries(run, pos, 3, forced)
    fields = every_field(run.model.config)
    return Visit(pos, fields, ref, dut, rows or {}, tokens, told, frozenset(ref))


def flowed(
    run: Run, *visits: Visit, start: Mapping[str, list[int]] | None = None, variants: Tags = ()
) -> Flow:
    """The flow through those visits."""
    flow = Flow(run, start or {}, variants)
    for one in visits:
        flow.add(one)
    return flow


def causes(flow: Flow) -> dict[str, tuple[str, str]]:
    """Cause and source by tag."""
    return {key.tag: found for key, found in flow.causes.items()}


def born(flow: Flow) -> list[str]:
    """Tags of the births."""
    return [one.key.tag for one in flow.born]


def embedded(flow: Flow) -> set[Key]:
    """Births that are told as the embedding's alone."""
    return {one.key for one in flow.born if one.op in (EMBEDDED, EMBEDDING)}


MOE, HYBRID = run_of("moe-tiny"), run_of("hybrid-tiny")


def test_source_is_the_first_birthplace_that_reaches_it() -> None:
    """Both the K chain and the query reach attention: the scale of K stands first."""
    two = ("t3_l1_ks", "t3_l1_qrope")
    flow = flowed(MOE, visit(MOE, differ=(*two, "t3_l1_attn"), forced=two))
    assert born(flow) == list(two)
    assert causes(flow)["t3_l1_attn"] == (Cause.INHERITED, "t3_l1_ks")
    assert causes(flow)["t3_l1_ores"] == (Cause.MASKED, "t3_l1_ks")
    assert "t3_l1_x" not in causes(flow)


def test_a_birthplace_in_between_is_the_source() -> None:
    two = ("t3_l1_nrm", "t3_l1_qrope")
    flow = flowed(MOE, visit(MOE, differ=(*two, "t3_l1_attn"), forced=two))
    assert causes(flow)["t3_l1_attn"] == (Cause.INHERITED, "t3_l1_qrope")
    assert causes(flow)["t3_l1_kraw"] == (Cause.MASKED, "t3_l1_nrm")
    assert [one.clean for one in flow.born] == [True, False]


def test_birth_that_is_equal_in_the_run() -> None:
    flow = flowed(MOE, visit(MOE, differ=("t3_l1_nrm",), forced=("t3_l1_nrm", "t3_l1_kraw")))
    assert born(flow) == ["t3_l1_nrm", "t3_l1_kraw"]
    assert causes(flow)["t3_l1_kraw"] == (Cause.MASKED, "t3_l1_nrm")
    assert flow.doubts == []


@pytest.mark.parametrize(
    ("differ", "forced"), [(("t3_l0_attn",), ()), ((), ("t3_l0_attn",))], ids=["run", "replay"]
)
def test_equal_inputs_and_two_answers_are_a_doubt(differ: Tags, forced: Tags) -> None:
    flow = flowed(MOE, visit(MOE, differ=differ, forced=forced))
    assert flow.doubts == [
        "t3_l0_attn: the dut gives other bytes on equal inputs, something else is read"
    ]
    assert born(flow) == list(differ)
    assert all(not one.replayed for one in flow.born)


def test_without_a_replay_equal_inputs_decide() -> None:
    differ = ("t3_l0_nrm", "t3_l0_kraw", "t3_l2_attn")
    flow = flowed(MOE, visit(MOE, differ=differ, forced=None))
    assert born(flow) == ["t3_l0_nrm", "t3_l2_attn"]
    assert "t3_l0_kraw" not in causes(flow)
    assert causes(flow)["t3_l0_v"] == (Cause.MASKED, "t3_l0_nrm")


def test_value_that_was_not_given_leaves_its_readers_in_doubt() -> None:
    made = visit(MOE, differ=("t3_l0_k", "t3_l0_attn"), forced=("t3_l0_k", "t3_l0_attn"))
    kept = frozenset(key for key in made.ref if key.tag != "t3_l0_k")
    flow = flowed(MOE, Visit(**{**made.__dict__, "given": kept}))
    assert born(flow) == ["t3_l0_k"]
    assert flow.doubts == ["t3_l0_attn was not replayed: not all its inputs are the ref's"]
    assert "t3_l0_attn" not in causes(flow)


# --- the state ------------------------------------------------------------------------------------


def test_row_of_an_earlier_key_leads_to_its_birthplace() -> None:
    first = visit(
        MOE, 3, differ=("t3_l1_v", "t3_l1_knorm", "t3_l1_ks"), forced=("t3_l1_knorm", "t3_l1_v")
    )
    later = visit(MOE, 4, differ=("t4_l1_attn",), rows={"l1_v": [3], "l1_ks": [3]})
    assert causes(flowed(MOE, first, later))["t4_l1_attn"] == (Cause.INHERITED, "t3_l1_knorm")


@pytest.mark.parametrize(
    ("rows", "start", "source"),
    [
        ({"l1_k": [1]}, {"l1_k": [1]}, START),
        ({"l1_k": [1]}, {"l1_k": [2]}, "state part l1_k row 1"),
        ({"l1_k": [1, 2]}, {"l1_k": [2]}, START),
        ({"l1_v": [2]}, {}, "state part l1_v row 2"),
        ({"l1_vs": [3], "l1_k": [3]}, {}, "state part l1_k row 3"),
    ],
)
def test_row_that_no_key_explains(
    rows: dict[str, list[int]], start: dict[str, list[int]], source: str
) -> None:
    later = visit(MOE, 4, differ=("t4_l1_attn",), rows=rows)
    flow = flowed(MOE, visit(MOE, 3), later, start=start)
    assert causes(flow)["t4_l1_attn"] == (Cause.INHERITED, source)
    assert born(flow) == []


def test_row_of_a_dumped_prompt_is_no_start_state() -> None:
    visits = [
        visit(MOE, 0),
        visit(MOE, 1),
        visit(MOE, 2, differ=("t2_l1_attn",), rows={"l1_k": [1]}),
    ]
    last = visit(MOE, 3, differ=("t3_l1_attn",), rows={"l1_k": [1]})
    found = causes(flowed(MOE, *visits, last, start={"l1_k": [1]}))
    for pos in (2, 3):
        assert found[f"t{pos}_l1_attn"] == (Cause.INHERITED, "state part l1_k row 1")


@pytest.mark.parametrize(
    ("pos", "source"), [(3, START), (4, "state part l1_s row 5")], ids=["first", "later"]
)
def test_whole_part_comes_from_the_position_before(pos: int, source: str) -> None:
    """S of the start is overwritten at the first position: later it is no excuse."""
    visits = [visit(HYBRID, 3)] if pos == 4 else []
    last = visit(HYBRID, pos, differ=(f"t{pos}_l1_o",), rows={"l1_s": [5, 6]})
    flow = flowed(HYBRID, *visits, last, start={"l1_s": [5, 6]})
    assert causes(flow)[f"t{pos}_l1_o"] == (Cause.INHERITED, source)


def test_whole_part_of_a_key_that_differs() -> None:
    first = visit(HYBRID, 3, differ=("t3_l1_s",), forced=("t3_l1_s",))
    later = visit(HYBRID, 4, differ=("t4_l1_o",), rows={"l1_s": [0]})
    assert causes(flowed(HYBRID, first, later))["t4_l1_o"] == (Cause.INHERITED, "t3_l1_s")


def test_other_token_is_the_source_of_what_reads_the_embedding() -> None:
    flow = flowed(MOE, visit(MOE, differ=("t3_l0_nrm", "t3_l0_ores"), tokens=(1, 2)))
    assert (born(flow), flow.doubts) == ([], [])
    assert causes(flow)["t3_l0_nrm"] == causes(flow)["t3_l0_ores"]
    assert causes(flow)["t3_l0_nrm"] == (Cause.INHERITED, "token at t3")


# --- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "layer", "field", "keys", "parts"),
    [
        ("moe-tiny", 1, "nrm", "l0_x", ""),
        ("moe-tiny", 1, "attn", "l1_qrope l1_k l1_ks l1_v l1_vs", "k ks v vs"),
        ("hybrid-tiny", 3, "attn", "l3_qrope l3_k l3_v", "k v"),
        ("moe-tiny", 1, "ores", "l1_attn l0_x", ""),
        ("hybrid-tiny", 3, "ores", "l3_gated l2_x", ""),
        ("hybrid-tiny", 4, "ores", "l4_gn l3_x", ""),
        ("hybrid-tiny", 4, "conv", "l4_qkv", "hist"),
        ("hybrid-tiny", 4, "o", "l4_qn l4_kn l4_conv l4_beta l4_g", "s"),
        ("moe-tiny", 1, "down", "l1_act l1_topk", ""),
        ("dense-tiny", 1, "down", "l1_act", ""),
        ("moe-tiny", 1, "x", "l1_ores l1_topp l1_down", ""),
        ("dense-tiny", 1, "x", "l1_ores l1_down", ""),
        ("next-tiny", 1, "gs", "l1_fnrm", ""),
        ("next-tiny", 1, "sh", "l1_fnrm", ""),
        ("next-tiny", 1, "x", "l1_ores l1_topp l1_down l1_gs l1_sh", ""),
        ("moe-tiny", None, "final_normed", "l3_x", ""),
    ],
)
def test_what_an_op_reads(model: str, layer: int | None, field: str, keys: str, parts: str) -> None:
    config = preset(model)
    found = feeds_of(config, Key(7, layer, field), every_field(config))
    assert [key.tag for key in found.keys] == [f"t7_{key}" for key in keys.split()]
    assert (list(found.parts), found.token, found.known) == (parts.split(), False, True)


def test_layer_0_reads_the_token() -> None:
    config = preset("moe-tiny")
    fields = every_field(config)
    assert feeds_of(config, Key(7, 0, "nrm"), fields).token
    ores = feeds_of(config, Key(7, 0, "ores"), fields)
    assert (ores.token, [key.field for key in ores.keys]) == (True, ["attn"])


def test_variant_adds_what_its_op_reads() -> None:
    config = preset("moe-tiny")
    found = feeds_of(config, Key(7, 1, "down"), every_field(config), ("rsqrt", "fold_p"))
    assert [key.field for key in found.keys] == ["act", "topk", "topp"]
    masked = visit(MOE, differ=("t3_l1_topp",), forced=("t3_l1_topp",))
    assert "t3_l1_down" not in causes(flowed(MOE, masked))
    assert causes(flowed(MOE, masked, variants=("fold_p",)))["t3_l1_down"][0] == Cause.MASKED


def test_unknown_field_has_no_known_inputs() -> None:
    config = preset("moe-tiny")
    assert not feeds_of(config, Key(7, 1, "own_field"), every_field(config)).known
