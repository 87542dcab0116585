"""Steps as recorded lists of launches: made once for each kind of step, replayed at any position.

What varies from token to token, the position and the token ids, is read on the device. The first
step of a kind runs launch by launch and makes the memory; the second is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parity.dumps.forms import Form
from parity.errors import InputError
from parity.protocol import Plan, Step
from parity_cuda.backend import Backend, Recorded
from parity_cuda.digests import Table
from parity_cuda.tap import Arena, Tap

GRAPH, FUSE = "graph", "fuse"  # options
LAUNCHES = "launches"  # of a header
Kind = tuple[int, frozenset[str] | None, int, int]
Forward = Callable[[Tap], None]


def switch(engine: str, options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether ``@name=on`` or ``@name=off`` stands among an engine's options."""
    given = options.get(name, "on" if default else "off")
    if given not in ("on", "off"):
        raise InputError(f"{engine}@{name}={given}: not on or off", f"write {engine}@{name}=off")
    return given == "on"


def launches(fuse: bool, overlap: str = "") -> str:
    """How steps of one row are launched, for the header; attention overlaps either way."""
    how = "fused" if fuse else "op by op"
    return f"{how}, {overlap}" if overlap else how


def moves(plan: Plan | None) -> bool:
    """Whether a step under this plan changes a value on its way: then it must go op by op."""
    special = () if plan is None else (plan.inject, plan.replace, plan.borrow, plan.places)
    return any(each is not None for each in special)


def repeats(plan: Plan | None) -> bool:
    """Whether every step under this plan does the same: it moves, keeps and traces nothing, and
    reports the same fields at every position."""
    return plan is None or not (moves(plan) or plan.tensors or plan.trace)


@dataclass(frozen=True)
class Captured:
    """A recorded step, with what its rows tell wherever it starts."""

    recorded: Recorded
    forms: list[Form]
    table: Table | None


class Graphs:
    """The recorded steps of one loaded model, by kind of step: rows, fields, basis, and the version
    of the arena, whose addresses they hold. Variants and the memory of a model never change."""

    def __init__(self, backend: Backend, arena: Arena) -> None:
        self.backend, self.arena = backend, arena
        self._found: dict[Kind, Captured | None] = {}

    def steps(self, rows: int, plan: Plan | None, pos: int, forward: Forward) -> list[Step]:
        """Do one forward of ``rows`` rows whose tokens and position the device has."""
        tap = Tap(self.backend, self.arena, plan, rows)
        if not self.backend.graph or not repeats(plan):
            return eager(tap, pos, forward)
        kind = self._kind(rows, plan)
        if kind not in self._found:
            steps = eager(tap, pos, forward)
            self._forget_old()
            self._found[self._kind(rows, plan)] = None
            return steps
        captured = self._found[kind]
        if captured is None:
            captured = self._found[kind] = self._capture(tap, pos, forward)
        if captured.table is not None:
            self.arena.write(captured.table)
        self.backend.replay(captured.recorded)
        return tap.steps(pos, captured.table, captured.forms)

    def _kind(self, rows: int, plan: Plan | None) -> Kind:
        fields = None if plan is None else frozenset(plan.fields)
        return rows, fields, 0 if plan is None else plan.basis, self.arena.version

    def _forget_old(self) -> None:
        """Steps that hold addresses of an arena that has grown since."""
        version = self.arena.version
        self._found = {kind: each for kind, each in self._found.items() if kind[-1] == version}

    def _capture(self, tap: Tap, pos: int, forward: Forward) -> Captured:
        tables: list[Table | None] = []

        def run() -> None:
            forward(tap)
            tables.append(tap.table())
            tap.launch(tables[0])

        recorded = self.backend.record(run)
        return Captured(recorded, tap.forms(pos), tables[0])


def eager(tap: Tap, pos: int, forward: Forward) -> list[Step]:
    """The same launch by launch."""
    forward(tap)
    table = tap.table()
    if table is not None:
        tap.arena.write(table)
    tap.launch(table)
    return tap.steps(pos, table, tap.forms(pos))
