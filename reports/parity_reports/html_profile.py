"""The panel of a profile: a plot by layer, a line a layer, and every field below it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parity.profiles import UNEXPECTED, ProfileRow
from parity.tree import Tree
from parity_reports import profiling
from parity_reports.html_elements import LISTED
from parity_reports.html_panels import SHOWN
from parity_reports.html_shell import fragment
from parity_reports.wording import counted, of

if TYPE_CHECKING:
    from markupsafe import Markup

HEIGHT = 150  # pixels of the plot
MARGIN = 8  # pixels free above and below
LABELS = 16  # of the layers' axis, at most
TEMPLATE = "profile.html.j2"


@dataclass(frozen=True)
class Mark:
    """One layer of the plot: its place in percent; pixels from the top of the smallest and the
    largest share of an rms, and of the bound of its worst field (None without one)."""

    name: str
    place: float
    low: float
    high: float
    bound: float | None
    outside: bool
    label: bool


@dataclass(frozen=True)
class Plot:
    """All layers on a scale of powers of ten. ``decades``: (text, pixels from the top)."""

    marks: list[Mark]
    decades: list[tuple[str, float]]
    half: float  # percent: half the width of a bound's line
    height: int = HEIGHT


@dataclass(frozen=True)
class FieldView:
    """One row of the table of all fields, as texts."""

    name: str
    types: str
    keys: str
    elements: str
    ulp: str
    largest: str
    rms: str
    share: str
    bound: str
    place: str
    outside: str


def profile(tree: Tree) -> Markup | None:
    """How far apart the sides are, layer by layer; absent where nothing was measured."""
    found = tree.profile
    if found is None or not found.rows:
        return None
    lines = profiling.layer_lines(found)
    rows = sorted(found.rows, key=profiling.nearness, reverse=True)
    table = [(profiling.cells(line, found.judged), bool(line.worst.outside)) for line in lines]
    views = [_view(row) for row in rows[:LISTED]]
    lone = [f"only the {one.side}: {one.name}, {counted(one.keys, 'key')}" for one in found.lone]
    values = (profiling.heads(found), table[:LISTED], len(table), views, len(rows), SHOWN)
    said = profiling.sentences(tree)
    return fragment(
        "profile", said, plot(lines), found.judged, values, lone[:LISTED], template=TEMPLATE
    )


def profile_lead(tree: Tree) -> str:
    """What was measured."""
    found = tree.profile
    if found is None:
        return ""
    how = f"{UNEXPECTED}, held to bounds" if found.judged else "nothing is judged by it"
    return f"Every dumped field at {counted(found.positions, 'position')}; {how}."


def plot(lines: Sequence[profiling.LayerLine]) -> Plot | None:
    """Where every mark stands; None where nothing differs."""
    values = [value for line in lines for value in _values(line)]
    if not values:
        return None
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def top(value: float) -> float:
        room = HEIGHT - 2 * MARGIN
        return round(MARGIN + room * (high - math.log10(value)) / (high - low), 1)

    step = -(-len(lines) // LABELS)
    width = 100 / len(lines)
    marks = [
        Mark(
            line.name,
            round((at + 0.5) * width, 3),
            top(min(_shares(line), default=10.0**low)),
            top(max(_shares(line), default=10.0**low)),
            top(line.worst.bound) if line.worst.bound else None,
            bool(line.worst.outside),
            at % step == 0 or at == len(lines) - 1,
        )
        for at, line in enumerate(lines)
    ]
    skip = -(-(high - low) // 5)
    decades = [(f"1e{power:+03d}", top(10.0**power)) for power in range(low, high + 1, skip)]
    return Plot(marks, decades, round(0.42 * width, 3))


def _values(line: profiling.LayerLine) -> Iterator[float]:
    yield from _shares(line)
    if line.worst.bound:
        yield line.worst.bound


def _shares(line: profiling.LayerLine) -> list[float]:
    return [row.relative for row in line.rows if row.relative]


def _view(row: ProfileRow) -> FieldView:
    same = row.ref_dtype == row.dut_dtype
    ulp = "" if row.max_ulp is None else f"{row.max_ulp:,}"
    return FieldView(
        name=row.name,
        types=row.ref_dtype if same else f"{row.ref_dtype}, {row.dut_dtype}",
        keys=of(row.equal, row.keys),
        elements=of(row.differ, row.elements),
        ulp=ulp and counted(row.max_ulp or 0, profiling.INTEGERS) if row.unit == "step" else ulp,
        largest=profiling.figure(row.max_diff),
        rms=f"{row.rms:.2g}",
        share=profiling.share(row),
        bound="" if row.bound is None else profiling.figure(row.bound),
        place=profiling.place_of(row),
        outside=row.outside,
    )
