"""Counting op calls: the evidence that M rows were batched, and what ran for a traced key."""

from __future__ import annotations

from collections import Counter
from typing import Any

from parity.protocol import Elementary
from parity_cpu.arguments import Ran, redo, watch


class Calls:
    """Call an op and count it by name. ``ops``: those that were called. ``record``: the calls since
    it was set to a list, or None while nothing is traced. ``borrow``: functions that ops call in
    place of their own, or None."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ops: dict[str, Any] = {}
        self.record: list[Ran] | None = None
        self.borrow: Elementary | None = None

    def __call__(self, op: Any, *args: Any) -> None:
        """Run ``op(*args)``."""
        self.counts[op.__name__] += 1
        self.ops[op.__name__] = op
        if self.record is not None:
            self.record.append(watch(op.__name__, args, self.borrow))
        if self.borrow is None or not redo(op.__name__, args, self.borrow):
            op(*args)
