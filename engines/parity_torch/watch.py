"""One watched forward: its hooks, the mode, and how many tokens it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from parity.errors import ParityBug
from parity_torch.between import Listener, Listening
from parity_torch.seen import Seen
from parity_torch.values import Value


class Watch:
    """What hooks need. ``size`` is B, T once the model's forward has begun; ``attach`` of a source
    (parity_torch.mapped, parity_torch.generic) puts the hooks, ``stack`` takes them away again."""

    def __init__(self, seen: Seen, stack: ExitStack) -> None:
        self.seen, self.mode, self.size = seen, Listening(), (0, 0)
        self._stack = stack
        if seen.plan is not None and seen.plan.trace:
            self.mode.ran = seen.ran

    def begins(self, module: Any, run: Callable[..., None]) -> None:
        """``run(module, args, kwargs)`` before each call of ``module``."""
        self._keep(module.register_forward_pre_hook(self._silently(run), with_kwargs=True))

    def ends(self, module: Any, run: Callable[..., None]) -> None:
        """``run(module, args, kwargs, out)`` after each call of ``module``."""
        self._keep(module.register_forward_hook(self._silently(run), with_kwargs=True))

    def _keep(self, handle: Any) -> None:
        self._stack.callback(handle.remove)

    def _silently(self, run: Callable[..., None]) -> Callable[..., None]:
        def hook(*args: Any) -> None:
            with self.mode.silent():
                run(*args)

        return hook

    def offer(self, layer: int, field: str, make: Callable[[], Value]) -> None:
        """Hand a value to what was seen."""
        self.seen.offer(layer, field, make)

    def listen(self, listener: Listener | None) -> None:
        """From now on ``listener`` alone hears the functions of the forward."""
        self.mode.listener = listener

    def measure(self, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Read B, T off what the model is called with: token ids [B, T], or their embeddings."""
        named = (kwargs.get(name) for name in ("input_ids", "inputs_embeds"))
        for given in (*named, *args, *kwargs.values()):
            if isinstance(given, torch.Tensor) and given.ndim >= 2:
                self.size = (given.shape[0], given.shape[1])
                return
        raise ParityBug("a watched model was called without a tensor of tokens")
