"""Probes, gate, ladder, isolate, baselines and the rest with a model file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from parity.model.generator import prompt_tokens
from tests.cli.model_files import SHORT, V_PROJ, dump, flipped, gguf, tokenizer, tree_of
from tests.cli_runner import Result, run_cli

FAULTS = "tests.red.faults"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """moe-tiny seed 7 as a file."""
    return gguf(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def other(file: Path) -> Path:
    """The same name and header; one mantissa bit of the first scale of layer 1's V projection."""
    return flipped(file, V_PROJ, 9)


# --- probes ---------------------------------------------------------------------------------------


def test_probes_of_a_file(file: Path, tmp_path: Path) -> None:
    words = ("--model", str(file), "--m", "2", "--pos", "5", "--seeds", "2")
    path = tmp_path / "probe.json"
    for command in (("isodiff", "--rb"), ("isodiff", "--chunks", "2,7"), ("rollback",)):
        result = run_cli(*command, *words, "--json", str(path))
        assert result.status == 0, result.stdout + result.stderr
        body = json.loads(path.read_text())
        for found in body if isinstance(body, list) else [body]:
            assert found["verdict"] == "same"
            assert dict(found["facts"])["model"] == "a b.gguf, prompts of seeds 7, 8"


def test_a_prompt_stands_first_in_a_probe(file: Path) -> None:
    from parity.runs.probe_run import probe_settings

    ask = probe_settings(sizes=(2,), starts=(5,), model=str(file), tokens=[9, 8, 7], seed=7)
    drawn = prompt_tokens(7, 6, 512)
    assert ask.tokens(ask.models[0], 6) == [9, 8, 7, *drawn[3:]]
    assert ask.tokens(ask.models[0], 2) == [9, 8]


def test_red_probe_of_a_file(file: Path) -> None:
    words = ("isodiff", "--engine", "tests.red.row_faults:StaleLogits", "--model", str(file))
    result = run_cli(*words, "--m", "3", "--pos", "5")
    assert result.status == 1
    assert "DIVERGED  M = 2" in result.stdout  # the smallest that fails
    line = next(line for line in result.stdout.splitlines() if "  parity isodiff" in line)
    assert f"--model '{file}'" in line
    assert run_cli(*shlex.split(line)[1:]).status == 1


# --- repeatable, gate, ladder, isolate, conformance, digest, doctor -------------------------------


def test_stable(file: Path) -> None:
    result = run_cli("stable", "--model", str(file), "--n", "2", "--steps", "1")
    assert (result.status, result.stdout.split()[0]) == (0, "SAME")


def test_gate_draws_prompts_for_a_file(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    words = ("gate", "--engine", "cpu", "--fast=two_pass", "--model", str(file), "--n", "2")
    words += ("--m", "1,2", "--rounds", "3", "--store", str(tmp_path / "store"))
    result = run_cli(*words, "--json", str(path))
    record = json.loads(path.read_text())
    assert (result.status, record["verdict"]) == (1, "refused")
    note = "all seeds have the weights of a b.gguf: they draw the prompts alone"
    assert record["notes"] == [note]
    assert record["settings"]["labels"] == ["a b.gguf"] * 3
    assert record["settings"]["seeds"] == [7, 8, 9]
    assert record["base"]["source"] == "gguf"
    assert record["evidence"]["name"] == "cpu+two_pass against cpu, a b.gguf"
    line = record["problem"]["reproduce"]
    assert f"--model '{file}' --seed 7" in line
    assert "--weights" not in line
    again = run_cli(*shlex.split(line)[1:])
    assert (again.status, again.stdout.split()[0]) == (1, "DIVERGED")
    assert record["first"] in again.stdout


def test_gate_prompts_differ_by_seed(file: Path) -> None:
    from parity.cli.gating import make_settings

    common = {"weights": None, "seeds": 3, "sizes": "1,2", "n": 2, "rounds": 3, "confidence": 0.95}
    settings = make_settings(model=str(file), seed=7, **common)  # type: ignore[arg-type]
    assert [run.prompt for run in settings.runs] == [
        tuple(prompt_tokens(seed, 32, 512)) for seed in (7, 8, 9)
    ]
    assert len({id(run.model.recipes) for run in settings.runs}) == 1  # type: ignore[attr-defined]


def test_ladder(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "ladder.json"
    result = run_cli("ladder", "--model", str(file), *SHORT, "--json", str(path))
    body = json.loads(path.read_text())
    assert (result.status, body["status"], body["run"]["model"]) == (0, 0, "a b.gguf")
    assert body["run"]["prompt"] == "1,2,3"


def test_isolate_keeps_trials_by_the_bytes_of_a_file(
    file: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "run.json"

    def kept(model: Path) -> bool:
        words = ("isolate", "--ref", "cpu", "--dut", "cpu+two_pass", "--only", "variants")
        result = run_cli(*words, "--model", str(model), *SHORT, "--json", str(path))
        tree = tree_of(result, path)
        assert (result.status, tree.verdict) == (1, "diverged")
        assert tree.isolation is not None
        assert tree.isolation.trials
        return all(trial.cached for trial in tree.isolation.trials)

    assert [kept(file), kept(file), kept(other), kept(other)] == [False, True, False, True]


def test_conformance(file: Path) -> None:
    result = run_cli("conformance", "cpu", "--model", str(file))
    assert result.status == 0, result.stdout + result.stderr
    assert "model    a b.gguf" in result.stdout


def test_digest(file: Path, other: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.digest"
    words = (*SHORT, "--dump-prefill")
    assert run_cli("digest", "cpu", "--model", str(file), *words, "-o", str(path)).status == 0
    against = run_cli("digest", str(path), "--against", "cpu", "--model", str(file), *words)
    assert (against.status, against.stdout.split()[0]) == (0, "SAME")
    red = run_cli("digest", str(path), "--against", "cpu", "--model", str(other), *words)
    assert (red.status, red.stdout.split()[0]) == (1, "DIVERGED")
    assert "t0_l1_v" in red.stdout


def test_doctor(file: Path) -> None:
    result = run_cli("doctor", "--model", str(file))
    assert result.status == 0
    assert "a b.gguf needs 1.4 MB a side, 2.7 MB for ref and dut" in result.stdout


# --- baselines ------------------------------------------------------------------------------------


def save(store: Path, model: Path, *words: str) -> Result:
    """A baseline of the short run of a file."""
    return run_cli(
        *("baseline", "save", "x", "cpu", "--model", str(model), "--n", "2"),
        *(words or ("--tokens", "1,2,3")),
        *("--store", str(store)),
    )


def check(store: Path, *words: str) -> Result:
    """It, checked."""
    return run_cli("baseline", "check", "x", "--store", str(store), *words)


def test_baseline(file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert save(store, file).status == 0
    done = check(store)
    assert (done.status, done.stdout.split()[0]) == (0, "SAME")
    red = check(store, "--engine", f"{FAULTS}:Moved@key=t3_l1_attn")
    assert (red.status, "t3_l1_attn" in red.stdout) == (1, True)
    result = run_cli("baseline", "promote", "x", "--ref", "emu", "--store", str(store))
    assert (result.status, result.stderr.splitlines()[0]) == (
        2,
        "parity: baseline 'x': nothing changed",
    )


def test_red_baseline_of_another_file(file: Path, other: Path, tmp_path: Path) -> None:
    store, moved = tmp_path / "store", tmp_path / "moved" / file.name
    assert save(store, file).status == 0
    moved.parent.mkdir()
    moved.write_bytes(file.read_bytes())
    assert check(store, "--model", str(moved)).status == 0
    result = check(store, "--model", str(other))
    assert result.status == 2
    assert result.stderr.startswith("parity: baseline 'x' is of another run: weights ")


def test_baseline_of_a_text_prompt_keeps_its_ids(file: Path, tmp_path: Path) -> None:
    words = ("--prompt", "the cat sat", "--tokenizer", str(tokenizer(tmp_path / "words")))
    store, path = tmp_path / "store", tmp_path / "show.json"
    assert save(store, file, *words).status == 0
    run_cli("baseline", "show", "x", "--store", str(store), "--json", str(path))
    record = json.loads(path.read_text())["record"]
    assert record["settings"]["tokens"] == "3,5,8"
    assert record["input"]["from"].startswith("text, tokenizer ")
    assert check(store).status == 0
    assert check(store, *words).status == 0
    wrong = check(store, "--prompt", "the cat", *words[2:])
    assert (wrong.status, "--tokens" in wrong.stderr) == (2, True)


def test_baseline_of_a_dump_of_a_file(file: Path, tmp_path: Path) -> None:
    path, store = dump(tmp_path / "run.dump", file), tmp_path / "store"
    words = ("baseline", "save", "x", str(path), "--store", str(store))
    assert run_cli(*words, "--model", str(file)).status == 0
    done = check(store, "--engine", "cpu")
    assert (done.status, done.stdout.split()[0]) == (0, "SAME")


def test_baseline_of_a_dump_without_its_file(file: Path, tmp_path: Path) -> None:
    path, store = dump(tmp_path / "run.dump", file), tmp_path / "store"
    assert run_cli("baseline", "save", "x", str(path), "--store", str(store)).status == 0
    assert check(store, "--engine", str(path)).status == 0
    result = check(store, "--engine", "cpu")
    assert result.status == 2
    assert "its header names no run that the options can make" in result.stderr
