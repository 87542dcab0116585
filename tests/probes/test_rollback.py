"""rollback on the built-in engines: every part restored, for every M and every accept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.comparison.states import compare_states
from parity.model.generator import prompt_tokens
from parity.runs.probe import Found
from parity.status import Verdict
from parity_probes.isodiff import Isodiff
from parity_probes.rollback import Rollback
from tests.cli_runner import run_cli
from tests.probes.asking import ENGINES, KINDS, ask_for, model_of, opened, run_probe

CONTROLS = {
    "moe-tiny": "1 of 1 red: length kept",
    "dense-tiny": "1 of 1 red: length kept",
    "attn": "1 of 1 red: length kept",
    "gdn": "4 of 4 red: no S, no hist, length kept, one layer too few",
    "hybrid-tiny": "4 of 4 red: no S, no hist, length kept, one layer too few",
    "next-tiny": "4 of 4 red: no S, no hist, length kept, one layer too few",
}


def assert_same(found: Found) -> None:
    assert found.verdict is Verdict.SAME, found.headline
    assert "DIFF" not in "".join(found.table)
    assert "not run" not in "".join(found.table)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_going_back_leaves_no_trace(kind: str, engine: str) -> None:
    found = run_probe(Rollback, engine, ask_for(kind, (2, 4)))
    assert_same(found)
    # accept 0..2 and 0..4, a chain, zeros, position 0, and six rules.
    assert "17 of 17 checks" in found.headline
    assert dict(found.facts)["controls"] == CONTROLS[kind]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("start", [0, 1, 7])
def test_from_any_position(start: int, engine: str) -> None:
    """B21: a prompt of 7, a draft of 4, accept 0 to 4; and a mark on an empty state."""
    assert_same(run_probe(Rollback, engine, ask_for("hybrid-tiny", (4,), (start,), more=3)))


def test_several_seeds() -> None:
    one = run_probe(Rollback, "cpu", ask_for("gdn", (2,), seeds=(7,)))
    two = run_probe(Rollback, "cpu", ask_for("gdn", (2,), seeds=(7, 8)))
    assert_same(two)
    assert two.compared == 2 * one.compared > 0


def test_console(tmp_path: Path) -> None:
    path = tmp_path / "rollback.json"
    words = ("--m", "2,8", "--pos", "3", "--model", "hybrid-tiny", "--json", str(path))
    result = run_cli("rollback", *words)
    lines = result.stdout.splitlines()
    body = json.loads(path.read_text())
    assert lines[0] == f"SAME  M = 2, 8: 21 of 21 checks, {body['compared']:,} keys"
    assert [line.split() for line in lines[2:5]] == [
        ["M", "logits", "keys", "KV", "rows", "S", "lengths", "hist", *["8", "further", "steps"]],
        ["2", *["equal"] * 7],
        ["8", *["equal"] * 7],
    ]
    assert "  controls 4 of 4 red: no S, no hist, length kept, one layer too few" in lines
    assert max(map(len, lines)) <= 80
    assert (result.status, body["verdict"], body["name"]) == (0, "same", "rollback")
    quiet = run_cli("rollback", "--m", "2", "--pos", "3", "-q")
    assert quiet.stdout == "same: M 2, 12 of 12 checks, controls 1 of 1 red, control fired\n"


def test_isodiff_runs_both_with_rb(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    words = ("isodiff", "--m", "2", "--pos", "3", "--synthetic", "gdn")
    result = run_cli(*words, "--rb", "-q", "--json", str(path))
    assert [line.split(",")[0] for line in result.stdout.splitlines()] == ["same: M 2"] * 2
    assert [body["name"] for body in json.loads(path.read_text())] == ["isodiff", "rollback"]
    alone = run_cli(*words, "--rb-only", "-q")
    assert alone.stdout.splitlines() == result.stdout.splitlines()[1:]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_decoder_that_drafts_equals_one_that_does_not(engine: str) -> None:
    """Marks, drafts and accepts in a row, then a long way on: the two states are one."""
    model = model_of("hybrid-tiny")
    plain, drafting = (opened(engine, model, 40) for _ in range(2))
    tokens = prompt_tokens(7, 36, 512)
    plain.prefill(tokens)
    drafting.prefill(tokens[:5])
    at = 5
    for size, accept in ((4, 2), (8, 0), (2, 2), (3, 1), (8, 8), (5, 4)):
        right = tokens[at : at + accept]
        drafting.mark()
        drafting.step_rows([*right, *[(token + 5) % 512 for token in tokens[at + accept :]]][:size])
        drafting.rollback()
        if accept:
            drafting.step_rows(right)
        at += accept
    drafting.prefill(tokens[at:])
    assert compare_states("end", plain.read_state(), drafting.read_state()).equal


def test_isodiff_says_nothing_of_rollback() -> None:
    """Each probe is one claim: an engine without rollback passes isodiff."""
    result = run_cli(
        "isodiff", "--m", "2", "--pos", "3", "--engine", "tests.red.row_faults:NoRollback"
    )
    assert result.status == 0
    found = run_probe(Isodiff, "cpu", ask_for("moe-tiny", (2,)))
    assert found.verdict is Verdict.SAME
