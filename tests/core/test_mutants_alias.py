"""What mutation testing found unseen in aliases: next steps, merged names, rules side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parity.comparison.alias import apply_aliases, read_aliases
from parity.comparison.alias_tensors import apply_to_tensors
from parity.comparison.compare import compare_dumps
from parity.dump import Dump, Entry, TensorType
from parity.dumps.tensor_files import Tensor
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.status import Verdict
from parity.tree import KeyState
from tests.core.test_alias import dump, rules
from tests.core.test_alias_tensors import K, V, compared, keyed, tree_of

FORM = "write dut = ref, dut = ref + ref, or dut + dut = ref"
ONCE = "keep one rule for each name"


def made(*tags: str, digest: int = 1) -> Dump:
    """A dump of those keys, all of one type."""
    kind = TensorType("f32", (4,))
    return Dump({}, {"": [Entry(Key.parse(tag), digest, kind) for tag in tags]}, "a dump")


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("# nothing\n", FORM),
        ("a = b = c", FORM),
        ("* = b", FORM),
        ("h.*.a = b", "write one * in each name, or none"),
        ("a = b\na = c", ONCE),
        ("a = b\nb = a", "name what the dut has, once"),
    ],
)
def test_refused_rules_say_what_to_do(tmp_path: Path, text: str, next_step: str) -> None:
    with pytest.raises(InputError) as caught:
        rules(tmp_path, text)
    assert caught.value.next_step == next_step


def test_unreadable_rules_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "names.alias").mkdir()
    with pytest.raises(InputError) as caught:
        read_aliases(tmp_path / "names.alias")
    assert caught.value.next_step == "give a file of alias rules"
    latin = tmp_path / "latin"
    latin.write_bytes(b"\xe9 = b\n")
    with pytest.raises(InputError) as caught:
        read_aliases(latin)
    assert caught.value.message == f"{latin}: encoding is not UTF-8"
    assert caught.value.next_step == "write the file as UTF-8"


def test_a_mark_of_utf_8_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbfa = b\n")
    assert [rule.dut for rule in read_aliases(path)] == [("a",)]


def test_circle_through_three_rules(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the rules lead from a back to a"):
        rules(tmp_path, "a = b\nb = c\nc = a")


def test_names_that_part_and_meet_again_are_followed_once(tmp_path: Path) -> None:
    """Each level doubles the ways: all of them would take years."""
    levels = [f"n{at} = p{at} + q{at}\np{at} + q{at} = n{at + 1}" for at in range(60)]
    assert len(rules(tmp_path, "\n".join(levels))) == 120
    with pytest.raises(InputError, match="the rules lead from n0 back to n0"):
        rules(tmp_path, "\n".join([*levels, "n60 = n0"]))


def test_a_name_may_be_any_letter(tmp_path: Path) -> None:
    assert [rule.dut for rule in rules(tmp_path, "X = b\nx* = c*")] == [("X",), ("x*",)]


def test_a_free_name_and_a_field_outside_the_layers_are_two_keys(tmp_path: Path) -> None:
    entries = {
        name: [Entry(Key.of_name(tag), at) for at, tag in enumerate((name, f"t0_{name}"))]
        for name in ("x", "z")
    }
    ref, dut = (Dump({}, {"": entries[name]}, "a dump") for name in ("x", "z"))
    given = apply_aliases(rules(tmp_path, "z = x"), ref, dut)
    assert given.notes == ["alias line 1: z = x: 2 keys renamed"]
    assert compare_dumps(ref, given.dut).counts.same == 2


@pytest.mark.parametrize("pos", [0, 1, 2])
def test_two_names_for_the_only_key_are_refused(tmp_path: Path, pos: int) -> None:
    dut = made(f"t{pos}_l0_out", f"t{pos}_l0_attn")
    with pytest.raises(InputError, match="the dut has out and also attn"):
        apply_aliases(rules(tmp_path, "out = attn"), made(f"t{pos}_l0_attn"), dut)


@pytest.mark.parametrize("name", ["fnv1a64", "kestrel-fnv"])
def test_parts_are_hashed_as_the_dut_was(tmp_path: Path, name: str) -> None:
    def side(tensors: dict[str, np.ndarray]) -> Dump:
        kinds = {tag: TensorType("f32", array.shape) for tag, array in tensors.items()}
        entries = [Entry(Key.parse(tag), 1, kind) for tag, kind in kinds.items()]
        return Dump({"hash": name}, {"": entries}, "a dump")

    whole = {"t0_l0_kv": np.concatenate([K, V], 1)}
    given, load = apply_to_tensors(
        rules(tmp_path, "kv = k + v"),
        side({"t0_l0_k": K, "t0_l0_v": V}),
        side(whole),
        lambda tag: Tensor(whole[tag], "f32"),
    )
    digests = {entry.key.tag: entry.digest for entry in given.dut.entries}
    assert digests == {
        f"t0_l0_{part}": fnv1a64_array(array, BASES[name]) for part, array in (("k", K), ("v", V))
    }
    assert load("t0_l0_v").array.tobytes() == V.tobytes()


def test_names_without_a_match_and_two_rules_for_one_key_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        apply_aliases(rules(tmp_path, "z = x"), dump("x"), dump("y"))
    assert caught.value.next_step == "name what a dump has, or take the rule out"
    two = rules(tmp_path, "h1 = x\nh* = y*")
    with pytest.raises(InputError) as caught:
        apply_aliases(two, dump("x", "y1"), dump("h1", "h1x"))
    assert caught.value.message.endswith("h1 has a rule already, on line 1")
    assert caught.value.next_step == ONCE


def test_two_names_of_the_dut_may_be_one_of_the_ref_at_other_positions(tmp_path: Path) -> None:
    """The dut renamed a field half-way: its two places become one."""
    ref = made(*(f"t{pos}_l0_{name}" for pos in range(12) for name in ("nrm", "attn")))
    names = ["attn" if pos < 6 else "out" for pos in range(12)]
    dut = made(*(f"t{pos}_l0_{name}" for pos in range(12) for name in ("nrm", names[pos])))
    given = apply_aliases(rules(tmp_path, "out = attn"), ref, dut)
    tree = compare_dumps(ref, given.dut)
    assert (tree.verdict, tree.counts.same, tree.counts.total) == (Verdict.SAME, 24, 24)
    assert given.notes == ["alias line 1: out = attn: 6 keys renamed"]


@pytest.mark.parametrize("pos", [0, 1, 5])
def test_two_names_of_the_dut_for_one_key_of_the_ref_are_refused(tmp_path: Path, pos: int) -> None:
    names = ("nrm", "kraw", "q", "attn", "x")
    ref = made(*(f"t{at}_l0_{name}" for at in range(6) for name in names))
    tags = [f"t{at}_l0_{name}" for at in range(6) for name in ("nrm", "kraw", "q", "x")]
    dut = made(*tags, *(f"t{at}_l0_out" for at in range(6)), f"t{pos}_l0_attn")
    with pytest.raises(InputError) as caught:
        apply_aliases(rules(tmp_path, "out = attn"), ref, dut)
    assert caught.value.message.endswith("the dut has out and also attn")
    assert caught.value.next_step == "take the rule out, or one of the two keys"


def test_a_fused_key_and_a_part_of_it_at_another_position(tmp_path: Path) -> None:
    ref = made("t0_l0_q", "t0_l0_k", "t1_l0_q", "t1_l0_k", "t1_l0_x")
    dut = made("t0_l0_qk", "t1_l0_q", "t1_l0_k", "t1_l0_x")
    given = apply_aliases(rules(tmp_path, "qk = q + k"), ref, dut)
    tree = compare_dumps(ref, given.dut, apart=given.apart)
    assert tree.counts.not_comparable == 3
    assert tree.counts.same == 3
    both = made("t0_l0_qk", "t0_l0_k", "t1_l0_q", "t1_l0_x")
    with pytest.raises(InputError, match="the dut has qk and also k"):
        apply_aliases(rules(tmp_path, "qk = q + k"), ref, both)


def test_a_layer_without_all_parts_hides_no_later_layer(tmp_path: Path) -> None:
    ref = made("t0_l0_q", "t0_l1_q", "t0_l1_k", "t0_l2_q", "t0_l2_k")
    dut = made("t0_l0_qk", "t0_l1_qk", "t0_l2_qk")
    given = apply_aliases(rules(tmp_path, "qk = q + k"), ref, dut)
    tree = compare_dumps(ref, given.dut, apart=given.apart)
    found = {row.key: row.state for row in tree.keys}
    assert found["t0_l0_q"] == KeyState.MISSING
    assert found["t0_l0_qk"] == KeyState.EXTRA
    assert {found[f"t0_l{at}_{name}"] for at in (1, 2) for name in ("q", "k", "qk")} == {
        KeyState.NOT_COMPARABLE
    }


def test_two_rules_of_tensors_each_say_what_they_did(tmp_path: Path) -> None:
    whole = np.r_[K.reshape(-1), V.reshape(-1)].reshape(4, 2)
    ref = keyed(nrm=V, kv=whole, a=K, b=V)
    dut = keyed(nrm=V, k=K.reshape(-1), v=V.reshape(-1), ab=np.concatenate([K, V], 1))
    result = compared(tmp_path, ref, dut, "k + v = kv\nab = a + b\n")
    assert (result.status, result.stderr) == (0, "")
    tree = tree_of(tmp_path)
    assert (tree.counts.same, tree.counts.total) == (8, 8)
    assert tree.notes[-2:] == [
        "alias line 1: k + v = kv: 4 keys of the dut compared as 2, in flat order",
        "alias line 2: ab = a + b: 2 keys of the dut compared as 4, along axis 1",
    ]


def test_a_rule_that_does_not_fit_sets_apart_its_own_keys_alone(tmp_path: Path) -> None:
    ref = keyed(nrm=V, kv=V, a=K, b=V)
    dut = keyed(nrm=V, k=K, v=V, ab=np.concatenate([K, V], 1))
    result = compared(tmp_path, ref, dut, "k + v = kv\nab = a + b\n")
    tree = tree_of(tmp_path)
    assert (result.status, tree.counts.same, tree.counts.not_comparable) == (3, 6, 6)
    states = {row.key: row.state for row in tree.keys}
    assert states["t1_l0_a"] == states["t1_l0_b"] == KeyState.SAME
    assert states["t1_l0_kv"] == states["t1_l0_k"] == KeyState.NOT_COMPARABLE


def test_shapes_are_those_of_each_position(tmp_path: Path) -> None:
    """Each position has more rows than the one before: its own shapes say where to cut."""
    ref = {f"t{pos}_l0_q": np.tile(K, (pos + 1, 1)) for pos in range(3)}
    ref |= {f"t{pos}_l0_k": np.tile(V, (pos + 1, 1)) for pos in range(3)}
    pairs = {pos: [ref[f"t{pos}_l0_{name}"] for name in "qk"] for pos in range(3)}
    dut = {f"t{pos}_l0_qk": np.concatenate(pairs[pos], 1) for pos in range(3)}
    result = compared(tmp_path, ref, dut, "qk = q + k")
    assert (result.status, tree_of(tmp_path).counts.same) == (0, 6)
