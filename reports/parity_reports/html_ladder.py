"""The panel of a ladder: each rung's tokens, where it flips, and the keys that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parity.runs.checks import CheckRun
from parity_reports.html_shell import fragment

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH = 100.0  # of a track, in percent


@dataclass(frozen=True)
class Rung:
    """One rung; ``flip``: where on the track its first other token stands, None for none."""

    found: Mapping[str, Any]
    flip: float | None


def rungs(run: CheckRun) -> Markup | None:
    """All rungs, the one that decides last."""
    record = _record(run)
    if record is None:
        return None
    first, last = _span(record)
    found = [Rung(rung, _place(rung["flip"], first, last)) for rung in record["rungs"]]
    return fragment("rungs", found, first, last, template="panels.html.j2")


def rungs_lead(run: CheckRun) -> str:
    """What was counted."""
    record = _record(run)
    if record is None:
        return ""
    first, last = _span(record)
    return f"Greedy tokens t{first} to t{last}; the last rung decides."


def _record(run: CheckRun) -> Mapping[str, Any] | None:
    found = (record for record in run.records if record["format"] == "parity-ladder")
    return next((record for record in found if record["rungs"]), None)


def _span(record: Mapping[str, Any]) -> tuple[int, int]:
    """First and last decoded position."""
    first, last = record["run"]["positions"].split(":")
    return int(first), int(last)


def _place(flip: Mapping[str, int] | None, first: int, last: int) -> float | None:
    """Where a position begins on a track over all of them; one before the first stands at 0."""
    if flip is None:
        return None
    return round(WIDTH * max(0, flip["pos"] - first) / (last - first + 1), 2)
