"""Write a model as a Hugging Face folder: the round trip of parity.model.folder.

Written from the names and layouts of the library's classes, not from our reader: what one of them
has wrong the other does not repeat. The oracles (tests/engines/test_hf_oracles.py) stand above
both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.model.config import ModelConfig
from parity.model.model import Model

CODES = {"float16": "F16", "float32": "F32", "float64": "F64", "int8": "I8", "uint16": "BF16"}
Named = Iterator[tuple[str, np.ndarray]]
Tensors = dict[str, np.ndarray]

ARCHITECTURES = {
    "dense-tiny": "Qwen3ForCausalLM",
    "moe-tiny": "Qwen3MoeForCausalLM",
    "next-tiny": "Qwen3NextForCausalLM",
    "hybrid-tiny": "Qwen3_5ForCausalLM",
}
_LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def config_of(config: ModelConfig, architecture: str) -> dict[str, Any]:
    """config.json of a model of ours."""
    found: dict[str, Any] = {
        "architectures": [architecture],
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.n_q,
        "num_key_value_heads": config.n_kv,
        "head_dim": config.head_dim,
        "intermediate_size": config.dense_inter or config.inter,
        "vocab_size": config.vocab,
        "rms_norm_eps": config.eps,
        "max_position_embeddings": config.context,
        "rope_theta": config.theta,
        "hidden_act": "silu",
    }
    if config.experts:
        found |= {
            "num_experts": config.experts,
            "num_experts_per_tok": config.top_k,
            "moe_intermediate_size": config.inter,
            "norm_topk_prob": config.norm_topk_prob,
            "mlp_only_layers": list(config.dense_layers),
        }
    if config.shared_inter:
        found["shared_expert_intermediate_size"] = config.shared_inter
    if config.family == "hybrid":
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        found |= {f"linear_{name}": n for name, n in zip(names, config.gdn, strict=True)}
        found["partial_rotary_factor"] = config.rot_dim / config.head_dim
    return found


def tensors_of(model: Model, architecture: str, *, fused: bool = False) -> Tensors:
    """The stored tensors of a model whose matrices are f32."""
    return dict(_every(model, architecture, fused))


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """The container as its own writer makes it: data that begins at a multiple of 8. uint16 arrays
    are stored as BF16."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        offsets = [at, at + array.nbytes]
        kind = CODES[array.dtype.name]
        table[name] = {"dtype": kind, "shape": array.shape, "data_offsets": offsets}
        at += array.nbytes
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_folder(
    path: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], shards: int = 1
) -> Path:
    """A folder of these values. More ``shards`` than one: with an index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(path / "model.safetensors", tensors)
        return path
    places: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[number::shards]}
        write_safetensors(path / file, part)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def write_model(path: Path, model: Model, architecture: str, *, fused: bool = False) -> Path:
    """A model of ours as a folder."""
    tensors = tensors_of(model, architecture, fused=fused)
    return write_folder(path, config_of(model.config, architecture), tensors)


def _every(model: Model, architecture: str, fused: bool) -> Named:
    config = model.config
    less = np.float32(1 if config.family == "hybrid" else 0)
    yield "model.embed_tokens.weight", model.tensor("embed")
    yield "model.norm.weight", model.tensor("final_norm") - less
    if not config.tied:
        yield "lm_head.weight", model.tensor("lm_head")
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}", f"model.layers.{layer}"
        for name, other in _LAYER.items():
            yield f"{theirs}.{other}.weight", model.tensor(f"{ours}.{name}") - less
        if config.is_gdn(layer):
            yield from _delta(model, ours, f"{theirs}.linear_attn", architecture)
        else:
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                yield f"{theirs}.self_attn.{name}.weight", model.tensor(f"{ours}.{name}")
            for name in ("q_norm", "k_norm"):
                yield f"{theirs}.self_attn.{name}.weight", model.tensor(f"{ours}.{name}") - less
        if config.has_experts(layer):
            yield from _experts(model, ours, f"{theirs}.mlp", fused)
        else:
            yield from _dense(model, f"{ours}.mlp", f"{theirs}.mlp")


def _dense(model: Model, ours: str, theirs: str) -> Named:
    for name in ("gate", "up", "down"):
        yield f"{theirs}.{name}_proj.weight", model.tensor(f"{ours}.{name}")


def _experts(model: Model, ours: str, theirs: str, fused: bool) -> Named:
    yield f"{theirs}.gate.weight", model.tensor(f"{ours}.router")
    gate, up, down = (model.tensor(f"{ours}.experts.{name}") for name in ("gate", "up", "down"))
    if fused:
        yield f"{theirs}.experts.gate_up_proj", np.concatenate([gate, up], axis=1)
        yield f"{theirs}.experts.down_proj", down
    else:
        for name, stack in (("gate", gate), ("up", up), ("down", down)):
            for expert, matrix in enumerate(stack):
                yield f"{theirs}.experts.{expert}.{name}_proj.weight", matrix
    if model.config.shared_inter:
        yield f"{theirs}.shared_expert_gate.weight", model.tensor(f"{ours}.shared_gate")
        yield from _dense(model, f"{ours}.shared", f"{theirs}.shared_expert")


def _delta(model: Model, ours: str, theirs: str, architecture: str) -> Named:
    if architecture == "Qwen3NextForCausalLM":
        key_heads, value_heads, key_width, value_width = model.config.gdn
        qkv, z = model.tensor(f"{ours}.qkv_proj"), model.tensor(f"{ours}.z_proj")
        b, a = model.tensor(f"{ours}.b_proj"), model.tensor(f"{ours}.a_proj")
        rows, wide = key_heads * key_width, value_heads // key_heads * value_width
        qkvz, ba = [], []
        for head in range(key_heads):
            query = qkv[head * key_width :][:key_width]
            key = qkv[rows + head * key_width :][:key_width]
            value = qkv[2 * rows + head * wide :][:wide]
            qkvz += [query, key, value, z[head * wide :][:wide]]
            share = value_heads // key_heads
            ba += [b[head * share :][:share], a[head * share :][:share]]
        yield f"{theirs}.in_proj_qkvz.weight", np.concatenate(qkvz)
        yield f"{theirs}.in_proj_ba.weight", np.concatenate(ba)
    else:
        for name in ("qkv", "z", "a", "b"):
            yield f"{theirs}.in_proj_{name}.weight", model.tensor(f"{ours}.{name}_proj")
    yield f"{theirs}.conv1d.weight", model.tensor(f"{ours}.conv")[:, None]
    yield f"{theirs}.A_log", model.tensor(f"{ours}.a_log")
    yield f"{theirs}.dt_bias", model.tensor(f"{ours}.dt_bias")
    yield f"{theirs}.norm.weight", model.tensor(f"{ours}.gdn_norm")
    yield f"{theirs}.out_proj.weight", model.tensor(f"{ours}.out_proj")
