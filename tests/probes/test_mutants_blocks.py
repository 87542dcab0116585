"""What the probes share, on a small engine, to the letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.comparison.states import compare_states
from parity.keys import Key
from parity.protocol import Injection
from parity.status import Verdict
from parity_probes.blocks import (
    Judged,
    Outcome,
    cause_of,
    compare_steps,
    differing_logits,
    garbage,
    group_of,
    judge,
    listed,
    part_of,
    plan_for,
    read_state,
    run_rows,
    run_singles,
    seed_of,
    state_text,
    write_over,
)
from tests.probes.small_engine import small_config, small_model, small_side
from tests.probes.small_steps import TOKENS, plan, same_state, singles

# --- plans, seeds, names --------------------------------------------------------------------------


def test_plan_has_every_dumped_field_and_what_is_asked() -> None:
    made = plan()
    assert {"nrm", "ks", "attn", "x", "logits"} <= set(made.fields)
    assert "s" not in made.fields
    assert plan_for(small_config("moe-tiny"), inject=Injection(Key(0, 0, "x"))).inject is not None
    assert plan_for(small_config("moe-tiny"), fields=("x",)).fields == ("x",)


def test_seed_of_a_model_without_one_is_0() -> None:
    assert seed_of(small_model(seed=9)) == 9
    unseeded: Any = object()
    assert seed_of(unseeded) == 0


@pytest.mark.parametrize(
    ("name", "part", "group"),
    [
        ("l3_ks", "ks", "scales"),
        ("l10_vs", "vs", "scales"),
        ("l0_k", "k", "KV rows"),
        ("l0_v", "v", "KV rows"),
        ("l0_s", "s", "S"),
        ("l0_hist", "hist", "hist"),
        ("lengths", "lengths", "lengths"),
        ("l0_own_part", "own_part", "own_part"),
    ],
)
def test_part_and_group(name: str, part: str, group: str) -> None:
    assert (part_of(name), group_of(name)) == (part, group)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((2, 3, 4), "2..4"),
        ((2, 3, 4, 5, 6, 7, 8), "2..8"),
        ((2, 3), "2, 3"),
        ((2,), "2"),
        ((2, 4, 8), "2, 4, 8"),
        ((4, 3, 2), "4, 3, 2"),
        ((2, 3, 5), "2, 3, 5"),
    ],
)
def test_listed_sizes(sizes: tuple[int, ...], text: str) -> None:
    assert listed(sizes) == text
    assert listed(list(sizes)) == text


# --- single steps ---------------------------------------------------------------------------------


def test_single_steps_and_the_states_between_them() -> None:
    side = small_side()
    engine: Any = side.engine
    engine.step(7)  # what an engine did before does not matter
    made = singles(side, (0, 2, 8))
    plain = small_side()
    steps = run_singles(plain, TOKENS, plan())
    assert compare_steps(steps, made.steps).verdict is Verdict.SAME
    assert made.tokens == TOKENS
    keys = len(steps[0].entries)
    assert engine.told == [
        (f"single t{at}", at * keys if at else 0, 8 * keys if at else 0) for at in range(8)
    ]
    for length in (0, 2, 3, 5, 8, 1, 4):
        other = small_side()
        run_singles(other, TOKENS[:length], plan())
        assert same_state(made.state(length), read_state(other)), length
        assert made.state(length) is made.state(length)
    outcome = made.outcome(2, 3, 2)
    assert [step is made.steps[2 + at] for at, step in enumerate(outcome.steps)] == [True] * 3
    assert [step is made.steps[5 + at] for at, step in enumerate(outcome.further)] == [True] * 2
    assert outcome.state is made.state(5)


def test_state_is_made_again_from_the_nearest_kept_one() -> None:
    side = small_side()
    engine: Any = side.engine
    made = singles(side, (2, 5))
    engine.written.clear()
    for length, begin in ((4, [2]), (6, [5]), (7, [6]), (1, [])):
        engine.calls.clear()
        made.state(length)
        assert engine.written == begin
        assert engine.calls["op"] == 2 * (length - (begin[0] if begin else 0))
        engine.written.clear()


def test_state_of_an_engine_that_cannot_tell_it_is_empty() -> None:
    assert read_state(small_side(lacks=("state",))) == {}


# --- garbage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int32])
def test_garbage_has_every_bit_set(dtype: type) -> None:
    made = garbage(np.zeros((2, 3), dtype))
    assert (made.shape, made.dtype, set(made.tobytes())) == ((2, 3), np.dtype(dtype), {255})


@pytest.mark.parametrize(("kind", "layer"), [("moe-tiny", 0), ("hybrid-tiny", 1)])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_past_the_length_hold_garbage(kind: str, layer: int, zeros: bool) -> None:
    side = small_side(model=small_model(kind))
    engine: Any = side.engine
    run_singles(side, TOKENS, plan(kind))
    state = {
        name: array[:3] if "_k" in name or "_v" in name else array
        for name, array in read_state(side).items()
    } | {"lengths": np.array([3], np.int32)}
    engine.written.clear()
    if zeros:
        write_over(side, state, 6, np.zeros_like)
    else:
        write_over(side, state, 6)
    assert engine.written == [6, 3]
    assert same_state(read_state(side), state)
    rows = engine.parts[f"l{layer}_k"]
    assert set(rows[3:6].tobytes()) == ({0} if zeros else {255})


def test_state_without_rows_is_written_once() -> None:
    side = small_side(model=small_model("hybrid-tiny"))
    engine: Any = side.engine
    state = {name: array for name, array in read_state(side).items() if "l1" not in name}
    write_over(side, state, 9)
    assert engine.written == [0]


# --- blocks ---------------------------------------------------------------------------------------


def test_rows_of_one_forward_then_further_steps() -> None:
    side = small_side()
    made = singles(side, (2,))
    engine: Any = side.engine
    engine.written.clear()
    found = run_rows(side, made.state(2), TOKENS[2:5], TOKENS[5:7], plan(), 8)
    assert engine.written == [8, 2]
    judged = judge(made.outcome(2, 3, 2), found)
    assert judged.equal
    assert judged.keys is not None
    assert judged.further is not None
    assert judged.compared == judged.keys.counts.total + judged.further.counts.total == 5 * 24
    assert judged.state.when == "end"


def test_further_steps_are_fed_without_an_injection() -> None:
    side = small_side()
    fault = Injection(Key(1, 0, "nrm"), 0)
    steps = run_singles(side, TOKENS[:3], plan_for(small_config("moe-tiny"), inject=fault))
    assert compare_steps(run_singles(small_side(), TOKENS[:3], plan()), steps).first is None


def test_nothing_is_compared_where_neither_side_has_steps() -> None:
    state = read_state(small_side())
    steps = run_singles(small_side(), TOKENS[:1], plan())
    nothing = judge(Outcome([], state), Outcome([], state))
    assert (nothing.keys, nothing.further, nothing.compared, nothing.equal) == (None, None, 0, True)
    for sides in ((steps, []), ([], steps)):
        judged = judge(*(Outcome(one, state, one) for one in sides))
        assert judged.keys is not None
        assert judged.further is not None
        assert (judged.equal, judged.keys.verdict) == (False, Verdict.NOT_RUN)
        assert {judged.keys.counts.ref, judged.keys.counts.dut} == {0, 24}


@pytest.mark.parametrize("where", ["keys", "state", "further"])
def test_one_difference_anywhere_is_not_equal(where: str) -> None:
    side = small_side()
    made = singles(side, ())
    ref = made.outcome(1, 2, 2)
    changed = [replace(ref.steps[0], entries=[replace(e, digest=5) for e in ref.steps[0].entries])]
    state = {**ref.state, "l0_k": ref.state["l0_k"] + 1}
    dut = {
        "keys": replace(ref, steps=[*changed, ref.steps[1]]),
        "state": replace(ref, state=state),
        "further": replace(ref, further=[*changed, ref.further[1]]),
    }[where]
    assert judge(ref, ref).equal
    assert not judge(ref, dut).equal


def test_two_sides_are_called_ref_and_dut() -> None:
    steps = run_singles(small_side(), TOKENS[:2], plan())
    tree = compare_steps(steps, steps[:1])
    assert (tree.ref["spec"], tree.dut["spec"]) == ("ref", "dut")
    assert (tree.counts.ref, tree.counts.dut, tree.first) == (48, 24, "t1_l0_nrm")


def test_logits_are_compared_as_bits() -> None:
    ref = np.array([0.0, 1.0, np.nan, 2.0], np.float32)
    assert differing_logits(ref, ref.copy()).tolist() == []
    dut = np.array([-0.0, 1.0, np.nan, np.nextafter(np.float32(2), np.float32(3))], np.float32)
    assert differing_logits(ref, dut).tolist() == [0, 3]


# --- how a difference is told ---------------------------------------------------------------------


def judged_at(tag: str, *, further: bool = False, bad: str = "dut") -> Judged:
    """Four steps from position 2, of which the dut's has another digest at one key."""
    made = singles(small_side(), ())
    ref = made.outcome(2, 3, 2)
    steps = [*ref.steps, *ref.further]
    nonfinite = {"dut": (None, (1, 0)), "both": ((1, 0), (1, 0)), "none": (None, None)}[bad]
    sides = [
        [
            replace(
                step,
                entries=[
                    replace(e, digest=e.digest + number, nonfinite=nonfinite[number])
                    if e.key.tag == tag
                    else e
                    for e in step.entries
                ],
            )
            for step in steps
        ]
        for number in (0, 1)
    ]
    outcomes = (Outcome(side[:3], ref.state, side[3:]) for side in sides)
    return judge(*outcomes)


@pytest.mark.parametrize(
    ("tag", "where"),
    [
        ("t2_l0_attn", "row 0 of 3"),
        ("t4_l1_attn", "row 2 of 3"),
        ("t5_l0_attn", "position 5, after the block"),
    ],
)
def test_cause_names_op_and_row(tag: str, where: str) -> None:
    text = f"attention (contract 1.8), {where}; every key before it is equal"
    assert cause_of(small_side(), judged_at(tag, bad="none"), 2, 3) == text
    assert cause_of(small_side(), judged_at(tag, bad="both"), 2, 3) == text
    asked = f"{text}; not finite, as KV rows past the length are here: are they read?"
    assert cause_of(small_side(), judged_at(tag), 2, 3) == asked


def test_position_before_the_block_is_no_row_of_it() -> None:
    text = cause_of(small_side(), judged_at("t2_l0_attn", bad="none"), 3, 3)
    assert text.startswith("attention (contract 1.8), position 2, after the block")


def test_no_key_has_no_cause() -> None:
    assert cause_of(small_side(), judged_at("none"), 2, 3) == ""
    state = compare_states("end", {}, {})
    assert cause_of(small_side(), Judged(None, state, None), 2, 3) == ""
    further = judged_at("t6_l0_attn", bad="none").further
    text = cause_of(small_side(), Judged(None, state, further), 2, 3)
    assert text.startswith("attention (contract 1.8), pos")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "lengths, KV rows, scales equal"),
        (
            {"l1_ks": 2},
            "scales differ from layer 1 on, position 2; lengths, KV rows equal",
        ),
        (
            {"l0_v": 1, "l1_k": 0, "l1_vs": 1},
            "KV rows differ from layer 0 on, position 1; "
            "scales differ from layer 1 on, position 1; lengths equal",
        ),
        ({"lengths": 0}, "lengths differ; KV rows, scales equal"),
    ],
)
def test_state_is_told_by_groups(changes: dict[str, int], text: str) -> None:
    side = small_side()
    run_singles(side, TOKENS[:3], plan())
    ref, dut = read_state(side), read_state(side)
    for name, row in changes.items():
        dut[name][row] += 1
    assert state_text(compare_states("end", ref, dut)) == text


def test_recurrent_parts_are_told_by_layer_alone() -> None:
    side = small_side(model=small_model("hybrid-tiny"))
    ref, dut = read_state(side), read_state(side)
    dut["l0_s"][1] += 1
    assert state_text(compare_states("end", ref, dut)) == (
        "S differ from layer 0 on; lengths, hist, KV rows equal"
    )
    only = compare_states("end", {"l0_s": ref["l0_s"]}, {"l0_s": dut["l0_s"]})
    assert state_text(only) == "S differ from layer 0 on"


def test_an_engine_names_its_ops_in_its_own_words() -> None:
    side = small_side()
    engine: Any = side.engine
    engine.made_by = lambda key: f"module of {key.tag}"
    text = cause_of(side, judged_at("t2_l0_attn", bad="none"), 2, 3)
    assert text == "module of t2_l0_attn, row 0 of 3; every key before it is equal"
