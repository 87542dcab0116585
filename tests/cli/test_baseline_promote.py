"""``parity baseline promote``: explicit, green, stable, and it says what it changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.store import Store
from tests.cli.baselines import check, checked, footprint, promote, saved, shown
from tests.cli.model_files import gguf
from tests.cli.running import SHORT, faulty, written_dump
from tests.cli.test_baseline_refused import refused
from tests.cli_runner import run_cli

NEW, GREEN = "cpu+two_pass", "emu+two_pass"  # other bits than cpu's, on the short run too


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return saved(tmp_path / "store", "x", "cpu", "--tensors", "t3_logits")


def test_another_engine_is_promoted(store: Path, tmp_path: Path) -> None:
    result = promote(store, "x", "--engine", NEW, "--ref", GREEN)
    assert result.status == 0, result.stderr
    changed = [line for line in result.stdout.splitlines() if line.startswith("  changed")]
    assert changed[0].startswith("  changed    keys: ")
    assert ", first t3_l0_attn" in changed[0]
    assert any(line.endswith(f"spec: cpu -> {NEW}") for line in changed)
    assert any(line.endswith("variants: none -> two_pass") for line in changed)
    assert not any("tensors kept" in line for line in changed)  # the same ones are kept
    assert check(store, "x", "-q").status == 0
    status, tree = checked(store, tmp_path, "--engine", "cpu")
    assert (status, tree.verdict) == (1, "diverged")
    body = shown(store, tmp_path)
    assert [event["action"] for event in body["history"]] == ["save", "promote"]
    assert body["record"]["changed"] == [line.removeprefix("  changed    ") for line in changed]
    assert body["record"]["tensors"].keys() == {"t3_logits"}
    assert body["history"][1]["previous"] == body["history"][0]["digest"]


def test_the_same_result_is_not_promoted(store: Path) -> None:
    before = footprint(store)
    refused(promote(store, "x", "--ref", "emu"), "baseline 'x': nothing changed")
    assert footprint(store) == before


def test_more_tensors_are_a_change(store: Path, tmp_path: Path) -> None:
    result = promote(store, "x", "--ref", "emu", "--tensors", "first")
    assert result.status == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "changed" in line]
    assert lines == ["  changed    tensors kept: 1 -> 46"]
    assert len(shown(store, tmp_path)["record"]["tensors"]) == 46


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", NEW, "--ref", "cpu"), "against cpu: diverged, "),
        (("--engine", faulty("Once"), "--ref", "emu"), "unstable: run 2 differs from run 1"),
        (("--ref", "cpu:exact"), "the same engine, tier and variants: it shows nothing"),
        (("--engine", NEW), "Missing option '--ref'"),
        (("--engine", "values.npz", "--ref", "cpu"), "a tensor file says nothing of its run"),
    ],
    ids=["red", "unstable", "same engine", "no ref", "tensors"],
)
def test_what_is_not_promoted(store: Path, words: tuple[str, ...], said: str) -> None:
    before = footprint(store)
    refused(promote(store, "x", *words), said)
    assert footprint(store) == before


def test_a_dump_is_promoted(tmp_path: Path) -> None:
    store = saved(tmp_path / "store", "x", str(written_dump(tmp_path)))
    refused(promote(store, "x", "--ref", GREEN), "baseline 'x': saved from a dump file")
    dump = tmp_path / "mine.dump"
    assert run_cli("dump", "--engine", NEW, "-o", str(dump), *SHORT).status == 0
    result = promote(store, "x", "--engine", str(dump), "--ref", GREEN)
    assert result.status == 0, result.stderr
    assert "  changed    variants: none -> two_pass" in result.stdout
    assert check(store, "x", "-q", "--engine", str(dump)).status == 0


def test_somebody_else_was_quicker(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another promote ends while this one runs: the later one is refused, and loses nothing."""
    import parity.cli.baseline as command

    made = command._result

    def slow(*args: object, **named: object) -> object:
        monkeypatch.setattr(command, "_result", made)
        assert promote(store, "x", "--engine", NEW, "--ref", GREEN).status == 0
        return made(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "_result", slow)
    result = promote(store, "x", "--ref", "emu", "--tensors", "all")
    refused(result, "baseline 'x' was moved on to entry 2 meanwhile")
    assert len(Store(store).history("baseline", "x")) == 2


def test_an_altered_baseline_is_not_promoted(store: Path) -> None:
    path = store / "head.json"
    path.write_bytes(path.read_bytes().replace(b'"x",1', b'"x",2'))
    refused(promote(store, "x", "--engine", NEW, "--ref", GREEN), f"{path}: altered")


def test_options_of_the_run_must_be_the_recorded_ones(store: Path) -> None:
    before = footprint(store)
    for words, said in (
        (("--model", "dense-tiny"), "baseline 'x' is of another run: --model moe-tiny recorded"),
        (("--n", "4"), "baseline 'x' is of another run: --n 3 recorded"),
    ):
        refused(promote(store, "x", "--engine", NEW, "--ref", GREEN, *words), said)
    assert footprint(store) == before
    same = promote(store, "x", "--engine", NEW, "--ref", GREEN, "--model", "moe-tiny", "--n", "3")
    assert same.status == 0, same.stderr


def test_a_dump_of_a_file_is_promoted_with_its_model(tmp_path: Path) -> None:
    """A header names no path of a model: it is given, as to save."""
    model = ("--model", str(gguf(tmp_path)))
    paths = {}
    for name, engine in (("old", "cpu"), ("new", NEW)):
        paths[name] = str(tmp_path / f"{name}.dump")
        done = run_cli("dump", "--engine", engine, "-o", paths[name], *SHORT, *model)
        assert done.status == 0, done.stderr
    store = saved(tmp_path / "store", "x", paths["old"], *model, "--ref", "emu")
    words = ("--engine", paths["new"], "--ref", GREEN)
    refused(promote(store, "x", *words), "")
    done = promote(store, "x", *words, *model)
    assert done.status == 0, done.stderr
    assert "  changed    variants: none -> two_pass" in done.stdout
