"""What public bug reports of comparison tools describe, tried on ``parity compare``: B01 to B06.

The cases are paraphrased reports of other projects; each test states the right outcome.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from parity.tree import KeyState, Tree
from tests.cli.running import said
from tests.cli_runner import Result, run_cli

HASHES = ("0123456789abcdef", "fedcba9876543210", "00000000000000ff")
THREE = "".join(f"t0_l0_{name} {value}\n" for name, value in zip("qkv", HASHES, strict=True))


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def compared(folder: Path, ref: str | bytes, dut: str | bytes, *words: str) -> Result:
    """``parity compare ref.dump dut.dump``, with the tree in ``tree.json``."""
    sides = write(folder, "ref.dump", ref), write(folder, "dut.dump", dut)
    return run_cli("compare", *map(str, sides), "--json", str(folder / "tree.json"), *words)


def tree_of(folder: Path) -> Tree:
    return Tree.from_json((folder / "tree.json").read_text())


def refused(result: Result) -> str:
    """The one line of a refusal."""
    assert (result.status, result.stdout) == (2, "")
    message, next_step = result.stderr.splitlines()
    assert next_step.startswith("  next: ")
    return message


# B01: nothing compared, yet green


def test_b01_a_missing_key_is_named_at_its_place(tmp_path: Path) -> None:
    result = compared(tmp_path, THREE, "".join(THREE.splitlines(True)[:2]), "-q")
    assert (result.status, result.stderr) == (1, "")
    tree = tree_of(tmp_path)
    assert (tree.first, tree.counts.missing, tree.counts.same) == ("t0_l0_v", 1, 2)
    earlier = THREE.replace(HASHES[2], HASHES[0]).splitlines(True)
    assert compared(tmp_path, THREE, "".join([earlier[0], earlier[2]])).status == 1
    assert tree_of(tmp_path).first == "t0_l0_k"


@pytest.mark.parametrize(
    ("ref", "dut", "reason"),
    [
        (THREE, "", "no keys in dut"),
        ("", THREE, "no keys in ref"),
        ("", "", "no keys in ref and dut"),
        (THREE, THREE.replace("t0_", "t9_"), "no key in common (ref 3, dut 3)"),
        (THREE, "# a remark\n\n#\n", "no keys in dut"),
        ("# a remark\n", "\n\n", "no keys in ref and dut"),
    ],
    ids=["dut empty", "ref empty", "both empty", "no name shared", "remarks", "remarks and blanks"],
)
@pytest.mark.parametrize("level", ["bit", "logits", "greedy"])
def test_b01_nothing_compared_is_never_green(
    tmp_path: Path, ref: str, dut: str, reason: str, level: str
) -> None:
    result = compared(tmp_path, ref, dut, "-q", "--level", level)
    assert said(result) == (3, f"not run: nothing compared: {reason}\n", "")


def test_b01_an_extra_key_is_no_pass(tmp_path: Path) -> None:
    result = compared(tmp_path, THREE, f"{THREE}t1_l0_q {HASHES[0]}\n", "-q")
    assert (result.status, tree_of(tmp_path).first) == (1, "t1_l0_q")
    assert tree_of(tmp_path).counts.extra == 1


def test_b01_a_pass_states_how_many_keys_were_compared(tmp_path: Path) -> None:
    assert "same: 3 of 3 keys" in compared(tmp_path, THREE, THREE, "-q").stdout
    assert "3 of 3 keys" in compared(tmp_path, THREE, THREE).stdout


# B02: NaN and infinity slip through the drill-down


@pytest.mark.parametrize("words", [(), ("--level", "logits"), ("--level", "greedy")])
@pytest.mark.parametrize("swapped", [False, True])
def test_b02_special_values_differ_at_any_level(
    tmp_path: Path, words: tuple[str, ...], swapped: bool
) -> None:
    ref = np.arange(8, dtype=np.float32)
    dut = ref.copy()
    ref[3], dut[3] = (np.nan, 5.0) if swapped else (5.0, np.nan)
    ref[5], dut[5] = np.inf, -np.inf
    ref[6], dut[6] = 1, np.nextafter(np.float32(1), np.float32(2))
    ref[7], dut[7] = np.nan, -np.inf
    for name, array in (("ref", ref), ("dut", dut)):
        np.savez(tmp_path / f"{name}.npz", t0_l0_x=array)
    sides = str(tmp_path / "ref.npz"), str(tmp_path / "dut.npz")
    result = run_cli("compare", *sides, *words, "--json", str(tmp_path / "tree.json"))
    assert (result.status, result.stderr) == (1, "")
    elements = tree_of(tmp_path).elements
    assert elements is not None
    assert (elements.differ, elements.rows[0].index) == (4, (3,))
    kinds = {row.index[0]: row.kind for row in elements.rows}
    assert kinds[3] == ("NaN in ref" if swapped else "NaN in dut")
    assert (kinds[5], kinds[7]) == ("infinity", "NaN in ref")
    assert elements.max_ulp is not None
    assert "nan" not in str(elements.max_ulp)
    assert "NaN in" in result.stdout


# B04: same dump, other text encoding

ENCODED = {
    "CR LF": (THREE.replace("\n", "\r\n").encode(), ""),
    "UTF-8 mark": (b"\xef\xbb\xbf" + THREE.encode(), ""),
    "UTF-8 mark and CR LF": (b"\xef\xbb\xbf" + THREE.replace("\n", "\r\n").encode(), ""),
    "trailing blanks": (THREE.replace("\n", "  \n").encode() + b"\n", ""),
    "blank lines": (b"\n" + THREE.replace("\n", "\n\n").encode(), ""),
    "UTF-16LE with mark": (THREE.encode("utf-16"), ": encoding is UTF-16, not UTF-8"),
    "UTF-16LE": (THREE.encode("utf-16-le"), ": encoding is UTF-16, not UTF-8"),
    "UTF-16BE": (THREE.encode("utf-16-be"), ": encoding is UTF-16, not UTF-8"),
    "UTF-32": (THREE.encode("utf-32"), ": encoding is UTF-16, not UTF-8"),
    "Latin-1": (f"# model caf\u00e9\n{THREE}".encode("latin-1"), " line 1: encoding is not UTF-8"),
    "capitals": (THREE.replace("abcdef", "ABCDEF").encode(), " line 1: hash has capital digits"),
    "tab": (THREE.replace(" ", "\t").encode(), " line 1: a tab"),
    "lone CR": (THREE.replace("\n", "\r").encode(), " line 1: a carriage return inside the line"),
}


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("side", ["ref", "dut"])
def test_b04_another_encoding_is_the_same_or_refused(tmp_path: Path, name: str, side: str) -> None:
    data, problem = ENCODED[name]
    sides: tuple[str | bytes, str | bytes] = (data, THREE) if side == "ref" else (THREE, data)
    result = compared(tmp_path, *sides, "-q")
    if problem:
        assert refused(result).startswith(f"parity: {tmp_path / f'{side}.dump'}{problem}")
    else:
        assert result.status == 0
        assert tree_of(tmp_path).notes == [
            f"dtype and shape not recorded in {role} (3 keys): digest alone compared"
            for role in ("ref", "dut")
        ]


# B05: torn last line, spliced lines

STEPS = "".join(
    f"t{pos}_l{layer}_ffn {pos * 31 + layer:016x} f32[4]\n"
    for pos in range(32)
    for layer in range(8)
)
TORN = STEPS[: STEPS.rindex(" f32") - 10]  # ends inside the hash of t31_l7_ffn


def test_b05_a_dump_cut_inside_its_last_hash_is_truncated(tmp_path: Path) -> None:
    message = refused(compared(tmp_path, STEPS, TORN))
    assert message.startswith(f"parity: {tmp_path / 'dut.dump'} line 256: truncated: ")
    assert "t31_l7_ffn" in message


def test_b05_the_good_part_is_compared_on_request_and_labelled(tmp_path: Path) -> None:
    result = compared(tmp_path, STEPS, TORN, "--partial", "-q")
    assert said(result) == (
        *(3, "not run: 255 keys are the same, 1 are not comparable; dut partial\n", ""),
    )
    tree = tree_of(tmp_path)
    assert (tree.counts.same, tree.counts.missing, tree.counts.not_comparable) == (255, 0, 1)
    assert tree.keys[-1].state == KeyState.NOT_COMPARABLE
    assert "dut is partial: cut inside line 256" in tree.notes
    assert "partial" in compared(tmp_path, STEPS, TORN, "--partial").stdout
    changed = STEPS.replace(f"{5:016x}", f"{6:016x}", 1)
    assert compared(tmp_path, changed, TORN, "--partial").status == 1
    assert tree_of(tmp_path).first == "t0_l5_ffn"
    lacking = "".join(line for line in TORN.splitlines(True) if "t3_l3" not in line)
    assert compared(tmp_path, STEPS, lacking, "--partial").status == 1
    assert tree_of(tmp_path).first == "t3_l3_ffn"
    assert compared(tmp_path, TORN, STEPS, "--partial", "-q").status == 3
    assert "ref is partial: cut inside line 256" in tree_of(tmp_path).notes
    result = compared(tmp_path, TORN, TORN, "--partial", "-q")
    reason = "not run: 255 keys are the same, 0 are not comparable; ref and dut partial\n"
    assert said(result) == (3, reason, "")


def test_b05_partial_changes_nothing_of_a_whole_dump(tmp_path: Path) -> None:
    assert compared(tmp_path, STEPS, STEPS, "--partial", "-q").status == 0
    short = "".join(STEPS.splitlines(True)[:-1])
    assert compared(tmp_path, STEPS, short, "--partial", "-q").status == 1
    assert tree_of(tmp_path).first == "t31_l7_ffn"
    assert "line 257: not a key" in refused(
        compared(tmp_path, STEPS, f"{STEPS}rubbish\n", "--partial")
    )


def test_b05_a_torn_line_more_than_the_other_side_has_is_not_green(tmp_path: Path) -> None:
    assert compared(tmp_path, STEPS, f"{STEPS}t32_l0_ff", "--partial", "-q").status == 3


def test_b05_a_whole_last_line_needs_no_line_end(tmp_path: Path) -> None:
    assert compared(tmp_path, STEPS, STEPS.rstrip("\n"), "-q").status == 0


DAMAGED = {
    "spliced": (f"t1_l0_q {HASHES[0]}t1_l0_k {HASHES[1]}\n", "two records on one line"),
    "spliced in the hash": (f"t1_l0_q 0123t1_l0_k {HASHES[1]}\n", "two records on one line"),
    "NUL bytes": ("\0" * 16 + f"t1_l0_q {HASHES[0]}\n", "NUL bytes"),
    "NUL line": ("\0" * 16 + "\n", "NUL bytes"),
    "torn in the middle": ("t1_l0_q 01234567\n", "hash has 8 digits, 16 needed"),
    "repeated": ("t0_l5_ffn 0123456789abcdef\n", "key t0_l5_ffn appears twice"),
    "second dump": ("# format parity-dump 1\n", "a second dump begins inside this one"),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("words", [(), ("--partial",)])
def test_b05_damage_in_the_middle_is_refused_by_line(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    text, problem = DAMAGED[name]
    lines = STEPS.splitlines(True)
    damaged = "".join([*lines[:100], text, *lines[100:]])
    message = refused(compared(tmp_path, STEPS, damaged, *words))
    assert message.startswith(f"parity: {tmp_path / 'dut.dump'} line 101: {problem}")


# B06: the wrong "first" difference


def dump_text(tags: list[str], changed: tuple[str, ...] = ()) -> str:
    return "".join(f"{tag} {HASHES[tag in changed]}\n" for tag in tags)


@pytest.mark.parametrize(
    ("tags", "changed", "first"),
    [
        (
            [
                f"t{pos}_l{layer}_{name}"
                for pos in range(11)
                for layer in range(11)
                for name in "qo"
            ],
            ("t2_l9_o", "t2_l10_q", "t10_l0_q"),
            "t2_l9_o",
        ),
        (
            [f"t0_l{layer}_{name}" for layer in range(2) for name in ("rms", "q")],
            ("t0_l0_rms", "t0_l1_q"),
            "t0_l0_rms",
        ),
    ],
    ids=["numbers", "layer 0"],
)
def test_b06_the_first_is_the_first_in_dataflow(
    tmp_path: Path, tags: list[str], changed: tuple[str, ...], first: str
) -> None:
    assert compared(tmp_path, dump_text(tags), dump_text(tags, changed), "-q").status == 1
    plain = tree_of(tmp_path)
    assert (plain.first, plain.counts.differ) == (first, len(changed))
    shuffled = random.Random(1).sample(tags, len(tags))
    assert compared(tmp_path, dump_text(tags), dump_text(shuffled, changed), "-q").status == 1
    other = tree_of(tmp_path)
    assert (other.first, other.counts, other.keys) == (plain.first, plain.counts, plain.keys)
    noted = [note for note in other.notes if "line order differs" in note]
    assert (len(noted), [n for n in plain.notes if "line order differs" in n]) == (1, [])
