"""What mutation testing found unseen in matching and judging keys."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from parity.comparison import compare as comparison
from parity.comparison import matching
from parity.comparison.compare import compare_dumps, exit_status
from parity.comparison.matching import (
    NOT_COMPARABLE,
    SAME,
    STATES,
    dump_order,
    match_keys,
    segment_names,
)
from parity.dump import Dump, Entry, TensorType
from parity.dumps.table import Table
from parity.errors import InputError
from parity.keys import Key
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Counts, KeyState
from tests.core.compare_oracle import check

F32, I8 = TensorType("f32", (4,)), TensorType("int8", (2, 2))
FIELDS = ("nrm", "x", "mine", "logits", "embed")
IN_ORDER = ("t0_l0_nrm", "t0_l0_x", "t0_l1_x", "t0_logits", "t1_l0_nrm", "t1_l0_x", "t1_logits")


def entries(*lines: str, digest: int = 1) -> list[Entry]:
    """``t0_l0_x``, with ``=5`` another digest, with ``!`` not finite, with ``~`` no type."""
    made = []
    for line in lines:
        tag, _, other = line.rstrip("!~").partition("=")
        kind = None if "~" in line else F32
        nonfinite = (2, 1) if "!" in line else None
        made.append(Entry(Key.parse(tag), int(other or digest), kind, nonfinite))
    return made


def dump(*lines: str, source: str = "a dump", **header: str) -> Dump:
    return Dump(dict(header), {"": entries(*lines)}, source)


def random_dump(chance: random.Random, like: Dump | None = None) -> Dump:
    """A few segments of a few keys; ``like``: most of them those of another dump."""
    segments: dict[str, list[Entry]] = {}
    for name in chance.sample(("A", "", "B"), chance.randint(1, 3)):
        made = (
            []
            if like is None
            else [e for e in like.segments.get(name, []) if chance.random() < 0.9]
        )
        for _ in range(chance.randint(0, 4)):
            layer = chance.choice((None, 0, 1, 2))
            made.append(
                Entry(
                    Key(chance.randint(0, 3), layer, chance.choice(FIELDS)),
                    chance.choice((0, 1, 1 << 63)),
                    chance.choice((None, F32, I8)),
                    (1, 0) if chance.random() < 0.05 else None,
                )
            )
        unique = list({entry.key: entry for entry in made}.values())
        if chance.random() < 0.5:
            chance.shuffle(unique)
        segments[name] = unique
    return Dump({}, segments, "made")


@pytest.mark.parametrize("seed", range(60))
def test_random_dumps_are_judged_as_plain_entries_are(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the columns of a segment are judged in several pieces."""
    monkeypatch.setattr(matching, "_CHUNK", seed % 3 + 1)
    chance = random.Random(seed)
    ref = random_dump(chance)
    dut = random_dump(chance, ref if seed % 4 else None)
    for sides in ((ref, dut), (dut, ref), (ref, ref)):
        check(compare_dumps(*sides), *sides)


# --- the keys of one segment ----------------------------------------------------------------------


def test_keys_of_a_part_and_their_entries() -> None:
    ref = dump(*IN_ORDER[1:], source="ref")
    match = match_keys(ref, dump(*IN_ORDER[:-1]))
    (part,) = match.parts
    assert len(match) == len(part) == len(IN_ORDER)
    assert [part.key(at).tag for at in range(len(part))] == list(IN_ORDER)
    assert [STATES[state] for state in part.states] == ["extra", *["same"] * 5, "missing"]
    assert [part.step_of(at) for at in (0, 3, 4, 6)] == [(0, 4), (0, 4), (4, 7), (4, 7)]
    logits = part.ranks.having(lambda place: place.field == "logits")
    assert part.states_of(logits).tolist() == [SAME, matching.MISSING]
    assert match.first is not None
    assert (match.first[0] is part, match.first[1]) == (True, 0)
    assert match.stop is None
    assert [match.count(state) for state in range(5)] == [5, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("ref", "dut", "untyped"),
    [
        (("t0_x", "t1_x", "t2_x"), ("t0_x", "t1_x", "t2_x"), (0, 0)),
        (("t0_x~", "t1_x~", "t2_x"), ("t0_x", "t1_x", "t2_x"), (2, 0)),
        (("t0_x", "t1_x", "t2_x"), ("t2_x~", "t1_x", "t0_x"), (0, 1)),
        (("t0_x~", "t1_x"), ("t1_x~", "t2_x~", "t3_x~"), (0, 1)),
    ],
)
def test_keys_without_a_type_are_counted_where_both_have_them(
    ref: tuple[str, ...], dut: tuple[str, ...], untyped: tuple[int, int]
) -> None:
    (part,) = match_keys(dump(*ref), dump(*dut)).parts
    assert part.untyped() == untyped
    notes = compare_dumps(dump(*ref), dump(*dut)).notes
    assert [note for note in notes if "not recorded" in note] == [
        f"dtype and shape not recorded in {side} ({bare} keys): digest alone compared"
        for side, bare in zip(("ref", "dut"), untyped, strict=True)
        if bare
    ]


def test_untyped_keys_of_all_segments_are_counted() -> None:
    made = {name: entries(*(f"t{at}_x~" for at in range(600))) for name in ("", "A")}
    bare, typed = (
        Dump({}, made),
        Dump({}, {n: [replace(e, type=F32) for e in es] for n, es in made.items()}),
    )
    text = "(1,200 keys): digest alone compared"
    assert compare_dumps(bare, typed).notes == [f"dtype and shape not recorded in ref {text}"]
    assert compare_dumps(typed, bare).notes == [f"dtype and shape not recorded in dut {text}"]


def test_rows_set_apart_are_not_comparable_where_one_side_has_the_key() -> None:
    ref, dut = dump("t0_x", "t1_x", "t3_x"), dump("t0_x", "t2_x", "t4_x")

    def apart(refs: Table, duts: Table) -> tuple[np.ndarray, np.ndarray]:
        return refs.pos <= 1, duts.pos <= 2

    tree = compare_dumps(ref, dut, apart=apart)
    assert [row.state for row in tree.keys] == [
        *("same", "not comparable", "not comparable", "missing", "extra")
    ]
    assert (tree.first, tree.counts) == ("t3_x", Counts(3, 3, 1, 0, 1, 1, 2))


# --- what is not finite ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "dut", "stop"),
    [
        (("t0_x", "t1_x!", "t2_x!"), ("t0_x", "t1_x", "t2_x"), 1),
        (("t0_x", "t1_x", "t2_x!"), ("t0_x", "t1_x!", "t2_x"), 1),
        (("t0_x!", "t1_x", "t2_x"), ("t0_x", "t1_x!", "t2_x"), 0),
        (("t0_x", "t1_x", "t2_x"), ("t2_x!", "t0_x", "t1_x"), 2),
    ],
)
def test_nothing_behind_the_first_value_that_is_not_finite(
    ref: tuple[str, ...], dut: tuple[str, ...], stop: int
) -> None:
    sides = [Dump({}, {"": entries(*side), "B": entries("t0_x")}) for side in (ref, dut)]
    match = match_keys(*sides)
    assert match.stop is not None
    assert (match.stop[0] is match.parts[0], match.stop[1]) == (True, stop)
    behind = [NOT_COMPARABLE] * (2 - stop)
    assert match.parts[0].states.tolist() == [SAME] * (stop + 1) + behind
    assert match.parts[1].states.tolist() == [NOT_COMPARABLE]
    tree = compare_dumps(*sides)
    assert (tree.verdict, tree.first, tree.level) == (Verdict.NOT_RUN, None, Level.NONE)
    told = [
        f"{role} 2 from index 1"
        for role, side in (("ref", ref), ("dut", dut))
        if f"t{stop}_x!" in side
    ]
    place = f"t{stop}_x ({', '.join(told)})"
    assert tree.reason == f"not finite with the same bytes: {place}"
    assert f"not finite at {place}: the keys after it are not comparable" in tree.notes


def test_first_fault_before_and_at_the_stop() -> None:
    whole = dump("t0_x", "t1_x!", "t2_x")
    for changed, first in (("t0_x=5", "t0_x"), ("t1_x=5!", "t1_x"), ("t2_x=5", None)):
        tags = {"t0_x": "t0_x", "t1_x": "t1_x!", "t2_x": "t2_x"} | {changed[:4]: changed}
        tree = compare_dumps(whole, dump(*tags.values()))
        assert tree.first == first
        assert tree.keys[2].state == KeyState.NOT_COMPARABLE


# --- segments, order, repeats ---------------------------------------------------------------------


def test_segments_in_the_order_they_are_compared() -> None:
    ref = Dump({}, {"B": [], "": [], "A": []})
    dut = Dump({}, {"C": [], "A": [], "": []})
    assert segment_names(ref, dut) == ["", "B", "A", "C"]


def test_notes_name_the_segment() -> None:
    ref = Dump({}, {"": entries("t0_x"), "A": entries("t0_x", "t1_x")})
    dut = Dump({}, {"": entries("t0_x"), "A": entries("t1_x=5", "t0_x")})
    tree = compare_dumps(ref, dut)
    assert tree.notes == [
        "the first divergence is in segment A",
        "line order differs in segment A: compared by key, in dataflow order",
    ]
    assert (tree.first, tree.keys[-1].segment) == ("t1_x", "A")


@pytest.mark.parametrize("side", [0, 1], ids=["ref", "dut"])
def test_first_key_that_comes_again_is_named(side: int) -> None:
    """The first in the order of lines, whatever its place in dataflow order."""
    again = dump("t9_x", "t5_x", "t1_x", "t5_x", "t9_x", "t1_x", source="other")
    sides = (again, dump("t0_x")) if side == 0 else (dump("t0_x"), again)
    with pytest.raises(InputError) as raised:
        compare_dumps(*sides)
    assert raised.value.message == "other: key t9_x appears twice in its segment"
    assert raised.value.next_step == "write the dump again, with one line for each key"


def test_a_key_that_comes_again_at_once_is_refused() -> None:
    with pytest.raises(InputError, match="key t1_x appears twice"):
        compare_dumps(dump("t0_x", "t1_x", "t1_x"), dump("t0_x"))


def test_other_hashes_are_told_with_what_to_do() -> None:
    one, other = dump("t0_x", hash="xxh64", source="one"), dump("t0_x", source="two")
    with pytest.raises(InputError) as raised:
        compare_dumps(one, other)
    assert raised.value.message == "hashes differ: one has xxh64, two has fnv1a64"
    assert raised.value.next_step == "write one of the two again, with the same --hash"


@pytest.mark.parametrize("side", ["ref", "dut"])
def test_unknown_fields_stand_where_either_dump_has_them(side: str) -> None:
    """Also where the position that places one is not the first, and where layers come late."""
    known = ("t0_l0_nrm", "t0_l0_x", "t1_l0_nrm", "t1_l0_x", "t1_logits")
    strange = (
        *("t0_embed", "t0_l0_nrm", "t0_l0_mine", "t0_l0_x", "t1_embed", "t1_l0_nrm"),
        *("t1_l0_late", "t1_l0_mine", "t1_l0_x", "t1_last", "t1_logits"),
    )
    sides = (strange, known) if side == "ref" else (known, strange)
    tree = compare_dumps(*(dump(*tags) for tags in sides))
    assert [row.key for row in tree.keys] == list(strange)
    state = KeyState.MISSING if side == "ref" else KeyState.EXTRA
    assert tree.first == "t0_embed"
    assert {row.key for row in tree.keys if row.state == state} == set(strange) - set(known)


@pytest.mark.parametrize("side", [0, 1], ids=["ref", "dut"])
def test_order_of_the_keys_of_both_dumps(side: int) -> None:
    strange, known = dump("t0_l0_nrm", "t0_l0_mine", "t0_l0_x"), dump("t0_l0_nrm", "t0_l0_x")
    order = dump_order(*((strange, known) if side == 0 else (known, strange)))
    keys = [Key.parse(tag) for tag in ("t0_l0_x", "t0_l0_mine", "t0_l0_nrm")]
    assert sorted(keys, key=order) == keys[::-1]


def test_a_field_of_another_name_at_the_same_place_is_another_key() -> None:
    tree = compare_dumps(dump("t0_l0_nrm", "t0_l0_x"), dump("t0_l0_nrm", "t0_l0_mine"))
    states = {row.key: row.state for row in tree.keys}
    assert states == {
        "t0_l0_nrm": KeyState.SAME,
        "t0_l0_x": KeyState.MISSING,
        "t0_l0_mine": KeyState.EXTRA,
    }
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, "t0_l0_mine")


def kept(*lines: str) -> Dump:
    """A dump whose columns still tell of a first line that was dropped from them."""
    table = Table.of(entries("t0_l0_mine", *lines))
    return Dump({}, {"": table.select(np.arange(len(table)) > 0)}, "a dump")


@pytest.mark.parametrize(
    "lines",
    [
        ("t0_l0_nrm", "t0_l1_nrm", "t0_l1_mine", "t5_l0_mine", "t5_l0_nrm"),
        ("t1_l0_nrm", "t1_l0_x", "t2_l1_nrm", "t2_l1_mine", "t2_l1_x"),
    ],
    ids=["the first position decides", "a place without a row decides nothing"],
)
def test_a_strange_field_stands_where_it_is_seen_first(lines: tuple[str, ...]) -> None:
    order = dump_order(kept(*lines), dump("t0_l0_nrm"))
    keys = [Key.parse(tag) for tag in ("t0_l0_x", "t0_l0_mine", "t0_l0_nrm")]
    assert sorted(keys, key=order) == keys[::-1]


def test_first_of_very_many_repeats_is_named() -> None:
    tags = [f"t{pos}_l{layer}_x" for pos in range(300) for layer in range(4)]
    twice = [*tags, *tags]
    random.Random(3).shuffle(twice)
    with pytest.raises(InputError) as raised:
        compare_dumps(dump(*twice), dump("t0_x"))
    first = next(tag for tag in twice if twice.count(tag) > 1)
    assert raised.value.message == f"a dump: key {first} appears twice in its segment"


@pytest.mark.parametrize(
    ("tags", "states"),
    [
        (("t2_x", "t0_x"), ("same", "missing", "same", "not comparable")),
        (("t1_x",), ("missing", "same", "not comparable", "not comparable")),
        ((), ("not comparable",) * 4),
    ],
)
def test_end_of_a_partial_dump_is_its_last_key(
    tags: tuple[str, ...], states: tuple[str, ...]
) -> None:
    whole, part = dump("t0_x", "t1_x", "t2_x", "t3_x"), dump(*tags, partial="cut")
    tree = compare_dumps(whole, part, partial=True)
    assert tuple(row.state for row in tree.keys) == states


# --- verdict, level, status -----------------------------------------------------------------------


def test_large_match_says_what_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "ROWS_LIMIT", 7)
    text = "more than 7 keys: those that are the same are counted, not listed"
    tree = compare_dumps(dump(*IN_ORDER), dump(*IN_ORDER))
    assert (tree.notes, len(tree.keys), tree.reason) == ([], 7, "")
    more = (*IN_ORDER, "t2_logits")
    tree = compare_dumps(dump(*more), dump(*more))
    assert (tree.notes, tree.keys) == ([text], [])
    assert compare_dumps(dump("t0_x"), dump("t0_x=5")).reason == ""


def test_step_of_the_first_key_is_listed_past_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where keys that are not comparable, in an earlier segment, have used it up."""
    ref = Dump({}, {"": entries("t0_x", "t1_x", "t2_x"), "A": entries("t0_nrm", "t0_x", "t1_x")})
    dut = Dump({}, {"": entries("t2_x"), "A": entries("t0_nrm=5", "t0_x", "t1_x=5")})

    def apart(refs: Table, duts: Table) -> tuple[np.ndarray, np.ndarray]:
        return refs.pos < 2, duts.pos < 0

    monkeypatch.setattr(comparison, "ROWS_LIMIT", 1)
    tree = compare_dumps(ref, dut, apart=apart)
    assert [(row.segment, row.key) for row in tree.keys] == [
        *(("", "t0_x"), ("A", "t0_x"), ("A", "t0_nrm"))
    ]


def test_keys_set_apart_are_counted_without_a_partial_side() -> None:
    def apart(refs: Table, duts: Table) -> tuple[np.ndarray, np.ndarray]:
        return refs.pos > 0, duts.pos > 0

    tree = compare_dumps(dump("t0_x", "t1_x"), dump("t0_x"), apart=apart)
    assert (tree.verdict, exit_status(tree)) == (Verdict.NOT_RUN, ExitStatus.NOT_RUN)
    assert tree.reason == "1 keys are the same, 1 are not comparable"


@pytest.mark.parametrize(
    ("ref", "dut", "notes"),
    [
        ({"model": "a"}, {"model": "b"}, ["model differ: ref a dut b"]),
        ({"weights": "1"}, {"weights": "2"}, ["weights differ: ref 1 dut 2"]),
        ({"tokens": "1"}, {"tokens": "2"}, ["tokens differ: ref 1 dut 2"]),
        ({"prefill": "1"}, {"prefill": "2"}, ["prefill differ: ref 1 dut 2"]),
        ({"model": "a"}, {}, []),
        ({}, {"model": "a"}, []),
        ({"model": "a", "kv": "1"}, {"model": "a", "kv": "2"}, []),
    ],
)
def test_headers_that_explain(ref: dict[str, str], dut: dict[str, str], notes: list[str]) -> None:
    tree = compare_dumps(dump("t0_x", source="r", **ref), dump("t0_x", source="d", **dut))
    assert tree.notes == notes
    assert (tree.ref, tree.dut) == ({**ref, "spec": "r"}, {**dut, "spec": "d"})


@pytest.mark.parametrize(
    ("counts", "verdict", "status"),
    [
        (Counts(1, 1, 1, 0, 0, 0, 0), Verdict.SAME, ExitStatus.SAME),
        (Counts(1, 1, 0, 1, 0, 0, 0), Verdict.DIVERGED, ExitStatus.SAME),
        (Counts(2, 1, 1, 0, 1, 0, 0), Verdict.DIVERGED, ExitStatus.DIVERGED),
        (Counts(1, 2, 1, 0, 0, 1, 0), Verdict.DIVERGED, ExitStatus.DIVERGED),
        (Counts(1, 0, 0, 0, 1, 0, 0), Verdict.DIVERGED, ExitStatus.DIVERGED),
        (Counts(0, 1, 0, 0, 0, 1, 0), Verdict.DIVERGED, ExitStatus.DIVERGED),
        (Counts(1, 0, 0, 0, 1, 0, 0), Verdict.SAME, ExitStatus.NOT_RUN),
        (Counts(0, 1, 0, 0, 0, 1, 0), Verdict.SAME, ExitStatus.NOT_RUN),
        (Counts(2, 1, 1, 0, 1, 0, 0), Verdict.SAME, ExitStatus.DIVERGED),
        (Counts(1, 2, 1, 0, 0, 1, 0), Verdict.SAME, ExitStatus.DIVERGED),
        (Counts(2, 2, 1, 0, 0, 0, 1), Verdict.SAME, ExitStatus.DIVERGED),
        (Counts(2, 2, 0, 0, 0, 0, 2), Verdict.DIVERGED, ExitStatus.NOT_RUN),
        (Counts(1, 1, 1, 0, 0, 0, 0), Verdict.NOT_RUN, ExitStatus.NOT_RUN),
        (Counts(1, 1, 1, 0, 0, 0, 0), Verdict.UNSTABLE, ExitStatus.DIVERGED),
    ],
)
def test_exit_status_of_a_tree(counts: Counts, verdict: Verdict, status: ExitStatus) -> None:
    """The level asked for excuses differences, and nothing else."""
    tree = compare_dumps(dump("t0_x"), dump("t0_x"), level_asked=Level.BIT)
    tree.verdict, tree.counts = verdict, counts
    assert exit_status(tree) is status


@pytest.mark.parametrize("asked", Level)
def test_exit_status_goes_by_the_level_asked(asked: Level) -> None:
    whole, other = dump("t0_l0_x", "t0_logits"), dump("t0_l0_x=5", "t0_logits")
    tree = compare_dumps(whole, other, level_asked=asked)
    assert (tree.level, tree.level_asked) == (Level.LOGITS, asked)
    assert exit_status(tree) is (ExitStatus.DIVERGED if asked is Level.BIT else ExitStatus.SAME)


@pytest.mark.parametrize(
    ("tags", "greedy", "level"),
    [
        (("t0_l0_x=5", "t0_logits", "t1_logits"), "", Level.LOGITS),
        (("t0_l0_x=5", "t0_logits", "t1_logits=5"), "", Level.NONE),
        (("t0_l0_x=5", "t0_logits", "t1_logits=5"), "0:1", Level.GREEDY),
        # A field of a layer that is called logits, and another field outside the layers.
        (("t0_l0_logits=5", "t0_final_normed=5", "t0_logits"), "0:1", Level.LOGITS),
    ],
)
def test_level_reached(tags: tuple[str, ...], greedy: str, level: Level) -> None:
    header = {"greedy": greedy} if greedy else {}
    same = (tag.partition("=")[0] for tag in tags)
    assert compare_dumps(dump(*same, **header), dump(*tags, **header)).level is level


def test_no_logits_at_all_reach_no_level() -> None:
    assert compare_dumps(dump("t0_x", "t1_x"), dump("t0_x=5", "t1_x")).level is Level.NONE


def test_partial_dumps_are_told_with_what_to_do() -> None:
    part = dump("t0_x", partial="cut inside line 3", source="mine")
    with pytest.raises(InputError) as raised:
        compare_dumps(dump("t0_x"), part)
    assert raised.value.message == "mine: a partial dump: cut inside line 3"
    assert raised.value.next_step == (
        "write it again, or let parity compare --partial compare what it holds"
    )
    tree = compare_dumps(part, part, partial=True)
    assert tree.reason == "1 keys are the same, 0 are not comparable; ref and dut partial"
    assert tree.notes == [f"{side} is partial: cut inside line 3" for side in ("ref", "dut")]


def test_many_keys_are_told_with_separators() -> None:
    tags = [f"t{at}_x" for at in range(1200)]
    tree = compare_dumps(dump(*tags), dump("t9_y", *(f"t{at}_z" for at in range(1300))))
    assert tree.reason == "nothing compared: no key in common (ref 1,200, dut 1,301)"
    part = compare_dumps(dump(*tags, "t1200_x"), dump(*tags, partial="cut"), partial=True)
    assert part.reason == "1,200 keys are the same, 1 are not comparable; dut partial"
