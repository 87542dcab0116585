"""The plots of a ``parity mathfn`` page as data: where each bar stands, in percent and pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parity.elementary.mathfn import Exponent

HEIGHT = 120  # pixels of one plot
LEAST = 1.5  # pixels of the smallest bar: one differing input among millions stays visible
LABELS = 12  # labels on the axis at most
EDGE = 6.0  # percent of the axis within which half a label would stand beside the page


@dataclass(frozen=True)
class Rect:
    """One bar: left edge and width in percent, top and height in pixels."""

    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True)
class Label:
    """A text on the axis, at a place in percent. ``minor``: left out where there is no room.
    ``anchor``: which end of the text stands there (SVG's text-anchor)."""

    place: float
    text: str
    minor: bool
    anchor: str = "middle"


@dataclass(frozen=True)
class Plot:
    """Bars over the exponents that occur among the inputs, the most negative at the left. ``top``:
    what a bar of full height stands for."""

    name: str
    top: str
    bars: list[Rect]


@dataclass(frozen=True)
class Drift:
    """Both plots over one axis. ``zero``: place of the border between the signs, or None."""

    plots: list[Plot]
    labels: list[Label]
    zero: float | None
    height: int = HEIGHT


def drift(exponents: Sequence[Exponent]) -> Drift | None:
    """Share of differing inputs and largest distance by exponent; None where nothing differs."""
    if not any(one.differ for one in exponents):
        return None
    columns = len(exponents)
    shares = {at: one.differ / one.pairs for at, one in enumerate(exponents) if one.differ}
    sizes = {at: 1 + math.log2(one.max_ulp) for at, one in enumerate(exponents) if one.max_ulp}
    plots = [Plot("Inputs that differ", _percent(max(shares.values())), _bars(shares, columns))]
    if sizes:
        largest = max(one.max_ulp for one in exponents)
        plots.append(Plot("Largest distance", f"{largest:,} ULP", _bars(sizes, columns)))
    border = sum(one.sign == "-" for one in exponents)
    zero = round(100 * border / columns, 3) if 0 < border < columns else None
    return Drift(plots, _labels(exponents), zero)


def _bars(values: dict[int, float], columns: int) -> list[Rect]:
    top = max(values.values())
    width = 100 / columns
    found = []
    for column, value in values.items():
        height = round(max(LEAST, HEIGHT * value / top), 1)
        x, broad = round(column * width, 3), round(0.9 * width, 3)
        found.append(Rect(x, broad, round(HEIGHT - height, 1), height))
    return found


def _labels(exponents: Sequence[Exponent]) -> list[Label]:
    step = -(-len(exponents) // LABELS)
    found = []
    for column in range(0, len(exponents), step):
        place = round(100 * (column + 0.45) / len(exponents), 3)
        anchor = "start" if place < EDGE else "end" if place > 100 - EDGE else "middle"
        minor = column // step % 2 == 1
        found.append(Label(place, exponents[column].name, minor, anchor))
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
