"""Verdicts, levels and exit statuses: the one place where they are defined."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitStatus(IntEnum):
    """What the process returns. ``USAGE`` also covers bad input and internal errors."""

    SAME = 0
    DIVERGED = 1
    USAGE = 2
    NOT_RUN = 3


class Verdict(StrEnum):
    """Outcome of a comparison. ``unstable``: a side differs from itself."""

    SAME = "same"
    DIVERGED = "diverged"
    UNSTABLE = "unstable"
    NOT_RUN = "not_run"

    @property
    def exit_status(self) -> ExitStatus:
        """Exit status of a run that ends in this verdict."""
        return _EXIT[self]


_EXIT = {
    Verdict.SAME: ExitStatus.SAME,
    Verdict.DIVERGED: ExitStatus.DIVERGED,
    Verdict.UNSTABLE: ExitStatus.DIVERGED,
    Verdict.NOT_RUN: ExitStatus.NOT_RUN,
}


class Level(StrEnum):
    """How far two runs agree: every key, every logits key, the same top-1 everywhere, or not."""

    BIT = "bit"
    LOGITS = "logits"
    GREEDY = "greedy"
    NONE = "none"

    def satisfies(self, asked: Level) -> bool:
        """Whether this level is at least as strict as ``asked``."""
        order = list(Level)
        return order.index(self) <= order.index(asked)
