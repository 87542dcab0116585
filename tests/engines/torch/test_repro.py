"""The repro folder of a run of hf sides: a model is opened again as the sides open it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity.tree import Tree
from tests.cli_runner import Result, run_cli
from tests.engines.torch.engines import folder

KEY = "t1_l0_attn"  # eager attention and torch's own add in other orders from two keys on


def diff(*options: str) -> Tree:
    """A red run of ./model, eager against sdpa, with its repro in ./kept."""
    sides = ("--ref", "hf:./model,attn=eager", "--dut", "hf:./model,attn=sdpa", "--n", "1")
    result = run_cli("diff", *sides, *options, "--repro", "kept", "--json", "diff.json", "-q")
    assert result.status == 1, result.stderr
    tree = Tree.from_json(Path("diff.json").read_text())
    assert tree.repro == "kept", tree.notes
    return tree


def replay(*options: str) -> Result:
    """``parity replay`` of ./kept from the folder above."""
    return run_cli("replay", "work/kept", *options, "--json", "replay.json", "-q")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the diff runs in; the replay runs above it."""
    inside = tmp_path / "work"
    inside.mkdir()
    monkeypatch.chdir(inside)
    return inside


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_a_folder_is_replayed_from_elsewhere(
    work: Path, monkeypatch: pytest.MonkeyPatch, kind: str, weights: bool
) -> None:
    folder(work / "model", kind, weights=weights)
    tree = diff()
    assert tree.births is not None
    assert tree.births.found[0].key == KEY
    monkeypatch.chdir(work.parent)
    result = replay()
    assert result.status == 1, result.stderr
    again = Tree.from_json(Path("replay.json").read_text())
    assert (again.verdict, again.first, again.counts.differ) == ("diverged", KEY, 1)
    assert "ref as recorded, dut as recorded" in again.notes[0]
    assert again.elements is not None
    assert again.elements.differ == tree.births.found[0].elements.differ  # type: ignore[union-attr]


def test_a_folder_that_was_moved_is_named_or_asked_for(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(work / "model", "Llama")
    diff()
    monkeypatch.chdir(work.parent)
    (work / "model").rename(work.parent / "moved")
    lost = replay()
    assert lost.status == 2
    assert lost.stderr == (
        f"parity: {work / 'model'}: no such file or folder; the repro was written with model "
        "(LlamaForCausalLM) there\n  next: give --model FILE where it lies now\n"
    )
    assert replay("--model", "moved").status == 1


def test_the_seed_of_random_weights_is_recorded(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(work / "model", "Qwen3", weights=False)
    diff("--seed", "11")
    record = json.loads((work / "kept" / "repro.json").read_text())
    assert record["model"]["seed"] == 11
    monkeypatch.chdir(work.parent)
    assert replay().status == 1


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("dense-tiny:fast", "write hf:dense-tiny; hf has no tiers (:fast)"),
        ("dense-tiny+rsqrt", "write hf:dense-tiny; hf has no variants (+rsqrt)"),
        ("dense-tiny,dtype", "give the option a value: hf:dense-tiny,dtype=VALUE"),
        ("./model@attn", "give the option a value: hf:./model,attn=VALUE"),
    ],
)
def test_what_stands_behind_a_model_is_no_part_of_its_name(
    work: Path, typed: str, hint: str
) -> None:
    folder(work / "model", "Llama", weights=False)
    result = run_cli("diff", "--ref", f"hf:{typed}", "--dut", "cpu")
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr == f"parity: hf:{typed}: no such folder, and no preset\n  next: {hint}\n"
