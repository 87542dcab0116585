"""The conventions of GGUF's hybrid models are undone when they are read (contract 1.11)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.errors import InputError
from parity.model.config import preset
from parity.model.file_model import FileModel
from parity.model.gguf import names, open_gguf
from tests.core.gguf_files import Content, Tensor, file_bytes
from tests.core.gguf_hybrid import VALUE_WIDTH, Weights, hybrid_content

KINDS = [
    ("qwen35", False, False),
    ("qwen35moe", False, False),
    ("qwen35moe", False, True),
    ("qwen3next", False, False),
    ("qwen3next", True, False),
    ("qwen3next", True, True),
]


def opened(content: Content, folder: Path) -> FileModel:
    path = folder / "model.gguf"
    path.write_bytes(file_bytes(content))
    return open_gguf(path)


def unequal(model: FileModel, weights: Weights) -> list[str]:
    """Names of the weights whose dtype, shape or bytes are not the wanted ones."""
    assert set(model.names()) == {*weights, "inv_freq"}
    found = {name: np.ascontiguousarray(model.tensor(name)) for name in weights}
    return [
        name
        for name, array in weights.items()
        if (found[name].dtype, found[name].shape) != (array.dtype, array.shape)
        or found[name].tobytes() != array.tobytes()
    ]


@pytest.mark.parametrize(("architecture", "old", "fused"), KINDS)
def test_every_weight_in_loaded_order(
    architecture: str, old: bool, fused: bool, tmp_path: Path
) -> None:
    content, weights = hybrid_content(architecture, old=old, fused=fused)
    assert unequal(opened(content, tmp_path), weights) == []


def test_the_formula_of_the_contract() -> None:
    """Head h of ours is head (h mod r) * kh + h / r of the file: 2 key heads, 6 value heads."""
    assert names.tiled(preset("hybrid-tiny")).tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize("architecture", ["qwen35", "qwen35moe"])
def test_a_tile_undone_the_wrong_way_is_seen(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the inverse order. Every tensor that moves is wrong, and no other."""
    right = names.tiled
    monkeypatch.setattr(names, "tiled", lambda config: np.argsort(right(config)))
    content, weights = hybrid_content(architecture)
    moved = ("qkv_proj", "z_proj", "a_proj", "b_proj", "conv", "rates", "dt_bias", "out_proj")
    assert unequal(opened(content, tmp_path), weights) == [f"layers.0.{name}" for name in moved]


def test_two_and_four_heads_hide_it() -> None:
    """Why the presets have 2 and 6 heads: at 2 and 4 the order is its own inverse."""
    four = names.tiled(replace(preset("hybrid-tiny"), gdn=(2, 4, 96, 96)))
    six = names.tiled(preset("hybrid-tiny"))
    assert np.argsort(four).tolist() == four.tolist()
    assert np.argsort(six).tolist() != six.tolist()


def test_tiling_a_qwen3next_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: qwen3next taken for one of the tiled architectures."""
    monkeypatch.setattr(names, "TILED", (*names.TILED, "qwen3next"))
    content, weights = hybrid_content("qwen3next")
    moved = ("qkv_proj", "z_proj", "conv", "rates", "dt_bias", "out_proj")
    assert unequal(opened(content, tmp_path), weights) == [f"layers.0.{name}" for name in moved]


def test_alpha_for_beta_is_seen(tmp_path: Path) -> None:
    content, weights = hybrid_content("qwen3next")
    wrong = weights | {
        "layers.0.a_proj": weights["layers.0.b_proj"],
        "layers.0.b_proj": weights["layers.0.a_proj"],
    }
    assert unequal(opened(content, tmp_path), wrong) == ["layers.0.a_proj", "layers.0.b_proj"]


def test_columns_of_a_q4_0_matrix_move_in_whole_blocks(tmp_path: Path) -> None:
    """out_proj as Q4_0: each value head is one block of 32, and keeps its bytes."""
    content, _ = hybrid_content("qwen35")
    rng = np.random.default_rng(3)
    loaded = rng.integers(0, 256, (32, 6, 18), np.uint8)
    loaded[..., 1] &= 0x3B
    tiled = loaded.reshape(32, 2, 3, 18).swapaxes(1, 2).reshape(32, 6, 18)
    stored = Tensor((32, 6 * VALUE_WIDTH), tiled.tobytes(), "Q4_0")
    model = opened(content.tensors_with({"blk.0.ssm_out.weight": stored}), tmp_path)
    assert model.tensor("layers.0.out_proj.qs").tobytes() == loaded[..., 2:].tobytes()
    assert model.tensor("layers.0.out_proj.d").tobytes() == loaded[..., :2].tobytes()


def test_columns_that_would_cut_a_block_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.core import gguf_hybrid

    monkeypatch.setattr(gguf_hybrid, "VALUE_WIDTH", 16)
    monkeypatch.setattr(gguf_hybrid, "VALUES", 96)
    content, _ = hybrid_content("qwen35")
    stored = Tensor((32, 96), bytes(32 * 3 * 18), "Q4_0")
    with pytest.raises(InputError) as caught:
        opened(content.tensors_with({"blk.0.ssm_out.weight": stored}), tmp_path)
    assert caught.value.message.endswith(
        "tensor blk.0.ssm_out.weight is Q4_0: its columns move in runs of 16, no multiple of 32"
    )


def test_rates_are_those_of_the_file(tmp_path: Path) -> None:
    """nA stays what the file says: no A_log is made of it."""
    content, weights = hybrid_content("qwen3next")
    model = opened(content, tmp_path)
    assert "layers.0.a_log" not in model.recipes
    stored = content.tensors["blk.0.ssm_a"].data
    assert model.tensor("layers.0.rates").tobytes() == stored == weights["layers.0.rates"].tobytes()
