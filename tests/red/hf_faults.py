"""The engine ``hf`` with faults: ``tests.red.hf_faults:NAME``.

A crop of the KV cache is all that a rollback takes in a model of attention layers alone; in a
hybrid it leaves the recurrent layers where the draft left them.
"""

from __future__ import annotations

from typing import Any

import torch

from parity.model.model import Model
from parity_torch import HfEngine

LAYER = 1  # of attention, in a hybrid too


class CropsAlone(HfEngine):
    """Takes the rows of K and V back, and forgets every recurrent state."""

    def rollback(self) -> None:
        left = [tensor for layer in self._past.cache.layers for tensor in _recurrent(layer)]
        kept = [tensor.clone() for tensor in left]
        super().rollback()
        for tensor, draft in zip(left, kept, strict=True):
            tensor.copy_(draft)


class CropsOneTooFew(HfEngine):
    """Leaves the first row of the draft in the cache of every attention layer."""

    def rollback(self) -> None:
        layers = [layer for layer in self._past.cache.layers if _has_rows(layer)]
        rows = [(layer.keys, layer.values) for layer in layers]
        super().rollback()
        for layer, (keys, values) in zip(layers, rows, strict=True):
            end = layer.keys.shape[-2] + 1
            layer.keys, layer.values = keys[..., :end, :].clone(), values[..., :end, :].clone()


def _recurrent(layer: Any) -> list[Any]:
    """The tensors of a layer that each token overwrites."""
    held = [getattr(layer, name, None) or {} for name in ("conv_states", "recurrent_states")]
    return [tensor for states in held for tensor in states.values() if tensor is not None]


def _has_rows(layer: Any) -> bool:
    return getattr(layer, "keys", None) is not None and layer.keys.numel() > 0


class _Spoiled(HfEngine):
    """Changes the module once it is loaded, and tells the weights that it was given."""

    def spoil(self, module: Any) -> None:
        raise NotImplementedError

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._given = super().weights()
        with torch.no_grad():
            self.spoil(self.module)

    def weights(self) -> Any:
        return self._given


class Scaled(_Spoiled):
    """The K projection of one layer is larger by a thousandth."""

    def spoil(self, module: Any) -> None:
        module.model.layers[LAYER].self_attn.k_proj.weight.mul_(1.001)


class OtherEps(_Spoiled):
    """Every norm has ten times the epsilon."""

    def spoil(self, module: Any) -> None:
        for part in module.modules():
            for name in ("eps", "variance_epsilon"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 10 * getattr(part, name))


class OtherTheta(_Spoiled):
    """The rope turns with another base."""

    def spoil(self, module: Any) -> None:
        inv_freq = module.model.rotary_emb.inv_freq
        half = len(inv_freq)
        inv_freq.mul_(10.0 ** (torch.arange(half, dtype=torch.float32) / half))


class HeadsSwapped(_Spoiled):
    """Query heads 0 and 1 of one layer change places, with their gates where they have any."""

    def spoil(self, module: Any) -> None:
        weight = module.model.layers[LAYER].self_attn.q_proj.weight
        size = len(weight) // module.config.num_attention_heads
        weight[: 2 * size] = torch.cat([weight[size : 2 * size], weight[:size]])


class Restless(HfEngine):
    """A weight creeps on with every reset."""

    def reset(self) -> None:
        super().reset()
        with torch.no_grad():
            self.module.model.layers[LAYER].self_attn.v_proj.weight.mul_(1.001)
