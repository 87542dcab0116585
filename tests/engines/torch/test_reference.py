"""``hf`` against the reference engine, against itself, and with a rollback that forgets."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.numpy import load_file, save_file

from parity.model.config import PRESETS
from parity.tree import Tree
from tests.cli_runner import run_cli
from tests.engines.torch.engines import folder

FAULTS = "tests.red.hf_faults"
FOLDER = Path(__file__).parents[2] / "fixtures/hf/Qwen3ForCausalLM"
SMALL = {"layers": 2, "hidden": 64, "inter": 64, "vocab": 64}
DENSE = ("--model", "dense-two", "--weights", "f32", "--n", "2")
HYBRID = ("--model", "hybrid-two", "--weights", "f32", "--n", "2")


@pytest.fixture(autouse=True)
def small_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense model of two layers; a hybrid of a recurrent one and one of attention."""
    for kind, more in (("dense", {}), ("hybrid", {"interval": 2})):
        sizes: dict[str, Any] = {**SMALL, **more, "name": f"{kind}-two"}
        monkeypatch.setitem(PRESETS, f"{kind}-two", replace(PRESETS[f"{kind}-tiny"], **sizes))


def diff(path: Path, ref: str, dut: str, *options: str) -> tuple[int, str, Tree]:
    """Exit status, first line and tree of ``parity diff``."""
    saved = path / "run.json"
    result = run_cli("diff", "--ref", ref, "--dut", dut, "--json", str(saved), *options)
    assert saved.exists(), result.stderr
    return result.status, result.stdout.splitlines()[0], Tree.from_json(saved.read_text())


# --- against the reference ------------------------------------------------------------------------


@pytest.mark.parametrize("model", [DENSE, HYBRID], ids=["dense", "hybrid"])
@pytest.mark.parametrize("sides", [("hf", "cpu"), ("cpu", "hf")], ids=["ref", "dut"])
def test_every_field_lies_within_its_bound(
    tmp_path: Path, model: tuple[str, ...], sides: tuple[str, str]
) -> None:
    status, line, tree = diff(tmp_path, *sides, *model)
    assert line == "SAME  at level greedy, bits not expected: every field within its bound"
    assert (status, tree.verdict, tree.level) == (0, "same", "greedy")
    assert tree.control is not None
    assert (tree.control.fired, tree.control.unit) == (True, "bound")
    assert tree.profile is not None
    assert (tree.profile.judged, tree.profile.arithmetic, tree.profile.lone) == (True, "f32", [])
    assert {row.unit for row in tree.profile.rows} == {"f32"}
    assert sum(row.differ for row in tree.profile.rows) > 0


def test_a_prompt_is_measured_as_it_was_fed(tmp_path: Path) -> None:
    options = ("--dump-prefill", "--tokens", "5,6,7,8,9")
    status, line, tree = diff(tmp_path, "hf", "cpu", *HYBRID, *options)
    assert (status, line[:4]) == (0, "SAME")
    assert tree.profile is not None
    assert tree.profile.positions == 7


def test_a_folder_is_within_its_bounds_with_the_librarys_own_rotary_table(tmp_path: Path) -> None:
    _, line, tree = diff(tmp_path, f"hf:{FOLDER}", "cpu", "--n", "2")
    said = "SAME  at level greedy, bits not expected: every field within its bound, weights digests"
    assert (tree.verdict, line) == ("same", f"{said} differ")
    note = "inv_freq differs: each side computes its own, of no file; judged by k and qrope"
    assert note in tree.notes


def test_red_a_folder_with_one_other_weight(tmp_path: Path) -> None:
    other = shutil.copytree(FOLDER, tmp_path / "other")
    file = other / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.self_attn.k_proj.weight"][3, 5] *= 1.5
    save_file(tensors, file)
    status, line, tree = diff(tmp_path, f"hf:{FOLDER}", f"hf:{other}", "--n", "1")
    said = "DIVERGED  contaminated start, first at l1_k row 0 (position 0)"
    assert (status, line) == (1, said)
    assert "weights differ in 1 tensor, first layers.1.k_proj" in tree.notes


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_half_format_is_widened_and_the_report_says_so(tmp_path: Path, dtype: str) -> None:
    status, line, tree = diff(tmp_path, f"hf@dtype={dtype}", "cpu", *DENSE)
    assert (status, line.startswith("SAME  at level greedy, bits not expected")) == (0, True)
    found = tree.profile
    assert found is not None
    assert (found.arithmetic, tree.counts.same) == (dtype, 0)
    row = found.row("l1_x")
    assert row is not None
    assert (row.ref_dtype, row.dut_dtype, row.unit, row.equal) == (dtype, "f32", dtype, 0)
    note = f"dtypes differ (ref {dtype}, dut f32): measured with both widened exactly"
    assert note in tree.notes


RED = {
    "Scaled": {"dense": "t32_l1_kraw", "hybrid": "t32_l1_kraw"},
    "OtherEps": {"dense": "t32_l0_nrm", "hybrid": "t32_l0_nrm"},
    "OtherTheta": {"dense": "t32_l0_k", "hybrid": "t32_l1_k"},
    "HeadsSwapped": {"dense": "t32_l1_qrope", "hybrid": "t32_l1_qrope"},
}


@pytest.mark.parametrize("model", [DENSE, HYBRID], ids=["dense", "hybrid"])
@pytest.mark.parametrize("fault", RED)
def test_red_a_wrong_model_is_outside_the_bound_at_its_key(
    tmp_path: Path, fault: str, model: tuple[str, ...]
) -> None:
    status, line, tree = diff(tmp_path, "cpu", f"{FAULTS}:{fault}", *model)
    first = RED[fault][model[1].removesuffix("-two")]
    assert line == f"DIVERGED  bits not expected, outside the bound, first at {first}"
    assert (status, tree.verdict, tree.first, tree.control) == (1, "diverged", first, None)


@pytest.mark.parametrize("fault", ["OtherTheta", "HeadsSwapped"])
def test_red_in_a_half_format_too(tmp_path: Path, fault: str) -> None:
    status, line, tree = diff(tmp_path, "cpu", f"{FAULTS}:{fault}@dtype=bf16", *DENSE)
    first = RED[fault]["dense"]
    assert line == f"DIVERGED  bits not expected, outside the bound, first at {first}"
    assert (status, tree.first, tree.profile is not None) == (1, first, True)


def test_the_state_of_the_delta_rule_is_within_its_bound(tmp_path: Path) -> None:
    options = ("--model", "hybrid-tiny", "--weights", "f32", "--fields", "+s", "--n", "1")
    status, line, tree = diff(tmp_path, "hf", "cpu", *options)
    assert (status, line[:4]) == (0, "SAME")
    assert tree.profile is not None
    row = tree.profile.row("l0_s")
    assert row is not None
    assert row.relative is not None
    assert row.bound is not None
    assert row.relative < row.bound


# --- against itself -------------------------------------------------------------------------------


def test_it_repeats_itself(tmp_path: Path) -> None:
    words = ("--model", "hybrid-two", "--weights", "f32", "--steps", "2", "--n", "3", "-q")
    result = run_cli("stable", "--engine", "hf", *words)
    said = "same: 50 of 50 keys, level bit, repeatable: 3 runs, control fired\n"
    assert (result.status, result.stdout) == (0, said)


@pytest.mark.parametrize(
    ("other", "said"),
    [("one", (0, "same", None)), ("two", (1, "diverged", "t2_gpt_neox.embed_in"))],
)
def test_a_search_by_layers_reads_fields_before_and_after_them(
    tmp_path: Path, other: str, said: tuple[int, str, str | None]
) -> None:
    folder(tmp_path / "one", "GPTNeoX")
    folder(tmp_path / "two", "GPTNeoX", weights=False)
    sides = (f"hf:{tmp_path / 'one'}", f"hf:{tmp_path / other}")
    options = ("--tokens", "5,6", "--n", "1", "--bisect")
    status, _, tree = diff(tmp_path, *sides, *options)
    assert (status, tree.verdict, tree.first) == said


def test_red_one_that_does_not_is_unstable_at_its_key() -> None:
    words = ("--model", "dense-two", "--weights", "f32", "--steps", "1", "--n", "3", "-q")
    result = run_cli("stable", "--engine", f"{FAULTS}:Restless", *words)
    said = "unstable: not repeatable, first at start state l1_v row 0 (position 0) in run 2 of 3\n"
    assert (result.status, result.stdout) == (1, said)


# --- rollback -------------------------------------------------------------------------------------


def rollback(path: Path, engine: str, model: str) -> tuple[int, dict[str, Any]]:
    """Exit status and record of ``parity rollback`` after three tokens."""
    saved = path / "back.json"
    words = ("--model", model, "--weights", "f32", "--m", "2", "--pos", "3:3", "-q")
    result = run_cli("rollback", "--engine", engine, *words, "--json", str(saved))
    assert saved.exists(), result.stderr
    record: dict[str, Any] = json.loads(saved.read_text())
    return result.status, record


@pytest.mark.parametrize("model", ["dense-two", "hybrid-two"])
def test_going_back_leaves_no_trace(tmp_path: Path, model: str) -> None:
    status, record = rollback(tmp_path, "hf", model)
    assert (status, record["verdict"], record["first"]) == (0, "same", None)
    assert all(control["fired"] for control in record["controls"])


FORGOTTEN = {
    ("CropsAlone", "hybrid-two"): ("s of layer 0 (and 1 more)", "t3_l0_conv", ["S", "hist"]),
    ("CropsOneTooFew", "hybrid-two"): ("k of layer 1 (and 1 more)", "t3_l1_k", ["KV rows"]),
    ("CropsOneTooFew", "dense-two"): ("k of layer 0 (and 3 more)", "t3_l0_k", ["KV rows"]),
}


@pytest.mark.parametrize(("fault", "model"), FORGOTTEN)
def test_red_a_crop_that_is_not_enough_is_found(tmp_path: Path, fault: str, model: str) -> None:
    status, record = rollback(tmp_path, f"{FAULTS}:{fault}", model)
    part, first, parts = FORGOTTEN[fault, model]
    assert (status, record["verdict"], record["first"]) == (1, "diverged", first)
    assert record["headline"] == f"M = 2, accept 0: {part} was not restored"
    # Of the state only what was forgotten differs; what is computed from it does too.
    cells = record["drafts"][0]["cells"]
    assert record["drafts"][0]["what"] == "accept 0"
    assert [name for name in ("lengths", "S", "hist", "KV rows") if cells.get(name)] == parts


def test_a_crop_alone_is_enough_without_recurrence(tmp_path: Path) -> None:
    status, record = rollback(tmp_path, f"{FAULTS}:CropsAlone", "dense-two")
    assert (status, record["verdict"]) == (0, "same")
