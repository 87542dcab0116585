"""The control of every green isodiff and rollback: fresh with each seed, at exactly its place, and
not run (3) on engines that hide what is planted in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from parity_probes import blocks
from tests.cli_runner import run_cli
from tests.red import control_faults

FAULTS = "tests.red.control_faults"
KEY = r"fired: 1 (?:ULP|step) at (t\d+_(?:l\d+_)?\w+) element \d+, found at that key"
PART = r"1 (?:ULP|step) in ((?:l\d+_\w+) row \d+) element \d+, found there"


def probe(tmp_path: Path, command: str, engine: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status and result; positions from 5, where states hold rows."""
    path = tmp_path / "found.json"
    words = ("--pos", "5", *words, "--json", str(path))
    result = run_cli(command, "--engine", engine, *words)
    assert path.exists(), result.stderr
    return result.status, json.loads(path.read_text())


def control_of(found: dict[str, Any]) -> str:
    return dict(found["facts"])["control"]


# --- fresh with each seed -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_isodiff_plants_elsewhere_with_each_seed(tmp_path: Path, engine: str) -> None:
    status, found = probe(tmp_path, "isodiff", engine, "--m", "3", "--seeds", "4")
    assert status == 0
    keys = re.findall(KEY, control_of(found))
    assert len(keys) == 4
    assert len(set(keys)) > 1
    assert {int(key[1:].split("_")[0]) for key in keys} <= {5, 6, 7}


@pytest.mark.parametrize(
    ("model", "engine"), [("moe-tiny", "cpu"), ("moe-tiny", "emu"), ("hybrid-tiny", "cpu")]
)
def test_rollback_plants_in_a_step_and_in_the_state(
    tmp_path: Path, model: str, engine: str
) -> None:
    seeds = 3 if model == "moe-tiny" else 2
    words = ("--m", "2", "--seeds", str(seeds), "--model", model)
    status, found = probe(tmp_path, "rollback", engine, *words)
    assert status == 0
    control = control_of(found)
    keys, parts = re.findall(KEY, control), re.findall(PART, control)
    assert len(keys) == len(parts) == seeds
    assert len({*keys, *parts}) > seeds


def test_state_before_position_zero_is_that_after_the_block(tmp_path: Path) -> None:
    """At position 0 a model of attention alone has no state; S and hist are there."""
    for model, parts in (("moe-tiny", ("k", "ks", "v", "vs")), ("hybrid-tiny", ("s", "hist"))):
        path = tmp_path / f"{model}.json"
        words = ("--pos", "0", "--m", "2", "--model", model, "--json", str(path))
        assert run_cli("rollback", *words).status == 0
        found = re.findall(PART, control_of(json.loads(path.read_text())))
        assert len(found) == 1
        assert found[0].split(" ")[0].split("_")[1] in parts


def test_quiet_line_says_that_the_control_fired() -> None:
    result = run_cli("rollback", "--m", "2", "--pos", "5", "-q")
    assert result.stdout == "same: M 2, 12 of 12 checks, controls 1 of 1 red, control fired\n"


# --- hidden ---------------------------------------------------------------------------------------


def test_red_rows_that_are_remembered(tmp_path: Path) -> None:
    status, found = probe(tmp_path, "isodiff", f"{FAULTS}:RememberedRows", "--m", "2")
    assert (status, found["verdict"]) == (3, "not_run")
    assert re.fullmatch(
        r"the control did not fire: 1 \w+ at t[56]_\w+ element \d+, found at nothing",
        found["headline"],
    )


def test_red_tap_that_dies_with_the_second_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = f"{FAULTS}:DeadSecondLoad"
    monkeypatch.setattr(control_faults.DeadSecondLoad, "loads", 0)
    assert probe(tmp_path, "isodiff", engine, "--m", "2")[0] == 0
    monkeypatch.setattr(control_faults.DeadSecondLoad, "loads", 0)
    status, found = probe(tmp_path, "isodiff", engine, "--m", "2", "--seeds", "2")
    assert (status, found["verdict"]) == (3, "not_run")
    fired, dead = control_of(found).split("; ")
    assert fired.startswith("fired: ")
    assert dead.startswith("did not fire: ")


def test_red_fault_in_another_row_is_not_found_where_it_should_be(tmp_path: Path) -> None:
    status, found = probe(tmp_path, "isodiff", f"{FAULTS}:OtherRow", "--m", "2")
    assert (status, found["verdict"]) == (3, "not_run")
    told = re.search(r"at t(\d)_(\w+) element \d+, found at t(\d)_(\w+)$", found["headline"])
    assert told is not None
    assert {told[1], told[3]} == {"5", "6"}
    assert told[2] == told[4]


HYBRID = ("--m", "2", "--model", "hybrid-tiny")


def test_red_state_that_is_remembered(tmp_path: Path) -> None:
    status, found = probe(tmp_path, "rollback", f"{FAULTS}:RememberedState", *HYBRID)
    assert (status, found["verdict"]) == (3, "not_run")
    assert re.fullmatch(
        r"the control did not fire: 1 \w+ in l\d_\w+ row \d+ element \d+, found at nothing",
        found["headline"],
    )
    assert control_of(found).startswith("fired: ")  # the one in a step did


def test_red_tap_that_dies_after_a_rollback(tmp_path: Path) -> None:
    status, found = probe(tmp_path, "rollback", f"{FAULTS}:DeadAfterRollback", *HYBRID)
    assert (status, found["verdict"]) == (3, "not_run")
    assert found["headline"].startswith("the control did not fire: 1 ULP at t")
    assert found["headline"].endswith("found at nothing")


def test_red_state_in_which_more_moves_than_was_planted(tmp_path: Path) -> None:
    status, found = probe(tmp_path, "rollback", f"{FAULTS}:TwoRows", "--m", "2")
    assert (status, found["verdict"]) == (3, "not_run")
    assert found["headline"].startswith("the control did not fire: 1 step in l")


def test_a_fault_that_is_found_anyway_needs_no_control(tmp_path: Path) -> None:
    """The same reading hides that S was not restored; the steps after it do not."""
    status, found = probe(tmp_path, "rollback", f"{FAULTS}:ForgetsS", *HYBRID)
    assert (status, found["verdict"], found["first"]) == (1, "diverged", "t5_l1_o")
    assert "control" not in dict(found["facts"])


@pytest.mark.parametrize("name", ["control", "state_control"])
def test_red_control_that_is_never_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A comparison that finds nothing leaves nothing proved."""
    honest = blocks.compare_states if name == "state_control" else blocks.compare_steps

    def blind(*sides: Any) -> Any:
        return honest(*sides[:-1], sides[-2])

    if name == "state_control":
        monkeypatch.setattr(blocks, "compare_states", blind)
    else:
        monkeypatch.setattr(blocks, "compare_steps", blind)
    status, found = probe(tmp_path, "rollback", "cpu", *HYBRID)
    assert (status, found["verdict"]) == (3, "not_run")
    assert "found at nothing" in found["headline"]
