"""Probes: one claim about one engine each, and what a run of one found.

A probe compares through ``parity.compare`` and ``parity.states``; it prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from parity.model.model import Model
from parity.run import Side
from parity.status import Verdict

FORMAT = "parity-probe"
VERSION = 1


@dataclass(frozen=True)
class Ask:
    """What the user wants. ``sizes``: values of M. ``starts``: first positions of a block.
    ``models``: one per seed. ``more``: further steps compared after each block. ``chunks``: sizes
    a prompt is cut into. ``reproduce``: the command line without --m and --pos."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    models: tuple[Model, ...]
    more: int = 8
    chunks: tuple[int, ...] = ()
    reproduce: str = ""


@dataclass
class Found:
    """Result of one probe. ``lines``: published lines, never cut. ``facts``: label and text.
    ``failing``: the --m (and --pos) that reproduce a failure."""

    name: str
    verdict: Verdict
    headline: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    first: str | None = None
    failing: str = ""
    compared: int = 0

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


def counted(counts: Mapping[str, int]) -> int:
    """Total of op calls or launches."""
    return sum(counts.values())
