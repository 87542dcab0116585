"""Values inside a forward: where their rows stand, how they are read, changed and brought home."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from parity.errors import InputError
from parity.keys import Key
from parity_torch.arrays import device_tensor, host

Tensor = Any  # torch is an extra: without it installed, its types would be Any to the checkers
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    """Where one step's token stands in a forward of [B, T] tokens: ``batch`` and ``index``;
    ``pos`` is its position in the sequence."""

    pos: int
    batch: int
    index: int


@dataclass(frozen=True)
class Value:
    """One field of all tokens of a forward, where the model keeps it.

    ``views``: tensors [B, T', ...] that share the model's memory; a row of the value is their rows
    side by side, reshaped to ``shape`` (one -1 allowed). ``first``: the token that T' begins with.
    ``order``: int64[B, T', n], where ``views`` is one tensor [S, width] and a row is n rows of it.
    ``read``: what makes the value of what stands there.
    ``sinks``: where a change is written, (first token, tensors as ``views``); None: into ``views``.
    """

    views: tuple[Tensor, ...]
    shape: tuple[int, ...]
    first: int = 0
    order: Tensor = None
    read: Change | None = None
    sinks: tuple[tuple[int, tuple[Tensor, ...]], ...] | None = None

    def take(self, batches: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The rows of these tokens as a new tensor [R, *shape]."""
        parts = [self._rows(view, batches, tokens).reshape(len(tokens), -1) for view in self.views]
        rows = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        rows = rows.reshape(len(batches), *self.shape)
        return rows if self.read is None else self.read(rows)

    def as_int32(self) -> Value:
        """The same integers as int32, the contract's dtype of ids."""
        return replace(self, read=lambda rows: rows.to(torch.int32))

    def _rows(self, view: Tensor, batches: Sequence[int], tokens: Sequence[int]) -> Tensor:
        at = [token - self.first for token in tokens]
        if self.order is not None:
            return view[self.order[list(batches), at]]
        if len(at) == 1:
            return view[batches[0], at[0]].clone()[None]
        return view[list(batches), at]

    def put(self, key: Key, row: Row, given: np.ndarray) -> None:
        """Write ``given`` (the value's dtype and shape) in the place of a row.

        Raises InputError where the forward keeps no such row that anything reads afterwards.
        """
        sinks = ((self.first, self.views),) if self.sinks is None else self.sinks
        sinks = tuple(sink for sink in sinks if row.index >= sink[0])
        if not sinks:
            raise InputError(
                f"{key}: this value cannot be changed in the forward that makes it",
                "choose a key that docs/torch.md does not call read only, or feed single tokens",
            )
        flat = device_tensor(given, self.views[0].device).flatten()
        for first, views in sinks:
            if self.order is not None:
                picked = self.order[row.batch, row.index - first]
                views[0][picked] = flat.view(picked.numel(), -1).to(views[0].dtype)
                continue
            cells = [view[row.batch, row.index - first] for view in views]
            pieces = flat.split([cell.numel() for cell in cells])
            for cell, piece in zip(cells, pieces, strict=True):
                cell.copy_(piece.view(cell.shape))


def rows_of(
    tensor: Tensor, size: tuple[int, int], shape: tuple[int, ...], flat: bool = False
) -> Value:
    """The value that a tensor [B, T', ...] holds, or [B*T, ...] where ``flat``; ``size`` is B, T.

    With fewer tokens than T these are the last ones (a model may compute the last logits only).
    """
    batch, tokens = size
    here = tokens if flat else tensor.shape[1]
    view = tensor.view(batch, here, *shape)
    return Value((view,), tuple(view.shape[2:]), tokens - here)


def all_to_host(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Every tensor on the host: a device sends those of one dtype in one copy."""
    found: list[np.ndarray] = [np.empty(0)] * len(tensors)
    together: dict[Any, list[int]] = defaultdict(list)
    for at, tensor in enumerate(tensors):
        together[tensor.device, tensor.dtype].append(at)
    for places in together.values():
        flat = host(torch.cat([tensors[at].reshape(-1) for at in places]))
        ends = np.cumsum([tensors[at].numel() for at in places])
        for at, piece in zip(places, np.split(flat, ends[:-1]), strict=True):
            found[at] = piece.reshape(tuple(tensors[at].shape))
    return found
