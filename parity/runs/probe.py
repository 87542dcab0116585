"""Probes: one claim about one engine each, and what a run of one found.

A probe compares through ``parity.comparison``; it prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from parity.model.model import Model
from parity.runs.run import Side
from parity.status import Verdict

FORMAT = "parity-probe"
VERSION = 3


@dataclass(frozen=True)
class Ask:
    """What the user wants. ``sizes``: values of M. ``starts``: first positions of a block.
    ``models``: one per seed. ``more``: further steps compared after each block. ``chunks``: sizes
    a prompt is cut into. ``reproduce``: the command line as typed."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    models: tuple[Model, ...]
    more: int = 8
    chunks: tuple[int, ...] = ()
    reproduce: str = ""


@dataclass(frozen=True)
class Cost:
    """One forward of ``m`` rows against ``m`` single steps, both without a tap: seconds (best of a
    few rounds), and op calls or launches by name."""

    m: int
    rows_seconds: float
    single_seconds: float
    rows_calls: dict[str, int]
    single_calls: dict[str, int]

    @property
    def totals(self) -> tuple[int, int]:
        """Calls of the forward of M rows, calls of the M single steps."""
        return sum(self.rows_calls.values()), sum(self.single_calls.values())

    @property
    def batched(self) -> bool:
        """Whether the forward of M rows made fewer calls: else nothing was batched."""
        rows, singles = self.totals
        return rows < singles

    @property
    def row_by_row(self) -> list[str]:
        """Ops that were called as often as in single steps."""
        return sorted(
            name
            for name, count in self.rows_calls.items()
            if self.m > 1 and count and count == self.single_calls.get(name)
        )


@dataclass
class Found:
    """Result of one probe.

    ``lines``: published lines, printed first and never cut. ``table``: lines under the headline.
    ``facts``: label and text. ``about``: the engine that ran last, by the names of a dump's header,
    its compiled code and packages among them; empty where none was opened. ``brief``: the one line
    of ``-q`` after the verdict. ``first``: tag of the first differing key. ``failing``: the options
    that reproduce a failure. ``compared``: keys compared.
    """

    name: str
    verdict: Verdict
    headline: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    first: str | None = None
    failing: str = ""
    compared: int = 0
    brief: str = ""
    table: list[str] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Versioned JSON text."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"


class OpenSide(Protocol):
    """Opens the engine under test with a model and room for ``positions``."""

    def __call__(self, model: Model, positions: int) -> Side:
        """A side with the model loaded."""
        ...


class Probe(Protocol):
    """One claim, found through the entry-point group ``parity.probes``."""

    name: str
    claim: str
    needs: Sequence[str]

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Compare and report. Capabilities in ``needs`` are checked before."""
        ...


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of several checks: any difference, else anything not run, else the same."""
    for verdict in (Verdict.DIVERGED, Verdict.UNSTABLE, Verdict.NOT_RUN):
        if verdict in verdicts:
            return verdict
    return Verdict.SAME if verdicts else Verdict.NOT_RUN
