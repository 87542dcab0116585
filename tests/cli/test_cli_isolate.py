"""``parity isolate`` on the command line: exit status, refusals, what is missing, kept results."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from parity.isolate import isolation, trial_cache, trials
from parity.tree import Isolation, Tree
from parity_cpu.engine import Engine
from tests.cli_runner import Result, run_cli

ENGINES = "tests.red.isolate_engines"
RUN = ("--tokens", "5,8,13,21,34,55,89,144", "--n", "1", "--prefill", "ref")
UNKEPT = (*RUN, "--no-cache")


def isolate(tmp_path: Path, *words: str) -> tuple[Result, Isolation]:
    """``parity isolate WORDS``: what was printed, and what stands in the tree."""
    path = tmp_path / "run.json"
    result = run_cli("isolate", *words, "--json", str(path))
    assert path.exists(), result.stderr
    tree = Tree.from_json(path.read_text())
    assert tree.isolation is not None
    return result, tree.isolation


# --- status and output ----------------------------------------------------------------------------


def test_green_run_keeps_status_0_and_places_every_group(tmp_path: Path) -> None:
    result, found = isolate(tmp_path, "--dut", "cpu", *UNKEPT)
    assert result.status == 0
    assert [(row.first, row.differ, row.total) for row in found.placements] == [(None, 0, 46)] * 8
    assert any(note.startswith("placement control: an element moved") for note in found.notes)
    assert (found.transplants, found.trials, found.runs) == ([], [], 0)
    assert found.reason == "the dut runs none"


def test_red_run_keeps_status_1_and_prints_one_line_with_q(tmp_path: Path) -> None:
    result = run_cli("isolate", "--dut", "cpu:exact+two_pass", *UNKEPT, "-q")
    assert result.status == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("diverged: t8_l0_attn")
    assert result.stderr == ""


def test_json_on_stdout_is_the_whole_tree() -> None:
    result = run_cli("isolate", "--dut", "cpu:exact+two_pass", *UNKEPT, "--json", "-")
    tree = Tree.from_json(result.stdout)
    assert tree.reproduce.startswith("parity isolate --dut cpu:exact+two_pass")
    assert tree.isolation is not None
    assert tree.isolation.notes[0] == (
        "runs of the dut after the red one: 1 to find the guilty, 0 for interactions, "
        "0 for the ladder"
    )
    assert Tree.from_json(tree.to_json()) == tree


def test_reproduce_line_writes_no_files(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    isolate(tmp_path, "--dut", "cpu:exact+two_pass", *UNKEPT, "--only", "variants")
    line = Tree.from_json(path.read_text()).reproduce
    assert line == shlex.join(
        ("parity", "isolate", "--dut", "cpu:exact+two_pass", *UNKEPT, "--only", "variants")
    )


def test_red_seconds_are_those_of_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_remove_variants", lambda *_: time.sleep(2.0))
    isolate(tmp_path, "--dut", "cpu", *UNKEPT, "--only", "variants")
    assert Tree.from_json((tmp_path / "run.json").read_text()).seconds >= 2.0


def test_red_runs_that_are_not_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation.Trials, "counted", lambda *_: nullcontext())
    result = run_cli("isolate", "--dut", "cpu:exact+two_pass", *UNKEPT, "--only", "variants")
    assert result.status == 2
    assert "isolate: 1 runs were made, 0 accounted for" in result.stderr


def test_level_decides_the_status_as_it_does_for_diff(tmp_path: Path) -> None:
    words = ("--dut", f"{ENGINES}:Acting:exact+late", *UNKEPT, "--level", "greedy")
    result, found = isolate(tmp_path, *words)
    assert (result.status, found.guilty) == (0, ["late"])


@pytest.mark.parametrize("part", ["variants", "placement", "transplant"])
def test_only_the_parts_asked_for_are_done(tmp_path: Path, part: str) -> None:
    _, found = isolate(tmp_path, "--dut", "cpu:exact+two_pass", *UNKEPT, "--only", part)
    done = {
        "variants": bool(found.trials),
        "placement": bool(found.placements),
        "transplant": bool(found.transplants),
    }
    assert [name for name, made in done.items() if made] == [part]


def test_unstable_side_is_not_isolated(tmp_path: Path) -> None:
    result, found = isolate(tmp_path, "--dut", f"{ENGINES}:Shaky", *UNKEPT)
    assert (result.status, found.reason) == (1, "not asked: the verdict is unstable")
    assert (found.trials, found.placements, found.transplants) == ([], [], [])


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said", "next_step"),
    [
        (["--only", "variant"], "--only: no part 'variant'", "parts: variants, placement"),
        (["--dut", "run.dump"], "--dut run.dump: not an engine", "parity engines lists them"),
        (["--ref", "run.dump"], "--ref run.dump: not an engine", "parity engines lists them"),
        (
            ["--transplant", "t8_l0_atn"],
            "--transplant t8_l0_atn: the run makes no such key",
            "did you mean t8_l0_attn?",
        ),
        (
            ["--transplant", "t7_l0_attn"],
            "--transplant t7_l0_attn: the run makes no such key",
            "did you mean t8_l0_attn?",
        ),
        (
            ["--transplant", "???"],
            "--transplant ???: the run makes no such key",
            "keys are t<pos>_l<layer>_<field>",
        ),
        (
            ["--only", "placement", "--transplant", "t8_l0_attn"],
            "--transplant t8_l0_attn with --only placement: nothing is transplanted",
            "leave --only out",
        ),
        (["--json", "no/such/run.json"], "no/such/run.json: cannot be written", "give a file"),
    ],
)
def test_refused_in_one_line(words: list[str], said: str, next_step: str) -> None:
    result = run_cli("isolate", *(() if "--dut" in words else ("--dut", "cpu")), *UNKEPT, *words)
    assert (result.status, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first.startswith(f"parity: {said}")
    assert second.startswith(f"  next: {next_step}")


def test_optional_field_can_be_transplanted(tmp_path: Path) -> None:
    words = ("--dut", "cpu:exact+router_tree", *UNKEPT, "--only", "transplant")
    _, found = isolate(tmp_path, *words, "--transplant", "t8_l0_rlogits")
    assert found.transplants[0].keys == ["t8_l0_rlogits"]
    assert found.transplants[0].first != "t8_l0_x"


@pytest.mark.parametrize("part", ["placement", "transplant"])
def test_missing_capability_is_named_before_anything_runs(part: str) -> None:
    result = run_cli("isolate", "--dut", f"{ENGINES}:NoReplay", *UNKEPT, "--only", part)
    assert (result.status, result.stdout) == (3, "")
    said = f"parity: not run: cpu lacks the capability 'replay', needed for {part}"
    assert result.stderr.splitlines()[0] == said


def test_missing_capability_is_a_note_where_no_part_was_named(tmp_path: Path) -> None:
    result, found = isolate(tmp_path, "--dut", f"{ENGINES}:NoReplay:exact+two_pass", *UNKEPT)
    assert (result.status, found.guilty) == (1, ["two_pass"])
    assert (found.placements, found.transplants) == ([], [])
    for part in ("placement", "transplant"):
        lacking = f"cpu lacks the capability 'replay', needed for {part}"
        assert f"{part} not run: {lacking}" in found.notes


def test_sides_that_offer_other_values_cannot_be_placed(tmp_path: Path) -> None:
    result = run_cli("isolate", "--dut", f"{ENGINES}:Silent", *UNKEPT, "--only", "placement")
    assert result.status == 3
    said = f"cpu makes t8_l1_knorm where {ENGINES}:Silent makes t8_l1_k: the two cannot run in step"
    assert result.stderr.splitlines()[0] == f"parity: not run: {said}"
    _, found = isolate(tmp_path, "--dut", f"{ENGINES}:Silent", *UNKEPT)
    assert f"placement not run: {said}" in found.notes


def test_placement_needs_a_state_that_both_can_take(tmp_path: Path) -> None:
    dut = "tests.red.start_faults:OtherShape"
    words = ("--tokens", "5,8,13", "--n", "1", "--no-cache")
    result, found = isolate(tmp_path, "--dut", dut, *words)
    assert result.status == 1
    text = f"placement not run: {dut} cannot take over the ref's state: l0_k: ref int8["
    assert any(note.startswith(text) for note in found.notes)


def test_red_placement_that_shows_nothing_proves_nothing(tmp_path: Path) -> None:
    dut = f"{ENGINES}:DeafToPlants"
    result = run_cli("isolate", "--dut", dut, *UNKEPT, "--only", "placement")
    assert result.status == 3
    assert "was found at no key" in result.stderr
    _, found = isolate(tmp_path, "--dut", dut, *UNKEPT)
    assert found.placements == []


def test_transplant_into_a_side_that_never_makes_the_key(tmp_path: Path) -> None:
    words = ("--dut", f"{ENGINES}:Silent:exact+two_pass", *UNKEPT)
    _, found = isolate(tmp_path, *words, "--transplant", "t8_l1_knorm")
    assert any("never makes t8_l1_knorm" in note for note in found.notes)


# --- kept results ---------------------------------------------------------------------------------

Kept = Callable[..., tuple[list[bool], list[str], Isolation]]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Isolates with a cache of its own; gives which trials were known, and the notes. Files of
    parity may change while the tests run: see test_red_stale.py."""
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trials, "changed_since_start", lambda files: False)

    def run(*words: str, dut: str = "cpu:exact+two_pass") -> Any:
        _, found = isolate(tmp_path, "--dut", dut, *RUN, "--only", "variants", *words)
        assert found.guilty == ["two_pass"]
        return [trial.cached for trial in found.trials], found.notes, found

    return run


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "trials").glob("*"))


def test_a_trial_is_run_once(tmp_path: Path, kept: Kept) -> None:
    first, _, found = kept()
    assert (first, found.runs, len(files(tmp_path))) == ([False, False], 1, 1)
    again, notes, known = kept()
    assert (again, known.runs) == ([False, True], 0)
    assert notes[0].endswith("; 1 trial known from before")
    assert [trial.first for trial in known.ladder] == [trial.first for trial in found.ladder]


def test_no_cache_reads_and_keeps_nothing(tmp_path: Path, kept: Kept) -> None:
    kept("--no-cache")
    assert files(tmp_path) == []
    kept()
    assert kept("--no-cache")[0] == [False, False]


@pytest.mark.parametrize(
    "words",
    [("--seed", "8"), ("--n", "2"), ("--fields", "+ffn"), ("--hash", "kestrel-fnv")],
    ids=["model", "steps", "fields", "hash"],
)
def test_another_run_is_another_trial(kept: Kept, words: tuple[str, ...]) -> None:
    kept()
    assert kept(*words)[0] == [False, False]
    assert kept()[0] == [False, True]


def test_red_changed_kernels_miss(kept: Kept) -> None:
    kept()
    told = Engine.describe

    def describe(engine: Engine) -> dict[str, str]:
        return {**told(engine), "kernels": "0123456789abcdef"}

    with mock.patch.object(Engine, "describe", describe):
        assert kept()[0] == [False, False]


def test_red_changed_version_misses(kept: Kept) -> None:
    kept()
    with mock.patch.object(Engine, "version", "0.2.0"):
        assert kept()[0] == [False, False]


def test_red_changed_code_misses(kept: Kept) -> None:
    kept()
    with mock.patch("parity.isolate.trial_cache.code_digest", return_value="another"):
        assert kept()[0] == [False, False]


def test_code_digest_reads_every_file_of_the_packages(tmp_path: Path) -> None:
    package = tmp_path / "some_engine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernel.cu").write_text("old")
    module = mock.Mock(__file__=str(package / "__init__.py"))
    found = type("Engine", (), {"__module__": "some_engine.inner"})
    seen = set()
    with mock.patch.dict("sys.modules", {"some_engine": module}):
        for text in ("old", "new"):
            (package / "kernel.cu").write_text(text)
            seen.add(trial_cache.code_digest.__wrapped__(found))
    assert len(seen) == 2


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _lie(text: str) -> str:
    return text.replace('"first": null', '"first": "t8_l0_x"')


def _foreign(text: str) -> str:
    body = json.loads(text)
    body["facts"]["variants"] = "fma"
    body["digest"] = trial_cache._digest(body["facts"], body["outcome"])
    return json.dumps(body)


@pytest.mark.parametrize("spoil", [_cut, _lie, _foreign, lambda text: "[]", lambda text: "{}"])
def test_red_damaged_result_is_not_believed(
    tmp_path: Path, kept: Kept, spoil: Callable[[str], str]
) -> None:
    kept()
    (path,) = files(tmp_path)
    whole = path.read_text()
    path.write_text(spoil(whole))
    assert path.read_text() != whole
    known, notes, _ = kept()
    assert known == [False, False]
    assert any(note.startswith("a kept result was not used, ") for note in notes)
    assert path.read_text() == whole
    assert kept()[0] == [False, True]


def test_results_of_a_users_own_engine_are_not_kept(tmp_path: Path, kept: Kept) -> None:
    dut = f"{ENGINES}:Acting:exact+two_pass"
    assert kept(dut=dut)[0] == kept(dut=dut)[0] == [False, False]
    assert files(tmp_path) == []


def test_a_cache_that_cannot_be_written_costs_nothing_else(tmp_path: Path, kept: Kept) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    known, notes, _ = kept()
    assert known == [False, False]
    assert any(note.startswith("results are not kept: ") for note in notes)
