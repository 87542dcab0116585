"""Rules for other names: renamed, fused and split keys are compared or said not to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.comparison.alias import Rule, apply_aliases, read_aliases
from parity.comparison.compare import compare_dumps, exit_status
from parity.dump import Dump, Entry, TensorType
from parity.errors import InputError
from parity.keys import Key
from parity.status import ExitStatus, Verdict
from parity.tree import KeyState, Tree

F32 = TensorType("f32", (4,))


def dump(*names: str, source: str = "a dump", **digests: int) -> Dump:
    """Two layers at positions 0 and 1, each with the fields ``names``, and logits."""
    entries = []
    for pos in (0, 1):
        keys = [Key(pos, layer, name) for layer in (0, 1) for name in names]
        keys.append(Key(pos, None, "logits"))
        entries += [
            Entry(key, digests.get(key.tag, at + 100 * pos), F32) for at, key in enumerate(keys)
        ]
    return Dump({}, {"": entries}, source)


def rules(tmp_path: Path, text: str) -> list[Rule]:
    path = tmp_path / "names.alias"
    path.write_text(text)
    return read_aliases(path)


def compared(tmp_path: Path, ref: Dump, dut: Dump, text: str) -> Tree:
    given = apply_aliases(rules(tmp_path, text), ref, dut)
    tree = compare_dumps(ref, given.dut, apart=given.apart)
    tree.notes += given.notes
    return tree


def states(tree: Tree) -> dict[str, str]:
    return {row.key: row.state for row in tree.keys}


def test_renamed_keys_are_compared(tmp_path: Path) -> None:
    ref, dut = dump("nrm", "attn", "x"), dump("nrm", "attn_out", "x")
    assert compare_dumps(ref, dut).counts.missing == 4
    tree = compared(tmp_path, ref, dut, "# names\n\nattn_out = attn  # renamed\n")
    assert (tree.verdict, tree.counts.same, tree.counts.total) == (Verdict.SAME, 14, 14)
    assert tree.notes == ["alias line 3: attn_out = attn: 4 keys renamed"]
    changed = dump("nrm", "attn_out", "x", t1_l0_attn_out=77)
    tree = compared(tmp_path, ref, changed, "attn_out = attn")
    assert (tree.verdict, tree.first, tree.counts.differ) == (Verdict.DIVERGED, "t1_l0_attn", 1)


def test_a_renamed_key_keeps_the_place_of_the_refs_field(tmp_path: Path) -> None:
    ref, dut = dump("mine", "nrm", "x"), dump("nrm", "x", "yours")
    tree = compared(tmp_path, ref, dut, "yours = mine")
    assert [row.key for row in tree.keys[:3]] == ["t0_l0_mine", "t0_l0_nrm", "t0_l0_x"]
    assert any("line order differs" in note for note in tree.notes)


@pytest.mark.parametrize(
    ("ref_names", "dut_names", "text", "apart"),
    [
        (("nrm", "q", "k", "v"), ("nrm", "qkv"), "qkv = q + k + v", 16),
        (("nrm", "kv"), ("nrm", "k", "v"), "k + v = kv", 12),
    ],
    ids=["fused", "split"],
)
def test_fused_and_split_keys_are_not_comparable_by_digest(
    tmp_path: Path, ref_names: tuple[str, ...], dut_names: tuple[str, ...], text: str, apart: int
) -> None:
    same = {f"t{pos}_logits": 5 for pos in (0, 1)} | {
        f"t{pos}_l{layer}_nrm": 6 for pos in (0, 1) for layer in (0, 1)
    }
    ref, dut = dump(*ref_names, **same), dump(*dut_names, **same)
    tree = compared(tmp_path, ref, dut, text)
    assert (tree.verdict, tree.first) == (Verdict.NOT_RUN, None)
    assert exit_status(tree) is ExitStatus.NOT_RUN
    assert tree.reason == f"6 keys are the same, {apart} are not comparable"
    assert (tree.counts.same, tree.counts.not_comparable, tree.counts.total) == (
        6,
        apart,
        6 + apart,
    )
    assert (tree.counts.missing, tree.counts.extra) == (0, 0)
    assert tree.notes == [
        f"alias line 1: {text}: {apart} keys not comparable: the digest of a whole does not tell "
        "of its parts"
    ]
    changed = dump(*dut_names, **{**same, "t1_l0_nrm": 7})
    tree = compared(tmp_path, ref, changed, text)
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, "t1_l0_nrm")
    assert exit_status(tree) is ExitStatus.DIVERGED


def test_a_group_that_is_not_whole_stays_missing_and_extra(tmp_path: Path) -> None:
    """At t1_l0 the dut lacks qkv, at t0_l1 the ref lacks v: nothing excuses these."""
    ref, dut = dump("nrm", "q", "k", "v"), dump("nrm", "qkv")
    ref = Dump({}, {"": [e for e in ref.entries if e.key != Key(0, 1, "v")]}, "ref")
    dut = Dump({}, {"": [e for e in dut.entries if e.key != Key(1, 0, "qkv")]}, "dut")
    tree = compared(tmp_path, ref, dut, "qkv = q + k + v")
    found = states(tree)
    for name in ("q", "k", "v"):
        assert found[f"t1_l0_{name}"] == KeyState.MISSING
        assert found[f"t0_l0_{name}"] == KeyState.NOT_COMPARABLE
    assert found["t0_l1_qkv"] == KeyState.EXTRA
    assert (tree.verdict, tree.counts.missing, tree.counts.extra) == (Verdict.DIVERGED, 5, 1)


def test_several_rules_and_segments(tmp_path: Path) -> None:
    ref, dut = dump("nrm", "q", "k", "x"), dump("norm", "qk", "out")
    ref, dut = (Dump({}, {"": d.entries, "B": d.entries}, d.source) for d in (ref, dut))
    tree = compared(tmp_path, ref, dut, "norm = nrm\nout = x\nqk = q + k\n")
    assert (tree.counts.missing, tree.counts.extra, tree.counts.not_comparable) == (0, 0, 24)
    assert [note.split(": ", 2)[2] for note in tree.notes[-3:]] == [
        "8 keys renamed",
        "8 keys renamed",
        "24 keys not comparable: the digest of a whole does not tell of its parts",
    ]


def test_names_may_hand_on(tmp_path: Path) -> None:
    """The dut's a is the ref's b and its b the ref's c: each key is renamed once."""
    ref, dut = dump("b", "c"), dump("a", "b")
    assert compared(tmp_path, ref, dut, "a = b\nb = c\n").verdict is Verdict.SAME


def test_a_star_is_the_same_digits_in_every_name(tmp_path: Path) -> None:
    def tensors(*names: str) -> Dump:
        return Dump({}, {"": [Entry(Key.of_name(n), at, F32) for at, n in enumerate(names)]}, "t")

    ref = tensors("layers.0.attn", "layers.1.attn", "layers.10.attn", "head")
    dut = tensors("h.0.out", "h.1.out", "h.10.out", "head")
    tree = compared(tmp_path, ref, dut, "h.*.out = layers.*.attn")
    assert (tree.verdict, tree.counts.same) == (Verdict.SAME, 4)
    split = tensors("h.0.a", "h.1.a", "h.0.b", "h.1.b", "head")
    ref = tensors("w.0", "w.1", "w.2", "head")
    tree = compared(tmp_path, ref, split, "h.*.a + h.*.b = w.*")
    assert states(tree)["w.2"] == KeyState.MISSING
    assert (tree.counts.not_comparable, tree.counts.missing) == (6, 1)


BAD = {
    "no equals": ("attn", "line 1: not a rule: 'attn'"),
    "two equals": ("a = b = c", "line 1: not a rule: 'a = b = c'"),
    "nothing before": (" = attn", "line 1: not a rule: '= attn'"),
    "nothing after": ("attn =", "line 1: not a rule: 'attn ='"),
    "empty part": ("# first\nqkv = q + + v", "line 2: not a rule: 'qkv = q + + v'"),
    "many to many": ("a + b = c + d", "line 1: not a rule: 'a + b = c + d'"),
    "a blank in a name": ("a b = c", "line 1: not a rule: 'a b = c'"),
    "two stars": ("a*b* = c*d*", "line 1: not a rule: 'a*b* = c*d*'"),
    "a star alone": ("* = *", "line 1: not a rule: '* = *'"),
    "a bracket": ("a = [red]", "line 1: not a rule: 'a = [red]'"),
    "a star on one side": ("a* = b", "line 1: * in some names only: 'a* = b'"),
    "two rules, dut": ("a = b\n\na = c", "line 3: dut name a has a rule already, on line 1"),
    "two rules, ref": ("a = b\nc = x + b", "line 2: ref name b has a rule already, on line 1"),
    "twice in a rule": ("a = b + b", "line 1: ref name b has a rule already, on line 1"),
    "to itself": ("a = a", "line 1: the rules lead from a back to a"),
    "swap": ("a = b\nb = a", "line 1: the rules lead from a back to a"),
    "circle": ("x = y\na = b\nb = c + d\nd = a", "line 2: the rules lead from a back to a"),
}


@pytest.mark.parametrize("name", BAD)
def test_red_bad_rules_are_refused_by_line(tmp_path: Path, name: str) -> None:
    text, problem = BAD[name]
    with pytest.raises(InputError) as caught:
        rules(tmp_path, text)
    assert caught.value.message == f"{tmp_path / 'names.alias'} {problem}"
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no rule in it"),
        (b"# only\n\n", "no rule in it"),
        (b"a = caf\xe9\n", "encoding is not UTF-8"),
    ],
)
def test_red_files_without_rules(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "names.alias"
    path.write_bytes(data)
    with pytest.raises(InputError, match=problem):
        read_aliases(path)
    with pytest.raises(InputError, match=r"gone: No such file"):
        read_aliases(tmp_path / "gone")


def test_a_mark_and_line_ends_of_windows_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "names.alias"
    path.write_bytes(b"\xef\xbb\xbfa = b\r\nc + d = e # x\r\n")
    assert [(r.line, r.dut, r.ref) for r in read_aliases(path)] == [
        (1, ("a",), ("b",)),
        (2, ("c", "d"), ("e",)),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("attn = x", "line 1: no key of the dut is named attn"),
        ("nrm = attn", "line 1: no key of the ref is named attn"),
        ("out = x\nnrm = q + k", "line 2: no key of the ref is named q"),
        ("out + gone = x", "line 1: no key of the dut is named gone"),
        ("t0_l0_out = x", "line 1: no key of the dut is named t0_l0_out"),
        ("ou. = x", "line 1: no key of the dut is named ou."),
    ],
)
def test_red_a_rule_that_matches_nothing(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        compared(tmp_path, dump("nrm", "x"), dump("nrm", "out"), text)
    assert caught.value.message == f"{tmp_path / 'names.alias'} {problem}"


@pytest.mark.parametrize(
    ("ref_names", "dut_names", "text", "problem"),
    [
        (("x",), ("out", "x"), "out = x", "line 1: the dut has out and also x"),
        (("q", "k"), ("qk", "k"), "qk = q + k", "line 1: the dut has qk and also k"),
        (("kv",), ("k", "v", "kv"), "k + v = kv", "line 1: the dut has k + v and also kv"),
        (("y1",), ("x1",), "x1 = y1\nx* = y*", "line 2: x1 has a rule already, on line 1"),
    ],
)
def test_red_two_keys_of_the_dut_for_one_of_the_ref(
    tmp_path: Path, ref_names: tuple[str, ...], dut_names: tuple[str, ...], text: str, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        compared(tmp_path, dump(*ref_names), dump(*dut_names), text)
    assert caught.value.message == f"{tmp_path / 'names.alias'} {problem}"


def test_one_name_in_some_layers_and_the_other_in_the_rest_is_fine(tmp_path: Path) -> None:
    ref = dump("x")
    entries = [
        Entry(Key(e.key.pos, 1, "out"), e.digest, e.type) if e.key.layer == 1 else e
        for e in ref.entries
    ]
    assert compared(tmp_path, ref, Dump({}, {"": entries}, "d"), "out = x").verdict is Verdict.SAME
