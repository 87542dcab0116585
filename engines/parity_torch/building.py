"""A transformers model of one of our configurations, with our weights put in.

The inverse of ``parity.model.folder.names``: that module tells of which parts of which stored
tensors each of ours is made; here the same parts, as views of the library's tensor, are written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import nextafter
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.errors import InputError
from parity.model.config import ModelConfig
from parity.model.folder.config import ARCHITECTURES
from parity.model.folder.names import Made, Piece, made_of
from parity.model.loading import Ahead
from parity.model.model import Model
from parity_torch.arrays import device_tensor

if TYPE_CHECKING:
    from torch import nn

# By family and whether it has experts: the class, its configuration's class.
_CLASSES = {
    ("dense", False): ("Qwen3ForCausalLM", "Qwen3Config"),
    ("moe", True): ("Qwen3MoeForCausalLM", "Qwen3MoeConfig"),
    ("hybrid", False): ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig"),
    ("hybrid", True): ("Qwen3NextForCausalLM", "Qwen3NextConfig"),
}
_INV_FREQ = "inv_freq"


def library_config(config: ModelConfig) -> tuple[str, Any]:
    """The architecture for one of our configurations, and the library's configuration of it."""
    import transformers

    found = _CLASSES.get((config.family, config.experts > 0))
    if found is None:
        raise InputError(
            f"hf: no architecture of transformers for {config.name} (family {config.family})",
            "give another model",
        )
    architecture, kind = found
    values = {**_sizes(config), **_rope(config), **_experts(config), **_delta(config)}
    return architecture, getattr(transformers, kind)(**values)


def _sizes(config: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.dense_inter if config.experts else config.inter,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.n_q,
        "num_key_value_heads": config.n_kv,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.eps,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": config.tied,
        "attention_bias": False,
        **{f"{name}_token_id": None for name in ("bos", "eos", "pad")},
    }


def _rope(config: ModelConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.theta}
    if config.family == "hybrid":
        share = config.rot_dim / config.head_dim
        if int(config.head_dim * share) != config.rot_dim:  # the library truncates the product
            share = nextafter(share, 1.0)
        rope["partial_rotary_factor"] = share
    return {"rope_parameters": rope}


def _experts(config: ModelConfig) -> dict[str, Any]:
    if not config.experts:
        return {}
    shared = {"shared_expert_intermediate_size": config.shared_inter} if config.shared_inter else {}
    return {
        "num_experts": config.experts,
        "num_experts_per_tok": config.top_k,
        "moe_intermediate_size": config.inter,
        "norm_topk_prob": config.norm_topk_prob,
        "mlp_only_layers": list(config.dense_layers),
        "decoder_sparse_step": 1,
        **shared,
    }


def _delta(config: ModelConfig) -> dict[str, Any]:
    if config.family != "hybrid":
        return {}
    key_heads, value_heads, key_width, value_width = config.gdn
    layers = range(config.layers)
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": key_width,
        "linear_value_head_dim": value_width,
        "linear_conv_kernel_dim": 4,
        "layer_types": [
            "linear_attention" if config.is_gdn(layer) else "full_attention" for layer in layers
        ],
    }


def fill(module: nn.Module, model: Model) -> None:
    """Write every tensor of ``model`` (f32) into ``module``, rounded to the dtype it has there.

    The rotary table of ``model`` takes the place of the library's own, which differs in last bits.
    Raises InputError for matrices that are held as Q4_0, and for what no tensor can hold.
    """
    if any(name.endswith(".qs") for name in model.names()):
        raise InputError(
            f"hf: {model.label} holds its matrices as Q4_0, which no transformers model does",
            "give --weights f32, or a folder",
        )
    ahead, parameters = Ahead(model), dict(module.named_parameters())
    for stored, parts in written_of(module, model.config).items():
        parameter = parameters[stored]
        buffer = np.empty(tuple(parameter.shape), np.float32)
        for ours, made in parts:
            _write(buffer, made, ahead.tensor(ours))
        parameter.data.copy_(device_tensor(buffer, parameter.device))
    table = ahead.tensor(_INV_FREQ)
    for buffer in rotary_tables(module):
        buffer.copy_(device_tensor(table, buffer.device))


def rotary_tables(module: nn.Module) -> Iterator[Any]:
    """The inverse frequencies that ``module`` rotates with: f32[rot / 2] each."""
    for name, buffer in module.named_buffers():
        if name.endswith(_INV_FREQ) and "visual" not in name:
            yield buffer


def written_of(module: nn.Module, config: ModelConfig) -> dict[str, list[tuple[str, Made]]]:
    """By the library's name of a parameter: which of our tensors lie in it, and where."""
    found: dict[str, list[tuple[str, Made]]] = defaultdict(list)
    for ours, made in made_for(module, config).items():
        found[made.pieces[0].name].append((ours, made))
    return found


def made_for(module: nn.Module, config: ModelConfig) -> Mapping[str, Made]:
    """Our tensors, inv_freq left out, of the parameters of ``module``."""
    architecture = ARCHITECTURES[type(module).__name__]
    return made_of(architecture, config, dict(module.named_parameters()).keys())


def _write(buffer: np.ndarray, made: Made, values: np.ndarray) -> None:
    """Put one of our tensors where ``made`` reads it: the offset is exact for norms of 0.5 to 2."""
    flat, at = values.reshape(-1), 0
    for piece in made.pieces:
        view = taken(piece, buffer)
        part = flat[at : at + view.size].reshape(view.shape)
        view[...] = part - np.float32(1) if made.offset else part
        at += view.size


def taken(piece: Piece, stored: np.ndarray) -> np.ndarray:
    """The part of a stored tensor that a piece names, a view."""
    return stored if piece.take is None else piece.take(stored)
