"""Engines of transformers that are wrong on purpose: ``tests.red.torch_faults:NAME``.

Ordinary torch does not promise that rows do not depend on their batch, so a fault here stands at
the first value of all, or is so large that no rounding looks like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from parity.keys import Key
from parity.protocol import Injection, Plan, Step
from parity_torch import batch
from parity_torch.engine import HfEngine


class SpoiledRow(HfEngine):
    """Row 0 of a forward of rows has its first norm moved by one ULP."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and plan.inject is None:
            plan = replace(plan, inject=Injection(Key(self._past.length, 0, "nrm"), 3))
        return super().step_rows(tokens, plan)


class Drifting(HfEngine):
    """Every forward of rows is wrong in another element of its first norm."""

    count = 0

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None:
            self.count += 1
            plan = replace(plan, inject=Injection(Key(self._past.length, 0, "nrm"), self.count))
        return super().step_rows(tokens, plan)


class _OneByOne(TorchFunctionMode):
    """Every row of a linear layer is a product of its own: none depends on the others."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.linear:
            return func(*args, **(kwargs or {}))
        x, *rest = args
        rows = [func(row[None], *rest) for row in x.reshape(-1, x.shape[-1])]
        return torch.cat(rows).view(*x.shape[:-1], -1)


class RowByRow(HfEngine):
    """Its linear layers take one row after the other, so that no kernel is chosen by their
    number: what is left of a difference lies in attention."""

    kind: type[batch.Batch] = batch.Batch

    @contextmanager
    def running(self) -> Iterator[None]:
        with super().running(), _OneByOne():
            yield

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> list[list[Step]]:
        with self.running():
            return batch.run_batch(self.module, self.taps, sequences, plan, decode, self.kind)


class _AllThere(batch.Batch):
    def arguments(self, pads: Any, width: int, positions: Any) -> dict[str, Any]:
        return super().arguments([0] * len(pads), width, positions)


class NoMask(RowByRow):
    """The attention mask is dropped: what was padded is read."""

    kind = _AllThere


class _FromTheLeft(batch.Batch):
    def arguments(self, pads: Any, width: int, positions: Any) -> dict[str, Any]:
        count = len(positions[0])
        counted = [list(range(width - count, width)) for _ in positions]
        return super().arguments(pads, width, counted)


class WrongPositions(RowByRow):
    """Position ids count the padding too."""

    kind = _FromTheLeft


class Swapped(RowByRow):
    """The first two sequences of a batch come back in each other's place."""

    def step_batch(
        self, sequences: Sequence[Sequence[int]], plan: Plan | None = None, decode: int = 0
    ) -> list[list[Step]]:
        steps = super().step_batch(sequences, plan, decode)
        return [*reversed(steps[:2]), *steps[2:]]


__all__ = ["Drifting", "NoMask", "RowByRow", "SpoiledRow", "Swapped", "WrongPositions"]
