"""The columns agree with plain entries, and reading by blocks with reading line by line."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparison import compare as comparison
from parity.comparison.compare import compare_dumps
from parity.dump import Dump, Entry, TensorType
from parity.dumps import reader as dump_reader
from parity.dumps.reader import parse_dump
from parity.dumps.table import Builder, Kinds, Places, Table
from parity.errors import InputError
from parity.keys import Key
from parity.runs.control import dump_control
from parity.status import Verdict
from parity.tree import KeyState
from tests.core.compare_oracle import OneByOne, check

F32 = TensorType("f32", (4,))
FIELDS = ["nrm", "x", "logits", "embed", "mine", "zz", "A.b-c", "l7"]
KEYS = st.builds(
    Key,
    st.integers(0, 3) | st.just(10**9 - 1),
    st.none() | st.integers(0, 2) | st.just(999_999),
    st.sampled_from(FIELDS),
)
ENTRIES = st.builds(
    Entry,
    KEYS,
    st.sampled_from([0, 1, 2**64 - 1]),
    st.sampled_from([None, F32, TensorType("int8", (2, 2)), TensorType("f32", ())]),
    st.none() | st.none() | st.none() | st.just((2, 7)),
)
SEGMENT = st.lists(ENTRIES, max_size=12, unique_by=lambda entry: entry.key)
FREE = st.builds(
    Entry,
    st.builds(Key.of_name, st.sampled_from(["w.1", "w.2", "logits", "t0_l0_x", "b c"])),
    st.integers(0, 1),
    st.just(F32),
)
TENSORS = st.lists(FREE, max_size=5, unique_by=lambda entry: entry.key)
DUMPS = st.dictionaries(st.sampled_from(["", "A", "B"]), SEGMENT, max_size=3) | st.builds(
    lambda entries: {"": entries}, TENSORS
)


@given(DUMPS, DUMPS)
@settings(derandomize=True, max_examples=150, deadline=None)
def test_columns_judge_as_plain_entries_do(
    ref: dict[str, list[Entry]], dut: dict[str, list[Entry]]
) -> None:
    sides = Dump({}, ref, "ref"), Dump({}, dut, "dut")
    check(compare_dumps(*sides), *sides)


@given(DUMPS, st.randoms(use_true_random=False))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_a_changed_copy_is_judged_as_plain_entries_are(
    ref: dict[str, list[Entry]], chance: random.Random
) -> None:
    """Sides that have nearly all keys in common, in the same or another order."""
    dut = {}
    for name, entries in ref.items():
        kept = [entry for entry in entries if chance.random() < 0.95]
        changed = [replace(e, digest=5) if chance.random() < 0.1 else e for e in kept]
        dut[name] = chance.sample(changed, len(changed)) if chance.random() < 0.5 else changed
    sides = Dump({}, ref, "ref"), Dump({}, dut, "dut")
    check(compare_dumps(*sides), *sides)


@pytest.mark.parametrize(
    ("ref", "dut"),
    [
        (["t0_a", "t0_b", "t1_a", "t1_b"], ["t0_a", "t0_b", "t1_b", "t1_a"]),
        (["t0_a", "t1_b", "t2_a"], ["t0_a", "t2_b", "t3_a"]),
        (["t1_a", "t0_b"], ["t1_a", "t0_b"]),
        (["t0_a", "t0_b"], ["t0_b", "t0_a"]),
    ],
    ids=["another order", "other positions", "not in order", "other numbers"],
)
def test_keys_whose_columns_look_alike_are_told_apart(ref: list[str], dut: list[str]) -> None:
    """Places, positions or both are the same lists of numbers on both sides."""
    sides = [
        Dump({}, {"": [Entry(Key.parse(tag), at) for at, tag in enumerate(tags)]}, "x")
        for tags in (ref, dut)
    ]
    check(compare_dumps(*sides), *sides)


@given(SEGMENT)
@settings(derandomize=True, max_examples=100, deadline=None)
def test_a_table_is_the_list_it_was_made_of(entries: list[Entry]) -> None:
    table = Table.of(entries)
    assert table == entries
    assert entries == table
    assert table == Table.of(table)
    assert [table[at] for at in range(-len(entries), len(entries))] == entries * 2
    assert table[1:-1:2] == entries[1:-1:2]
    assert list(reversed(table)) == entries[::-1]
    even = np.arange(len(entries)) % 2 == 0
    assert table.select(even) == entries[::2]
    with pytest.raises(IndexError):
        table[len(entries)]


def test_tables_that_differ_are_not_equal() -> None:
    entries = [Entry(Key(0, 0, "x"), 1, F32, (1, 0)), Entry(Key(0, 0, "nrm"), 2)]
    table = Table.of(entries)
    others = [replace(entries[0], **change) for change in (
        {"digest": 2}, {"type": None}, {"nonfinite": None}, {"nonfinite": (1, 1)},
        {"key": Key(0, 1, "x")}, {"key": Key(1, 0, "x")}, {"key": Key(0, None, "x")},
    )]  # fmt: skip
    for other in others:
        assert table != [other, entries[1]]
        assert table != Table.of([other, entries[1]])
    assert table != entries[:1]
    assert table != 5
    assert table.with_digest(1, 7) == [entries[0], replace(entries[1], digest=7)]
    assert table == entries


def test_a_builder_joins_blocks_and_single_entries_in_their_order() -> None:
    places, kinds = Places(), Kinds()
    builder = Builder(places, kinds)
    entries = [
        Entry(Key(pos, 0, "x"), pos, F32, (1, pos) if pos == 3 else None) for pos in range(6)
    ]
    block = Table.of(entries[:2])
    builder.add(entries[:1])
    column = [places.id_of(entries[1].key)], [kinds.id_of(F32)]
    builder.add_block(
        np.array([1], np.int32),
        np.array(column[0], np.int32),
        np.array([1], np.uint64),
        np.array(column[1], np.int32),
    )
    assert builder.table() == block
    builder.add(entries[2:])
    assert builder.table() == entries
    assert builder.rows == 6
    assert Builder(places, kinds).table() == []


# --- reading by blocks and line by line


@contextmanager
def reading(block: int | None = None, *, one_by_one: bool = False) -> Iterator[None]:
    """Read in blocks of so many bytes, or every line by itself."""
    with (
        mock.patch.object(dump_reader, "_BLOCK", block or dump_reader._BLOCK),
        mock.patch.object(dump_reader, "Scanner", OneByOne if one_by_one else dump_reader.Scanner),
    ):
        yield


Outcome = tuple[object, ...]


def outcome(data: bytes, *, partial: bool = False) -> Outcome:
    """What reading gives: the dump, or the message and the next step."""
    try:
        dump = parse_dump(data, "x", partial=partial)
    except InputError as error:
        return error.message, error.next_step
    return dump.header, {name: list(entries) for name, entries in dump.segments.items()}


def agree(data: bytes, *blocks: int) -> Outcome:
    """The outcome, after asserting that every way of reading has the same one."""
    with reading(one_by_one=True):
        expected = outcome(data)
    for block in (None, *(blocks or (64, 100, 257))):
        with reading(block):
            assert outcome(data) == expected, (block, data)
    if isinstance(expected[1], dict):
        for entries in expected[1].values():
            assert len({entry.key for entry in entries}) == len(entries), data
    return expected


LINES = [
    "t0_l0_x 0123456789abcdef",
    "t0_l0_x fedcba9876543210 f32[4,32]",
    "t0_l1_x 0000000000000000",
    "t12_logits ffffffffffffffff f32[]",
    "t1234567_l5_q 0123456789abcdef int8[2,2]",
    "t12345678_q 0123456789abcdef",
    "t12345678xq 0123456789abcdef",
    "t123456789_q 0123456789abcdef",
    "t1:_q 0123456789abcdef",
    "t1/_q 0123456789abcdef",
    "t0_l0_x 0123456789abcdef nonfinite=1@2",
    "t5_q 0123456789abcdeg",
    "t0_l0_y 0123456789abcdef f32[4] nonfinite=3@17",
    "t7_x 0123456789abcdef  ",
    "",
    "#",
    "# engine a",
    "# engine b",
    "# segment A",
    "# segment B",
    "# format parity-dump 1",
    "t01_l0_x 0123456789abcdef",
    "t0_l00_x 0123456789abcdef",
    "t0_x 0123456789ABCDEF",
    "t0_x 0123456789abcde",
    "t_x 0123456789abcdef",
    "t0_x 0123456789abcdef f32[4",
    "t0_x\t0123456789abcdef",
    "t0 0123456789abcdef",
    "t3_x",
    "caf\u00e9",
    "t0_" + "a" * 64 + " 0123456789abcdef",
    "t0_" + "a" * 65 + " 0123456789abcdef",
    "t0_\0 0123456789abcdef",
    "t0_x 0123456789abcdef f32[" + "1," * 40 + "1]",
    "t0_x 0123456789abcde` f32[4]",
    "t0_` 0123456789abcdef",
    "t9_aaaaaaaa 0123456789abcdef",
    "t9_aaaaaaaaa 0123456789abcdef",
    "t0_x 0123456789abcde\x7f",
]
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", " \n", "\t\r\n", ""])


@given(
    st.lists(st.tuples(st.sampled_from(LINES), ENDS), max_size=12),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
@settings(derandomize=True, max_examples=200, deadline=None)
def test_blocks_are_read_as_single_lines_are(lines: list[tuple[str, str]], mark: bytes) -> None:
    agree(mark + "".join(line + end for line, end in lines).encode())


@pytest.mark.parametrize("line", LINES)
def test_each_line_is_read_alike_by_itself_and_among_others(line: str) -> None:
    for end in ("\n", "", "\r\n"):
        agree(f"{line}{end}".encode())
    agree(f"t900_x 0123456789abcdef\n{line}\nt901_x 0123456789abcdef f32[4]\n".encode())


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_every_bad_line_is_blamed_by_number_in_a_large_file(place: str) -> None:
    good = [f"t{pos}_l{at}_x {pos:016x} f32[4]\n" for pos in range(700) for at in range(5)]
    number = {"first": 0, "middle": 1733, "last": len(good)}[place]
    for bad, what in {
        "t9_l9_x 0123456789abcdef f32[4": "type 'f32[4' is not dtype[shape]: t9_l9_x",
        "t9_l9_x 012345678\u00e9abcdef": "hash '012345678\u00e9abcdef' is not hexadecimal: t9_l9_x",
        "t9_l9_x 0123456789abcdef\0": "NUL bytes: the file was damaged while it was written",
        "t09_l9_x 0123456789abcdef": "not a key: 't09_l9_x'",
    }.items():
        text = "".join([*good[:number], f"{bad}\n", *good[number:]]).encode()
        assert agree(text, 10_000)[0] == f"x line {number + 1}: {what}"


def test_a_repeated_key_is_blamed_before_a_bad_line_behind_it_and_after_one_before_it() -> None:
    good = "".join(f"t{pos}_l0_x 0123456789abcdef\n" for pos in range(50))
    repeated, bad = "t7_l0_x 0123456789abcdef f32[1]\n", "rubbish\n"
    assert agree(f"{good}{repeated}{bad}".encode())[0] == (
        "x line 51: key t7_l0_x appears twice in its segment"
    )
    assert agree(f"{good}{bad}{repeated}".encode())[0] == "x line 51: not a key: 'rubbish'"
    text = (
        f"{good}#\nt99_x 0123456789abcdef\n# segment A\n{good}# remark\n\n{repeated}# segment A\n"
    )
    assert agree(text.encode())[0] == "x line 106: key t7_l0_x appears twice in its segment"
    lines = good.splitlines(True)
    again = "".join([*lines[:20], repeated, *lines[20:]])
    text = f"{good}#\nt99_x 0123456789abcdef\n# segment A\n{again}"
    assert agree(text.encode())[0] == "x line 74: key t7_l0_x appears twice in its segment"
    cut = f"{good}{repeated.strip()}"
    assert str(agree(cut.encode())[0]).startswith("x line 51: truncated: the file ends inside")


@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_several_repeats_is_blamed_whatever_the_order_of_lines(seed: int) -> None:
    tags = [f"t{pos}_l{layer}_x" for pos in range(30) for layer in range(3)]
    chance = random.Random(seed)
    chance.shuffle(tags)
    again = chance.sample(tags, 3)
    data = "".join(f"{tag} 0123456789abcdef\n" for tag in [*tags, *again, again[0]]).encode()
    assert agree(data)[0] == f"x line 91: key {again[0]} appears twice in its segment"


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
def test_a_key_twice_in_a_row_is_refused(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Also where the rows looked at together end between the two."""
    monkeypatch.setattr(dump_reader, "_CHUNK", chunk)
    lines = [f"t{pos}_x 0123456789abcdef\n" for pos in (0, 1, 2, 2, 3)]
    assert agree("".join(lines).encode())[0] == "x line 4: key t2_x appears twice in its segment"


def test_control_characters_in_a_known_header_are_refused() -> None:
    for name in ("model", "segment", "partial"):
        assert agree(f"# {name} a\x1b[31mb\n".encode())[0] == (
            f"x line 1: a control character in header {name}: 'a\\x1b[31mb'"
        )
    assert agree(b"# see the\ttable\n#\x1b\n")[1] == {}


def test_a_line_longer_than_a_block_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_reader, "_BLOCK", 128)
    value = "v" * 5000
    dump = parse_dump(f"# engine {value}\nt0_x 0123456789abcdef\n".encode(), "x")
    assert dump.header["engine"] == value
    assert [entry.key.tag for entry in dump.entries] == ["t0_x"]


def test_many_places_and_types_are_told_apart() -> None:
    """More texts than the table of the scanner begins with, and more than its slots tell apart."""
    tags = [f"t{at % 7}_l{at}_f{at * at}" for at in range(3000)]
    data = "".join(f"{tag} {at:016x} f32[{at}]\n" for at, tag in enumerate(tags)).encode()
    entries = parse_dump(data, "x").entries
    assert [(e.key.tag, e.digest, str(e.type)) for e in entries] == [
        (tag, at, f"f32[{at}]") for at, tag in enumerate(tags)
    ]


def test_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two slots for all texts nearly every look misses: length and words decide."""
    monkeypatch.setattr("parity.dumps.scan._SLOT_BITS", 1)
    monkeypatch.setattr(dump_reader, "_BLOCK", 4096)
    test_many_places_and_types_are_told_apart()
    monkeypatch.setattr(dump_reader, "_BLOCK", 64)
    names = ["a" * 9, "a" * 8, "b" * 8, "a" * 17, "a" * 16, "b" * 16, "a", "b"] * 3
    data = "".join(f"t{at}_{name} 0123456789abcdef\n" for at, name in enumerate(names))
    assert [entry.key.field for entry in parse_dump(data.encode(), "x").entries] == names


# --- large comparisons


def test_of_a_large_match_the_same_rows_are_listed_wherever_the_limit_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The listed rows are the first ones that differ, and always the whole step of the first."""
    chance = random.Random(3)
    entries = [Entry(Key(pos, at, "x"), 1, F32) for pos in range(6) for at in range(4)]
    for _ in range(60):
        dut = [replace(e, digest=2) if chance.random() < 0.2 else e for e in entries]
        sides = (
            Dump({}, {"": entries[:12], "B": entries[12:]}),
            Dump({}, {"": dut[:12], "B": dut[12:]}),
        )
        whole = compare_dumps(*sides)
        limit = chance.randrange(1, 20)
        monkeypatch.setattr(comparison, "ROWS_LIMIT", limit)
        tree = compare_dumps(*sides)
        monkeypatch.undo()
        first = next((row for row in whole.keys if row.key == tree.first), None)
        step = first and (first.segment, first.key.split("_")[0])
        left, expected = limit, []
        for row in whole.keys:
            in_step = (row.segment, row.key.split("_")[0]) == step
            if in_step or (row.state != KeyState.SAME and left > 0):
                left -= 1
                expected.append(row)
        assert tree.keys == expected
        assert replace(tree, keys=[], notes=[]) == replace(whole, keys=[], notes=[])


def test_a_million_lines_with_one_or_with_every_digest_changed() -> None:
    """B06 (e) and (f), and the same shuffled: seconds, and a report of bounded length."""
    ref = big(1_000_000)
    last = ref.with_digest(len(ref) - 2, 12345)
    every = replace(ref, digest=ref.digest ^ np.uint64(1))
    order = np.random.default_rng(1).permutation(len(ref))
    shuffled = replace(
        last, **{name: getattr(last, name)[order] for name in ("pos", "place", "digest", "kind")}
    )
    tag = ref.key(len(ref) - 2).tag
    for dut, first, differ in ((last, tag, 1), (every, "t0_l0_a", 1_000_000), (shuffled, tag, 1)):
        tree = compare_dumps(Dump({}, {"": ref}, "ref"), Dump({}, {"": dut}, "dut"))
        assert (tree.verdict, tree.first) == (Verdict.DIVERGED, first)
        assert (tree.counts.differ, tree.counts.same) == (differ, 1_000_000 - differ)
        assert len(tree.keys) <= 100_000
        assert any("line order differs" in note for note in tree.notes) == (dut is shuffled)


def big(count: int) -> Table:
    """Fields outside the schema: 20 layers of five, one position after the other."""
    places = [Key(0, layer, name) for layer in range(20) for name in "abcde"]
    rows = np.arange(count)
    return Table(
        (rows // len(places)).astype(np.int32),
        (rows % len(places)).astype(np.int32),
        rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        np.ones(count, np.int32),
        places,
        [None, F32],
    )


def test_the_control_of_a_large_dump_plants_one_digit_in_a_table() -> None:
    ref = Dump({}, {"": big(2000), "B": big(50)}, "ref")
    planted = {dump_control(ref, ref, seed).key for seed in range(12)}
    assert all(dump_control(ref, ref, seed).fired for seed in range(12))
    assert len(planted) > 3
    assert ref == Dump({}, {"": big(2000), "B": big(50)}, "ref")
