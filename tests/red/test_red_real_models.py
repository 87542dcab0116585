"""next-tiny on the command line: same with every key, and a wrong shared expert at its key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.status import Verdict
from parity.tree import Cause, Tree
from tests.cli_runner import Result, run_cli

FAULTS = "tests.red.shared_faults"
NEXT = ("--model", "next-tiny", "--tokens", "1,2,3", "--n", "3")
# With +ffn 23 keys in a Gated DeltaNet layer, 20 with full attention, and 2.
KEYS = 3 * (6 * 23 + 2 * 20 + 2)


def diff(tmp_path: Path, dut: str, *words: str) -> tuple[int, Tree]:
    path = tmp_path / "run.json"
    result = run_cli("diff", *NEXT, "--ref", "cpu", "--dut", dut, *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


@pytest.mark.parametrize("dut", ["emu", "cpu"])
def test_every_key_is_the_same(tmp_path: Path, dut: str) -> None:
    status, tree = diff(tmp_path, dut, "--fields", "+ffn")
    assert (status, tree.verdict) == (0, Verdict.SAME)
    assert (tree.counts.same, tree.counts.total) == (KEYS, KEYS)
    assert tree.control is not None
    assert tree.control.fired


def test_the_default_fields(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "emu")
    assert (status, tree.counts.same) == (0, 3 * (6 * 13 + 2 * 10 + 2))


@pytest.mark.parametrize(
    ("fault", "key"),
    [
        ("first", "t3_l0_x"),
        ("ungated", "t3_l0_x"),
        ("after_residual", "t3_l0_x"),
        ("unsquashed", "t3_l0_gs"),
    ],
)
def test_red_wrong_shared_expert(tmp_path: Path, fault: str, key: str) -> None:
    """The verdict is the start state's where the prefill went wrong too: from the ref's state the
    decode shows where."""
    dut = f"{FAULTS}:PatchedShared@fault={fault}"
    status, tree = diff(tmp_path, dut, "--fields", "+ffn", "--prefill", "ref")
    assert (status, tree.verdict, tree.first) == (1, Verdict.DIVERGED, key)
    born = [row.key for row in tree.keys if row.cause == Cause.BORN]
    assert key in born
    assert {name.rpartition("_")[2] for name in born} == {key.rpartition("_")[2]}


def test_red_shared_expert_of_another_width(tmp_path: Path) -> None:
    dut = f"{FAULTS}:NarrowShared"
    status, tree = diff(tmp_path, dut, "--fields", "+ffn", "--prefill", "ref")
    assert (status, tree.verdict, tree.first) == (1, Verdict.DIVERGED, "t3_l0_sh")
    status, tree = diff(tmp_path, dut, "--prefill", "ref")
    assert (status, tree.first) == (1, "t3_l0_x")


# --- rows and going back --------------------------------------------------------------------------


def probe(tmp_path: Path, command: str, engine: str, *words: str) -> tuple[Result, dict]:
    path = tmp_path / "found.json"
    asked = ("--engine", engine, "--model", "next-tiny", "--pos", "5", "--m", "2,3", *words)
    result = run_cli(command, *asked, "--json", str(path))
    assert path.exists(), result.stderr
    return result, json.loads(path.read_text())


@pytest.mark.parametrize("engine", ["cpu", "emu"])
@pytest.mark.parametrize("command", ["isodiff", "rollback"])
def test_rows_and_rollback_hold(tmp_path: Path, command: str, engine: str) -> None:
    result, found = probe(tmp_path, command, engine)
    assert (result.status, found["verdict"]) == (0, "same")


def test_red_a_gate_of_another_row(tmp_path: Path) -> None:
    """Single steps hold; the second row of a block does not."""
    engine = f"{FAULTS}:PatchedShared@fault=gate_of_row_0"
    result, found = probe(tmp_path, "isodiff", engine)
    assert (result.status, found["verdict"]) == (1, "diverged")
    assert "t6_l0_x" in result.stdout
