"""What births cannot tell, and say so: faults in the state, hidden inputs, capabilities that lack;
and sides that are not repeatable, of which nothing else is told."""

from __future__ import annotations

import pytest

from parity.keys import Key
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.search import bisect_engines
from parity.tree import CONTAMINATED, Cause, KeyState, Stability, Tree
from tests.red.birth_pairs import births, born, compared, opened, row, run_of, sources

ENGINES = "tests.red.birth_engines"
FAULTS = "tests.red.faults"


def found(name: str, model: str = "moe-tiny", **options: object) -> Tree:
    """An engine of birth_engines against the cpu."""
    return compared(f"{ENGINES}:{name}", run_of(model, **options))  # type: ignore[arg-type]


# --- the state ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "source"),
    [
        ("StaleRow", "moe-tiny", "state part l1_k row 3"),
        ("StaleOldRow", "moe-tiny", "state part l1_k row 1"),
        ("StaleState", "hybrid-tiny", "state part l1_s row 0"),
    ],
)
def test_state_written_over_after_the_tap_blames_no_op(name: str, model: str, source: str) -> None:
    tree = found(name, model)
    assert born(tree) == []
    assert tree.first == ("t4_l1_o" if model == "hybrid-tiny" else "t4_l1_attn")
    assert row(tree, tree.first).cause == Cause.INHERITED
    assert sources(tree, Cause.INHERITED) == {source}


def searched(pos: int, why: str = "the first that left another row") -> str:
    """What is said of a prompt that was not dumped."""
    return f"of the prompt t{pos} alone was searched, {why} (--dump-prefill: all of it)"


def test_stale_row_of_the_prompt_blames_no_op() -> None:
    run = run_of("moe-tiny", prefill="own", tokens="5,9,3,7,1,8,2")
    tree = compared(f"{FAULTS}:LostRow", run)
    assert tree.reason == CONTAMINATED
    assert tree.births is not None
    assert (tree.births.found, tree.births.complete) == ([], False)
    assert tree.births.reason == searched(5)
    assert sources(tree, Cause.INHERITED) == {"state part l1_k row 5"}
    assert tree.decode is not None
    assert (tree.decode.verdict, tree.decode.births) == ("same", None)


def test_contaminated_start_is_born_where_it_first_shows() -> None:
    """Kestrel's trap: a prefill with another norm, decoding exact. The births are the prefill's."""
    run = run_of("moe-tiny", prefill="own", tokens="5,9,3,7,1,8,2")
    tree = compared("tests.red.start_faults:Trap@variant=rsqrt@begin=4", run)
    assert (tree.reason, tree.births is not None) == (CONTAMINATED, True)
    assert tree.births is not None
    keys = [Key.parse(birth.key) for birth in tree.births.found]
    assert {key.pos for key in keys} == {4}
    assert {key.field for key in keys} <= {"nrm", "knorm", "qrope", "fnrm", "final_normed"}
    assert tree.births.found[0].elements is not None
    assert tree.births.reason == searched(4)
    # Rows 5 and 6 of the start differ too, and nobody looked where those come from.
    assert sources(tree, Cause.INHERITED) == {"start state"}
    assert tree.decode is not None
    assert (tree.decode.verdict, tree.decode.births) == ("same", None)


def test_recurrent_state_alone_shows_at_the_last_position() -> None:
    run = run_of("hybrid-tiny", prefill="own", tokens="5,9,3,7")
    tree = compared("tests.red.start_faults:MovedPart@part=l2_hist", run)
    assert tree.births is not None
    assert (tree.births.found, tree.births.reason) == ([], searched(3, "its last position"))


def test_dumped_prompt_shows_where_the_contamination_is_born() -> None:
    run = run_of("moe-tiny", prefill="own", dump_prefill=True)
    tree = compared("tests.red.planted:Planted@keys=t1_l2_vs", run)
    assert tree.reason == CONTAMINATED
    assert born(tree) == ["t1_l2_vs"]
    assert row(tree, "t2_l2_attn").source == "t1_l2_vs"
    assert tree.elements is not None
    assert tree.elements.key == "t1_l2_vs"


def test_other_tokens_are_the_source() -> None:
    run = run_of("moe-tiny", tokens_from="own")
    ref, dut = (
        opened("ref", "cpu", run),
        opened("dut", "tests.cli.engines_for_tests:OwnChoice", run),
    )
    tree = diff_engines(ref, dut, run, Ask())
    assert tree.first == "t4_l0_nrm"
    assert born(tree) == []
    assert row(tree, "t4_l2_x").source == "token at t4"
    assert row(tree, "t5_l0_v").source == "token at t5"
    assert [(margin.pos, margin.explained) for margin in tree.margins] == [(3, True)]


def test_flipped_weight_is_born_at_its_projection() -> None:
    tree = compared(f"{FAULTS}:FlippedWeight", run_of("moe-tiny"))
    assert born(tree) == [f"t{pos}_l2_qrope" for pos in (3, 4, 5)]
    assert "weights differ in 1 tensor, first layers.2.q_proj.qs" in tree.notes


# --- hidden inputs --------------------------------------------------------------------------------


def test_input_that_no_key_shows_is_a_doubt() -> None:
    tree = found("Counting")
    assert tree.births is not None
    (birth,) = tree.births.found
    assert (birth.key, birth.how, birth.clean) == ("t4_l1_attn", "inputs", True)
    assert not tree.births.complete
    assert tree.births.reason == (
        "t4_l1_attn: the dut gives other bytes on equal inputs, something else is read"
    )


def test_replay_that_does_not_repeat_is_unstable() -> None:
    tree = found("Overheard")
    assert (tree.verdict, tree.first, tree.births) == ("unstable", "t3_l3_attn", None)
    assert tree.stability is not None
    assert (tree.stability.side, tree.stability.run) == ("dut", 2)


def test_prefill_that_is_not_its_single_steps() -> None:
    tree = found("Chunked", prefill="own", dump_prefill=True)
    assert (tree.verdict, tree.first) == ("diverged", "t2_l1_v")
    assert tree.births is not None
    assert tree.births.reason == (
        "the dut's prefill has other bits token by token, first at t2_l1_v: births in the prompt "
        "are not searched"
    )
    assert sources(tree, Cause.INHERITED) <= {"start state"}


# --- capabilities ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "dut", "reason"),
    [
        ("cpu", f"{ENGINES}:NoReplay", "dut lacks the capability 'replay'"),
        ("cpu", f"{ENGINES}:NoState", "dut lacks the capability 'state'"),
        (f"{ENGINES}:NoState", "cpu", "ref lacks the capability 'state'"),
        (f"{ENGINES}:NoCapture", "cpu", "ref lacks the capability 'capture'"),
        ("cpu", f"{ENGINES}:OtherParts", "the states have other parts: scratch: "),
    ],
)
def test_without_a_capability_equal_inputs_decide(ref: str, dut: str, reason: str) -> None:
    """Layer 2's K projection is wrong: its inputs are equal in the run, those of layer 3 are not.
    The whole prompt is dumped, so that no state has to be known."""
    run = run_of("moe-tiny", prefill="own", dump_prefill=True, n=1)
    tree = compared(dut, run, ref=ref)
    assert tree.births is not None
    assert not tree.births.complete
    assert tree.births.reason.startswith(reason)
    first = tree.births.found[0]
    assert (first.key, first.how, first.clean) == ("t0_l2_kraw", "inputs", True)
    assert {Key.parse(birth.key).layer for birth in tree.births.found} == {2}
    assert (first.elements is None) == (ref.endswith("NoCapture"))
    assert first.ref_kernels == ["q4_matvec"]
    assert row(tree, "t0_l2_kraw").cause == Cause.BORN
    assert row(tree, "t0_l2_knorm").cause == ""
    assert tree.births.replays == 0


@pytest.mark.parametrize(("dumped", "keys"), [(False, []), (True, ["t3_l1_attn"])])
def test_unknown_start_leaves_attention_unjudged(dumped: bool, keys: list[str]) -> None:
    """Without states nobody knows that the rows of a prompt are equal, unless it is dumped."""
    tree = found("Blind", prefill="own", n=1, dump_prefill=dumped)
    assert tree.first == "t3_l1_attn"
    assert tree.births is not None
    assert [birth.key for birth in tree.births.found] == keys
    assert row(tree, "t3_l1_ores").cause == ""


def test_dut_without_trace_or_capture_is_replayed_all_the_same() -> None:
    for dut, kernels in (("NoTrace", []), ("NoCapture", ["q4_matvec"])):
        tree = found(dut, n=1)
        (birth, *_) = births(tree)
        assert (birth.key, birth.dut_kernels) == ("t3_l2_kraw", kernels)
        assert birth.ref_kernels == ["q4_matvec"]
        assert (birth.elements is None) == (dut == "NoCapture")


def test_key_that_a_side_does_not_tell_has_no_cause() -> None:
    dut = "tests.cli.engines_for_tests:Silent@key=t4_l1_vs"
    tree = compared(dut, run_of("moe-tiny"))
    assert (tree.first, tree.births) == ("t4_l1_vs", None)
    assert row(tree, "t4_l1_vs").state == KeyState.MISSING
    assert row(tree, "t4_l1_vs").cause == ""


# --- one layer ------------------------------------------------------------------------------------


def test_bisection_names_the_births_of_its_layer() -> None:
    run = run_of("moe-tiny")
    dut = "tests.red.planted:Planted@keys=t4_l2_nrm+t4_l2_attn+t4_l3_v"
    tree = bisect_engines(opened("ref", "cpu", run), opened("dut", dut, run), run, Ask())
    assert tree.births is not None
    assert [birth.key for birth in tree.births.found] == ["t4_l2_nrm", "t4_l2_attn"]
    reason = "one layer was searched, t4_l2 (parity diff without --bisect: all)"
    assert (tree.births.complete, tree.births.reason) == (False, reason)
    assert tree.births.replays == 2
    assert row(tree, "t4_l2_ores").source == "t4_l2_attn"
    assert tree.stability is None


@pytest.mark.parametrize("compare", [diff_engines, bisect_engines])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("RacingPrefill", "l0_ks row 1 (position 1)"),
        ("RacingEnd", "l3_v row 5 (position 5)"),
    ],
)
def test_state_that_is_not_repeatable_is_unstable(compare, name: str, place: str) -> None:  # type: ignore[no-untyped-def]
    run = run_of("moe-tiny", prefill="own")
    tree = compare(opened("ref", "cpu", run), opened("dut", f"{ENGINES}:{name}", run), run, Ask())
    assert (tree.verdict, tree.level, tree.first) == ("unstable", "none", None)
    assert tree.reason == f"dut differs from itself at {place}: a rerun gave another state"
    assert (tree.stability.side, tree.stability.key) == ("dut", place)
    assert (tree.births, tree.decode) == (None, None)


def test_sides_at_different_positions_are_not_replayed() -> None:
    run = run_of("moe-tiny", prefill="own", tokens="5,9,3,7")
    tree = compared("tests.red.start_faults:LostToken", run)
    assert tree.stability == Stability(2)
    assert tree.states[0].first == "lengths"
    assert tree.births is not None
    text = "the dut stands at position 3 after the prompt of 4: no birth is searched"
    assert (tree.births.found, tree.births.reason) == ([], text)
