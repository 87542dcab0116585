"""The console report: the wording of each verdict, and no verdict that the tree contradicts."""

from dataclasses import replace

import pytest

from parity.errors import ParityBug
from parity.status import Level, Verdict
from parity.tree import Control, KeyRow, KeyState, Search, StateDiff, StatePart, Tree
from parity_reports.console import ConsoleReport
from parity_reports.screen import Screen
from parity_reports.wording import quiet_line
from tests.reports import trees


def show(tree: Tree, width: int = 80) -> str:
    return ConsoleReport().render(tree, Screen(width))


def first_line(tree: Tree) -> str:
    return show(tree).split("\n", 1)[0]


def with_header(tree: Tree, side: str, **values: str) -> Tree:
    if side == "ref":
        return replace(tree, ref={**tree.ref, **values})
    return replace(tree, dut={**tree.dut, **values})


def test_emulated_stands_in_the_verdict_line() -> None:
    one = with_header(trees.green(), "dut", emulated="yes")
    both = with_header(one, "ref", emulated="yes")
    assert first_line(one) == "SAME  35 of 35 keys equal, bit for bit, dut emulated"
    assert first_line(both).endswith(", ref and dut emulated")
    assert first_line(with_header(trees.red(), "dut", emulated="yes")).endswith(", dut emulated")
    assert "emulated" not in show(trees.green())


def test_decode_only_stands_in_the_verdict_line() -> None:
    tree = replace(trees.green(), run={**trees.RUN, "prefill": "ref"})
    assert first_line(tree).endswith(", decode only")
    assert "32 tokens prefilled by the ref for both sides, then t32 to t35" in show(tree)


def test_control_at_dump_level_and_types_stand_in_the_verdict_line() -> None:
    line = first_line(trees.two_column())
    assert line.endswith("bit for bit, dtype and shape not recorded, control: dump level")
    listed_nothing = replace(trees.two_column(), keys=[])  # a very large green tree
    assert first_line(listed_nothing) == line


def test_control_that_did_not_fire_is_never_quiet() -> None:
    control = Control("inject", False, "t34_l0_k", "t34_l0_ks", 3, "step")
    tree = replace(trees.green(), control=control)
    assert first_line(tree).endswith(", control did not fire")
    assert "did not fire: 1 step at t34_l0_k element 3, found at t34_l0_ks" in show(tree)
    assert "not found" in show(replace(tree, control=replace(control, found=None)))
    assert "control did not fire" in ConsoleReport().render(tree, quiet=True)


@pytest.mark.parametrize(
    ("state", "words"),
    [(KeyState.MISSING, "missing in the dut"), (KeyState.EXTRA, "not in the ref")],
    ids=["missing", "extra"],
)
def test_a_key_of_one_side(state: str, words: str) -> None:
    rows = trees.key_rows({trees.FIRST: state})
    tree = replace(trees.red(), keys=rows, counts=trees.count(rows), elements=None, inputs=[])
    assert first_line(tree) == f"DIVERGED  first at t33_l7_attn, {words}"
    assert f"attn {state}" in show(tree)
    assert "absent" in show(tree)
    sides = "(ref 35, dut 34)" if state == KeyState.MISSING else "(ref 34, dut 35)"
    assert f"0 of 35 differ, 1 {state} {sides}; 19 equal before the first" in show(tree)


def test_lower_level_never_reads_as_bit_for_bit() -> None:
    tree = replace(
        trees.red(), verdict=Verdict.SAME, level=Level.GREEDY, level_asked=Level.GREEDY, inputs=[]
    )
    expected = "SAME  at level greedy, not bit for bit: 30 of 35 keys equal, first difference "
    assert first_line(tree) == expected + trees.FIRST
    quiet = ConsoleReport().render(tree, quiet=True)
    assert quiet.startswith("same: 30 of 35 keys, level greedy, first difference t33_l7_attn")


def test_end_state_that_differs_with_equal_keys() -> None:
    end = StateDiff("end", [StatePart("l0_s", 4, 2, 1), StatePart("lengths", 1, 0, None)], "l0_s")
    tree = replace(
        trees.green(), verdict=Verdict.DIVERGED, states=[trees.equal_state("start"), end]
    )
    assert first_line(tree) == "DIVERGED  end state, first at l0_s"
    assert "states   equal before; after: S 2 of 4 rows differ, first at l0_s" in show(tree)


def test_a_reason_that_names_the_place_is_not_said_twice() -> None:
    end = StateDiff("end", [StatePart("l0_s", 4, 2, 1)], "l0_s row 1 (position 1)")
    reason = "end state differs, first at l0_s row 1 (position 1)"
    states = [trees.equal_state("start"), end]
    tree = replace(trees.green(), verdict=Verdict.DIVERGED, states=states, reason=reason)
    assert first_line(tree) == f"DIVERGED  {reason}"
    weights = replace(tree, states=states[:1], reason="weights differ in 2 tensors, first a")
    assert first_line(weights) == "DIVERGED  weights differ in 2 tensors, first a"


def test_a_token_that_differs_at_equal_logits() -> None:
    reason = "greedy choice differs at equal logits: position 33, ref 1, dut 2"
    tree = replace(
        trees.green(), verdict=Verdict.DIVERGED, reason=reason, first="t33_logits", level=Level.NONE
    )
    assert first_line(tree) == f"DIVERGED  {reason}, first at t33_logits"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0002, "1 ms"), (0.0123, "12 ms"), (0.1, "0.1 s"), (3.14, "3.1 s"), (1234.5, "1,234.5 s")],
)
def test_times(seconds: float, text: str) -> None:
    assert f"  time     {text}\n" in show(replace(trees.green(), seconds=seconds))
    assert "time  " not in show(replace(trees.green(), seconds=0.0))


def test_a_green_search_counts_layer_digests_not_keys() -> None:
    rows = [KeyRow("t33_l7_chain", KeyState.SAME, trees.hash_text(1), trees.hash_text(1))]
    search = Search(None, 2, 2, 2)
    tree = replace(trees.green(), keys=rows, counts=trees.count(rows), search=search)
    assert first_line(tree) == "SAME  1 of 1 layer digests equal, bit for bit"
    assert "search   2 of 2 digests read, 2 runs, no digest differs" in show(tree)
    assert ConsoleReport().render(tree, quiet=True).startswith("same: 1 of 1 layer digests, ")


def test_distances_are_listed_unless_the_largest_says_it_all() -> None:
    mixed = replace(trees.elements(), histogram=[("1", 4), ("3 to 4", 1), ("zero sign", 1)])
    lines = show(replace(trees.red(), elements=mixed)).splitlines()
    assert "  6 of 128 elements differ, at most 1 ULP (4 by 1, 1 by 3 to 4, 1 zero sign):" in lines
    assert "  head 1 4, head 2 2" in lines
    only = replace(trees.elements(), max_ulp=None, histogram=[("zero sign", 6)])
    lines = show(replace(trees.red(), elements=only)).splitlines()
    assert "  6 of 128 elements differ (6 zero sign): head 1 4, head 2 2" in lines
    assert "at most 1 ULP: head 1 4" in show(trees.red())


def test_elements_of_other_types_are_not_counted() -> None:
    apart = replace(
        trees.elements(), total=0, differ=0, max_ulp=None, rows=[], groups=[], histogram=[]
    )
    apart = replace(apart, note="dtypes differ")
    text = show(replace(trees.red(), elements=apart))
    assert "elements differ" not in text
    assert "  dtypes differ\n\n  reproduce:" in text


def test_contaminated_start_with_a_decode_that_differs_shows_its_layer() -> None:
    tree = replace(trees.contaminated(), decode=trees.red())
    text = show(tree)
    assert "decode   from the ref's state: diverged, first at t33_l7_attn;" in text
    assert "attn DIFF" in text
    assert "3e0e01e2" in text
    assert "attn DIFF" not in show(trees.contaminated())


def test_inputs_that_differ_are_named() -> None:
    rows = [replace(row, state=KeyState.DIFFERS) for row in trees.red().inputs[:1]]
    rows += [*trees.red().inputs[1:], trees.key_row("t33_l6_x", KeyState.SAME, 5)]
    text = show(replace(trees.red(), inputs=rows))
    assert "inputs in the run: k differs, ks same,\n" in text
    assert "           qrope same, t33_l6_x same\n" in text


def test_flipped_tokens_are_listed_up_to_four() -> None:
    greedy = [(30 + n, 100 + n, 200 + n) for n in range(6)] + [(40, 7, 7)]
    text = show(replace(trees.red(), greedy=greedy), width=200)
    assert "other token at 6 of 7 positions: t30 ref 100 dut 200, t31 ref" in text
    assert "t33 ref 103 dut 203, 2 more" in text


def test_plain_dumps_have_no_model_state_or_run_lines() -> None:
    for tree in (trees.two_column(), trees.tensor_files()):
        for label in ("model", "run", "states", "inputs", "search", "greedy"):
            assert f"  {label:9}" not in show(tree)


def test_weights_that_differ_are_shown_whole() -> None:
    tree = with_header(trees.green(), "dut", weights="b" * 64)
    text = show(tree)
    assert first_line(tree).endswith(", weights digests differ")
    assert quiet_line(tree).endswith(", weights digests differ")
    assert not quiet_line(trees.green()).endswith("differ")
    assert f"weights digests differ: ref ac1981aa9c771701 dut {'b' * 64}" in text.replace(
        "\n           ", " "
    )


def test_rows_that_the_json_does_not_hold_are_counted() -> None:
    many = replace(trees.elements(), differ=100)
    tree = replace(trees.red(), elements=many)
    assert "  96 more, 2 of them in run.json\n" in ConsoleReport().render(
        tree, json_path="run.json"
    )


def test_a_segment_shows_its_own_strip() -> None:
    other = trees.key_rows(layers=(7,), segment="m=2")
    later = trees.key_row("t34_final_normed", KeyState.NOT_COMPARABLE, 50, "m=4")
    rows = [*other, *trees.stopped().keys, later]
    text = show(replace(trees.stopped(), keys=rows, counts=trees.count(rows)))
    strip = (
        "  t33 after the last layer in segment m=4: final_normed DIFF ·\n  logits not comparable\n"
    )
    assert strip in text
    assert "24 equal before the first" in text


def test_a_large_tree_that_lists_only_differences_counts_none_before_them() -> None:
    rows = [row for row in trees.red().keys if row.state != KeyState.SAME]
    text = show(replace(trees.red(), keys=rows))
    assert "  keys     5 of 35 differ\n" in text


def test_elements_of_another_key_carry_its_name() -> None:
    tree = replace(trees.red(), elements=replace(trees.elements(), key="t33_l7_x"))
    assert "\n\n  t33_l7_x\n  6 of 128 elements differ" in show(tree)


# Contradictions (planted): a presenter computes no verdict, and repeats no impossible one.


CONTRADICTIONS = {
    "a differing key": replace(trees.red(), verdict=Verdict.SAME, level=Level.BIT),
    "a missing key in the counts": replace(
        trees.green(), counts=replace(trees.green().counts, missing=1)
    ),
    "a differing row outside the counts": replace(
        trees.green(), keys=trees.key_rows({trees.FIRST: KeyState.DIFFERS})
    ),
    "no key": replace(trees.green(), counts=trees.not_run().counts, keys=[]),
    "level not reached": replace(
        trees.red(), verdict=Verdict.SAME, level=Level.GREEDY, level_asked=Level.LOGITS
    ),
    "nothing differs": replace(trees.green(), verdict=Verdict.DIVERGED),
}


@pytest.mark.parametrize("tree", list(CONTRADICTIONS.values()), ids=list(CONTRADICTIONS))
@pytest.mark.parametrize("quiet", [False, True], ids=["full", "quiet"])
def test_red_contradiction_is_refused(tree: Tree, quiet: bool) -> None:
    with pytest.raises(ParityBug, match="contradicts itself"):
        ConsoleReport().render(tree, quiet=quiet)


@pytest.mark.parametrize(
    "name", [name for name in trees.ALL if name not in ("green", "two_column", "stable", "agreed")]
)
def test_no_other_verdict_holds_the_word_same(name: str) -> None:
    assert "SAME" not in show(trees.ALL[name]())
    assert not ConsoleReport().render(trees.ALL[name](), quiet=True).startswith("same")
