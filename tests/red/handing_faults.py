"""Engines that hand over a step's arrays wrongly: each value is right, and told of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.dumps.table import Table
from parity.families import dumped_fields
from parity.protocol import Plan, Step
from parity_cpu.engine import Engine


def table_of(step: Step) -> Table:
    """The entries of a step that was told by column."""
    assert isinstance(step.entries, Table)
    return step.entries


class ShiftedDigests(Engine):
    """From position 33 on, each dumped key from the 21st on has the digest of the one before."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if plan is None or self.length <= 33:
            return step
        table, fields = table_of(step), dumped_fields(self.model.config)
        rows = [row for row, key in enumerate(table.keys()) if key.field in fields]
        digest = table.digest.copy()
        digest[rows[20:]] = table.digest[rows[19:-1]]
        return replace(step, entries=replace(table, digest=digest))


class OtherRow(Engine):
    """Of three rows and more, the third tells the digests of the second."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        if plan is not None and len(steps) > 2:
            second, third = (table_of(step) for step in steps[1:3])
            steps[2] = replace(steps[2], entries=replace(third, digest=second.digest))
        return steps


class OneArray(Engine):
    """Hands out the same memory for the digests of every step."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._kept: dict[int, np.ndarray] = {}

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if plan is None or not step.entries:
            return step
        table = table_of(step)
        kept = self._kept.setdefault(len(table), table.digest.copy())
        kept[:] = table.digest
        return replace(step, entries=replace(table, digest=kept))


class NotFiniteElsewhere(Engine):
    """Says of one key in its middle that it is not finite; its bytes are what they were."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if plan is None or self.length <= 33 or len(step.entries) < 46:
            return step
        return replace(step, entries=replace(table_of(step), nonfinite={23: (1, 5)}))
