"""``parity compare --alias``: statuses, what is printed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.tree import KeyState, Tree
from tests.cli.running import said, written_dump
from tests.cli_runner import Result, run_cli

ONE, OTHER = "0123456789abcdef", "fedcba9876543210"


def renamed(path: Path, name: str, **names: str) -> Path:
    """A copy of a dump in which fields have other names."""
    text = path.read_text()
    for old, new in names.items():
        text = text.replace(f"_{old} ", f"_{new} ")
    copy = path.with_name(name)
    copy.write_text(text)
    return copy


def compared(folder: Path, ref: Path, dut: Path, rules: str, *words: str) -> Result:
    (folder / "names").write_text(rules)
    return run_cli("compare", str(ref), str(dut), "--alias", str(folder / "names"), *words)


def test_a_dump_with_other_names_compares_as_the_same(tmp_path: Path) -> None:
    ref = written_dump(tmp_path)
    dut = renamed(ref, "dut.dump", attn="attention", x="hidden.out")
    assert run_cli("compare", str(ref), str(dut), "-q").status == 1
    rules = "attention = attn\nhidden.out = x\n"
    result = compared(tmp_path, ref, dut, rules, "-q")
    assert said(result) == (0, "same: 138 of 138 keys, level bit, control: dump level\n", "")
    printed = compared(tmp_path, ref, dut, rules).stdout
    assert "alias line 1: attention = attn: 12 keys renamed" in printed
    assert "alias line 2: hidden.out = x: 12 keys renamed" in printed


def test_red_a_difference_behind_an_alias_is_found_under_the_refs_name(tmp_path: Path) -> None:
    ref = written_dump(tmp_path)
    dut = renamed(ref, "dut.dump", attn="attention")
    lines = dut.read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("t4_l2_attention "))
    lines[at] = f"t4_l2_attention {ONE} {lines[at].split(' ')[2]}"
    dut.write_text("\n".join(lines) + "\n")
    result = compared(tmp_path, ref, dut, "attention = attn", "-q")
    assert said(result) == (1, "diverged: t4_l2_attn, 1 of 138 keys, level logits\n", "")


@pytest.mark.parametrize("level", ["bit", "logits", "greedy"])
def test_fused_keys_are_not_green_at_any_level(tmp_path: Path, level: str) -> None:
    ref, dut = tmp_path / "ref.dump", tmp_path / "dut.dump"
    ref.write_text(f"t0_l0_q {ONE}\nt0_l0_k {ONE}\nt0_logits {ONE}\n")
    dut.write_text(f"t0_l0_qk {OTHER}\nt0_logits {ONE}\n")
    result = compared(tmp_path, ref, dut, "qk = q + k", "-q", "--level", level)
    assert said(result) == (3, "not run: 1 keys are the same, 3 are not comparable\n", "")
    printed = compared(tmp_path, ref, dut, "qk = q + k", "--json", "-").stdout
    tree = Tree.from_json(printed)
    assert [row.state for row in tree.keys] == [*[KeyState.NOT_COMPARABLE] * 3, KeyState.SAME]
    assert sorted((row.ref is None, row.dut is None) for row in tree.keys) == [
        *[(False, False), (False, True), (False, True), (True, False)],
    ]
    shown = compared(tmp_path, ref, dut, "qk = q + k").stdout
    assert "3 keys not comparable: the digest of a whole does not tell of its parts" in " ".join(
        shown.split()
    )


def test_fused_keys_stay_not_comparable_where_the_tokens_part(tmp_path: Path) -> None:
    """The keys before the other token are counted again, under the same rules."""
    ref, dut = tmp_path / "ref.dump", tmp_path / "dut.dump"
    steps = [f"t{pos}_l0_q {ONE}\nt{pos}_l0_k {ONE}\nt{pos}_logits {ONE}\n" for pos in (0, 1)]
    ref.write_text("# tokens 5,6\n" + "".join(steps))
    fused = [f"t{pos}_l0_qk {ONE}\nt{pos}_logits {OTHER}\n" for pos in (0, 1)]
    dut.write_text("# tokens 5,7\n" + "".join(fused))
    result = compared(tmp_path, ref, dut, "qk = q + k", "--json", "-")
    counts = Tree.from_json(result.stdout).counts
    assert (result.status, counts.differ, counts.not_comparable) == (1, 1, 7)
    assert (counts.missing, counts.extra) == (0, 0)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("attn", "line 1: not a rule: 'attn'"),
        ("\na = attn\n", "line 2: no key of the dut is named a"),
        ("attn = a\n", "line 1: no key of the ref is named a"),
        ("attn = x", "line 1: the dut has attn and also x"),
        ("# none\n", "no rule in it"),
    ],
)
def test_red_rules_are_refused_in_one_line(tmp_path: Path, rules: str, problem: str) -> None:
    path = written_dump(tmp_path)
    result = compared(tmp_path, path, path, rules, "--json", str(tmp_path / "tree.json"))
    assert (result.status, result.stdout) == (2, "")
    message, next_step = result.stderr.splitlines()
    assert problem in message
    assert message.startswith(f"parity: {tmp_path / 'names'}")
    assert next_step.startswith("  next: ")
    assert not (tmp_path / "tree.json").exists()


def test_red_a_report_over_the_rules(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    result = compared(tmp_path, path, path, "a = b", "--json", str(tmp_path / "names"))
    assert result.status == 2
    assert "already taken by the input" in result.stderr
    assert (tmp_path / "names").read_text() == "a = b"


def test_red_rules_that_cannot_be_read(tmp_path: Path) -> None:
    path = str(written_dump(tmp_path))
    for rules, problem in ((tmp_path, "Is a directory"), (tmp_path / "gone", "No such file")):
        result = run_cli("compare", path, path, "--alias", str(rules))
        assert (result.status, result.stdout) == (2, "")
        assert result.stderr.startswith(f"parity: {rules}: {problem}")


def test_diff_takes_the_rules_for_a_dut_that_was_written(tmp_path: Path) -> None:
    dump = tmp_path / "ref.dump"
    assert run_cli("dump", "--engine", "cpu", "--n", "1", "-o", str(dump)).status == 0
    dut, rules = renamed(dump, "dut.dump", attn="attention"), tmp_path / "names"
    rules.write_text("attention = attn\n")
    words = ("diff", "--n", "1", "--dut", str(dut), "-q")
    for ref in ("cpu", str(dump)):
        assert run_cli(*words, "--ref", ref).status == 1
        found = run_cli(*words, "--ref", ref, "--alias", str(rules))
        assert (found.status, found.stdout[:13]) == (0, "same: 46 of 4")
    lines = [line for line in dut.read_text().splitlines(keepends=True) if "_x " not in line]
    dut.write_text("".join(lines))
    rules.write_text("attention = attn + x\n")  # digests do not tell of parts: never green
    assert run_cli(*words, "--ref", "cpu", "--alias", str(rules)).status == 3
    refused = run_cli("diff", "--dut", "cpu", "--alias", str(rules))
    assert (refused.status, refused.stderr.splitlines()[0]) == (
        2,
        "parity: --alias needs a dut that is a file or a program",
    )
