"""The published map: which value of a transformers model is which field (docs/torch.md).

A field comes from a module's output or input (``HOOKS``) or from between two modules (``BETWEEN``,
taken by parity_torch.between). An architecture has the fields of the blocks that its layers have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parity.keys import FINAL_FIELDS, LAYER_FIELDS

Module = Any

# Architectures whose values are known; every other one gets generic fields.
MAPPED = (
    *("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"),
    *("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "LlamaForCausalLM"),
)
OUTSIDE = -1  # the layer of a field outside the layers


@dataclass(frozen=True)
class Hook:
    """A field that is ``side`` ("out" or "in") number ``at`` of the module at ``path``.

    ``shape``: name of the row's shape (``row_shape``). ``flat``: rows are [B*T, ...], not
    [B, T, ...].
    """

    field: str
    path: str
    side: str = "out"
    at: int = 0
    shape: str = "row"
    flat: bool = False

    @property
    def words(self) -> str:
        """The map's text, e.g. "output of ``self_attn.k_proj``"."""
        number = f" {self.at}" if self.at else ""
        put = {"out": "output", "in": "input"}[self.side]
        return f"{put}{number} of `{self.path}`" if self.path else f"{put} of the layer"


# Paths inside a layer, by the kind of block they belong to.
HOOKS = {
    "layer": (
        Hook("nrm", "input_layernorm"),
        Hook("ores", "post_attention_layernorm", "in"),
        Hook("fnrm", "post_attention_layernorm"),
        Hook("x", ""),
    ),
    "attention": (
        Hook("kraw", "self_attn.k_proj", shape="head"),
        Hook("v", "self_attn.v_proj", shape="head"),
    ),
    "norms": (Hook("knorm", "self_attn.k_norm", shape="head"),),
    "plain": (Hook("attn", "self_attn.o_proj", "in", shape="head"),),
    "gated": (Hook("gated", "self_attn.o_proj", "in", shape="head"),),
    "gdn": (
        Hook("o", "linear_attn.norm", "in", shape="value", flat=True),
        Hook("gn", "linear_attn.norm", shape="value", flat=True),
    ),
    "separate": (
        Hook("qkv", "linear_attn.in_proj_qkv"),
        Hook("z", "linear_attn.in_proj_z", shape="value"),
    ),
    "interleaved": (),
    "dense": (
        Hook("gate", "mlp.gate_proj"),
        Hook("up", "mlp.up_proj"),
        Hook("act", "mlp.down_proj", "in"),
        Hook("down", "mlp.down_proj"),
    ),
    "experts": (
        Hook("rlogits", "mlp.gate", flat=True),
        Hook("topp", "mlp.gate", at=1, flat=True),
        Hook("topk", "mlp.gate", at=2, flat=True),
    ),
    "shared": (Hook("sh", "mlp.shared_expert", flat=True),),
}
_ROPE = "of `self_attn` after the rotation, before the cache"
_RULE = "`linear_attn`, in the delta rule"
BETWEEN = {
    "attention": {"qrope": f"queries {_ROPE}", "k": f"keys {_ROPE}"},
    "gated": {"attn": "`self_attn`: what is multiplied by the gate's sigmoid"},
    "gdn": {
        "conv": "`linear_attn`: output of `silu` after the convolution",
        "hist": "`linear_attn`: columns of the convolution's input before the next one",
        "beta": "`linear_attn`: output of `sigmoid`",
        "qn": f"{_RULE}: queries after norm and scale",
        "kn": f"{_RULE}: keys after the norm",
        "g": f"{_RULE}: output of `exp`; in the chunked rule `exp` of the log decay it reads",
        "s": "`linear_attn`: the state that is put into the cache",
    },
    "interleaved": {
        "qkv": "output of `linear_attn.in_proj_qkvz`, its Q, K and V parts side by side",
        "z": "output of `linear_attn.in_proj_qkvz`, its Z part",
    },
    "experts": {
        "gate": "`mlp.experts`: first half of the gate-up product, in rank order",
        "up": "`mlp.experts`: second half of the gate-up product, in rank order",
        "act": "`mlp.experts`: activation times up, in rank order",
        "down": "`mlp.experts`: down product before its weight, in rank order",
    },
    "shared": {"gs": "`mlp`: sigmoid of `shared_expert_gate`"},
}
OUTER = {"final_normed": "output of `model.norm`", "logits": "output of `lm_head`"}
# Fields of the contract that a model of the library may lack, and why.
LEFT_OUT = {
    "ks": "K is not quantised",
    "vs": "V is not quantised",
    "knorm": "K is not normed",
}


def architecture(module: Module) -> str:
    """Name of the model's class."""
    return type(module).__name__


def is_mapped(module: Module) -> bool:
    """Whether the map says what the values of this model are."""
    return architecture(module) in MAPPED


def map_text(module: Module) -> str:
    """Which fields a model has, for the header and for a line while it is loaded."""
    name = architecture(module)
    if is_mapped(module):
        return f"published for {name}"
    return f"none for {name}: fields are named after its modules"


def blocks_of(layer: Module) -> tuple[str, ...]:
    """The kinds of block that a decoder layer of a mapped architecture has, by its modules."""
    return tuple(_blocks(layer))


def _blocks(layer: Module) -> Iterator[str]:
    yield "layer"
    attention, recurrent = getattr(layer, "self_attn", None), getattr(layer, "linear_attn", None)
    if attention is not None:
        yield "attention"
        if hasattr(attention, "k_norm"):
            yield "norms"
        doubled = attention.q_proj.out_features == 2 * attention.o_proj.in_features
        yield "gated" if doubled else "plain"
    if recurrent is not None:
        yield "gdn"
        yield "interleaved" if hasattr(recurrent, "in_proj_qkvz") else "separate"
    yield "experts" if hasattr(layer.mlp, "experts") else "dense"
    if hasattr(layer.mlp, "shared_expert"):
        yield "shared"


def fields_of(blocks: tuple[str, ...]) -> dict[str, str]:
    """Field -> where it comes from, in dataflow order, of a layer with these blocks."""
    found = {hook.field: hook.words for block in blocks for hook in HOOKS[block]}
    for block in blocks:
        found |= BETWEEN.get(block, {})
    return {field: found[field] for field in LAYER_FIELDS if field in found}


def row_shape(layer: Module, name: str) -> tuple[int, ...]:
    """Shape of a row by its name in ``Hook``; -1 is what is left of the tensor."""
    if name == "head":
        return (-1, layer.self_attn.head_dim)
    if name == "value":
        return (-1, layer.linear_attn.head_v_dim)
    return (-1,)


def sorted_fields(found: set[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """(layer, field) in dataflow order, the fields outside the layers last."""
    rank = {field: at for at, field in enumerate((*LAYER_FIELDS, *FINAL_FIELDS))}
    return tuple(sorted(found, key=lambda one: (one[0] == OUTSIDE, one[0], rank[one[1]])))
