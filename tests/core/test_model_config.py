"""Settings of published models: layer by layer, in the digest's text, in fields and shapes."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from parity.errors import ParityBug
from parity.families import count_keys, dumped_fields, every_field, field_type, layer_fields
from parity.model.config import PRESETS, ModelConfig, preset
from parity.model.memory import weight_bytes
from parity.model.model import SyntheticModel, weight_shapes

NEXT = preset("next-tiny")
MIXED = replace(
    preset("moe-tiny"), dense_layers=(0, 2), dense_inter=224, shared_inter=160, real_ids=500
)
# What a configuration says beside what it said before there were files of published models.
ADDED = {
    **{"shared_inter": 5, "dense_layers": (1,), "dense_inter": 6, "full_layers": (0,)},
    **{"tied": True, "real_ids": 7, "kv_storage": "f32", "own_keys": ((-1, "head"),)},
}
FFN = ("fnrm", "rlogits", "topk", "topp", "gate", "up", "act", "down")


# --- the digest's text ----------------------------------------------------------------------------


def test_defaults_of_added_settings_are_left_out() -> None:
    """So the digests of older models stay (golden digests: test_model.py)."""
    every = {field.name for field in fields(ModelConfig)}
    told = set(json.loads(preset("moe-tiny").text()))
    assert every - told == set(ADDED)


@pytest.mark.parametrize("name", ADDED)
def test_red_every_added_setting_changes_the_text(name: str) -> None:
    config = preset("hybrid-tiny")
    other = replace(config, **{name: ADDED[name]})
    assert other.text() != config.text()
    assert json.loads(other.text())[name] == json.loads(json.dumps(ADDED[name]))


def test_full_layers_none_and_no_layer_are_two_texts() -> None:
    config = preset("hybrid-tiny")
    assert replace(config, full_layers=()).text() != config.text()


# --- layer by layer -------------------------------------------------------------------------------


def test_which_layers_have_experts_and_how_wide_they_are() -> None:
    assert [MIXED.has_experts(layer) for layer in range(4)] == [False, True, False, True]
    assert [MIXED.ffn_inter(layer) for layer in range(4)] == [224, 96, 224, 96]
    dense = preset("dense-tiny")
    assert (dense.has_experts(0), dense.ffn_inter(0)) == (False, 256)
    assert all(map(NEXT.has_experts, range(8)))


def test_listed_layers_have_full_attention() -> None:
    listed = replace(NEXT, full_layers=(0, 6))
    assert [layer for layer in range(8) if not listed.is_gdn(layer)] == [0, 6]
    assert all(map(replace(NEXT, full_layers=()).is_gdn, range(8)))
    assert [layer for layer in range(8) if not NEXT.is_gdn(layer)] == [3, 7]
    assert all(map(replace(listed, only="gdn").is_gdn, range(8)))


def test_real_ids() -> None:
    assert (MIXED.ids, MIXED.vocab, NEXT.ids) == (500, 512, 511)


@pytest.mark.parametrize(
    ("family", "weights", "given", "kv"),
    [
        ("moe", "q4", "", "int8"),
        ("moe", "f32", "", "f32"),
        ("hybrid", "q4", "", "f32"),
        ("moe", "file", "f32", "f32"),
        ("dense", "file", "int8", "int8"),
    ],
)
def test_kv_storage(family: str, weights: str, given: str, kv: str) -> None:
    config = replace(preset("moe-tiny"), family=family, weights=weights, kv_storage=given)
    assert config.kv == kv


# --- fields ---------------------------------------------------------------------------------------


def test_fields_of_experts_and_of_dense_layers() -> None:
    asked = dumped_fields(MIXED, ("ffn",))
    assert layer_fields(MIXED, 1, asked)[-10:] == (*FFN, "gs", "sh")
    dense = layer_fields(MIXED, 2, asked)
    assert dense[-5:] == ("fnrm", "gate", "up", "act", "down")
    assert not {"rlogits", "topk", "topp", "gs", "sh"} & set(dense)
    plain = replace(MIXED, shared_inter=0)
    assert not {"gs", "sh"} & set(every_field(plain))
    assert {"gs", "sh"} <= set(every_field(NEXT))


@pytest.mark.parametrize(
    ("config", "asked", "keys"),
    [
        (NEXT, (), 6 * 13 + 2 * 10 + 2),
        (NEXT, ("ffn",), 6 * 23 + 2 * 20 + 2),
        (NEXT, ("ffn", "s"), 6 * 24 + 2 * 20 + 2),
        (MIXED, ("ffn",), 2 * 21 + 2 * 16 + 2),
        (MIXED, ("gs",), 2 * 12 + 2 * 11 + 2),
    ],
    ids=str,
)
def test_keys_of_a_token(config: ModelConfig, asked: tuple[str, ...], keys: int) -> None:
    assert count_keys(config, dumped_fields(config, asked)) == keys


@pytest.mark.parametrize(
    ("config", "field", "layer", "kind"),
    [
        (NEXT, "gs", None, "f32[1]"),
        (NEXT, "sh", 3, "f32[160]"),
        (NEXT, "gate", None, "f32[3,96]"),
        (NEXT, "down", 0, "f32[3,160]"),
        (NEXT, "rlogits", 0, "f32[8]"),
        (NEXT, "k", 3, "f32[2,96]"),
        (MIXED, "gate", 0, "f32[224]"),
        (MIXED, "act", 1, "f32[3,96]"),
        (MIXED, "down", 2, "f32[160]"),
        (MIXED, "down", 3, "f32[3,160]"),
        (MIXED, "k", None, "int8[2,96]"),
        (preset("dense-tiny"), "up", None, "f32[256]"),
    ],
)
def test_types(config: ModelConfig, field: str, layer: int | None, kind: str) -> None:
    assert str(field_type(config, field, layer)) == kind


def test_red_a_shape_that_depends_on_the_layer() -> None:
    with pytest.raises(ParityBug, match="the shape of gate of moe-tiny depends on the layer"):
        field_type(MIXED, "gate")


# --- weights --------------------------------------------------------------------------------------


def test_weights_of_a_shared_expert_and_of_dense_layers() -> None:
    shapes = weight_shapes(MIXED)
    assert shapes["layers.1.shared_gate"].shape == (1, 160)
    assert not shapes["layers.1.shared_gate"].matrix
    assert shapes["layers.1.shared.gate"].shape == (160, 160)
    assert shapes["layers.3.shared.down"].shape == (160, 160)
    assert shapes["layers.0.mlp.up"].shape == (224, 160)
    assert shapes["layers.2.mlp.down"].shape == (160, 224)
    assert not [name for name in shapes if name.startswith(("layers.0.exp", "layers.2.sh"))]


@pytest.mark.parametrize("name", PRESETS)
def test_names_of_shapes_and_tensors_agree(name: str) -> None:
    """In the same order; a Q4_0 matrix is two tensors."""
    model = SyntheticModel(PRESETS[name], 7)
    plain = [tensor.removesuffix(".qs") for tensor in model.names() if not tensor.endswith(".d")]
    assert plain == list(weight_shapes(model.config))


@pytest.mark.parametrize(
    "changes",
    [{}, {"shared_inter": 160}, {"dense_layers": (1,), "dense_inter": 64}, {"tied": True}],
)
@pytest.mark.parametrize("weights", ["q4", "f32"])
def test_weight_bytes_are_those_of_the_tensors(weights: str, changes: dict[str, object]) -> None:
    model = SyntheticModel(replace(preset("moe-tiny", weights), **changes), 7)  # type: ignore[arg-type]
    assert weight_bytes(model) == sum(model.tensor(name).nbytes for name in model.names())
    assert not changes.get("tied") or not any("lm_head" in name for name in model.names())
