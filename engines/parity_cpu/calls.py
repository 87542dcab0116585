"""Counting op calls: the evidence that M rows were batched, and what ran for a traced key."""

from __future__ import annotations

from collections import Counter
from typing import Any

from parity.protocol import Call


class Calls:
    """Call an op and count it by name. ``record``: the calls since it was set to a list, or None
    while nothing is traced."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.record: list[Call] | None = None

    def __call__(self, op: Any, *args: Any) -> None:
        """Run ``op(*args)``."""
        self.counts[op.__name__] += 1
        if self.record is not None:
            self.record.append(Call(op.__name__))
        op(*args)
