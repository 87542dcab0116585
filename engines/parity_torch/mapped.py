"""Fields of the mapped architectures: the hooks and listeners of parity_torch.maps, attached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from parity_torch.between import Experts, Listener, Recurrence, Rotation, SharedGate
from parity_torch.dry import single_tokens
from parity_torch.maps import (
    HOOKS,
    LEFT_OUT,
    OUTER,
    OUTSIDE,
    Hook,
    blocks_of,
    fields_of,
    row_shape,
    sorted_fields,
)
from parity_torch.seen import Field
from parity_torch.values import Tensor, Value, rows_of
from parity_torch.watch import Watch


class Mapped:
    """The fields of ``module``, one of the architectures of maps.MAPPED."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.layers: Sequence[Any] = tuple(module.model.layers)
        self.blocks = [blocks_of(layer) for layer in self.layers]
        found = {(at, field) for at, kind in enumerate(self.blocks) for field in fields_of(kind)}
        self.order = sorted_fields(found | {(OUTSIDE, field) for field in OUTER})

    @cached_property
    def keys(self) -> tuple[Field, ...]:
        """Published fields that both kinds of forward really offer: the first token of a sequence,
        and one after it."""
        first, second = single_tokens(self.module, self.attach)
        return tuple(field for field in self.order if field in first & second)

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """Fields of the contract that these layers do not have, and why."""
        there, found = set(self.keys), dict(LEFT_OUT)
        for layer, field in self.order:
            if (layer, field) in there:
                found.pop(field, None)
            else:
                found[field] = "this implementation makes no such value"
        return found

    def attach(self, watch: Watch) -> None:
        """Put every hook."""
        for at, layer in enumerate(self.layers):
            for block in self.blocks[at]:
                for hook in HOOKS[block]:
                    self._hook(watch, at, layer, hook)
                listen = getattr(self, f"_{block}", None)
                if listen is not None:
                    listen(watch, at, layer)
        outer = (("final_normed", self.module.model.norm), ("logits", self.module.lm_head))
        for field, module in outer:
            watch.ends(module, partial(_offer_out, watch, OUTSIDE, Hook(field, ""), (-1,)))

    def _hook(self, watch: Watch, at: int, layer: Any, hook: Hook) -> None:
        module = layer.get_submodule(hook.path)
        shape = row_shape(layer, hook.shape)
        if hook.side == "in":
            watch.begins(module, partial(_offer_in, watch, at, hook, shape))
        else:
            watch.ends(module, partial(_offer_out, watch, at, hook, shape))

    def _attention(self, watch: Watch, at: int, layer: Any) -> None:
        """The rotation follows v_proj, the last projection."""
        attention = layer.self_attn
        watch.ends(attention.v_proj, partial(_listen, watch, at, Rotation, attention))
        watch.ends(attention, partial(_end, watch))

    def _gdn(self, watch: Watch, at: int, layer: Any) -> None:
        recurrent = layer.linear_attn
        watch.begins(recurrent, partial(_listen, watch, at, Recurrence, recurrent))
        watch.ends(recurrent, partial(_end, watch))

    def _interleaved(self, watch: Watch, at: int, layer: Any) -> None:
        recurrent = layer.linear_attn
        watch.ends(recurrent.in_proj_qkvz, partial(_offer_parts, watch, at, recurrent))

    def _experts(self, watch: Watch, at: int, layer: Any) -> None:
        def begin(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            ranks = (*args, *kwargs.values())[1].shape[-1]
            watch.listen(Experts(module, watch.size, partial(watch.offer, at), ranks))

        watch.begins(layer.mlp.experts, begin)
        watch.ends(layer.mlp.experts, partial(_end, watch))

    def _shared(self, watch: Watch, at: int, layer: Any) -> None:
        gate = layer.mlp.shared_expert_gate
        watch.ends(gate, partial(_listen, watch, at, SharedGate, gate))
        watch.ends(layer.mlp, partial(_end, watch))


def _offer_in(
    watch: Watch, at: int, hook: Hook, shape: tuple[int, ...], _: Any, args: Sequence[Any], __: Any
) -> None:
    _offer(watch, at, hook, shape, args[hook.at])


def _offer_out(
    watch: Watch, at: int, hook: Hook, shape: tuple[int, ...], _: Any, args: Any, kw: Any, out: Any
) -> None:
    _offer(watch, at, hook, shape, out[hook.at] if isinstance(out, tuple) else out)


def _offer(watch: Watch, at: int, hook: Hook, shape: tuple[int, ...], tensor: Tensor) -> None:
    def make() -> Value:
        value = rows_of(tensor, watch.size, shape, hook.flat)
        return value.as_int32() if hook.field == "topk" else value

    watch.offer(at, hook.field, make)


def _offer_parts(
    watch: Watch, at: int, recurrent: Any, _: Any, args: Any, kw: Any, out: Tensor
) -> None:
    """qkv and z of Qwen3-Next: each key head has its q, k, v and z side by side."""
    key, times = recurrent.head_k_dim, recurrent.num_v_heads // recurrent.num_k_heads
    wide = times * recurrent.head_v_dim
    heads = out.unflatten(-1, (recurrent.num_k_heads, -1))  # [B, T, key heads, width]
    q, k, v, z = heads.split((key, key, wide, wide), -1)
    watch.offer(at, "qkv", lambda: Value((q, k, v), (-1,)))
    watch.offer(at, "z", lambda: Value((z,), (-1, recurrent.head_v_dim)))


def _listen(watch: Watch, at: int, kind: type[Listener], module: Any, *_: Any) -> None:
    watch.listen(kind(module, watch.size, partial(watch.offer, at)))


def _end(watch: Watch, *_: Any) -> None:
    if watch.mode.listener is not None:
        watch.mode.listener.end()
    watch.listen(None)
