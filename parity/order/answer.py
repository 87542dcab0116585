"""What the study of an order answers. Only the verdict ``tree`` is green."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from parity.order.tree import Order

Verdict = Literal["tree", "no tree", "tree, not explained"]


@dataclass(frozen=True)
class Certified:
    """Is it still this tree? One pair of leaves across each two siblings, and 2n random pairs."""

    asked: int  # pairs (sums of squares: triples)
    contradicted: int
    example: str = ""  # the first of them, in words


@dataclass(frozen=True)
class Noise:
    """Rows of pure rounding noise: the op's bits beside the twin's."""

    rows: int  # different sums asked
    unlike: int  # of them, those with other bits at one place of the op or more
    places: int  # answers compared: each row is asked at many places of the op's output
    blind: bool  # no row can tell this order from one with two leaves swapped
    example: str = ""  # the first unlike row with both bit patterns, in words


@dataclass(frozen=True)
class Stage:
    """What one stage of a study cost."""

    probes: int
    seconds: float


@dataclass(frozen=True)
class Answer:
    """The order, and why to believe it or not.

    ``probes``: sums asked for, all stages together; a row of a call that only repeats another is
    not counted. ``stages``: what each cost, "reveal", "again" (with other pivots), "measures",
    "settle", "certify" and "noise"; "refused": of the stage that ended it. ``contradicts``: the
    counts that no tree gives, in words. ``undecided``: what the probes cannot tell and the noise
    does not show.
    """

    verdict: Verdict
    order: Order | None = None
    probes: int = 0
    calls: int = 0
    seconds: float = 0.0
    stages: dict[str, Stage] = field(default_factory=dict)
    contradicts: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    certify: Certified | None = None
    noise: Noise | None = None

    @property
    def green(self) -> bool:
        """Counts, certify and noise agree."""
        return self.verdict == "tree"
