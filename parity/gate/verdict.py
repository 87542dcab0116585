"""The verdict of a gate whose candidate is equal: what the intervals allow (docs/gate.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from parity.gate.statistics import Interval, fewest_pairs
from parity.status import ExitStatus

MARGIN = 0.01  # a median ratio shown to lie within 1 % of 1 is the same speed

SAME_CODE = "equal, and both sides run the same code: nothing to gate"


class GateVerdict(StrEnum):
    """``default``: equal and faster. ``opt-in``: equal, not faster. ``refused``: not equal.
    ``undecided``: equal, and the noise hides which it is."""

    DEFAULT = "default"
    OPT_IN = "opt-in"
    REFUSED = "refused"
    UNDECIDED = "undecided"

    @property
    def exit_status(self) -> ExitStatus:
        """Exit status of a gate that ends in this verdict."""
        return _EXIT[self]


_EXIT = {
    GateVerdict.DEFAULT: ExitStatus.SAME,
    GateVerdict.OPT_IN: ExitStatus.DIVERGED,
    GateVerdict.REFUSED: ExitStatus.DIVERGED,
    GateVerdict.UNDECIDED: ExitStatus.NOT_RUN,
}


@dataclass(frozen=True)
class Decision:
    """A verdict and why, in words."""

    verdict: GateVerdict
    reason: str


def decide(total: Interval, by_size: Mapping[int, Interval], *, identical: bool) -> Decision:
    """The verdict of a candidate that is equal.

    ``total``: interval of the median ratio of all sizes together, which decides. ``by_size``: one
    for each M; an M that is shown to be slower takes the default away. ``identical``: both sides
    run the same compiled code with the same settings: whatever was measured is noise.
    """
    if identical:
        return Decision(GateVerdict.UNDECIDED, SAME_CODE)
    if total.below_one:
        slower = [str(size) for size, interval in by_size.items() if interval.above_one]
        if slower:
            text = f"equal and faster over all, but slower at M = {', '.join(slower)}"
            return Decision(GateVerdict.OPT_IN, text)
        return Decision(GateVerdict.DEFAULT, "equal and faster")
    if total.low is not None and total.low >= 1:
        return Decision(
            GateVerdict.OPT_IN, f"equal, {'slower' if total.above_one else 'not faster'}"
        )
    if total.within(MARGIN):
        return Decision(GateVerdict.OPT_IN, f"equal and the same speed within {MARGIN * 100:g} %")
    return Decision(GateVerdict.UNDECIDED, _noise(total))


def _noise(total: Interval) -> str:
    if total.low is None:
        fewest = fewest_pairs(Fraction(str(total.confidence)))
        return f"equal, with too few pairs to tell: {fewest} are the fewest"
    return "equal, and the noise hides whether it is faster: more --rounds may tell"
