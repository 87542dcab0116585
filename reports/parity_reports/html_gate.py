"""The panels of a gate: what was equal, the paired times with their interval, and the decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parity.gate import told
from parity.runs.checks import CheckRun
from parity_reports.html_elements import LISTED
from parity_reports.html_panels import SHOWN
from parity_reports.html_shell import fragment

if TYPE_CHECKING:
    from markupsafe import Markup

Record = Mapping[str, Any]
ALL = "all"  # sizes together: what decides
EDGE = 0.04  # of the span left free at both ends of the axis
TICKS = 6  # of the axis, about
LEAST = 0.02  # span of ratios at least, so that equal ones do not fill the axis


@dataclass(frozen=True)
class Tick:
    """A label of the axis, at a place in percent."""

    place: float
    text: str


@dataclass(frozen=True)
class Strip:
    """One M: a dot a pair; the median; the interval, None where it is not bounded. Percent."""

    name: str
    dots: list[float]
    median: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Ratios:
    """Paired ratios over one axis. ``one``: place of the same speed; ``margin``: its band."""

    strips: list[Strip]
    ticks: list[Tick]
    one: float
    margin: tuple[float, float]


def equality(run: CheckRun) -> Markup | None:
    """Seed by seed and M by M what was compared, and the planted faults."""
    record = _record(run)
    if record is None or not record["equality"]:
        return None
    return fragment("gate_equality", record["equality"], template="panels.html.j2")


def equality_lead(run: CheckRun) -> str:
    """The rule."""
    return "Before any time is taken; every timed pass is compared too."


def timing(run: CheckRun) -> Markup | None:
    """Medians, ratios and pairs; absent where the candidate was refused before it was timed."""
    record = _record(run)
    if record is None or record["statistics"]["all"] is None:
        return None
    statistics, pairs = record["statistics"], record["timing"]["pairs"]
    rows = [
        (name, told.times(one["base"]), told.times(one["candidate"]), one)
        for name, one in (*statistics["by_size"].items(), (ALL, statistics["all"]))
    ]
    margin = record["settings"]["margin"]
    chart = ratios(statistics, pairs, margin)
    return fragment(
        *("gate_timing", rows, chart, pairs[:LISTED], len(pairs), SHOWN),
        template="panels.html.j2",
    )


def timing_lead(run: CheckRun) -> str:
    """What a ratio is."""
    return "Candidate divided by base, pair by pair: below 1 the candidate was faster."


def decision(run: CheckRun) -> Markup | None:
    """How the verdict came about: the test, the interval, the code on both sides, the place of the
    evidence."""
    record = _record(run)
    if record is None:
        return None
    facts = list(told.facts(record))
    if record["statistics"]["all"] is not None:
        facts += told.tests(record)
    facts += [("note", note) for note in record["notes"]]
    kept, machine = record.get("evidence"), record["machine"]
    if kept:
        facts.append(("evidence", f"{kept['name']}, entry {kept['seq']} of {kept['created']}"))
        facts.append(("sha256", kept["address"]))
    cores = f"{machine['processors']} processors"
    facts.append(("machine", f"{machine['platform']}, Python {machine['python']}, {cores}"))
    corrected = list(record["statistics"]["corrected"].items())
    return fragment("gate_decision", facts, corrected, template="panels.html.j2")


def decision_lead(run: CheckRun) -> str:
    """The verdict and the reason, as recorded."""
    record = _record(run)
    return "" if record is None else f"{record['verdict']}: {record['reason']}"


def ratios(statistics: Record, pairs: Sequence[Record], margin: float) -> Ratios:
    """Where every dot, band and label of the plot stands."""
    by_size = {name: [] for name in statistics["by_size"]}  # type: dict[str, list[float]]
    for pair in pairs:
        by_size[str(pair["size"])].append(pair["candidate"] / pair["base"])
    bounds = [1 - margin, 1 + margin, *(one for found in by_size.values() for one in found)]
    for one in (statistics["all"], *statistics["by_size"].values()):
        bounds += [edge for edge in (one["interval"]["low"], one["interval"]["high"]) if edge]
    low, high = min(bounds), max(bounds)
    spare = max(EDGE * (high - low), LEAST / 2)
    low, high = low - spare, high + spare

    def place(ratio: float) -> float:
        return round(100 * (ratio - low) / (high - low), 3)

    names = [*by_size, ALL]
    timings = [*statistics["by_size"].values(), statistics["all"]]
    strips = [
        _strip(name, by_size.get(name, []), one, place)
        for name, one in zip(names, timings, strict=True)
    ]
    ticks = [Tick(place(at), text) for at, text in _ticks(low, high)]
    return Ratios(strips, ticks, place(1), (place(1 - margin), place(1 + margin)))


def _strip(name: str, found: Sequence[float], timing: Record, place: Any) -> Strip:
    low, high = timing["interval"]["low"], timing["interval"]["high"]
    interval = None if low is None or high is None else (place(low), place(high))
    return Strip(name, [place(ratio) for ratio in found], place(timing["ratio"]), interval)


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round ratios between ``low`` and ``high``: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= raw)
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [(at * step, f"{at * step:.{digits}f}") for at in range(first, last + 1)]


def _record(run: CheckRun) -> Record | None:
    """The evidence; one of a gate that was not run holds none."""
    found = (one for one in run.records if one["format"] == "parity-gate")
    return next((one for one in found if "equality" in one), None)
