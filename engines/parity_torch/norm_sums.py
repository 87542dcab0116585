"""The sum of squares inside a library's own RMS norm, asked of the module itself.

A copy of the module is called, its eps is the question (``parity.order.own.norms``), and its weight
is such that nothing is multiplied. It is given float32: such norms add in float32 whatever the
model's dtype is, and round last.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.order.adapters.called import Library
from parity.order.own.norms import NormOp, norm_op
from parity.order.sums import Ask, SumAsk
from parity_torch.sums import Shape, key_of

Running = Callable[[], AbstractContextManager[None]]
_EPS = ("variance_epsilon", "eps")  # what libraries call it


def is_norm(part: nn.Module) -> bool:
    """Whether a module is an RMS norm of one argument, whose eps can be set."""
    weight = getattr(part, "weight", None)
    named = type(part).__name__.endswith("RMSNorm") and any(hasattr(part, one) for one in _EPS)
    return named and weight is not None and weight.ndim == 1


def inside(arrays: Library, running: Running) -> Library:
    """The library, its calls made inside ``running()`` too."""

    @contextmanager
    def within() -> Iterator[None]:
        with running(), arrays.within():
            yield

    return replace(arrays, within=within)


def norm_ask(what: str, part: nn.Module, rows: int, running: Running) -> SumAsk:
    """The sum of squares of ``rows`` rows that one call of the module norms."""
    weight: Any = part.weight
    width, device, name = weight.shape[0], weight.device.type, f"torch.{type(part).__name__}"

    def opened() -> NormOp:
        shape = Shape(torch, type(part).__name__, width, 1, rows, "f32", device, {})
        with running():
            norm = _bare(part, device)
        key = key_of(shape, {"shape": f"x ({rows}, {width}), normed along the last axis"})
        return norm_op(name, width, rows, norm, key, inside(shape.arrays, running))

    return SumAsk(what, Ask(name, width, 1, device=device), rows, opened)


def _bare(part: nn.Module, device: str) -> Callable[[np.float32, Any], Any]:
    """The module's norm without its weight, eps asked for. Some multiply by 1 + weight."""
    made: Any = copy.deepcopy(part)
    eps = next(one for one in _EPS if hasattr(made, one))
    ones = torch.ones((1, made.weight.shape[0]), device=device)

    def norm(value: np.float32, x: Any) -> Any:
        setattr(made, eps, float(value))
        return made(x)

    with torch.inference_mode():
        made.weight.copy_(torch.ones_like(made.weight))
        if norm(np.float32(0), ones).max() > 1.5:
            made.weight.zero_()
    return norm
