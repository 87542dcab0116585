"""What mutation testing found unseen in where the tokens of two sides part."""

from __future__ import annotations

import numpy as np
import pytest

from parity.comparison.compare import compare_dumps
from parity.comparison.impossible import one_hash_notes, shared_hashes
from parity.comparison.parting import label_parting, note_parting, parting
from parity.dump import MAIN, PARTIAL, Dump, Entry, TensorType
from parity.dumps.table import Table
from parity.keys import Key
from parity.tree import KeyState, Tree

KIND = TensorType("f32", (2,))
NOTE = "tokens part at t2 (ref 7, dut 9): from there on the keys compare different inputs"


def dump(tokens: str, *changed: str) -> Dump:
    """Keys ``x`` of one layer and logits at four positions, in two segments."""
    segments = {
        name: [
            Entry(key, 2 if f"{name}{key}" in changed else 1, KIND)
            for pos in range(4)
            for key in (Key(pos, 0, "x"), Key(pos, None, "logits"))
        ]
        for name in ("", "again")
    }
    header = {"tokens": tokens} if tokens else {}
    return Dump(header, segments, "a dump")


def labelled(ref: Dump, dut: Dump) -> Tree:
    tree = compare_dumps(ref, dut)
    label_parting(tree, ref, dut)
    return tree


@pytest.mark.parametrize(
    ("ref", "dut", "found"),
    [
        ("5,6,7,8", "5,6,9,8", (2, "7", "9")),
        ("5,6,7,8", "4,6,9,8", (0, "5", "4")),
        ("5,6,7,8", "5,6,7,8", None),
        ("5,6,7,8", "5,6", None),
        ("5,6", "5,6,9", None),
        ("5,6,7,8", "", None),
        ("", "5", None),
        ("", "", None),
    ],
)
def test_parting_is_the_first_other_token_that_both_have(
    ref: str, dut: str, found: tuple[int, str, str] | None
) -> None:
    assert parting(dump(ref), dump(dut)) == found


def test_keys_from_the_parting_on_are_not_comparable() -> None:
    ref = dump("5,6,7,8")
    dut = dump("5,6,9,8", "t1_l0_x", "t2_l0_x", "t3_logits", "againt0_logits", "againt3_l0_x")
    tree = labelled(ref, dut)
    assert tree.first == "t1_l0_x"  # of the unnamed segment
    states = {f"{row.segment}{row.key}": row.state for row in tree.keys}
    for segment in ("", "again"):
        for pos in (2, 3):
            for name in (f"t{pos}_l0_x", f"t{pos}_logits"):
                assert states[segment + name] == KeyState.NOT_COMPARABLE
    assert states["t1_l0_x"] == states["againt0_logits"] == KeyState.DIFFERS
    assert states["t1_logits"] == states["againt1_l0_x"] == KeyState.SAME
    counts = tree.counts
    assert (counts.ref, counts.dut, counts.total) == (16, 16, 16)
    assert (counts.differ, counts.same, counts.not_comparable) == (2, 6, 8)
    assert tree.notes[0] == NOTE
    assert not any(note.startswith("tokens differ: ") for note in tree.notes)


def test_what_could_not_be_compared_before_the_parting_stays_counted() -> None:
    ref, dut = dump("5,6,7,8"), dump("5,6,9,8", "t0_l0_x")
    lacking = ("t1_l0_x", "t3_l0_x")
    held = {
        name: [entry for entry in entries if entry.key.tag not in lacking]
        for name, entries in dut.segments.items()
    }
    dut = Dump(dut.header, held, dut.source)

    def apart(refs: Table, duts: Table) -> tuple[np.ndarray, np.ndarray]:
        masks = [
            [side.key(row).tag in lacking for row in range(len(side))] for side in (refs, duts)
        ]
        return np.array(masks[0], bool), np.array(masks[1], bool)

    tree = compare_dumps(ref, dut, apart=apart)
    label_parting(tree, ref, dut, apart)
    counts = tree.counts
    assert (counts.not_comparable, counts.missing) == (10, 0)
    assert (counts.differ, counts.same) == (1, 5)


@pytest.mark.parametrize("changed", ["t2_l0_x", "t3_l0_x"])
def test_where_no_key_differs_before_the_parting_the_note_alone_tells(changed: str) -> None:
    tree = labelled(dump("5,6,7,8"), dump("5,6,9,8", changed))
    assert (tree.first, tree.counts.differ, tree.counts.not_comparable) == (changed, 1, 0)
    assert tree.notes[0] == NOTE
    assert next(row for row in tree.keys if row.key == changed).state == KeyState.DIFFERS


def test_equal_tokens_leave_the_tree_alone() -> None:
    ref, dut = dump("5,6,7,8"), dump("5,6,7,8", "t1_l0_x")
    tree = compare_dumps(ref, dut)
    notes = list(tree.notes)
    assert note_parting(tree, ref, dut) is None
    label_parting(tree, ref, dut)
    assert (tree.notes, tree.counts.differ, tree.counts.not_comparable) == (notes, 1, 0)


def test_without_a_differing_key_the_note_is_there_and_nothing_is_masked() -> None:
    tree = labelled(dump("5,6,7,8"), dump("5,6,9,8"))
    assert tree.first is None
    assert (tree.counts.same, tree.notes[0]) == (16, NOTE)


def test_a_partial_dump_is_labelled_too() -> None:
    """It was asked for when the two were compared."""
    ref, dut = dump("5,6,7,8"), dump("5,6,9,8", "t0_l0_x")
    dut = Dump({**dut.header, PARTIAL: "interrupted"}, dut.segments, dut.source)
    tree = compare_dumps(ref, dut, partial=True)
    label_parting(tree, ref, dut)
    assert (tree.first, tree.counts.differ, tree.counts.not_comparable) == ("t0_l0_x", 1, 8)
    assert tree.notes[0] == NOTE


# --- many keys with one hash ----------------------------------------------------------------------

LARGE = TensorType("f32", (16,))
DEAD = ": a dead tap, a stale buffer or zeros"


def hashes(tokens: str, kind: TensorType | None = LARGE, **digests: int) -> Dump:
    """Keys with these digests, of values that count."""
    entries = [Entry(Key.parse(tag), digest, kind) for tag, digest in digests.items()]
    return Dump({"tokens": tokens}, {MAIN: entries}, "a dump")


def test_three_keys_are_named_and_a_fourth_is_not() -> None:
    three = hashes("1,2,3", t0_l0_a=10, t0_l0_b=10, t0_l0_c=10, t0_l0_d=11)
    named = "000000000000000a (t0_l0_a, t0_l0_b, t0_l0_c)"
    assert one_hash_notes(three, hashes("1")) == [f"3 keys of the ref have one hash, {named}{DEAD}"]
    four = hashes("1,2,3", t0_l0_a=10, t0_l0_b=10, t0_l0_c=10, t0_l0_d=10)
    named = "000000000000000a (t0_l0_a, t0_l0_b, t0_l0_c, ...)"
    assert one_hash_notes(hashes("1"), four) == [f"4 keys of the dut have one hash, {named}{DEAD}"]


def test_the_most_frequent_hash_is_told_and_the_others_are_counted() -> None:
    digests = {f"t0_l{layer}_x": 7 for layer in range(3)}
    digests |= {f"t0_l{layer}_y": 8 for layer in range(5)}
    digests |= {f"t0_l{layer}_z": 9 for layer in range(4)}
    (note,) = one_hash_notes(hashes("1", **digests), hashes("1"))
    assert note.startswith("5 keys of the ref have one hash, 0000000000000008 (t0_l0_y, ")
    assert note.endswith(f"{DEAD}; 7 more keys share 2 such hashes")


@pytest.mark.parametrize("digest", [7, 7 << 32, (1 << 64) - 1])
def test_the_whole_hash_decides(digest: int) -> None:
    """Those of one upper half part again by the lower."""
    three = {f"t0_l{layer}_x": digest for layer in range(3)}
    two = {f"t0_l{layer}_y": digest ^ 1 for layer in range(2)}
    (found,) = shared_hashes(hashes("1", **two, **three))
    assert (found.digest, found.count) == (digest, 3)


@pytest.mark.parametrize(
    ("tokens", "positions", "remarked"),
    [
        ("5,6,6", (0, 1, 2), True),
        ("6,6,5", (0, 1, 2), True),
        ("6,6,6", (0, 1, 2), False),
        ("5,6", (0, 1), False),  # two positions
        ("5,6", (0, 1, 2), True),
        ("5", (0, 1, 2), False),  # of the others no token is known
        ("5,6,6,6", (1, 2, 3), False),
    ],
)
def test_one_field_at_positions_of_other_tokens(
    tokens: str, positions: tuple[int, ...], remarked: bool
) -> None:
    made = hashes(tokens, **{f"t{pos}_l0_x": 7 for pos in positions})
    assert bool(shared_hashes(made)) is remarked


@pytest.mark.parametrize(
    ("kind", "field", "remarked"),
    [
        (TensorType("f32", (16,)), "x", True),  # 64 bytes
        (TensorType("f32", (15,)), "x", False),
        (TensorType("f32", (4, 4)), "topk", True),
        (TensorType("int8", (64,)), "x", True),
        (TensorType("int8", (63,)), "x", False),
        (None, "x", True),
        (None, "topk", False),
    ],
)
def test_small_values_do_not_count(kind: TensorType | None, field: str, remarked: bool) -> None:
    made = hashes("1", kind, **{f"t0_l{layer}_{field}": 7 for layer in range(3)})
    assert bool(shared_hashes(made)) is remarked


def test_small_and_free_keys_are_passed_over_and_those_after_them_are_not() -> None:
    """They are counted with the hash, but not named, and do not make it impossible."""
    large = [Entry(Key(0, layer, "x"), 7, LARGE) for layer in range(3)]
    small = [Entry(Key(0, layer, "topk"), 7, KIND) for layer in range(2)]
    free = [Entry(Key.of_name(name), 7, LARGE) for name in ("bias", "scale")]
    made = Dump({}, {MAIN: [*free, *small, *large]}, "a dump")
    (found,) = shared_hashes(made)
    assert (found.count, found.first) == (7, ["t0_l0_x", "t0_l1_x", "t0_l2_x"])
    assert shared_hashes(Dump({}, {MAIN: [*free, *small, *large[:2]]}, "a dump")) == []


@pytest.mark.parametrize(
    "tags",
    [
        ("t0_l0_x", "t0_l1_x", "t0_l2_y"),  # three layers, of two fields
        ("t0_l0_x", "t1_l0_x", "t2_l0_y"),  # three positions, of two fields
        ("t0_l0_x", "t1_l0_x", "t2_l1_x"),  # of two layers
    ],
)
def test_layers_and_positions_of_one_field_count(tags: tuple[str, ...]) -> None:
    assert shared_hashes(hashes("1,2,3", **dict.fromkeys(tags, 7))) == []
    assert (
        len(shared_hashes(hashes("1,2,3", **dict.fromkeys((*tags, "t0_l0_w", "t0_l0_z"), 7)))) == 1
    )


def test_segments_are_looked_at_one_by_one() -> None:
    parts = {
        name: [Entry(Key(0, layer, "x"), digest, LARGE) for layer in range(count)]
        for name, digest, count in (("", 7, 2), ("again", 7, 2), ("third", 9, 3))
    }
    (found,) = shared_hashes(Dump({}, parts, "a dump"))
    assert (found.digest, found.count) == (9, 3)
