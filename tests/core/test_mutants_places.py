"""What mutation testing found unseen in where the tokens of two sides part."""

from __future__ import annotations

import numpy as np
import pytest

from parity.comparison import compare_dumps
from parity.dump import Dump, Entry, TensorType
from parity.dump_table import Table
from parity.keys import Key
from parity.parting import label_parting, note_parting, parting
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
