"""Two checkpoints that differ in their embedding alone: the embedding is named, and no op."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

from parity.tree import Tree
from tests.cli_runner import run_cli
from tests.engines.torch.engines import folder


def changed(path: Path, name: str) -> None:
    """One value of each row of the tensor ``name`` is another."""
    tensors = load_file(path / "model.safetensors")
    tensors[name][..., 3] += 0.25
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("model.embed_tokens.weight", "embedding; token {} is embedded as another row: 1 of"),
        (
            "model.layers.0.input_layernorm.weight",
            "RMSNorm (contract 1.1); inputs equal; its weights differ: layers.0.attn_norm",
        ),
    ],
)
def test_red_first_norm_of_two_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("ref", "dut"):
        folder(tmp_path / side, "Qwen3", weights=True)
    changed(tmp_path / "dut", name)
    sides = ("--ref", "hf:./ref", "--dut", "hf:./dut", "--n", "1", "--tokens", "3,5")
    result = run_cli("diff", *sides, "--json", "diff.json")
    assert result.status == 1, result.stderr
    tree = Tree.from_json(Path("diff.json").read_text())
    assert tree.first == "t2_l0_nrm"
    cause = " ".join(result.stdout.split()).partition("cause ")[2]
    assert cause.startswith(f"t0_l0_nrm: {wanted.format(3)}"), cause
