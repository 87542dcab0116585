"""config.json of a Hugging Face folder: what is read, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.errors import InputError
from parity.model.config import ModelConfig
from parity.model.folder.config import ARCHITECTURES, read_config
from parity.model.folder.settings import Settings
from parity.model.model import synthetic
from tests.hf_folders import config_of

NEXT = config_of(synthetic("next-tiny", 7, "f32").config, "Qwen3NextForCausalLM")
MOE = config_of(synthetic("moe-tiny", 7, "f32").config, "Qwen3MoeForCausalLM")
DENSE = config_of(synthetic("dense-tiny", 7, "f32").config, "Qwen3ForCausalLM")
HYBRID = config_of(synthetic("hybrid-tiny", 7, "f32").config, "Qwen3_5ForCausalLM")
OUTER = "Qwen3_5ForConditionalGeneration"


def read(tmp_path: Path, values: Any) -> ModelConfig:
    path = tmp_path / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return read_config(Settings.read(path))[1]


def refused(tmp_path: Path, values: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, values)
    assert caught.value.next_step
    prefix = f"{tmp_path}/config.json: "
    assert caught.value.message.startswith(prefix)
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix(prefix)


# --- what is read -----------------------------------------------------------------------------


def test_sizes_of_the_published_27b(tmp_path: Path) -> None:
    """A config.json as published for Qwen3.5-27B, with what nothing hangs on: the preset's sizes,
    and layer_types say the same as the interval."""
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(64)]
    text = {
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": 248044,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": kinds,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "max_position_embeddings": 262144,
        "mlp_only_layers": [],
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "output_gate_type": "swish",
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-06,
        "vocab_size": 248320,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
        },
    }
    outer = {"architectures": [OUTER], "text_config": text, "tie_word_embeddings": False}
    found = read(tmp_path, outer)
    preset = synthetic("qwen3.5-27b", 0).config
    assert found == ModelConfig(
        OUTER,
        *(64, 5120, 24, 4, 256, 17_408, 0, 0, 248_320, 1e7),
        weights="file",
        family="hybrid",
        context=262_144,
        rot=64,
        gdn=(16, 48, 128, 128),
    )
    assert [found.is_gdn(i) for i in range(64)] == [preset.is_gdn(i) for i in range(64)]


def test_settings_that_may_be_absent(tmp_path: Path) -> None:
    """Null and absent are one thing, and older files have rope_theta and the share outside."""
    older = {**NEXT, "rope_scaling": None, "mlp_only_layers": None, "tie_word_embeddings": None}
    bare = {key: value for key, value in NEXT.items() if key not in ("rope_theta", "hidden_act")}
    rope = {"rope_theta": 1e7, "rope_type": "default"}
    assert read(tmp_path, older) == read(tmp_path, {**bare, "rope_parameters": rope})
    del older["partial_rotary_factor"]  # a hybrid's default is a quarter, as here
    assert read(tmp_path, older) == read(tmp_path, NEXT)


def test_layers_without_experts(tmp_path: Path) -> None:
    """mlp_only_layers and decoder_sparse_step both; a model without any experts is a dense one."""
    mixed = read(tmp_path, {**MOE, "mlp_only_layers": [1], "decoder_sparse_step": 2})
    assert mixed.dense_layers == (0, 1, 2)
    assert mixed.dense_inter == 96
    assert [mixed.has_experts(i) for i in range(4)] == [False, False, False, True]
    for none in ({"num_experts": 0}, {"mlp_only_layers": [0, 1, 2, 3]}):
        dense = read(tmp_path, {**MOE, **none})
        assert (dense.family, dense.experts, dense.dense_layers) == ("dense", 0, ())
    hybrid = read(tmp_path, {**NEXT, "num_experts": 0})
    assert (hybrid.family, hybrid.experts, hybrid.shared_inter) == ("hybrid", 0, 0)


def test_the_other_name_of_the_expert_count(tmp_path: Path) -> None:
    other = {key: value for key, value in MOE.items() if key != "num_experts"}
    assert read(tmp_path, {**other, "num_local_experts": 8}) == read(tmp_path, MOE)
    assert refused(tmp_path, {**MOE, "num_local_experts": 9}) == (
        "num_experts is 8, num_local_experts another count"
    )


def test_full_attention_where_the_file_says(tmp_path: Path) -> None:
    kinds = ["full_attention", *["linear_attention"] * 7]
    assert read(tmp_path, {**HYBRID, "layer_types": kinds}).full_layers == (0,)
    assert read(tmp_path, {**HYBRID, "full_attention_interval": 3}).interval == 3


def test_tied_by_either_key(tmp_path: Path) -> None:
    assert read(tmp_path, {**DENSE, "tie_word_embeddings": True}).tied
    outer = {"architectures": [OUTER], "text_config": {**HYBRID, "tie_word_embeddings": True}}
    assert read(tmp_path, outer).tied
    assert refused(tmp_path, {**outer, "tie_word_embeddings": False}) == (
        "tie_word_embeddings and text_config.tie_word_embeddings differ"
    )


# --- what is refused --------------------------------------------------------------------------


def test_other_architectures(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**DENSE, "architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(InputError) as caught:
        read_config(Settings.read(path))
    assert caught.value.message == f"{path}: the architecture LlamaForCausalLM is not supported"
    assert caught.value.next_step == f"supported: {', '.join(ARCHITECTURES)}"


@pytest.mark.parametrize("named", [None, [], "Qwen3ForCausalLM", ["a", "b"], [3]])
def test_architectures_that_are_no_name(tmp_path: Path, named: Any) -> None:
    said = refused(tmp_path, {**DENSE, "architectures": named})
    assert said == "architectures does not name one architecture"


YARN = {"rope_type": "yarn", "factor": 4.0}
ROPE = {"rope_type": "default", "rope_theta": 1e6}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "bias": (DENSE, {"attention_bias": True}, "attention_bias is true: projections with a bias"),
    "window": (
        *(DENSE, {"use_sliding_window": True}),
        "use_sliding_window is true: attention with a sliding window",
    ),
    "window by layer": (
        *(DENSE, {"layer_types": ["full_attention"] * 3 + ["sliding_attention"]}),
        "layer_types has 'sliding_attention', which is not supported",
    ),
    "linear attention in a dense model": (
        *(DENSE, {"layer_types": ["full_attention"] * 3 + ["linear_attention"]}),
        "layer_types has 'linear_attention', which is not supported",
    ),
    "activation": (
        *(DENSE, {"hidden_act": "gelu"}),
        "hidden_act is 'gelu': another activation than silu",
    ),
    "no gate": (
        *(HYBRID, {"attn_output_gate": False}),
        "attn_output_gate is false: full attention without its gate",
    ),
    "another gate": (
        *(HYBRID, {"output_gate_type": "sigmoid"}),
        "output_gate_type is 'sigmoid': another gate of the gated norm",
    ),
    "two shares": (
        *(HYBRID, {"rope_parameters": {"partial_rotary_factor": 0.5}}),
        "partial_rotary_factor is 0.25, 0.5 in rope_parameters",
    ),
    "convolution": (
        *(HYBRID, {"linear_conv_kernel_dim": 3}),
        "linear_conv_kernel_dim is 3: another width of the convolution",
    ),
    "scaling": (
        *(DENSE, {"rope_scaling": YARN}),
        "rope_scaling.rope_type is 'yarn': a rope scaling",
    ),
    "scaling of before": (
        *(DENSE, {"rope_scaling": {"type": "linear", "factor": 2}}),
        "rope_scaling.type is 'linear': a rope scaling",
    ),
    "scaling without a name": (
        *(DENSE, {"rope_parameters": {**ROPE, "factor": 2}}),
        "rope_parameters.factor is not known: another rope",
    ),
    "two scalings": (
        *(DENSE, {"rope_parameters": ROPE, "rope_scaling": {}}),
        "rope_scaling and rope_parameters say different things",
    ),
    "two thetas": (
        *(DENSE, {"rope_parameters": {"rope_theta": 1e4}}),
        "rope_theta is 1000000.0, 10000.0 in rope_parameters",
    ),
    "partial rope of a class without it": (
        *(DENSE, {"partial_rotary_factor": 0.5}),
        "rope_parameters.partial_rotary_factor is 0.5: Qwen3ForCausalLM rotates whole heads",
    ),
    "odd rope": (
        *(HYBRID, {"partial_rotary_factor": 0.0527}),
        "rope_parameters.partial_rotary_factor 0.0527 of 96 elements: 5 rotate",
    ),
    "quantised": (
        *(DENSE, {"quantization_config": {"quant_method": "fp8"}}),
        "quantization_config is there: the checkpoint is quantised",
    ),
    "no count of experts": (MOE, {"num_experts": None}, "num_experts is missing"),
    "heads": (
        *(DENSE, {"num_key_value_heads": 3}),
        "num_attention_heads is 4, no multiple of the 3 of K and V",
    ),
    "value heads": (
        *(HYBRID, {"linear_num_value_heads": 5}),
        "linear_num_value_heads is 5, no multiple of 2 key heads",
    ),
    "top k": (MOE, {"num_experts_per_tok": 9}, "num_experts_per_tok is 9, of 8 experts"),
    "a layer past the last": (
        *(MOE, {"mlp_only_layers": [4]}),
        "mlp_only_layers is [4], not a list of layers of 0 to 3",
    ),
    "layer types": (
        *(DENSE, {"layer_types": ["full_attention"]}),
        "layer_types has 1 entries for 4 layers",
    ),
    "text": (DENSE, {"layer_types": [3]}, "layer_types is not a list of words"),
    "none": (DENSE, {"num_hidden_layers": None}, "num_hidden_layers is missing"),
    "zero": (DENSE, {"hidden_size": 0}, f"hidden_size is 0, not a count of 1 to {1 << 40}"),
    "true": (DENSE, {"hidden_size": True}, f"hidden_size is true, not a count of 1 to {1 << 40}"),
    "a float": (DENSE, {"head_dim": 32.0}, f"head_dim is 32.0, not a count of 1 to {1 << 40}"),
    "too many": (
        *(DENSE, {"num_hidden_layers": 1 << 60}),
        f"num_hidden_layers is {1 << 60}, not a count of 1 to 10000",
    ),
    "eps": (DENSE, {"rms_norm_eps": 0}, "rms_norm_eps is 0, not a number above 0"),
    "theta": (DENSE, {"rope_theta": "1e6"}, "rope_theta is '1e6', not a number above 0"),
    "theta below 1": (
        *(DENSE, {"rope_theta": 1e-320}),
        "rope_parameters.rope_theta is 1e-320, not a number from 1 up",
    ),
    "more than a head": (
        *(HYBRID, {"partial_rotary_factor": 1e308}),
        "rope_parameters.partial_rotary_factor is 1e+308, more than a whole head",
    ),
    "rope that is no object": (DENSE, {"rope_scaling": [1]}, "rope_scaling is not an object"),
    "norm_topk_prob": (MOE, {"norm_topk_prob": None}, "norm_topk_prob is missing"),
    "a word for a flag": (
        MOE,
        {"norm_topk_prob": "no"},
        "norm_topk_prob is 'no', not true or false",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_settings(tmp_path: Path, case: str) -> None:
    base, changes, message = REFUSED[case]
    read(tmp_path, base)
    assert refused(tmp_path, {**base, **changes}) == message


def test_qwen3_5_always_divides(tmp_path: Path) -> None:
    """The class has no norm_topk_prob; a file that says otherwise is of another model."""
    experts = {**NEXT, "architectures": ["Qwen3_5MoeForCausalLM"]}
    del experts["norm_topk_prob"]
    assert read(tmp_path, experts).norm_topk_prob
    assert refused(tmp_path, {**experts, "norm_topk_prob": False}) == (
        "norm_topk_prob is false: the architecture always divides by the sum"
    )


def test_settings_of_the_language_model_are_named_where_they_stand(tmp_path: Path) -> None:
    outer = {"architectures": [OUTER], "text_config": {**HYBRID, "attention_bias": True}}
    said = refused(tmp_path, outer)
    assert said == "text_config.attention_bias is true: projections with a bias"
    assert refused(tmp_path, {"architectures": [OUTER]}) == "text_config is missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the file is not JSON: "),
        ("[1]", "the file is not a JSON object"),
        ('{"a": 1, "a": 2}', "the file is not JSON: 'a' appears twice"),
        ("[" * 100_000, "the file is not JSON: "),
        ('{"architectures": [' + "9" * 5000 + "]}", "the file is not JSON: "),
    ],
    ids=["cut", "list", "twice", "deep", "digits"],
)
def test_files_that_are_no_settings(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text).startswith(message)


def test_no_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(InputError, match=f"^cannot read {path}: No such file or directory$"):
        Settings.read(path)
