"""Digest trees: small, whole or refused, and the same first key as the linear scan in few looks."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparison.compare import ROWS_LIMIT, compare_dumps, exit_status
from parity.digests import tree as digest_tree
from parity.digests.chain import chain
from parity.digests.control import check_control, plant_in_dump, plant_in_tree
from parity.digests.key_layout import Block, Layout, Place, Span
from parity.digests.search import compare_trees, find_first
from parity.digests.tree import DigestTree, fold, grow
from parity.dump import Dump, Entry
from parity.errors import InputError
from parity.keys import FREE, Key
from parity.status import ExitStatus, Level, Verdict
from tests.core.compare_oracle import expected_first, expected_rows
from tests.core.digest_dumps import (
    EDITS,
    F32,
    FIELDS,
    Edit,
    bound,
    dump_of,
    edited,
    keys_of,
    small,
    through_file,
)

# --- the same first key as the linear scan --------------------------------------------------------


@given(st.integers(1, 5), EDITS, EDITS, st.integers(0, 6), st.sampled_from([32, 64]))
@settings(derandomize=True, max_examples=250, deadline=None)
def test_first_key_is_that_of_the_linear_scan(
    positions: int, ref_edits: list[Edit], dut_edits: list[Edit], cut: int, bits: int
) -> None:
    """Two files alone; both sides changed, cut into segments."""
    entries = small(positions)
    ref = dump_of(edited(entries, ref_edits), cut)
    dut = dump_of(edited(entries, dut_edits), cut)
    rows = expected_rows(ref, dut)
    wanted = expected_first(rows) if any(row[3] and row[4] for row in rows) else None
    trees = [through_file(grow(side, bits=bits)) for side in (ref, dut)]
    tree = compare_trees(*trees)
    assert tree.counts.total == len(rows)
    shorter = min(map(len, trees))
    assert find_first(*trees).exchanges <= bound(shorter)
    if not in_one_order(*trees):
        faults = {row[1] for row in rows if row[2] != "same"}
        assert tree.first in faults or (tree.verdict, tree.first) == (Verdict.NOT_RUN, None)
        return
    assert tree.first == wanted
    if wanted is not None:
        at = next(at for at, row in enumerate(rows) if row[1] == wanted and row[2] != "same")
        states = [row[2] for row in rows[: at + 1]] + ["not comparable"] * (len(rows) - at - 1)
        assert [row.key for row in tree.keys] == [row[1] for row in rows]
        assert [row.state for row in tree.keys] == states
        assert exit_status(tree) is ExitStatus.DIVERGED


def in_one_order(ref: DigestTree, dut: DigestTree) -> bool:
    """Whether both have the keys that they share in one order: without ``k`` in its first layer,
    a side may order the field that no schema knows otherwise."""
    sides = [[place[:2] for place in tree.layout] for tree in (ref, dut)]
    both = set(sides[0]) & set(sides[1])
    one, other = ([place for place in side if place in both] for side in sides)
    return one == other


@given(st.integers(1, 4), st.randoms(use_true_random=False), st.integers(0, 70))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_line_order_of_known_fields_does_not_matter(
    positions: int, rng: random.Random, fault: int
) -> None:
    entries = [entry for entry in small(positions) if entry.key.field not in ("mine", "embed")]
    changed = edited(entries, [("change", fault, 3)])
    ref, dut = (grow(dump_of(rng.sample(side, len(side)))) for side in (entries, changed))
    assert compare_trees(ref, dut).first == entries[fault % len(entries)].key.tag


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100, 2120])
def test_every_place_is_found_within_the_bound(count: int) -> None:
    entries = [Entry(Key(0, at, "x"), at, F32) for at in range(count)]
    ref = grow(dump_of(entries))
    for place in {0, count - 1, *random.Random(count).sample(range(count), min(count, 6))}:
        dut = grow(dump_of(edited(entries, [("change", place, 9)])))
        first = find_first(ref, dut)
        assert (first.index, first.place and first.place.key) == (place, Key(0, place, "x"))
        assert first.exchanges <= bound(count)
    assert find_first(ref, ref).exchanges == 1


@pytest.mark.parametrize("kind", ["change", "type", "delete"])
def test_fault_at_any_key_is_found_there(kind: str) -> None:
    entries = small(2)
    ref = grow(dump_of(entries))
    for at, entry in enumerate(entries):
        other = grow(dump_of(edited(entries, [(kind, at, 0)])))
        assert compare_trees(ref, other).first == entry.key.tag
        assert compare_trees(other, ref).first == entry.key.tag
    state = {"change": "differs", "type": "differs", "delete": "missing"}[kind]
    assert compare_trees(ref, other).keys[-1].state == state
    back = compare_trees(other, ref).keys[-1].state
    assert back == ("extra" if kind == "delete" else state)


def test_equal_dumps_are_same_and_rest_on_64_bits() -> None:
    ref = grow(dump_of(small()))
    tree = compare_trees(ref, through_file(ref))
    assert (tree.verdict, tree.level, tree.first) == (Verdict.SAME, Level.BIT, None)
    assert (tree.counts.same, tree.counts.total) == (len(ref), len(ref))
    assert exit_status(tree) is ExitStatus.SAME
    # Another root whose 32 bits are the same: both halves changed alike.
    other = replace(ref, whole=ref.whole ^ 0x0000000100000001)
    assert fold(other.whole, 32) == ref.links[-1]
    assert compare_trees(ref, other).first == "t3_logits"


def test_a_digest_is_the_chained_one_of_the_dump_format_page() -> None:
    entries = [entry for entry in small(2) if entry.key.field != "embed"]
    tree, wanted = grow(dump_of(entries), bits=64), chain(entries)
    assert [*tree.links] == wanted
    assert tree.whole == wanted[-1]
    assert [*grow(dump_of(entries)).links] == [(d >> 32) ^ (d & 0xFFFFFFFF) for d in wanted]


def test_short_and_long_digests_meet() -> None:
    short = grow(dump_of(small()))
    long = grow(dump_of(edited(small(), [("change", 17, 0)])), bits=64)
    assert compare_trees(short, long).first == compare_trees(long, short).first
    assert compare_trees(short, long).first == small()[17].key.tag


# --- what is not a first differing key ------------------------------------------------------------


def test_other_line_order_of_unknown_fields_is_no_verdict() -> None:
    entries = [*small(1), Entry(Key(1, 0, "p"), 1, F32), Entry(Key(1, 0, "q"), 2, F32)]
    turned = [*entries[:-2], entries[-1], entries[-2]]
    tree = compare_trees(grow(dump_of(entries)), grow(dump_of(turned)))
    assert (tree.verdict, tree.first, exit_status(tree)) == (Verdict.NOT_RUN, None, 3)
    assert tree.reason.startswith("15 keys are the same; from t1_l0_p on the line order differs\n")
    assert compare_dumps(dump_of(entries), dump_of(turned)).verdict is Verdict.SAME
    # A difference before that place is found all the same.
    before = grow(dump_of(edited(turned, [("change", 3, 0)])))
    assert compare_trees(grow(dump_of(entries)), before).first == entries[3].key.tag


def test_nothing_in_common_and_nothing_at_all_are_not_run() -> None:
    ref, none = grow(dump_of(small(1))), grow(Dump({}, {}, "empty"))
    other = grow(dump_of([Entry(Key(9, 9, "z"), 1, F32)]))
    for sides, text in (
        ((ref, none), "nothing compared: no keys in dut"),
        ((none, ref), "nothing compared: no keys in ref"),
        ((none, none), "nothing compared: no keys in ref and dut"),
        ((ref, other), "nothing compared: no key in common (ref 15, dut 1)"),
    ):
        tree = compare_trees(*sides)
        assert (tree.verdict, tree.first, tree.reason) == (Verdict.NOT_RUN, None, text)
        assert tree.reason == compare_dumps(*map(_dump_of_tree, sides)).reason
        assert exit_status(tree) is ExitStatus.NOT_RUN


def _dump_of_tree(tree: DigestTree) -> Dump:
    return dump_of([Entry(place.key, 1) for place in tree.layout])


def test_other_hash_is_refused() -> None:
    ref, dut = (grow(dump_of(small(1), hash=name)) for name in ("fnv1a64", "kestrel-fnv"))
    with pytest.raises(InputError, match="hashes differ: made has fnv1a64, made has kestrel-fnv"):
        compare_trees(ref, dut)


def test_other_model_and_tokens_are_said() -> None:
    headers = [{"model": "a", "tokens": "1,2,3"}, {"model": "b", "tokens": "1,9,3"}]
    ref, dut = (grow(dump_of(small(1), **header)) for header in headers)
    tree = compare_trees(ref, dut)
    assert "model differ: ref a dut b" in tree.notes
    assert tree.notes[1].startswith("tokens part at t1 (ref 2, dut 9): ")


def test_other_greedy_choice_at_equal_keys_is_a_difference() -> None:
    ref, dut = (grow(dump_of(small(1), greedy=f"0:{token}")) for token in (5, 6))
    tree = compare_trees(ref, dut)
    dumps = [dump_of(small(1), greedy=f"0:{token}") for token in (5, 6)]
    linear = compare_dumps(*dumps)
    assert (tree.verdict, tree.first, tree.reason) == (
        *(Verdict.DIVERGED, "t0_logits"),
        linear.reason,
    )
    assert exit_status(tree) is ExitStatus.DIVERGED


@pytest.mark.parametrize("fault", [5, 20, 21, 40])
def test_nothing_after_a_value_that_is_not_finite_is_comparable(fault: int) -> None:
    entries = small(3)
    entries[20] = replace(entries[20], nonfinite=(1, 0))
    pair = [dump_of(entries), dump_of(edited(entries, [("change", fault, 0)]))]
    tree, linear = compare_trees(*(through_file(grow(side)) for side in pair)), compare_dumps(*pair)
    assert (tree.verdict, tree.first, tree.counts.same) == (
        *(linear.verdict, linear.first),
        min(fault, 21),
    )
    assert (tree.verdict is Verdict.NOT_RUN) == (fault > 20)


def test_types_on_one_side_alone_are_refused_and_plain_trees_meet() -> None:
    typed, bare = dump_of(small(1)), dump_of([replace(entry, type=None) for entry in small(1)])
    with pytest.raises(InputError, match="no dtype and shape of t0_embed, which made has"):
        compare_trees(grow(typed), grow(bare))
    tree = compare_trees(grow(typed, typed=False), grow(bare))
    assert tree.verdict is Verdict.SAME
    assert "dtype and shape not recorded in dut (15 keys)" in tree.notes


def test_partial_dump_and_key_given_twice_are_refused() -> None:
    with pytest.raises(InputError, match="a partial dump: cut inside line 3"):
        grow(dump_of(small(1), partial="cut inside line 3"))
    with pytest.raises(InputError, match="key t0_l0_x appears twice"):
        grow(dump_of([*small(1), small(1)[4]]))


def test_of_very_many_keys_only_the_first_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.digests.search.ROWS_LIMIT", 50)
    ref, dut = grow(dump_of(small())), grow(dump_of(edited(small(), [("change", 33, 0)])))
    tree = compare_trees(ref, dut)
    assert [row.key for row in tree.keys] == [tree.first] == [small()[33].key.tag]
    assert compare_trees(ref, ref).keys == []
    assert ROWS_LIMIT > 50


# --- the control ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_control_is_found_at_a_random_key(seed: int) -> None:
    dump = dump_of(small(), 2)
    ref = grow(dump)
    keys = set()
    for planted in (plant_in_tree(ref, seed), plant_in_dump(ref, dump, seed)):
        tree = compare_trees(ref, ref)
        check_control(tree, ref, planted)
        assert tree.control is not None
        assert (tree.control.kind, tree.control.fired) == ("dump level", True)
        assert tree.control.found == tree.control.key == planted.place.key.tag
        keys.add(tree.control.key)
    assert len(keys) == 1


def test_control_that_is_not_found_proves_nothing() -> None:
    ref = grow(dump_of(small()))
    hidden = replace(plant_in_tree(ref, 3), tree=ref)
    tree = compare_trees(ref, ref)
    check_control(tree, ref, hidden)
    assert (tree.verdict, exit_status(tree)) == (Verdict.NOT_RUN, ExitStatus.NOT_RUN)
    assert tree.reason.startswith(
        f"the control did not fire: a fault planted at {hidden.place.key}"
    )


def test_search_that_looks_at_the_wrong_half_turns_the_control_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from parity.digests import search as digest_search

    honest = digest_search.bisect_first

    def late(*sides: Any, lengths: tuple[int, int]) -> tuple[int | None, int]:
        index, looks = honest(*sides, lengths=lengths)
        return None if index is None else min(index + 1, lengths[0] - 1), looks

    monkeypatch.setattr(digest_search, "bisect_first", late)
    ref = grow(dump_of(small()))
    tree = compare_trees(ref, ref)
    check_control(tree, ref, plant_in_tree(ref, 3))
    assert tree.verdict is Verdict.NOT_RUN


# --- the layout -----------------------------------------------------------------------------------


def test_layers_and_positions_alike_are_written_once() -> None:
    layout = grow(dump_of(small(4))).layout
    inner = tuple((name, "f32[4]") for name in FIELDS)
    before, after = (("embed", "f32[4]"),), (("final_normed", "f32[4]"), ("logits", "f32[4]"))
    step = (Block(-1, -1, before), Block(0, 2, inner), Block(-1, -1, after))
    assert layout.spans == (Span("", 0, 3, step),)
    assert layout.samples == keys_of(1)


@given(EDITS, st.integers(0, 5))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_layout_finds_every_key_and_no_other(edits: list[Edit], cut: int) -> None:
    dump = dump_of(edited(small(3), edits), cut)
    layout = grow(dump).layout
    places = [*layout]
    assert len(layout) == len(places) == dump.size
    assert Layout.of(places) == layout
    for at, place in enumerate(places):
        assert layout[at] == place
        assert layout.index(place.segment, place.key) == at
    known = {place[:2] for place in places}
    for key in (*keys_of(4), Key(1, 9, "x"), Key(7, None, "x"), Key(FREE, None, "x")):
        for segment in ("", "B", "C"):
            if (segment, key) not in known:
                assert layout.index(segment, key) is None
    assert Place("", Key(0, 0, "x"), None)[:2] == ("", Key(0, 0, "x"))


def test_red_a_tree_that_forgets_the_type_is_not_the_linear_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The property test notices a tree whose lines lack a part."""
    honest = digest_tree.line_texts
    monkeypatch.setattr(digest_tree, "line_texts", lambda items, held: honest(items, set()))
    ref, dut = (grow(dump_of(side)) for side in (small(1), edited(small(1), [("type", 4, 0)])))
    assert compare_trees(ref, dut).first is None
    with pytest.raises(AssertionError):
        test_first_key_is_that_of_the_linear_scan.hypothesis.inner_test(  # type: ignore[attr-defined]
            1, [], [("type", 4, 0)], 0, 32
        )
