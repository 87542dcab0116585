"""The sums behind a field that can be probed: its ``nn.Linear`` modules, by shape and dtype, and
its RMS norms.

Attention, the delta rule, gated norms and experts in one stacked tensor are not probed. The names
are those that the engines of the contract give their sums (parity.order.own.fields).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from parity.order.adapters.called import CalledOp
from parity.order.sums import Ask, SumAsk
from parity_torch.maps import is_mapped
from parity_torch.norm_sums import Running, inside, is_norm, norm_ask
from parity_torch.sums import TorchSums

if TYPE_CHECKING:
    from parity.order.tree import Format

# What a sum is called, and the module's path inside the layer; the first one that is there.
_LAYER = {
    "nrm": (("attn_norm", "input_layernorm"),),
    "fnrm": (("ffn_norm", "post_attention_layernorm"),),
    "knorm": (("k_norm", "self_attn.k_norm"),),
    "kraw": (("k_proj", "self_attn.k_proj"),),
    "v": (("v_proj", "self_attn.v_proj"),),
    "qrope": (("q_proj", "self_attn.q_proj"), ("q_norm", "self_attn.q_norm")),
    "ores": (("o_proj", "self_attn.o_proj"), ("out_proj", "linear_attn.out_proj")),
    "qkv": (("qkv_proj", "linear_attn.in_proj_qkv"), ("qkv_proj", "linear_attn.in_proj_qkvz")),
    "z": (("z_proj", "linear_attn.in_proj_z"), ("z_proj", "linear_attn.in_proj_qkvz")),
    "beta": (("b_proj", "linear_attn.in_proj_b"),),
    "g": (("a_proj", "linear_attn.in_proj_a"),),
    "gate": (("gate", "mlp.gate_proj"),),
    "up": (("up", "mlp.up_proj"),),
    "down": (("down", "mlp.down_proj"),),
    "gs": (("shared_gate", "mlp.shared_expert_gate"),),
    "sh": tuple((f"shared.{n}", f"mlp.shared_expert.{n}_proj") for n in ("gate", "up", "down")),
}
_OUTER = {
    "logits": (("lm_head", "lm_head"),),
    "final_normed": (("final_norm", "model.norm"),),
}
_HEADS = {"q_norm": "num_attention_heads", "k_norm": "num_key_value_heads"}


def module_sums(
    module: nn.Module, field: str, layer: int | None, rows: int, running: Running
) -> Sequence[SumAsk]:
    """The sums behind ``field`` in a forward of ``rows`` rows, run inside ``running()``."""
    owner = module if layer is None else _layer(module, layer)
    if owner is None:
        return ()
    found: dict[str, SumAsk] = {}
    for what, path in _paths(module, field, layer):
        part = _module(owner, path)
        if isinstance(part, nn.Linear):
            found.setdefault(what, _ask(what, part, rows, running))
        elif part is not None and is_norm(part):
            heads = getattr(getattr(module, "config", None), _HEADS.get(what, ""), 1)
            found.setdefault(what, norm_ask(what, part, rows * heads, running))
    return tuple(found.values())


def _paths(module: nn.Module, field: str, layer: int | None) -> Iterator[tuple[str, str]]:
    if is_mapped(module):
        yield from (_OUTER if layer is None else _LAYER).get(field, ())
    else:  # a generic field is named after its module
        yield field.rpartition(".")[2], field


def _layer(module: nn.Module, number: int) -> nn.Module | None:
    config: Any = module.config
    count = config.num_hidden_layers
    lists = (part for part in module.modules() if isinstance(part, nn.ModuleList))
    return next((part[number] for part in lists if len(part) == count), None)


def _module(owner: nn.Module, path: str) -> nn.Module | None:
    try:
        return owner.get_submodule(path)
    except AttributeError:
        return None


def _ask(what: str, part: nn.Linear, rows: int, running: Running) -> SumAsk:
    weight = part.weight
    N, K = weight.shape
    dtype: Format = _FORMATS.get(str(weight.dtype), "f32")
    ask = Ask("torch.linear", K, N, dtype, weight.device.type)

    def opened() -> CalledOp:
        with running():
            op = TorchSums().make("linear", ask, rows)

        return replace(op, arrays=inside(op.arrays, running))

    return SumAsk(what, ask, rows, opened)


_FORMATS: dict[str, Format] = {
    "torch.float32": "f32",
    "torch.bfloat16": "bf16",
    "torch.float16": "f16",
}
