"""What is left of ``parity diff`` when the user stops it: a comparison of the steps so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parity.comparison.compare import compare_dumps
from parity.dump import Dump
from parity.runs.run import Interrupted
from parity.status import Level
from parity.tree import Tree


class DiffStopped(KeyboardInterrupt):
    """The user stopped the dut's run. ``tree``: the comparison of what was done, never green."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self.tree = tree


@contextmanager
def kept_when_stopped(ref: Dump, level: Level, reproduce: str) -> Iterator[None]:
    """Around the dut's run: compare its whole steps with the ref's dump when it is interrupted."""
    try:
        yield
    except Interrupted as stop:
        tree = compare_dumps(ref, stop.done.dump, level_asked=level, partial=True)
        tree.reproduce = reproduce
        raise DiffStopped(tree) from stop
