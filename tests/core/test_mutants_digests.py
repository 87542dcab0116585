"""What mutation testing found unseen in chains and digest trees."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from parity.comparison.compare import compare_dumps, exit_status
from parity.comparison.matching import dump_order
from parity.digests.chain import bisect_first, chain_lines, first_by_bisection, in_order, line_texts
from parity.digests.key_layout import Place
from parity.digests.search import First, compare_trees, find_first
from parity.digests.tree import DigestTree, fold, grow
from parity.dump import Dump, Entry, TensorType
from parity.errors import InputError
from parity.keys import Key, KeyOrder
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Counts, KeyState, Search
from tests.core.compare_oracle import expected_first, expected_rows
from tests.core.digest_dumps import F32, F64, dump_of, edited, small

TAGS = ("t0_l0_nrm", "t0_l0_x", "t0_logits", "t1_l0_nrm", "t1_logits")


def entries(*tags: str, kind: TensorType | None = F32) -> list[Entry]:
    """``t0_x`` or, with another digest, ``t0_x=5``."""
    made = (tag.partition("=") for tag in tags)
    return [Entry(Key.parse(tag), int(digest or "1"), kind) for tag, _, digest in made]


def dump(*tags: str, **header: str) -> Dump:
    return Dump(dict(header), {"": entries(*tags)}, "made")


def changed(*lines: str) -> list[str]:
    """TAGS with some lines in another form."""
    other = {line.partition("=")[0]: line for line in lines}
    return [other.get(tag, tag) for tag in TAGS]


# --- chains ---------------------------------------------------------------------------------------


def test_chained_text_of_segments_and_types() -> None:
    made = Dump({}, {"B": entries("t0_x", "t1_x"), "": entries("t9_x"), "A": entries("t5_x")})
    items = in_order(made, ["", "B", "A"], dump_order(made, made))
    assert [(segment, entry.key.tag) for segment, entry in items] == [
        *(("", "t9_x"), ("B", "t0_x"), ("B", "t1_x"), ("A", "t5_x"))
    ]
    one = f"{1:016x}"
    assert list(line_texts(items, {("B", Key(1, None, "x"))})) == [
        *(f"t9_x {one}", f"# segment B\nt0_x {one}", f"t1_x {one} f32[4]"),
        f"# segment A\nt5_x {one}",
    ]
    assert in_order(made, ["other"], KeyOrder()) == []
    assert chain_lines([]) == []


def test_keys_of_a_segment_are_sorted_by_the_order_given() -> None:
    made = Dump({}, {"": entries("t0_l0_x", "t0_l0_nrm", "t0_l10_x", "t0_l2_x")})
    found = [entry.key.tag for _, entry in in_order(made, [""], KeyOrder())]
    assert found == ["t0_l0_nrm", "t0_l0_x", "t0_l2_x", "t0_l10_x"]


def test_second_of_two_repeats_is_not_the_first() -> None:
    made = dump("t0_x", "t1_x", "t2_x", "t1_x", "t2_x")
    with pytest.raises(InputError) as raised:
        in_order(made, [""], KeyOrder())
    assert raised.value.message == "made: key t1_x appears twice in its segment"
    assert raised.value.next_step == "write the dump again, with one line for each key"


@pytest.mark.parametrize("side", [0, 1], ids=["ref", "dut"])
def test_type_that_one_side_recorded_does_not_decide(side: int) -> None:
    typed, bare = dump(*TAGS), Dump({}, {"": entries(*TAGS, kind=None)}, "made")
    sides = (typed, bare) if side == 0 else (bare, typed)
    assert first_by_bisection(*sides) == (None, Search(None, 2, 10, 0))
    other = Dump({}, {"": entries(*changed("t1_l0_nrm=5"), kind=None)}, "made")
    key, search = first_by_bisection(*((typed, other) if side == 0 else (other, typed)))
    assert key == Key(1, 0, "nrm")
    assert (search.layer, search.digests_total, search.runs) == ("t1_l0", 10, 0)


def test_bisection_outside_the_layers_names_the_position() -> None:
    key, search = first_by_bisection(dump(*TAGS), dump(*changed("t0_logits=5")))
    assert (key, search.layer) == (Key(0, None, "logits"), "t0")
    with pytest.raises(TypeError, match=r"^a chain given as a callable needs lengths$"):
        bisect_first(lambda at: at, [1])


@pytest.mark.parametrize("seed", range(30))
def test_bisection_and_digest_trees_find_what_comparing_finds(seed: int) -> None:
    chance = random.Random(seed)
    base = small(chance.randint(1, 3), seed)
    edits = [
        (chance.choice(("change", "type", "delete", "insert")), chance.randrange(90), seed)
        for _ in range(chance.randint(0, 2))
    ]
    sides = [dump_of(base, 1), dump_of(edited(base, edits), 1)]
    if seed % 2:
        sides.reverse()
    wanted = expected_first(expected_rows(*sides))
    found, _ = first_by_bisection(*sides)
    assert (found and found.tag) == wanted
    trees = [grow(side, bits=32 << (seed % 3 == at)) for at, side in enumerate(sides)]
    assert compare_trees(*trees).first == wanted


# --- growing --------------------------------------------------------------------------------------


def test_tree_of_a_dump() -> None:
    made = Dump({"a": "b"}, {"": entries("t0_x"), "B": entries("t1_x")}, "here")
    made.segments["B"][0] = replace(made.segments["B"][0], nonfinite=(1, 0))  # type: ignore[index]
    tree = grow(made)
    lines = [f"t0_x {1:016x} f32[4]", f"# segment B\nt1_x {1:016x} f32[4]"]
    digests = chain_lines(lines)
    assert tree.links == [fold(digest, 32) for digest in digests]
    assert (tree.whole, tree.bits, tree.stop, tree.source) == (digests[-1], 32, 1, "here")
    assert tree.header == {"a": "b"}
    assert tree.header is not made.header
    assert [*tree.layout] == [
        *(Place("", Key(0, None, "x"), "f32[4]"), Place("B", Key(1, None, "x"), "f32[4]"))
    ]
    plain = grow(made, typed=False, bits=64)
    assert plain.links == chain_lines(line.removesuffix(" f32[4]") for line in lines)
    assert [place.type for place in plain.layout] == [None, None]
    assert (plain.bits, len(plain), plain.head) == (64, 2, Dump({"a": "b"}, {}, "here"))


def test_tree_of_no_keys_and_of_finite_values() -> None:
    tree = grow(Dump({}, {}, "empty"))
    assert (tree.links, tree.whole, tree.stop) == ([], 0, None)
    assert grow(dump("t0_x")).stop is None


def test_partial_dump_is_told_with_what_to_do() -> None:
    with pytest.raises(InputError) as raised:
        grow(dump("t0_x", partial="cut"))
    assert raised.value.message == "made: a partial dump: cut"
    assert raised.value.next_step == "write the dump again"


def test_folding() -> None:
    digest = 0x0123456789ABCDEF
    assert fold(digest, 64) == digest
    assert fold(digest, 32) == 0x01234567 ^ 0x89ABCDEF


# --- comparing ------------------------------------------------------------------------------------


def compared(*lines: str, ref: tuple[str, ...] = TAGS) -> tuple[DigestTree, DigestTree]:
    return grow(dump(*ref)), grow(dump(*lines))


def test_rows_and_counts_of_a_key_that_differs() -> None:
    trees = compared(*changed("t0_logits=5"))
    tree = compare_trees(*trees)
    assert (tree.verdict, tree.first, tree.level) == (Verdict.DIVERGED, "t0_logits", Level.NONE)
    assert (tree.counts, tree.reason) == (Counts(5, 5, 2, 1, 0, 0, 2), "")
    states = [*["same"] * 2, "differs", *["not comparable"] * 2]
    assert [(row.key, row.state, row.segment) for row in tree.keys] == [
        (tag, state, "") for tag, state in zip(TAGS, states, strict=True)
    ]
    for at, row in enumerate(tree.keys):
        assert row.ref == f"{trees[0].links[at]:08x} f32[4]"
        assert row.dut == f"{trees[1].links[at]:08x} f32[4]"
    assert tree.notes == [
        "found in 3 exchanges of 5 keys; a digest shown here is of all keys up to that one"
    ]


def test_what_stands_on_one_side_alone_has_no_text() -> None:
    made = Dump({}, {"": entries(*TAGS), "B": entries("t0_x", "t1_x")}, "made")
    less = Dump({}, {"": entries(*TAGS), "B": entries("t1_x")}, "made")
    for sides, counts, lacks in (
        ((made, less), Counts(7, 6, 5, 0, 1, 0, 1), "missing"),
        ((less, made), Counts(6, 7, 5, 0, 0, 1, 1), "extra"),
    ):
        tree = compare_trees(*(grow(side, typed=False, bits=64) for side in sides))
        assert (tree.counts, tree.first) == (counts, "t0_x")
        row = tree.keys[5]
        assert (row.key, row.segment, row.state) == ("t0_x", "B", lacks)
        texts = [row.ref, row.dut] if lacks == "missing" else [row.dut, row.ref]
        assert (len(texts[0] or ""), texts[1]) == (16, None)
        assert [row.segment for row in tree.keys] == [""] * 5 + ["B"] * 2


@pytest.mark.parametrize("greedy", ["", "0:1"])
def test_level_of_a_difference_goes_by_the_choices(greedy: str) -> None:
    header = {"greedy": greedy} if greedy else {}
    ref, dut = grow(dump(*TAGS, **header)), grow(dump(*changed("t1_logits=5"), **header))
    tree = compare_trees(ref, dut)
    assert tree.level is (Level.GREEDY if greedy else Level.NONE)
    assert exit_status(tree) is ExitStatus.DIVERGED


def test_one_exchange_and_many_keys_are_told() -> None:
    tags = [f"t{pos}_x" for pos in range(1200)]
    tree = compare_trees(*compared(*tags, ref=tuple(tags)))
    assert tree.notes[0].startswith("found in 1 exchange of 1,200 keys; a digest")
    assert (tree.verdict, tree.level, tree.reason) == (Verdict.SAME, Level.BIT, "")
    assert {row.state for row in tree.keys} == {KeyState.SAME}
    none = compare_trees(*compared(*(f"t{pos}_y" for pos in range(1300)), ref=tuple(tags)))
    assert none.reason == "nothing compared: no key in common (ref 1,200, dut 1,300)"
    assert (none.counts.not_comparable, none.counts.same) == (2500, 0)
    assert (none.verdict, none.keys) == (Verdict.NOT_RUN, [])


def test_exchanges_are_looks_at_the_other_tree() -> None:
    ref, dut = compared(*changed("t0_l0_nrm=5"))
    first = find_first(ref, dut)
    assert first == First(0, 4, KeyState.DIFFERS, Place("", Key(0, 0, "nrm"), "f32[4]"))
    same = find_first(ref, ref)
    assert (same, type(same.exchanges)) == (First(None, 1), int)


@pytest.mark.parametrize("turned", [False, True])
def test_short_digests_meet_long_ones_that_are_uncut(turned: bool) -> None:
    """64-bit digests whose cut is the same are told apart by two long trees alone."""
    ref, dut = (grow(dump(*TAGS), bits=64) for _ in range(2))
    both = 0x0000000100000001
    other = replace(dut, links=[link ^ both for link in dut.links], whole=dut.whole ^ both)
    assert find_first(ref, other).index == 0
    short = grow(dump(*TAGS))
    sides = (other, short) if turned else (short, other)
    assert find_first(*sides).index == 4


def test_value_that_is_not_finite_ends_what_is_comparable() -> None:
    made = entries(*TAGS)
    made[1] = replace(made[1], nonfinite=(1, 0))
    bad = grow(Dump({}, {"": made}, "made"))
    good = grow(dump(*TAGS))
    for sides in ((bad, bad), (bad, good), (good, bad)):
        tree = compare_trees(*sides)
        assert (tree.verdict, tree.first, tree.level) == (Verdict.NOT_RUN, None, Level.NONE)
        assert tree.reason == "not finite with the same bytes: t0_l0_x"
        assert tree.notes[1:] == ["not finite at t0_l0_x: the keys after it are not comparable"]
        assert tree.counts == Counts(5, 5, 2, 0, 0, 0, 3)
        assert [row.state for row in tree.keys] == ["same"] * 2 + ["not comparable"] * 3


def test_keys_that_differ_behind_what_is_not_finite_are_not_comparable() -> None:
    made, other = entries(*TAGS), entries(*changed("t1_l0_nrm=5"))
    made[1], other[1] = (replace(side[1], nonfinite=(1, 0)) for side in (made, other))
    tree = compare_trees(*(grow(Dump({}, {"": side}, "made")) for side in (made, other)))
    assert (tree.verdict, tree.first) == (Verdict.NOT_RUN, None)
    assert tree.counts == Counts(5, 5, 2, 0, 0, 0, 3)
    assert [row.state for row in tree.keys] == ["same"] * 2 + ["not comparable"] * 3


@pytest.mark.parametrize("bits", [32, 64])
def test_digests_are_written_with_all_their_digits(bits: int) -> None:
    made = grow(dump(*TAGS), bits=bits)
    small = replace(made, links=[1, *made.links[1:]])
    (row, *_) = compare_trees(small, made).keys
    assert row.ref == "1".rjust(bits // 4, "0") + " f32[4]"


def test_another_line_order_is_told_with_what_to_do() -> None:
    """Where each side has the other's key further on, whichever is asked first."""
    names = ("a", "p", "q", "z")
    ref = grow(dump(*(f"t0_l0_{name}" for name in names)))
    dut = grow(dump(*(f"t0_l0_{name}" for name in ("a", "q", "p", "z"))))
    for sides, tag in (((ref, dut), "t0_l0_p"), ((dut, ref), "t0_l0_q")):
        tree = compare_trees(*sides)
        assert (tree.verdict, tree.first, tree.level) == (Verdict.NOT_RUN, None, Level.NONE)
        assert tree.reason == (
            f"1 keys are the same; from {tag} on the line order differs\n"
            "parity compare on the dumps, which needs no line order"
        )
        assert tree.counts == Counts(4, 4, 1, 0, 0, 0, 3)
        assert [row.state for row in tree.keys] == ["same"] + ["not comparable"] * 3


@pytest.mark.parametrize(
    ("ref", "dut", "first", "state"),
    [
        (("t0_x", "t2_x"), ("t0_x", "t1_x", "t2_x"), "t1_x", "extra"),
        (("t0_x", "t1_x", "t9_x"), ("t0_x", "t2_x", "t9_x"), "t1_x", "missing"),
        (("t0_x", "t10_x"), ("t0_x", "t9_x"), "t9_x", "extra"),
        (("t0_x",), ("t0_x", "t1_x"), "t1_x", "extra"),
        (("t0_x", "t1_x"), ("t0_x",), "t1_x", "missing"),
    ],
)
def test_first_key_of_one_side_alone(
    ref: tuple[str, ...], dut: tuple[str, ...], first: str, state: str
) -> None:
    trees = compared(*dut, ref=ref)
    tree = compare_trees(*trees)
    assert (tree.first, find_first(*trees).state) == (first, state)
    assert compare_dumps(dump(*ref), dump(*dut)).first == first


def test_segments_of_both_sides_in_their_order() -> None:
    """The unnamed one first, then the ref's, then the dut's own."""
    ref = Dump({}, {"B": entries("t0_x"), "A": entries("t0_x", "t1_x"), "": entries("t5_x")})
    dut = Dump({}, {"": entries("t5_x"), "B": entries("t0_x"), "A": entries("t1_x")})
    more = Dump({}, {**dut.segments, "0": entries("t0_y")})
    for other, rows in (
        (dut, [("", "t5_x"), ("B", "t0_x"), ("A", "t0_x"), ("A", "t1_x")]),
        (more, [("", "t5_x"), ("B", "t0_x"), ("A", "t0_x"), ("A", "t1_x"), ("0", "t0_y")]),
    ):
        tree = compare_trees(grow(ref), grow(other))
        assert [(row.segment, row.key) for row in tree.keys] == rows
        assert (tree.first, tree.keys[2].state) == ("t0_x", KeyState.MISSING)


@pytest.mark.parametrize("side", [0, 1], ids=["ref", "dut"])
def test_field_that_the_schema_does_not_know_keeps_its_place(side: int) -> None:
    strange, known = ("t0_l0_nrm", "t0_l0_mine", "t0_l0_x"), ("t0_l0_nrm", "t0_l0_x")
    trees = [grow(dump(*tags)) for tags in (strange, known)]
    tree = compare_trees(*(trees if side == 0 else trees[::-1]))
    assert [row.key for row in tree.keys] == list(strange)
    assert tree.first == "t0_l0_mine"


def test_same_keys_with_other_types_are_one_row_each() -> None:
    retyped = Dump({}, {"": [replace(e, type=F64) for e in entries(*TAGS)]}, "made")
    tree = compare_trees(grow(dump(*TAGS)), grow(retyped))
    assert (len(tree.keys), tree.counts.total, tree.first) == (5, 5, TAGS[0])
    assert tree.keys[0].ref is not None
    assert tree.keys[0].ref.endswith(" f32[4]")
    assert (tree.keys[0].dut or "").endswith(" f64[4]")


@pytest.mark.parametrize("side", [0, 1], ids=["ref", "dut"])
def test_types_that_one_side_lacks_are_told_with_what_to_do(side: int) -> None:
    mixed = entries(*TAGS)
    mixed[3] = replace(mixed[3], type=None)
    bare = grow(Dump({}, {"": mixed[1:]}, "bare"))
    whole = grow(replace(dump(*TAGS), source="whole"))
    sides = (bare, whole) if side == 0 else (whole, bare)
    with pytest.raises(InputError) as raised:
        compare_trees(*sides)
    assert raised.value.message == "bare: no dtype and shape of t1_l0_nrm, which whole has"
    assert raised.value.next_step == "write both again with parity digest --plain"
    assert compare_trees(bare, bare).verdict is Verdict.SAME
    # A key without a type that the other side does not have is a missing or an extra one.
    alone = grow(Dump({}, {"": [*entries(*TAGS), Entry(Key(9, None, "x"), 1)]}, "alone"))
    pair = (alone, whole) if side == 0 else (whole, alone)
    tree = compare_trees(*pair)
    assert tree.first == "t9_x"
    role = "ref" if side == 0 else "dut"
    assert tree.notes[-1] == f"dtype and shape not recorded in {role} (1 keys)"


def test_limit_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.digests.search.ROWS_LIMIT", 5)
    assert len(compare_trees(*compared(*TAGS)).keys) == 5
    more = (*TAGS, "t2_x")
    tree = compare_trees(*compared(*more, ref=more))
    assert (tree.keys, tree.verdict) == ([], Verdict.SAME)
