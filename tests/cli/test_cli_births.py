"""parity diff names births, stability and margins; verdicts and statuses stay what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.tree import Cause, Stability, Tree
from tests.cli.running import SHORT, diff, faulty, written_dump
from tests.cli_runner import run_cli

BIRTHS = "tests.red.birth_engines"
PLANTED = "tests.red.planted:Planted"


def test_birth_stands_in_the_tree(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", f"{PLANTED}@keys=t4_l2_attn")
    assert (status, tree.verdict, tree.first) == (1, "diverged", "t4_l2_attn")
    assert tree.births is not None
    (birth,) = tree.births.found
    assert (birth.key, birth.op) == ("t4_l2_attn", "attention (contract 1.8)")
    assert (birth.how, birth.dumped, birth.state, birth.clean) == ("replay", True, "differs", True)
    assert birth.ref_kernels == birth.dut_kernels == ["quant8", "attention_int8"]
    assert birth.elements is not None
    assert (birth.elements.key, birth.elements.differ) == ("t4_l2_attn", 1)
    assert birth.elements == tree.elements
    row = next(row for row in tree.keys if row.key == birth.key)
    assert (row.ref, row.dut) == (birth.ref, birth.dut)
    assert (tree.births.complete, tree.births.reruns) == (True, 2)
    # One step forced at each of t4 and t5, and one more for what ran.
    assert tree.births.replays == 3
    assert (tree.stability, tree.margins) == (Stability(2), [])


def test_births_with_the_emulated_kernels(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", "emu:exact+fold_p", "--prefill", "ref", "--n", "1")
    assert (status, tree.first) == (1, "t3_l0_x")
    assert tree.births is not None
    first = tree.births.found[0]
    assert (first.key, first.dumped, first.state) == ("t3_l0_down", False, "")
    assert first.ref_kernels == ["quant16", "expert_matvec"]
    assert first.dut_kernels == ["quant16", "expert_matvec"]
    row = next(row for row in tree.keys if row.key == "t3_l0_x")
    assert (row.cause, row.source) == (Cause.BORN, "")


def test_detail_is_kept_for_the_first_birth_of_a_field(tmp_path: Path) -> None:
    _, tree = diff(tmp_path, "--dut", "cpu:fast", "--prefill", "ref", "--n", "2")
    assert tree.births is not None
    detailed = [birth for birth in tree.births.found if birth.elements is not None]
    fields = [birth.key.rsplit("_", 1)[1] for birth in detailed]
    assert len(fields) == len(set(fields)) == 8
    assert len(tree.births.found) > 50
    assert {bool(birth.dut_kernels) for birth in detailed} == {True}


def test_green_run_has_nothing_of_it(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", "cpu")
    assert (status, tree.births, tree.stability, tree.margins) == (0, None, None, [])


def test_flip_has_its_margin(tmp_path: Path) -> None:
    """A stale row of the prompt: 32 tokens, and two other choices in four steps."""
    path = tmp_path / "run.json"
    dut = "tests.red.faults:LostRow"
    status = run_cli("diff", "--dut", dut, "--json", str(path)).status
    tree = Tree.from_json(path.read_text())
    flips = [row for row in tree.greedy if row[1] != row[2]]
    assert status == 1
    assert len(flips) > 0
    assert [(m.pos, m.ref_id, m.dut_id) for m in tree.margins] == flips
    first = tree.margins[0]
    assert first.gap is not None
    assert first.gap > 0
    assert first.text.startswith(f"ref {first.ref_id} over {first.dut_id} by {first.gap:,} ULP; ")


def test_flip_of_the_prompt_s_last_token_has_its_margin(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--dut", faulty("OwnChoice"))
    assert (status, tree.first) == (1, "t2_logits")
    assert tree.margins[0].pos == 2
    assert tree.births is None


def test_margins_end_where_the_tokens_part(tmp_path: Path) -> None:
    _, tree = diff(tmp_path, "--dut", faulty("OwnChoice"), "--tokens-from", "own")
    assert [margin.pos for margin in tree.margins] == [2]
    assert len([row for row in tree.greedy if row[1] != row[2]]) > 1


# --- a side that differs from itself --------------------------------------------------------------


@pytest.mark.parametrize("bisect", [(), ("--bisect",)], ids=["linear", "bisect"])
def test_rerun_that_differs_later_than_the_first_key_is_unstable(
    tmp_path: Path, bisect: tuple[str, ...]
) -> None:
    """The first differing key is repeatable; in the whole rerun t4_l2_attn is not."""
    status, tree = diff(tmp_path, "--dut", f"{BIRTHS}:RacingLater", *bisect)
    if bisect:  # one layer is asked twice, and that one repeats
        assert (status, tree.verdict, tree.first) == (1, "diverged", "t3_l0_x")
        return
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t4_l2_attn")
    assert tree.reason == "dut differs from itself at t4_l2_attn: a rerun gave another digest"
    assert tree.stability is not None
    found = tree.stability
    assert (found.runs, found.side, found.key, found.run) == (2, "dut", "t4_l2_attn", 2)
    assert found.tree is not None
    assert (found.tree.first, found.tree.counts.total) == ("t4_l2_attn", 138)
    assert tree.births is None
    assert {row.cause for row in tree.keys} == {""}


@pytest.mark.parametrize("role", ["ref", "dut"])
def test_engine_against_a_dump_is_asked_twice_too(tmp_path: Path, role: str) -> None:
    path = str(written_dump(tmp_path))
    sides = {"ref": path, "dut": path, role: faulty("Once")}
    status, tree = diff(tmp_path, "--ref", sides["ref"], "--dut", sides["dut"])
    assert (status, tree.verdict, tree.first) == (1, "unstable", "t3_l3_x")
    assert tree.reason.startswith(f"{role} differs from itself at t3_l3_x")
    assert tree.stability is not None
    assert tree.stability.side == role
    other = {**sides, role: faulty("Moved", key="t4_l1_v")}
    status, tree = diff(tmp_path, "--ref", other["ref"], "--dut", other["dut"])
    assert (status, tree.verdict, tree.first) == (1, "diverged", "t4_l1_v")


# --- one hash for many keys -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("FrozenTap", "138 keys of the dut have one hash, 000000000000004d (t3_l0_nrm, "),
        ("StaleBuffer", "4 keys of the dut have one hash, "),
    ],
)
def test_red_tap_with_one_hash_is_remarked_upon(tmp_path: Path, name: str, note: str) -> None:
    status, tree = diff(tmp_path, "--dut", f"{BIRTHS}:{name}")
    assert (status, tree.verdict) == (1, "diverged")
    assert [note for found in tree.notes if found.startswith(note)] == [note]
    path = tmp_path / "dut.dump"
    run_cli("dump", "--engine", f"{BIRTHS}:{name}", "-o", str(path), *SHORT)
    ref = written_dump(tmp_path)
    for words in (
        ("compare", str(ref), str(path)),
        ("diff", "--ref", str(ref), "--dut", str(path)),
    ):
        said = run_cli(*words, *(SHORT if words[0] == "diff" else ()), "--json", "-")
        notes = Tree.from_json(said.stdout).notes
        assert any(found.startswith(note) for found in notes), notes


def test_green_run_has_no_remark(tmp_path: Path) -> None:
    _, tree = diff(tmp_path, "--dut", "emu", "--dump-prefill", "--fields", "+ffn")
    assert tree.notes == []
