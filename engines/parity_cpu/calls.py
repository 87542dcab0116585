"""Counting op calls: the evidence that M rows were batched (capability ``counters``)."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Calls:
    """Call an op and count it by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, op: Any, *args: Any) -> None:
        """Run ``op(*args)``."""
        self.counts[op.__name__] += 1
        op(*args)
