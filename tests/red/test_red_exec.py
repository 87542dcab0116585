"""Programs with one fault each: what the probes say of them, and with which status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.tree import Tree
from tests.cli_runner import run_cli
from tests.programs.specs import EXAMPLE, twin

ISODIFF = ("isodiff", "--m", "2..4", "--pos", "3:3")
ROLLBACK = ("rollback", "--m", "2,3", "--pos", "3:3")


def found(tmp_path: Path, words: tuple[str, ...], spec: str) -> tuple[int, dict[str, Any]]:
    """Status and what the probe found."""
    path = tmp_path / "found.json"
    result = run_cli(*words, "--engine", spec, "--json", str(path), "-q")
    assert path.exists(), result.stderr
    return result.status, json.loads(path.read_text())


def stable(tmp_path: Path, spec: str, *words: str) -> tuple[int, Tree]:
    path = tmp_path / "tree.json"
    result = run_cli("stable", "--engine", spec, "--json", str(path), "-q", *words)
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


@pytest.mark.parametrize("words", [ISODIFF, ROLLBACK], ids=["isodiff", "rollback"])
def test_the_program_without_a_fault_is_green(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, told = found(tmp_path, words, EXAMPLE)
    assert (status, told["verdict"], told["first"]) == (0, "same", None)
    assert told["compared"] > 80
    assert "control fired" in told["brief"]


def test_a_served_engine_may_print(tmp_path: Path) -> None:
    status, told = found(tmp_path, ISODIFF, twin("Chatty"))
    assert (status, told["verdict"]) == (0, "same")


@pytest.mark.parametrize(
    ("fault", "first", "brief"),
    [
        ("Rows", "t5_l1_attn", "M 3, pos 3, t5_l1_attn, born here"),
        ("Ahead", "t3_l0_attn", "M 2, pos 3, col 0, t3_l0_attn, born here"),
        ("Unread", "t4_l0_attn", "M 2, pos 3, col 1, t4_l0_attn, born here"),
        ("Scores", None, "M 2, pos 3, state differs, first at l0_k row 0 (position 0)"),
        (
            "Tapped",
            None,
            "M 2, pos 3, col 0, the logits of rows without a tap differ from single steps with one",
        ),
    ],
)
def test_red_rows(tmp_path: Path, fault: str, first: str | None, brief: str) -> None:
    status, told = found(tmp_path, ISODIFF, twin(fault))
    assert (status, told["verdict"]) == (1, "diverged")
    assert (told["first"], told["brief"]) == (first, brief)


def test_red_rows_are_told_with_the_op_and_the_row(tmp_path: Path) -> None:
    facts = dict(found(tmp_path, ISODIFF, twin("Rows"))[1]["facts"])
    assert facts["cause"] == ("attention (contract 1.8), row 2 of 3; every key before it is equal")
    facts = dict(found(tmp_path, ISODIFF, twin("Unread"))[1]["facts"])
    assert facts["cause"].endswith(
        "not finite, as KV rows past the length are here: are they read?"
    )


def test_red_rows_that_are_not_batched(tmp_path: Path) -> None:
    status, told = found(tmp_path, ISODIFF, twin("Looped"))
    assert (status, told["verdict"]) == (3, "not_run")
    assert told["brief"] == "M = 2..4: as many calls as single steps: nothing was batched"


@pytest.mark.parametrize(
    ("fault", "brief"),
    [
        ("Length", "M = 2, accept 0: lengths (and 4 more) was not restored"),
        ("Scores", "M = 2, accept 0: k of layer 0 was not restored"),
        ("NoMark", "rollback without a mark: was not refused"),
    ],
)
def test_red_rollback(tmp_path: Path, fault: str, brief: str) -> None:
    status, told = found(tmp_path, ROLLBACK, twin(fault))
    assert (status, told["verdict"], told["brief"]) == (1, "diverged", brief)


@pytest.mark.parametrize(
    ("fault", "first", "run"), [("Unstable", "t33_l1_attn", 2), ("Fresh", "t33_l0_attn", 3)]
)
def test_red_program_that_is_not_stable(tmp_path: Path, fault: str, first: str, run: int) -> None:
    status, tree = stable(tmp_path, twin(fault), "--n", "3", "--steps", "2")
    assert (status, tree.verdict, tree.first) == (1, "unstable", first)
    assert tree.reason == f"not repeatable, first at {first} in run {run}"


def test_red_nan_is_never_green(tmp_path: Path) -> None:
    status, tree = stable(tmp_path, twin("NotANumber"), "--n", "2", "--steps", "2")
    assert (status, tree.verdict) == (3, "not_run")
    assert tree.reason.startswith("not finite with the same bytes: t33_logits (ref 1 from index 7")


@pytest.mark.parametrize("sides", [(EXAMPLE, "Rows"), ("Fresh", EXAMPLE)])
def test_red_diff_of_two_programs(tmp_path: Path, sides: tuple[str, str]) -> None:
    """Single steps of Rows have no fault; Fresh differs from itself too, and is told so."""
    specs = [side if side == EXAMPLE else twin(side) for side in sides]
    path = tmp_path / "tree.json"
    words = ("diff", "--ref", specs[0], "--dut", specs[1], "--n", "2", "--json", str(path))
    status = run_cli(*words).status
    tree = Tree.from_json(path.read_text())
    if "Rows" in sides:
        assert (status, tree.verdict, tree.counts.same) == (0, "same", 18)
    else:
        assert (status, tree.verdict, tree.first) == (1, "diverged", "t33_l0_attn")
