"""Damaged dumps and alias files: refused in one line, or read the same by blocks and by lines."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from parity.comparison.alias import apply_aliases, read_aliases
from parity.comparison.compare import compare_dumps
from parity.digests.chain import first_by_bisection
from parity.dump import Dump
from parity.dumps import reader as dump_reader
from parity.dumps.reader import parse_dump
from parity.dumps.writer import format_lines
from parity.errors import InputError
from parity.status import Verdict
from parity.tree import Tree
from tests.core.compare_oracle import OneByOne, check
from tests.core.mutations import BUDGET, SEED, mutated

SMALL = b"""# format parity-dump 1
# hash fnv1a64
# greedy 0:7,1:8
t0_embed 0123456789abcdef f32[4,32]
t0_l0_nrm 00000000000000ff f32[4,32]
t0_l0_mine fedcba9876543210 int8[2,32]
t0_logits 13fdf84d829c1708 f32[1003]
t1_l0_nrm d6607508f5a1e855 f32[4,32]
t1_l10_x af63dc4c8601ec8c f32[] nonfinite=2@17
# segment B.redo
t1_l0_nrm 85944171f73967e8
"""
LONG = b"".join(b"t%d_l%d_x %016x f32[4]\n" % (at // 4, at % 4, at * at) for at in range(60))
WORDS = [
    *(
        b"\r\n",
        b"\n",
        b" ",
        b"  ",
        b"\t",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3\xa9",
        b"\x1b[31m",
    ),
    *(b"# segment A\n", b"# segment B.redo\n", b"# format parity-dump 1\n", b"# format x\n", b"#"),
    *(b"# partial cut\n", b"# greedy 0:9\n", b" nonfinite=1@0", b" nonfinite=0@0", b"f32[4,]"),
    *(
        b"t0_l0_nrm ",
        b"t999999999_",
        b"t1000000000_",
        b"l999999_",
        b"t00_",
        b"_",
        b"0123456789abcdef",
    ),
    *(b"0123456789ABCDEF", b"[red]", b"9" * 30, b"a" * 70, b"[" + b"1," * 30 + b"1]", b"f32[]"),
]


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chance from a seed that a failing test prints."""
    print(f"PARITY_FUZZ_SEED={SEED} PARITY_FUZZ={BUDGET}")
    return random.Random(f"{request.node.name} {SEED}")


def outcome(data: bytes, partial: bool = False) -> Dump | InputError:
    """What reading gives, or the refusal."""
    try:
        return parse_dump(data, "x", partial=partial)
    except InputError as error:
        return error


def by_line(data: bytes, partial: bool) -> Dump | InputError:
    with mock.patch.object(dump_reader, "Scanner", OneByOne):
        return outcome(data, partial)


def said(refusal: InputError) -> tuple[str, str]:
    """Message and next step, each of which must be one printable line."""
    assert refusal.message.isprintable()
    assert refusal.next_step.isprintable()
    assert refusal.next_step
    return refusal.message, refusal.next_step


def test_damaged_dumps_are_read_alike_or_refused_alike(chance: random.Random) -> None:
    good = parse_dump(SMALL, "good")
    read = refused = 0
    for _ in range(BUDGET):
        data = mutated(chance.choice((SMALL, LONG)), WORDS, chance)
        print(data)  # a failing test shows the last one
        partial = chance.random() < 0.3
        with mock.patch.object(dump_reader, "_BLOCK", chance.choice((64, 200, 1 << 21))):
            found = outcome(data, partial)
        expected = by_line(data, partial)
        if isinstance(found, Dump):
            assert found == expected
            compare(good, found)
            read += 1
        else:
            assert isinstance(expected, InputError)
            assert said(found) == said(expected)
            refused += 1
    assert min(read, refused) > BUDGET // 20


def compare(good: Dump, found: Dump) -> None:
    """What was read is written back the same, and compares as plain entries do."""
    text = "".join(f"{line}\n" for line in format_lines(Dump({}, found.segments), plain=False))
    assert parse_dump(text.encode(), "back").segments == found.segments
    tree = compared(good, found)
    if tree is None:
        return
    if "partial" not in found.header and "greedy" not in found.header:
        check(tree, good, found)
    if not any(entry.nonfinite for side in (good, found) for entry in side.entries):
        key, _ = first_by_bisection(good, found)
        assert (key and key.tag) == tree.first


def compared(ref: Dump, dut: Dump) -> Tree | None:
    """The tree, None where the two cannot be compared (another hash, a bad greedy header)."""
    try:
        return compare_dumps(ref, dut, partial=True)
    except InputError as error:
        said(error)
        return None


def aliased(path: Path, ref: Dump, dut: Dump) -> Tree | None:
    try:
        given = apply_aliases(read_aliases(path), ref, dut)
    except InputError as error:
        message, _ = said(error)
        assert message.startswith(str(path))
        return None
    return compare_dumps(ref, given.dut, apart=given.apart)


def test_damaged_alias_files_are_read_or_refused(chance: random.Random, tmp_path: Path) -> None:
    """Whatever the rules: no key is lost."""
    text = b"# names\nout = attn\nqkv = q + k + v\nk1 + v1 = kv\n"
    words = [
        b"=",
        b"+",
        b"*",
        b"#",
        b" ",
        b"\n",
        b"out",
        b"attn",
        b"q",
        b"\xff",
        b"\0",
        b"[",
        b"k*",
    ]
    ref, dut = (
        parse_dump(b"".join(b"t0_%s 0123456789abcdef\n" % name for name in names), "x")
        for names in ((b"attn", b"q", b"k", b"v", b"kv"), (b"out", b"qkv", b"k1", b"v1"))
    )
    path = tmp_path / "names"
    applied = 0
    for _ in range(BUDGET // 3):
        path.write_bytes(mutated(text, words, chance))
        print(path.read_bytes())
        tree = aliased(path, ref, dut)
        if tree is not None:
            applied += 1
            assert (tree.counts.ref, tree.counts.dut) == (5, 4)
            assert sum(row.ref is not None for row in tree.keys) == 5
            assert sum(row.dut is not None for row in tree.keys) == 4
            assert tree.verdict is not Verdict.SAME
    assert applied > BUDGET // 60
