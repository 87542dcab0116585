"""Dry forwards: a few tokens, to see which values a model offers. Nothing of them is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from parity.errors import InputError
from parity.protocol import Plan
from parity_torch.cache import cache_argument
from parity_torch.seen import Field, Seen
from parity_torch.watch import Watch

Attach = Callable[[Watch], None]


def single_tokens(module: Any, attach: Attach) -> tuple[frozenset[Field], frozenset[Field]]:
    """What one token offers at the start of a sequence, and one after it, with a cache."""
    cached = _cached(module, None)
    out, first = _forward(module, attach, (1, 1), cached)
    _, second = _forward(module, attach, (1, 1), _cached(module, out))
    return first, second


def block(module: Any, attach: Attach, size: tuple[int, int], past: int) -> None:
    """One forward of B, T tokens, after ``past`` others where the model takes a cache."""
    cached = _cached(module, None)
    if past and cached:
        out, _ = _forward(module, lambda _: None, (size[0], past), cached)
        cached = _cached(module, out)
    _forward(module, attach, size, cached)


def _cached(module: Any, out: Any) -> dict[str, Any]:
    """Arguments that have ``module`` use a cache: a new one, or that of the forward before."""
    name = cache_argument(module)
    if not name:
        return {}
    if out is None:
        return {"use_cache": True}
    if out.get(name) is None:
        raise InputError(
            f"hf: {type(module).__name__} is no decoder: it was asked for a cache and keeps none",
            "give a model for causal language modelling; some are by is_decoder=true",
        )
    return {"use_cache": True, name: out[name]}


def _forward(
    module: Any, attach: Attach, size: tuple[int, int], given: dict[str, Any]
) -> tuple[Any, frozenset[Field]]:
    device = next(module.parameters()).device
    ids = torch.zeros(size, dtype=torch.long, device=device)
    with _watched(module, attach) as watch, torch.inference_mode(False), torch.no_grad():
        out = module(ids, **given)
    return out, watch.seen.offered


@contextmanager
def _watched(module: Any, attach: Attach) -> Iterator[Watch]:
    with ExitStack() as stack:
        watch = Watch(Seen(Plan(()), (), ()), stack)
        watch.begins(module, watch.measure)
        attach(watch)
        stack.enter_context(watch.mode)
        yield watch
