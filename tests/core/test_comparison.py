"""Comparing dumps: verdict, first divergence, counts, level and exit status."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from parity.comparison import compare as comparison
from parity.comparison.compare import compare_dumps, exit_status
from parity.dump import Dump, Entry, TensorType
from parity.dumps.reader import parse_dump
from parity.errors import InputError
from parity.keys import Key
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Counts, KeyState, Tree

F32 = TensorType("f32", (4, 32))
TAGS = [
    *(f"t{pos}_l{layer}_{field}" for pos in (0, 1) for layer in (0, 1) for field in ("nrm", "x")),
    *("t0_logits", "t1_logits"),
]
IN_ORDER = [*TAGS[:4], "t0_logits", *TAGS[4:8], "t1_logits"]


def dump(*lines: str, source: str = "a dump", **header: str) -> Dump:
    """A dump of lines such as ``t0_l0_q``, ``t0_l0_q 5`` (digest) or ``t0_l0_q 5 f32[4]``."""
    entries = []
    for line in lines:
        tag, digest, kind = [*line.split(" "), "", ""][:3]
        parsed = TensorType.parse(kind) if kind else None
        entries.append(Entry(Key.parse(tag), int(digest or "1"), parsed))
    return Dump(header, {"": entries}, source)


def whole(**header: str) -> Dump:
    return dump(*(f"{tag} {at} f32[4,32]" for at, tag in enumerate(TAGS)), **header)


def altered(side: Dump, tag: str, **change: object) -> Dump:
    """A copy in which one entry is changed."""
    segments = {
        name: [replace(e, **change) if e.key.tag == tag else e for e in entries]
        for name, entries in side.segments.items()
    }
    return replace(side, segments=segments)


def without(side: Dump, *tags: str) -> Dump:
    kept = [entry for entry in side.entries if entry.key.tag not in tags]
    return replace(side, segments={"": kept})


def states(tree: Tree) -> dict[str, str]:
    return {row.key: row.state for row in tree.keys}


def ended(tree: Tree) -> tuple[Verdict, str | None, ExitStatus]:
    return tree.verdict, tree.first, exit_status(tree)


def test_equal_dumps_are_the_same() -> None:
    tree = compare_dumps(whole(engine="cpu"), whole(engine="cuda"))
    assert ended(tree) == (Verdict.SAME, None, ExitStatus.SAME)
    assert tree.counts == Counts(ref=10, dut=10, same=10, differ=0, missing=0, extra=0)
    assert tree.level is tree.level_asked is Level.BIT
    assert [row.key for row in tree.keys] == IN_ORDER
    assert (tree.ref["engine"], tree.dut["engine"]) == ("cpu", "cuda")
    assert tree.ref["spec"] == "a dump"
    assert tree.notes == []


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(
    "change",
    [
        {"digest": 99},
        {"type": TensorType("f64", (4, 32))},
        {"type": TensorType("f32", (128,))},
        {"type": TensorType("f32", (32, 4))},
    ],
    ids=["bytes", "dtype", "flat shape", "transposed shape"],
)
def test_a_changed_key_is_the_first_divergence(tag: str, change: dict[str, object]) -> None:
    tree = compare_dumps(whole(), altered(whole(), tag, **change))
    assert ended(tree) == (Verdict.DIVERGED, tag, ExitStatus.DIVERGED)
    assert [key for key, state in states(tree).items() if state != KeyState.SAME] == [tag]
    assert tree.counts == Counts(ref=10, dut=10, same=9, differ=1, missing=0, extra=0)
    row = next(row for row in tree.keys if row.key == tag)
    assert row.state == KeyState.DIFFERS
    assert row.ref != row.dut


@pytest.mark.parametrize("tag", TAGS)
def test_a_missing_and_an_extra_key_are_named_at_their_place(tag: str) -> None:
    missing, extra = (
        compare_dumps(whole(), without(whole(), tag)),
        compare_dumps(without(whole(), tag), whole()),
    )
    for tree, state in ((missing, KeyState.MISSING), (extra, KeyState.EXTRA)):
        assert ended(tree) == (Verdict.DIVERGED, tag, ExitStatus.DIVERGED)
        assert states(tree)[tag] == state
        assert [row.key for row in tree.keys] == IN_ORDER
    assert missing.counts == Counts(ref=10, dut=9, same=9, differ=0, missing=1, extra=0)
    assert extra.counts == Counts(ref=9, dut=10, same=9, differ=0, missing=0, extra=1)


def test_the_lowest_of_several_faults_is_the_first() -> None:
    dut = without(altered(whole(), "t1_l1_x", digest=77), "t0_l1_nrm")
    assert compare_dumps(whole(), dut).first == "t0_l1_nrm"
    dut = without(altered(whole(), "t0_l0_x", digest=77), "t0_l1_nrm")
    assert compare_dumps(whole(), dut).first == "t0_l0_x"


def test_the_first_is_the_lowest_number_not_the_lowest_text() -> None:
    tags = ["t10_l0_q", "t2_l10_q", "t2_l9_o"]
    ref, dut = dump(*tags, "t2_l0_q 5"), dump(*(f"{tag} 2" for tag in tags), "t2_l0_q 5")
    assert compare_dumps(ref, dut).first == "t2_l9_o"


def test_layer_zero_is_a_layer() -> None:
    tags = ["t0_l0_rms", "t0_l0_q", "t0_l1_rms", "t0_l1_q"]
    ref = dump(*tags)
    dut = dump("t0_l0_rms 2", "t0_l0_q", "t0_l1_rms", "t0_l1_q 2")
    assert compare_dumps(ref, dut).first == "t0_l0_rms"


@pytest.mark.parametrize("fault", [None, "t0_l1_x"])
def test_another_line_order_changes_a_note_and_nothing_else(fault: str | None) -> None:
    dut = altered(whole(), fault or "", digest=77)
    entries = random.Random(7).sample(dut.entries, len(dut.entries))
    tree = compare_dumps(whole(), replace(dut, segments={"": entries}))
    plain = compare_dumps(whole(), dut)
    assert tree.notes == ["line order differs: compared by key, in dataflow order"]
    assert plain.notes == []
    assert replace(tree, notes=[]) == plain
    assert tree.first == fault


def test_a_missing_key_is_not_another_line_order() -> None:
    assert compare_dumps(whole(), without(whole(), "t0_l1_nrm")).notes == []


@pytest.mark.parametrize(
    ("ref", "dut", "reason"),
    [
        (dump(), dump(), "nothing compared: no keys in ref and dut"),
        (whole(), dump(), "nothing compared: no keys in dut"),
        (dump(), whole(), "nothing compared: no keys in ref"),
        (whole(), dump("t9_l0_q"), "nothing compared: no key in common (ref 10, dut 1)"),
    ],
    ids=["both empty", "dut empty", "ref empty", "nothing in common"],
)
def test_nothing_compared_is_not_run(ref: Dump, dut: Dump, reason: str) -> None:
    for level in (Level.BIT, Level.GREEDY):
        tree = compare_dumps(ref, dut, level_asked=level)
        assert ended(tree) == (Verdict.NOT_RUN, None, ExitStatus.NOT_RUN)
        assert tree.reason == reason
        assert tree.level is Level.NONE


def test_a_file_of_remarks_is_nothing_to_compare() -> None:
    tree = compare_dumps(whole(), parse_dump(b"# only a remark\n\n", "dut"))
    assert ended(tree) == (Verdict.NOT_RUN, None, ExitStatus.NOT_RUN)


def test_segments_compare_by_name() -> None:
    ref = Dump({}, {"": dump("t0_l0_q 1").entries, "B": dump("t0_l0_q 2").entries}, "ref")
    moved = Dump({}, {"": dump("t0_l0_q 2").entries, "B": dump("t0_l0_q 1").entries}, "dut")
    swapped = Dump({}, dict(reversed(ref.segments.items())), "dut")
    assert compare_dumps(ref, swapped).verdict is Verdict.SAME
    assert compare_dumps(ref, moved).counts.differ == 2
    only_b = replace(ref, segments={"B": [replace(ref.segments["B"][0], digest=9)]})
    tree = compare_dumps(replace(ref, segments={"B": ref.segments["B"]}), only_b)
    assert ended(tree) == (Verdict.DIVERGED, "t0_l0_q", ExitStatus.DIVERGED)
    assert tree.notes[0] == "the first divergence is in segment B"
    assert tree.keys[0].segment == "B"


def test_the_same_keys_under_other_segment_names_are_nothing_in_common() -> None:
    ref, dut = (Dump({}, {name: whole().entries}, name) for name in ("A", "B"))
    tree = compare_dumps(ref, dut)
    assert tree.verdict is Verdict.NOT_RUN
    assert (tree.counts.missing, tree.counts.extra) == (10, 10)


@pytest.mark.parametrize("side", ["ref", "dut"])
def test_a_type_one_side_did_not_record_is_said_and_does_not_decide(side: str) -> None:
    bare = dump(*(f"{tag} {at}" for at, tag in enumerate(TAGS)))
    pair = (bare, whole()) if side == "ref" else (whole(), bare)
    tree = compare_dumps(*pair)
    assert ended(tree) == (Verdict.SAME, None, ExitStatus.SAME)
    assert tree.notes == [
        f"dtype and shape not recorded in {side} (10 keys): digest alone compared"
    ]
    assert compare_dumps(pair[0], altered(pair[1], "t0_l1_x", digest=99)).first == "t0_l1_x"


def test_other_hashes_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="hashes differ: a dump has fnv1a64, a dump has kestrel"):
        compare_dumps(whole(), whole(hash="kestrel-fnv"))
    assert compare_dumps(whole(hash="fnv1a64"), whole()).verdict is Verdict.SAME


def test_a_key_given_twice_is_refused() -> None:
    twice = dump(*TAGS, "t0_l1_x")
    for pair in ((twice, whole()), (whole(), twice)):
        with pytest.raises(InputError, match="key t0_l1_x appears twice"):
            compare_dumps(*pair)


def test_headers_that_explain_a_difference_are_noted() -> None:
    tree = compare_dumps(
        whole(weights="aa", model="m", engine="cpu"), whole(weights="bb", model="m", engine="x")
    )
    assert tree.notes == ["weights differ: ref aa dut bb"]
    assert compare_dumps(whole(weights="aa"), whole()).notes == []


# --- values that are not finite (contract 1.10)


def test_not_finite_in_the_dut_only_is_diverged_at_that_key() -> None:
    dut = altered(whole(), "t0_l1_nrm", digest=66, nonfinite=(3, 17))
    tree = compare_dumps(whole(), without(dut, "t1_l0_nrm", "t1_logits"), level_asked=Level.GREEDY)
    assert ended(tree) == (Verdict.DIVERGED, "t0_l1_nrm", ExitStatus.DIVERGED)
    assert tree.level is Level.NONE
    assert list(states(tree).values()) == [
        *[KeyState.SAME] * 2,
        KeyState.DIFFERS,
        *[KeyState.NOT_COMPARABLE] * 7,
    ]
    assert tree.counts.not_comparable == 7
    assert tree.notes == [
        "not finite at t0_l1_nrm (dut 3 from index 17): the keys after it are not comparable"
    ]


def test_not_finite_on_both_sides_with_the_same_bytes_is_not_run() -> None:
    both = altered(whole(), "t0_l1_nrm", nonfinite=(3, 17))
    tree = compare_dumps(both, altered(both, "t1_l1_x", digest=99))
    assert ended(tree) == (Verdict.NOT_RUN, None, ExitStatus.NOT_RUN)
    assert tree.reason == (
        "not finite with the same bytes: t0_l1_nrm (ref 3 from index 17, dut 3 from index 17)"
    )
    assert states(tree)["t1_l1_x"] == KeyState.NOT_COMPARABLE


def test_not_finite_on_both_sides_with_other_bytes_is_diverged() -> None:
    ref = altered(whole(), "t0_l1_nrm", nonfinite=(3, 17))
    dut = altered(ref, "t0_l1_nrm", digest=66)
    assert ended(compare_dumps(ref, dut)) == (
        *(Verdict.DIVERGED, "t0_l1_nrm", ExitStatus.DIVERGED),
    )


def test_a_run_that_ceased_to_be_finite_reaches_no_level() -> None:
    ref = whole(greedy="0:7")
    dut = altered(ref, "t1_logits", digest=66, nonfinite=(1, 0))
    tree = compare_dumps(ref, dut, level_asked=Level.GREEDY)
    assert ended(tree) == (Verdict.DIVERGED, "t1_logits", ExitStatus.DIVERGED)
    assert (tree.level, tree.counts.not_comparable) == (Level.NONE, 0)


def test_a_difference_before_the_value_that_is_not_finite_decides() -> None:
    ref = altered(whole(), "t0_l1_nrm", nonfinite=(3, 17))
    tree = compare_dumps(ref, altered(ref, "t0_l0_x", digest=99))
    assert ended(tree) == (Verdict.DIVERGED, "t0_l0_x", ExitStatus.DIVERGED)


def test_segments_after_a_value_that_is_not_finite_are_not_comparable() -> None:
    ref = Dump({}, {"": dump("t0_l0_x").entries, "B": dump("t0_l0_x").entries}, "ref")
    first = replace(ref.segments[""][0], nonfinite=(1, 0))
    tree = compare_dumps(replace(ref, segments={**ref.segments, "": [first]}), ref)
    assert [row.state for row in tree.keys] == [KeyState.SAME, KeyState.NOT_COMPARABLE]
    assert tree.verdict is Verdict.NOT_RUN


# --- levels


GREEDY = "0:7,1:9"


def leveled(ref: Dump, dut: Dump) -> tuple[Level, list[ExitStatus]]:
    """The level reached, and the exit status when bit, logits and greedy are asked for."""
    asked = (Level.BIT, Level.LOGITS, Level.GREEDY)
    trees = [compare_dumps(ref, dut, level_asked=level) for level in asked]
    return trees[0].level, [exit_status(tree) for tree in trees]


def test_the_level_reached_decides_the_exit_status() -> None:
    ref = whole(greedy=GREEDY)
    inner, head = altered(ref, "t0_l1_x", digest=99), altered(ref, "t1_logits", digest=99)
    flipped = replace(head, header={"greedy": "0:7,1:8"})
    assert leveled(ref, ref) == (Level.BIT, [0, 0, 0])
    assert leveled(ref, inner) == (Level.LOGITS, [1, 0, 0])
    assert leveled(ref, head) == (Level.GREEDY, [1, 1, 0])
    assert leveled(ref, flipped) == (Level.NONE, [1, 1, 1])


def test_the_verdict_is_same_only_for_equal_bits() -> None:
    tree = compare_dumps(whole(), altered(whole(), "t0_l1_x", digest=99), level_asked=Level.LOGITS)
    assert ended(tree) == (Verdict.DIVERGED, "t0_l1_x", ExitStatus.SAME)


@pytest.mark.parametrize("tag", ["t0_l1_x", "t1_logits"])
def test_no_level_excuses_a_missing_or_an_extra_key(tag: str) -> None:
    ref = whole(greedy=GREEDY)
    assert leveled(ref, without(ref, tag))[1] == [1, 1, 1]
    assert leveled(without(ref, tag), ref)[1] == [1, 1, 1]


def test_no_level_is_reached_by_what_was_not_recorded() -> None:
    ref = without(whole(), "t0_logits", "t1_logits")
    assert leveled(ref, altered(ref, "t0_l1_x", digest=99)) == (Level.NONE, [1, 1, 1])


def test_choices_that_differ_at_equal_logits_are_no_green_run() -> None:
    tree = compare_dumps(whole(greedy=GREEDY), whole(greedy="0:7,1:8"), level_asked=Level.GREEDY)
    assert ended(tree) == (Verdict.DIVERGED, "t1_logits", ExitStatus.DIVERGED)
    assert tree.reason == "greedy choice differs at equal logits: position 1, ref 9, dut 8"
    assert tree.greedy == [(0, 7, 7), (1, 9, 8)]


def test_choices_one_side_lacks_are_noted_and_reach_no_level() -> None:
    ref, dut = whole(greedy=GREEDY), altered(whole(greedy="0:7"), "t1_logits", digest=99)
    tree = compare_dumps(ref, dut, level_asked=Level.GREEDY)
    assert (tree.level, exit_status(tree)) == (Level.NONE, ExitStatus.DIVERGED)
    assert tree.notes == ["greedy choices not recorded: 1 in dut"]
    assert tree.greedy == [(0, 7, 7)]


@pytest.mark.parametrize("text", ["7", "0:7,", "0:7,0:8", "0:x", "0 : 7", "-1:7"])
def test_a_malformed_greedy_header_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"the ref: header greedy: .* is not a new position"):
        compare_dumps(replace(whole(greedy=text), source="the ref"), whole())


def test_unstable_is_one_and_an_empty_green_tree_is_three() -> None:
    tree = compare_dumps(whole(), whole(), level_asked=Level.GREEDY)
    assert exit_status(replace(tree, verdict=Verdict.UNSTABLE)) is ExitStatus.DIVERGED
    empty = Counts(0, 0, 0, 0, 0, 0)
    assert exit_status(replace(tree, counts=empty)) is ExitStatus.NOT_RUN


def test_of_a_large_dump_the_differing_keys_and_the_first_step_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "ROWS_LIMIT", 8)
    dut = altered(altered(whole(), "t0_l1_x", digest=99), "t1_l0_x", digest=99)
    tree = compare_dumps(whole(), dut)
    assert [row.key for row in tree.keys] == [*IN_ORDER[:5], "t1_l0_x"]
    assert tree.counts.total == 10
    assert tree.notes == ["more than 8 keys: those that are the same are counted, not listed"]
    monkeypatch.setattr(comparison, "ROWS_LIMIT", 2)
    assert [row.key for row in compare_dumps(whole(), dut).keys] == IN_ORDER[:5]
