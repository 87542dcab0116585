"""What a sequence leaves behind: the library's cache, read, written, marked and taken back.

Attention's rows are taken back by cropping the cache, as the library's own assisted decoding does;
a recurrent layer overwrites its state, and a sliding window drops rows, so that both are copied at
the mark. A model without a cache of the library is fed its whole sequence again each time.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.errors import InputError
from parity.model.checks import no_mark
from parity.model.config import MODULES, ModelConfig
from parity_torch.arrays import device_tensor, host
from parity_torch.requirements import quiet

if TYPE_CHECKING:
    import torch
    from torch import nn

_ARGUMENTS = ("cache", "past_key_values")  # the name of today, and of before
_RECURRENT = re.compile(r"(s|hist)([0-9]*)")  # and the number of the state, from 1 on
_ROWS = ("k", "v")
_ATTRIBUTES = ("keys", "values", "cumulative_length")


class Past:
    """The state of one sequence. ``lacks``: capabilities that this model's cache does not have,
    each with the reason."""

    def __init__(self, module: nn.Module, config: ModelConfig) -> None:
        self.module, self.config = module, config
        self.argument = cache_argument(module)
        self.lacks: dict[str, str] = {}
        self.tokens: list[int] = []  # of a model without a cache
        self.reset()
        self.lacks = self._missing()

    def reset(self) -> None:
        """Forget the sequence and the mark."""
        self.length, self.tokens = 0, []
        self._mark: tuple[int, list[_Copy]] | None = None
        self.cache = self._new()

    def _new(self) -> Any:
        if not self.argument:
            return None
        from transformers import DynamicCache

        return DynamicCache(config=self.module.config.get_text_config(decoder=True))  # type: ignore[operator, union-attr, unused-ignore]

    def _missing(self) -> dict[str, str]:
        if not self.argument:
            return {"state": f"{type(self.module).__name__} takes no cache of transformers"}
        odd = [
            f"layer {at} has a {type(layer).__name__}"
            for at, layer in enumerate(self.cache.layers)
            if not _is_known(layer)
        ]
        return dict.fromkeys(("state", "rollback"), odd[0]) if odd else {}

    # --- feeding ----------------------------------------------------------------------------------

    def fed(self, tokens: Sequence[int]) -> tuple[list[int], dict[str, Any]]:
        """Ids to feed so that ``tokens`` come last, and the arguments beside them."""
        if self.cache is None:
            return [*self.tokens, *tokens], {}
        return list(tokens), {self.argument: self.cache, "use_cache": True}

    def advance(self, tokens: Sequence[int]) -> None:
        """``tokens`` were fed."""
        self.length += len(tokens)
        if self.cache is None:
            self.tokens += tokens

    # --- mark and rollback ------------------------------------------------------------------------

    def mark(self) -> None:
        """Remember the state: what no crop brings back is copied."""
        layers = [] if self.cache is None else self.cache.layers
        self._mark = self.length, [_Copy(layer) for layer in layers]

    def rollback(self) -> None:
        """Go back to the mark, once; InputError without one."""
        if self._mark is None:
            raise no_mark()
        length, copies = self._mark
        if not length:
            self.reset()
            return
        for layer, copy in zip(self.cache.layers if self.cache else (), copies, strict=False):
            crop(layer, self.length - length)
            copy.put_back(layer)
        del self.tokens[length:]
        self.length, self._mark = length, None

    # --- the state by name ------------------------------------------------------------------------

    def read(self) -> dict[str, np.ndarray]:
        """``lengths`` int32[1]; ``l<L>_k``, ``l<L>_v`` [rows, n_kv, head_dim]; ``l<L>_s`` and
        ``l<L>_hist`` in the contract's layout, or the library's for other architectures."""
        parts = {"lengths": np.array([self.length], np.int32)}
        for at, layer in enumerate(self.cache.layers):
            for name, array in self._parts(layer, at):
                parts[f"l{at}_{name}"] = array
        return parts

    def _parts(self, layer: Any, at: int) -> list[tuple[str, np.ndarray]]:
        return self._held(layer) if self.length else self._empty(at)

    def _held(self, layer: Any) -> list[tuple[str, np.ndarray]]:
        """The parts of a layer that has seen a token."""
        parts = []
        if getattr(layer, "keys", None) is not None:
            rows = ((name, getattr(layer, name)[0].transpose(0, 1)) for name in ("keys", "values"))
            parts += [(name[0], host(tensor)) for name, tensor in rows]
        for index, tensor in _recurrent(layer, "recurrent_states"):
            parts.append((_numbered("s", index), host(tensor[0])))
        for index, tensor in _recurrent(layer, "conv_states"):
            parts.append((_numbered("hist", index), self._history(tensor)))
        return parts

    def _history(self, tensor: torch.Tensor) -> np.ndarray:
        """The last inputs of the convolution, oldest first: [width - 1, channels]."""
        if self.config.family == MODULES:
            return host(tensor[0])
        return host(tensor[0, :, 1:].transpose(0, 1))

    def _empty(self, at: int) -> list[tuple[str, np.ndarray]]:
        """The parts of a layer before any token."""
        config = self.config
        if config.family == MODULES:
            return [
                (name, part[:0] if name in _ROWS else np.zeros_like(part))
                for name, part in self._after_one[at]
            ]
        first = next(self.module.parameters())
        if config.is_gdn(at):
            history = host(first.new_zeros(3, config.conv_dim))
            return [("s", np.zeros(config.gdn[1:], np.float32)), ("hist", history)]
        none = host(first.new_zeros(0, config.n_kv, config.head_dim))
        return [("k", none), ("v", none)]

    @cached_property
    def _after_one(self) -> list[list[tuple[str, np.ndarray]]]:
        """By layer its parts after one token, whose forms no configuration tells: of a forward on
        a cache of its own."""
        import torch

        cache = self._new()
        ids = torch.zeros((1, 1), dtype=torch.long, device=next(self.module.parameters()).device)
        with torch.no_grad(), quiet():
            self.module(ids, **{self.argument: cache, "use_cache": True})
        return [self._held(layer) for layer in cache.layers]

    def write(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what ``read`` gave."""
        self.reset()
        self.length = int(state["lengths"][0])
        if not self.length:
            return
        for at, layer in enumerate(self.cache.layers):
            found = {
                name.partition("_")[2]: array
                for name, array in state.items()
                if name.startswith(f"l{at}_")
            }
            self._write(layer, at, found)

    def _write(self, layer: Any, at: int, found: Mapping[str, np.ndarray]) -> None:
        from transformers.cache_utils import DynamicLayer

        device = next(self.module.parameters()).device
        try:
            if "k" in found:
                rows = [device_tensor(found[name], device).transpose(0, 1)[None] for name in "kv"]
                DynamicLayer.update(layer, *rows)
                if hasattr(layer, "cumulative_length"):
                    layer.cumulative_length = self.length
            for name, array in found.items():
                part = _RECURRENT.fullmatch(name)
                if part is not None and part[1] == "s":
                    layer.update_recurrent_state(
                        device_tensor(array, device)[None], int(part[2] or 0)
                    )
                elif part is not None:
                    layer.update_conv_state(self._window(array, device), int(part[2] or 0))
        except (AttributeError, RuntimeError, TypeError) as error:
            raise InputError(
                f"hf: layer {at} cannot take over this state: its parts are "
                f"{', '.join(found) or 'none'}",
                "give a state that the same model wrote",
            ) from error

    def _window(self, array: np.ndarray, device: Any) -> torch.Tensor:
        """The library's window, one column wider than the history: that column is not read."""
        tensor = device_tensor(array, device)
        if self.config.family == MODULES:
            return tensor[None]
        history = tensor.transpose(0, 1)[None]
        return _pad(history)


def _pad(history: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.pad(history, (1, 0)).contiguous()


def cache_argument(module: nn.Module) -> str:
    """The name under which ``module`` takes the library's cache; "" for none."""
    taken = inspect.signature(type(module).forward).parameters
    return next((name for name in _ARGUMENTS if name in taken), "")


def crop(layer: Any, count: int) -> None:
    """Drop the last ``count`` rows of an attention layer that keeps all of them."""
    from transformers.cache_utils import DynamicLayer

    if count and _keeps_rows(layer):
        DynamicLayer.crop(layer, -count)


class _Copy:
    """What one layer holds that no crop brings back."""

    def __init__(self, layer: Any) -> None:
        self.attributes = {}
        if not _keeps_rows(layer):
            kept = {name: getattr(layer, name, None) for name in _ATTRIBUTES}
            self.attributes = {name: _clone(value) for name, value in kept.items()}
        self.recurrent = {
            name: {index: tensor.clone() for index, tensor in _recurrent(layer, name)}
            for name in ("conv_states", "recurrent_states")
        }

    def put_back(self, layer: Any) -> None:
        """Overwrite the layer's tensors by the copies."""
        for name, value in self.attributes.items():
            if value is not None:
                setattr(layer, name, _clone(value))
        for name, tensors in self.recurrent.items():
            for index, tensor in tensors.items():
                getattr(layer, name)[index].copy_(tensor)


def _clone(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else value


def _recurrent(layer: Any, name: str) -> list[tuple[int, Any]]:
    """Index and tensor of every state of that kind which the layer has made so far."""
    held = getattr(layer, name, None) or {}
    return [(index, tensor) for index, tensor in held.items() if tensor is not None]


def _numbered(name: str, index: int) -> str:
    return f"{name}{index}" if index else name


def _keeps_rows(layer: Any) -> bool:
    """Whether ``layer`` keeps every row of K and V, so that a crop takes rows back."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    return isinstance(layer, DynamicLayer) and not isinstance(layer, DynamicSlidingWindowLayer)


def _is_known(layer: Any) -> bool:
    """Whether all that ``layer`` holds is read, copied and put back here."""
    from transformers import cache_utils

    names = (
        *("DynamicLayer", "DynamicSlidingWindowLayer", "LinearAttentionLayer", "DummyLayer"),
        *("LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer"),
    )
    return type(layer) in [getattr(cache_utils, name, None) for name in names]
