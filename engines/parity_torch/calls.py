"""Counting module calls: what shows whether rows were computed together."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_NUMBER = re.compile(r"\.\d+(?=\.|$)")


class Calls:
    """Calls of every module that computes by itself, by its path without numbers of layers.

    ``counts`` has every name from the start.
    """

    def __init__(self, module: nn.Module) -> None:
        self.counts: Counter[str] = Counter()
        for path, part in module.named_modules():
            own = next(part.parameters(recurse=False), None) is not None
            if own or next(part.children(), None) is None:
                name = _NUMBER.sub("", path) or type(part).__name__
                self.counts[name] += 0
                part.register_forward_pre_hook(partial(self._count, name))

    def _count(self, name: str, _module: Any, _given: Any) -> None:
        self.counts[name] += 1
