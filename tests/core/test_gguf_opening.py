"""A GGUF file as a model: whole, or refused by the name of what is wrong (contract 1.11, B31)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError
from parity.model.file_model import FileModel
from parity.model.gguf import open_gguf
from parity.model.gguf.storage import widen
from parity.model.loading import load_tensors
from parity.status import ExitStatus
from tests.core.gguf_files import (
    HEAD_DIM,
    HIDDEN,
    U32,
    VOCAB,
    Content,
    Tensor,
    dense_content,
    f32,
    file_bytes,
    random_tensor,
)
from tests.core.gguf_hybrid import hybrid_content

Opened = Callable[[Content], FileModel]
Refused = Callable[[Content], str]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Write a content to a file and open it."""

    def model(content: Content) -> FileModel:
        (tmp_path / "tiny.gguf").write_bytes(file_bytes(content))
        return open_gguf(tmp_path / "tiny.gguf")

    return model


@pytest.fixture
def refused(opened: Opened, tmp_path: Path) -> Refused:
    """The message of the InputError, exit status 2, without the path."""

    def message(content: Content) -> str:
        with pytest.raises(InputError) as caught:
            opened(content)
        assert caught.value.exit_status == ExitStatus.USAGE == 2
        assert caught.value.next_step
        return caught.value.message.removeprefix(f"{tmp_path / 'tiny.gguf'}: ")

    return message


def valued(**changes: Any) -> Content:
    """The dense model with other values of its architecture; ``__`` stands for a dot."""
    named = {f"qwen3.{key.replace('__', '.')}": value for key, value in changes.items()}
    return dense_content().values_with(named)


def test_a_dense_model(opened: Opened) -> None:
    model = opened(dense_content(layers=2))
    config = model.config
    assert (config.name, config.family, config.layers, config.hidden) == ("tiny", "dense", 2, 32)
    assert (config.n_q, config.n_kv, config.head_dim, config.inter) == (2, 1, 16, 32)
    assert (config.vocab, config.theta, config.eps, config.context) == (7, 1e6, 1e-6, 64)
    assert (config.weights, config.kv, config.tied, config.ids) == ("file", "f32", False, 7)
    assert model.label == "tiny.gguf"
    assert (model.source.format, model.source.stored) == ("gguf", "25 F32")
    loaded = dict(load_tensors(model))
    assert loaded["layers.1.k_proj"].tobytes() == (
        dense_content(layers=2).tensors["blk.1.attn_k.weight"].data
    )


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "F16", "BF16"])
def test_every_storage(opened: Opened, kind: str) -> None:
    content = dense_content(kind=kind)
    model = opened(content)
    loaded = dict(load_tensors(model))
    assert model.config.kv == ("int8" if kind == "Q4_0" else "f32")
    stored = content.tensors["blk.0.ffn_down.weight"].data
    blocks = np.frombuffer(stored, np.uint8).reshape(
        HIDDEN, HIDDEN // (32 if "Q" in kind else 1), -1
    )
    if kind == "Q4_0":
        assert loaded["layers.0.mlp.down.d"].tobytes() == blocks[..., :2].tobytes()
        assert loaded["layers.0.mlp.down.qs"].tobytes() == blocks[..., 2:].tobytes()
    else:
        assert loaded["layers.0.mlp.down"].tobytes() == widen(kind, blocks).tobytes()


def test_a_file_that_is_hardly_aligned(opened: Opened) -> None:
    """Tensors at odd bytes: floats are handed out whole."""
    content = dense_content().values_with({"general.alignment": U32(1), "odd": "x"})
    content.alignment = 1
    plain = {name: array.copy() for name, array in load_tensors(opened(dense_content()))}
    loaded = dict(load_tensors(opened(content)))
    assert {name: array.tobytes() for name, array in plain.items()} == {
        name: array.tobytes() for name, array in loaded.items()
    }
    assert all(array.flags.aligned for array in loaded.values())


def test_one_q4_0_row_among_others_decides_the_cache(opened: Opened) -> None:
    """A head in another storage, as published Q4_0 files have it; the cache follows the Q4_0."""
    content = dense_content(kind="Q4_1").tensors_with(
        {"blk.0.ffn_down.weight": random_tensor("down", (32, 32), "Q4_0")}
    )
    model = opened(content)
    assert model.config.kv == "int8"
    assert model.source.stored == "8 Q4_1, 5 F32, 1 Q4_0"


def test_hybrids_keep_an_f32_cache(opened: Opened) -> None:
    content, _ = hybrid_content("qwen35")
    content = content.tensors_with(
        {"blk.0.ffn_down.weight": random_tensor("down", (32, 32), "Q4_0")}
    )
    assert opened(content).config.kv == "f32"


def test_alpha_and_beta_stored_as_q4_0_are_widened(opened: Opened) -> None:
    """llama-quantize does that; contract 1.0 has them as f32."""
    content, _ = hybrid_content("qwen35")
    alpha = random_tensor("alpha", (6, 32), "Q4_0")
    model = opened(content.tensors_with({"blk.0.ssm_alpha.weight": alpha}))
    assert "layers.0.a_proj.qs" not in model.recipes
    values = widen("Q4_0", np.frombuffer(alpha.data, np.uint8).reshape(6, 1, 18))
    # Heads of ours by the file's: 2 key heads, 6 value heads.
    assert model.tensor("layers.0.a_proj").tobytes() == values[[0, 2, 4, 1, 3, 5]].tobytes()


def test_infinite_scales_are_flagged_with_tensor_and_element(opened: Opened) -> None:
    stored = random_tensor("down", (32, 32), "Q4_0")
    data = stored.data[: 5 * 18] + b"\x00\x7c" + stored.data[5 * 18 + 2 :]
    content = dense_content(kind="Q4_0").tensors_with(
        {"blk.0.ffn_down.weight": Tensor((32, 32), data, "Q4_0")}
    )
    with pytest.raises(InputError) as caught:
        dict(load_tensors(opened(content)))
    assert caught.value.message == (
        "weight layers.0.mlp.down.d holds 1 non-finite values, first at element 5"
    )


def test_an_infinite_scale_that_is_widened(opened: Opened) -> None:
    stored = random_tensor("down", (32, 32), "Q8_0")
    data = stored.data[: 5 * 34] + b"\x00\x7c" + b"\x01" * 32 + stored.data[6 * 34 :]
    content = dense_content().tensors_with(
        {"blk.0.ffn_down.weight": Tensor((32, 32), data, "Q8_0")}
    )
    with pytest.raises(InputError) as caught:
        dict(load_tensors(opened(content)))
    assert caught.value.message == (
        "weight layers.0.mlp.down holds 32 non-finite values, first at element 160"
    )


def test_no_head_means_tied(opened: Opened) -> None:
    model = opened(dense_content().tensors_with({"output.weight": None}))
    assert model.config.tied
    assert "lm_head" not in model.recipes


def test_a_head_that_is_there_is_used_as_stored(opened: Opened) -> None:
    model = opened(dense_content())
    assert not model.config.tied
    assert model.tensor("lm_head").tobytes() == dense_content().tensors["output.weight"].data


def test_a_missing_tensor(refused: Refused) -> None:
    content = dense_content(2).tensors_with({"blk.1.attn_k.weight": None})
    assert refused(content) == "tensor blk.1.attn_k.weight is missing"


def test_names_of_another_scheme(refused: Refused) -> None:
    content = dense_content()
    renamed = {f"model.{name}": tensor for name, tensor in content.tensors.items()}
    content.tensors = renamed
    assert refused(content) == "tensor token_embd.weight is missing"
    content.tensors = renamed | {"token_embd.weight": renamed["model.token_embd.weight"]}
    assert refused(content) == (
        "tensors blk.0.attn_norm.weight, blk.0.attn_q.weight, blk.0.attn_k.weight, "
        "blk.0.attn_v.weight, blk.0.attn_q_norm.weight and 7 more are missing"
    )


def test_an_unknown_tensor(refused: Refused) -> None:
    content = dense_content().tensors_with({"blk.0.extra.weight": f32(np.ones(3))})
    assert refused(content) == "tensor blk.0.extra.weight is unknown"


def test_attention_bias(refused: Refused) -> None:
    content = dense_content().tensors_with({"blk.0.attn_q.bias": f32(np.ones(32))})
    assert refused(content) == "tensor blk.0.attn_q.bias: attention bias is not supported"


def test_another_shape(refused: Refused) -> None:
    content = dense_content().tensors_with(
        {"blk.0.attn_k.weight": f32(np.ones((2 * HEAD_DIM, HIDDEN)))}
    )
    assert refused(content) == (
        "tensor blk.0.attn_k.weight is [32, 32], the configuration needs [16, 32]"
    )


def test_further_tokens_and_vision_are_left_out(opened: Opened) -> None:
    content, _ = hybrid_content("qwen35")
    plain = opened(content)
    more = content.values_with(
        {"qwen35.block_count": 3, "qwen35.nextn_predict_layers": 1}
    ).tensors_with(
        {
            "blk.2.nextn.eh_proj.weight": f32(np.ones((HIDDEN, 2 * HIDDEN))),
            "blk.2.attn_q.weight": f32(np.ones((64, HIDDEN))),
            "v.blk.0.attn_q.weight": f32(np.ones(4)),
            "mm.0.weight": f32(np.ones(4)),
        }
    )
    model = opened(more)
    assert model.config.layers == 2
    assert list(model.names()) == list(plain.names())
    assert model.source.file_bytes == plain.source.file_bytes


def test_layer_types(opened: Opened) -> None:
    content, _ = hybrid_content("qwen35")
    by_interval = opened(content).config
    key = "qwen35.attention.recurrent_layers"
    by_list = opened(content.values_with({key: [True, False]})).config
    assert by_list == by_interval
    assert by_interval.full_layers is None
    assert [by_interval.is_gdn(layer) for layer in range(2)] == [True, False]
    default = content.values_with({"qwen35.full_attention_interval": None, key: [True, False]})
    config = opened(default).config
    assert (config.interval, config.full_layers) == (4, (1,))
    other = content.values_with({"qwen35.full_attention_interval": 3, key: [True, False]})
    assert opened(other).config == config
    assert [config.is_gdn(layer) for layer in range(2)] == [True, False]


def test_another_list_of_layers_asks_for_other_tensors(refused: Refused) -> None:
    content, _ = hybrid_content("qwen35")
    key = "qwen35.attention.recurrent_layers"
    message = refused(content.values_with({key: [False, True]}))
    assert message.startswith("tensors blk.0.attn_q.weight, blk.0.attn_k.weight, ")
    assert refused(content.values_with({key: [True]})) == f"{key} is [True]"


def test_padded_ids(opened: Opened, refused: Refused) -> None:
    key = "tokenizer.ggml.token_type"
    padded = dense_content().values_with({key: [1, 5, 1, 1, 5, 5, 5]})
    assert opened(padded).config.real_ids == 4
    assert opened(dense_content().values_with({key: [5, 5, 5, 5, 5, 5, 1]})).config.real_ids == 0
    assert refused(dense_content().values_with({key: [1, 5]})) == f"{key} does not have 7 entries"
    assert refused(dense_content().values_with({key: [5] * 7})) == f"{key}: every id is unused"


def test_counts_of_ids_that_disagree(refused: Refused) -> None:
    tokens = dense_content().values_with({"tokenizer.ggml.tokens": ["a", "b"]})
    rows = f"token_embd.weight {VOCAB} rows"
    assert refused(tokens) == f"tokenizer.ggml.tokens has 2 ids, {rows}"
    assert refused(valued(vocab_size=9)) == f"qwen3.vocab_size has 9 ids, {rows}"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rope__scaling__type", "yarn", "rope.scaling.type = 'yarn'"),
        ("rope__scaling__factor", 4.0, "rope.scaling.factor = 4.0"),
        ("rope__freq_base_swa", 1e4, "rope.freq_base_swa"),
        ("attention__sliding_window", 4096, "attention.sliding_window = 4096"),
        ("attention__causal", False, "attention.causal = False"),
        ("attention__key_length_mla", 16, "attention.key_length_mla"),
        ("final_logit_softcapping", 30.0, "final_logit_softcapping = 30.0"),
        ("expert_gating_func", 2, "expert_gating_func = 2"),
        ("expert_weights_norm", False, "expert_weights_norm = False"),
    ],
)
def test_what_the_contract_does_not_have(refused: Refused, key: str, value: Any, said: str) -> None:
    assert refused(valued(**{key: value})) == f"qwen3.{said} is not supported"


def test_values_that_mean_nothing_pass(opened: Opened) -> None:
    plain = opened(dense_content()).config
    neutral = valued(
        rope__scaling__type="none",
        rope__scaling__factor=1.0,
        attention__sliding_window=0,
        attention__causal=True,
        rope__dimension_count=HEAD_DIM,
        something_else=5,
    )
    assert opened(neutral).config == plain


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("embedding_length", None, "qwen3.embedding_length is missing"),
        ("embedding_length", 0, "qwen3.embedding_length is 0"),
        ("embedding_length", 32.0, "qwen3.embedding_length is 32.0"),
        ("embedding_length", True, "qwen3.embedding_length is True"),
        ("attention__head_count", [2, 1], "qwen3.attention.head_count is [2, 1]"),
        ("attention__head_count_kv", 3, "2 query heads are no multiple of 3 KV heads"),
        ("attention__value_length", 8, "keys are 16 wide, values 8: not supported"),
        ("rope__freq_base", float("inf"), "qwen3.rope.freq_base is inf"),
        ("rope__freq_base", float("nan"), "qwen3.rope.freq_base is nan"),
        ("rope__dimension_count", 8, "qwen3.rope.dimension_count is 8, heads are 16 wide"),
        ("attention__layer_norm_rms_epsilon", -1.0,
         "qwen3.attention.layer_norm_rms_epsilon is -1.0"),
        ("block_count", 2**31 - 1,
         "qwen3.block_count is 2147483647, 0 of them predict further tokens"),
        ("nextn_predict_layers", 1, "qwen3.block_count is 1, 1 of them predict further tokens"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(refused: Refused, key: str, value: Any, said: str) -> None:
    assert refused(valued(**{key: value})) == said


def test_numbers_of_the_gated_deltanet(refused: Refused) -> None:
    content, _ = hybrid_content("qwen35")
    taps = content.values_with({"qwen35.ssm.conv_kernel": 3})
    assert refused(taps) == "qwen35.ssm.conv_kernel is 3, 4 expected"
    heads = content.values_with({"qwen35.ssm.group_count": 4})
    assert refused(heads) == "4 key heads, 6 value heads, 192 columns: no multiples"


def test_a_size_that_would_fill_the_memory(refused: Refused) -> None:
    """An order of 8 thousand million rows is not made before the shape is known to be wrong."""
    content, _ = hybrid_content("qwen35")
    assert refused(content.values_with({"qwen35.ssm.state_size": 2**31 - 1})) == (
        "tensor blk.0.attn_qkv.weight is [256, 32], the configuration needs [8589934780, 32]"
    )


def test_more_experts_to_use_than_there_are(refused: Refused) -> None:
    content, _ = hybrid_content("qwen35moe")
    message = refused(content.values_with({"qwen35moe.expert_used_count": 4}))
    assert message == "4 of 3 experts are to be used"


def test_a_shared_expert_whose_width_is_not_stated(opened: Opened) -> None:
    """Older qwen3next files: the tensor says it."""
    content, _ = hybrid_content("qwen3next")
    key = "qwen3next.expert_shared_feed_forward_length"
    assert opened(content.values_with({key: None})).config == opened(content).config
    assert opened(content).config.shared_inter == 64


def test_other_architectures(refused: Refused) -> None:
    other = dense_content().values_with({"general.architecture": "llama"})
    assert refused(other) == "general.architecture is 'llama', which is not supported"
    none = dense_content().values_with({"general.architecture": None})
    assert refused(none) == "general.architecture is None, which is not supported"
    part = dense_content().values_with({"split.count": 3})
    assert refused(part) == "one of 3 parts of a model"


def test_the_name_falls_back_to_the_architecture(opened: Opened) -> None:
    assert opened(dense_content().values_with({"general.name": "a\nb"})).config.name == "qwen3"
    assert opened(dense_content().values_with({"general.name": None})).config.name == "qwen3"
