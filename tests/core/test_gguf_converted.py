"""Files of llama.cpp's own converter, beside the checkpoints that they were made of.

The folder reader (contract 1.11: Hugging Face's order) and the GGUF reader share no rule: what the
converter permutes, splits, adds and renames must come out as the checkpoint's own tensors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parity.model.file_model import FileModel
from parity.model.folder import open_folder
from parity.model.gguf import names, open_gguf

FIXTURES = Path(__file__).parents[1] / "fixtures"
CLASSES = {
    "Qwen3NextForCausalLM": "qwen3next",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
}
HEADS = (2, 6)


def both(name: str) -> tuple[FileModel, FileModel]:
    """The checkpoint and the file made of it."""
    return open_folder(FIXTURES / "hf" / name, "f32"), open_gguf(FIXTURES / "gguf" / f"{name}.gguf")


def differing(folder: FileModel, file: FileModel) -> list[str]:
    """Tensors that differ in dtype, shape or bytes; A_log and nA, of different kinds, left out."""
    shared = [name for name in folder.names() if not name.endswith(".a_log")]
    assert shared == [name for name in file.names() if not name.endswith(".rates")]
    return [name for name in shared if not _same(folder.tensor(name), file.tensor(name))]


def _same(ref: np.ndarray, dut: np.ndarray) -> bool:
    return (ref.dtype, ref.shape, ref.tobytes()) == (dut.dtype, dut.shape, dut.tobytes())


@pytest.mark.parametrize("name", CLASSES)
def test_the_same_configuration(name: str) -> None:
    folder, file = both(name)
    assert folder.config.gdn[:2] == HEADS
    assert file.config == folder.config


@pytest.mark.parametrize("name", ["Qwen3NextForCausalLM", "Qwen3_5MoeForCausalLM"])
def test_the_same_tensors(name: str) -> None:
    assert differing(*both(name)) == []


def test_an_f16_checkpoint_loses_bits_in_the_converter() -> None:
    """It adds 1 to the norms in f16: they are ours (1 + w in f32) rounded, and all else is equal.
    The gated norm, plain in both, is among what is equal."""
    folder, file = both("Qwen3_5ForCausalLM")
    found = differing(folder, file)
    assert found == [
        name for name in folder.names() if name.endswith("_norm") and not name.endswith("gdn_norm")
    ]
    for name in found:
        rounded = folder.tensor(name).astype(np.float16).astype(np.float32)
        assert _same(rounded, file.tensor(name))


@pytest.mark.parametrize("name", CLASSES)
def test_rates_are_minus_exp_of_a_log(name: str) -> None:
    """By torch's exp, in the checkpoint's own precision: not our bits, but these numbers in this
    order of heads."""
    folder, file = both(name)
    logs = [tensor for tensor in folder.names() if tensor.endswith(".a_log")]
    assert logs
    for log in logs:
        wanted = -np.exp(folder.tensor(log).astype(np.float64))
        np.testing.assert_allclose(file.tensor(log.replace("a_log", "rates")), wanted, rtol=1e-3)


@pytest.mark.parametrize("name", ["Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"])
def test_heads_moved_the_wrong_way_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the inverse order of the value heads."""
    before, right = differing(*both(name)), names.tiled
    monkeypatch.setattr(names, "tiled", lambda config: np.argsort(right(config)))
    folder, file = both(name)
    moved = ("qkv_proj", "z_proj", "a_proj", "b_proj", "conv", "dt_bias", "out_proj")
    layers = [layer for layer in range(folder.config.layers) if folder.config.is_gdn(layer)]
    wrong = set(differing(folder, file)) - set(before)
    assert wrong == {f"layers.{layer}.{tensor}" for layer in layers for tensor in moved}
