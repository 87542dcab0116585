"""Dumps that are not whole: refused unless asked for, and never green."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parity.comparison.compare import compare_dumps, exit_status
from parity.dump import Dump, Entry
from parity.dumps.reader import parse_dump
from parity.errors import InputError
from parity.keys import Key
from parity.status import ExitStatus, Level, Verdict
from parity.tree import KeyState, Tree

ORDER = [Key(pos, layer, name) for pos in (0, 1) for layer in (0, 1) for name in ("nrm", "x")]
WHY = {"partial": "interrupted at t1"}


def dump(*segments: list[Key], changed: Key | None = None, **header: str) -> Dump:
    """Segments "", A, B, ... with these keys."""
    named = {
        name: [Entry(key, 2 if key == changed else 1) for key in keys]
        for name, keys in zip(("", "A", "B", "C"), segments, strict=False)
    }
    return Dump(header, named, "a dump")


def states(tree: Tree) -> list[tuple[str, str, str]]:
    return [(row.segment, row.key, row.state) for row in tree.keys if row.state != KeyState.SAME]


def compared(ref: Dump, dut: Dump) -> Tree:
    return compare_dumps(ref, dut, partial=True, level_asked=Level.GREEDY)


@pytest.mark.parametrize("side", ["ref", "dut"])
def test_a_partial_dump_is_refused_unasked(side: str) -> None:
    whole, part = dump(ORDER), dump(ORDER[:5], **WHY)
    with pytest.raises(InputError, match="a dump: a partial dump: interrupted at t1") as caught:
        compare_dumps(*((part, whole) if side == "ref" else (whole, part)))
    assert "--partial" in caught.value.next_step


@pytest.mark.parametrize("side", ["ref", "dut"])
def test_what_comes_after_its_last_key_is_not_comparable(side: str) -> None:
    whole, part = dump(ORDER), dump(ORDER[:5], **WHY)
    tree = compared(*((part, whole) if side == "ref" else (whole, part)))
    assert (tree.verdict, tree.first, tree.level) == (Verdict.NOT_RUN, None, Level.NONE)
    assert exit_status(tree) is ExitStatus.NOT_RUN
    assert tree.reason == f"5 keys are the same, 3 are not comparable; {side} partial"
    assert states(tree) == [("", key.tag, KeyState.NOT_COMPARABLE) for key in ORDER[5:]]
    assert tree.notes[0] == f"{side} is partial: interrupted at t1"


def test_a_partial_dump_with_every_key_is_not_green() -> None:
    tree = compared(dump(ORDER), dump(ORDER, **WHY))
    assert (tree.verdict, exit_status(tree)) == (Verdict.NOT_RUN, ExitStatus.NOT_RUN)
    assert tree.reason == "8 keys are the same, 0 are not comparable; dut partial"


def test_a_difference_before_the_end_decides() -> None:
    tree = compared(dump(ORDER), dump(ORDER[:5], changed=ORDER[1], **WHY))
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, "t0_l0_x")
    assert exit_status(tree) is ExitStatus.DIVERGED


def test_a_key_it_lacks_before_its_end_is_missing_and_one_too_many_is_extra() -> None:
    holey = [key for key in ORDER[:6] if key != ORDER[2]]
    tree = compared(dump(ORDER), dump(holey, **WHY))
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, ORDER[2].tag)
    assert states(tree)[0] == ("", ORDER[2].tag, KeyState.MISSING)
    tree = compared(dump(ORDER[:3]), dump(ORDER[:5], **WHY))
    assert (tree.first, tree.counts.extra) == (ORDER[3].tag, 2)


def test_the_last_segment_alone_is_open() -> None:
    """Segments before it were written to their end, segments behind it never began."""
    whole = dump(ORDER, ORDER, ORDER)
    tree = compared(whole, dump(ORDER[:7], ORDER[:2], **WHY))
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, ORDER[7].tag)
    found = states(tree)
    assert found[0] == ("", ORDER[7].tag, KeyState.MISSING)
    assert {state for _, _, state in found[1:]} == {KeyState.NOT_COMPARABLE}
    assert [sum(name == segment for name, _, _ in found) for segment in ("A", "B")] == [6, 8]
    tree = compared(dump(ORDER, ORDER[:2], **WHY), whole)
    assert (tree.verdict, tree.counts.not_comparable) == (Verdict.NOT_RUN, 14)


def test_a_segment_that_had_only_begun_is_open_from_its_first_key() -> None:
    tree = compared(dump(ORDER, ORDER), dump(ORDER, [], **WHY))
    assert (tree.verdict, tree.counts.not_comparable) == (Verdict.NOT_RUN, 8)
    assert states(tree)[0] == ("A", ORDER[0].tag, KeyState.NOT_COMPARABLE)


def test_nothing_in_a_partial_dump_is_nothing_compared() -> None:
    tree = compared(dump(ORDER), dump([], **WHY))
    assert tree.reason == "nothing compared: no keys in dut"


CUT = b"# engine cpu\nt0_l0_nrm 0123456789abcdef f32[4]\nt0_l0_x 0123456789"


def test_a_cut_line_is_left_out_on_request_and_the_header_says_so() -> None:
    part = parse_dump(CUT, "x", partial=True)
    assert part.header == {"engine": "cpu", "partial": "cut inside line 3"}
    assert [entry.key.tag for entry in part.entries] == ["t0_l0_nrm"]
    with pytest.raises(InputError, match="x line 3: truncated"):
        parse_dump(CUT, "x")
    for torn in (
        b"# gree",
        b"# greedy 0:",
        b"# segment A",
        b"t",
        b"t0_l0_x 0123456789abcdef",
        b"t0_l0_x 0123456789abcdef nonfin",
    ):
        text = CUT[: CUT.rindex(b"\n") + 1] + torn
        part = parse_dump(text, "x", partial=True)
        assert part.size == 1
        assert part.header.get("partial") == (None if torn == b"# gree" else "cut inside line 3")


def test_only_the_last_line_may_be_cut() -> None:
    for text in (CUT + b"\n", b"t0_l0_x 0123\n" + CUT, CUT + b"\0"):
        with pytest.raises(InputError):
            parse_dump(text, "x", partial=True)
    whole = CUT.replace(b"t0_l0_x 0123456789", b"t0_l0_x 0123456789abcdef f32[4]")
    assert "partial" not in parse_dump(whole, "x", partial=True).header


def test_of_several_keys_given_twice_the_first_in_the_file_is_named() -> None:
    entries = dump(ORDER).entries
    for twice in ((1, 6), (6, 1)):
        given = replace(dump(), segments={"": [*entries, *(entries[at] for at in twice)]})
        with pytest.raises(InputError, match="a dump: key t0_l0_x appears twice in its segment"):
            compare_dumps(given, dump(ORDER))
