"""The profile of two sides in sentences and in one line a layer, for every report for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parity.profiles import Profile, ProfileRow
from parity.tree import Tree
from parity_reports.wording import counted, of

AFTER = "after"  # names the line of what follows the last layer
INTEGERS = "step"  # unit of fields that hold integers
HEADS = ("layer", "keys equal", "max ULP", "max diff", "over rms", "bound", "largest at")
UNJUDGED = tuple(head for head in HEADS if head != "bound")


@dataclass(frozen=True)
class LayerLine:
    """One layer: the keys of all its fields, and its field that lies nearest to its bound or beyond
    it, without bounds the one with the largest share of its rms."""

    name: str
    keys: int
    equal: int
    max_ulp: int | None
    worst: ProfileRow
    rows: Sequence[ProfileRow]


def summary_sentence(tree: Tree) -> str:
    """``nearest to its bound: l2_x, 4.1e-06 at t34_l2_x [17], 9.2e-07 of its rms of 4.4``; empty
    where nothing was measured."""
    found = tree.profile
    row = None if found is None else found.row(found.worst)
    if found is None or row is None:
        return ""
    if row.equal == row.keys:
        return f"every field is equal at {counted(found.positions, 'position')}"
    what = "largest difference" if not found.judged else "nearest to its bound"
    if row.outside:
        what = "furthest beyond its bound"
    return f"{what}: {row_sentence(row)}"


def row_sentence(row: ProfileRow) -> str:
    """``l2_x 4.1e-06 at t34_l2_x [17], 9.2e-07 of its rms of 4.4 (bound 1.1e-05)``."""
    if row.unmeasured:
        kinds = f"ref {row.ref_dtype}, dut {row.dut_dtype}" if row.ref_dtype else "no values"
        return f"{row.name} has no common measure ({kinds})"
    place = f" at {place_of(row)}" if row.key else ""
    text = f"{row.name} {figure(row.max_diff)}{place}, {share(row)} of its rms of {row.rms:.2g}"
    if row.nonfinite:
        text = f"{row.name} has {counted(row.nonfinite, 'element')} that is not finite alike"
    return text if row.bound is None else f"{text} (bound {figure(row.bound)})"


def outside_sentence(tree: Tree) -> str:
    """What the first key beyond its bound shows; empty where none is."""
    found = tree.profile
    row = next((row for row in found.rows if row.outside == found.outside), None) if found else None
    return "" if row is None or not row.outside else row_sentence(row)


def sentences(tree: Tree) -> list[str]:
    """What is said of a profile beside its lines: the first key beyond its bound, the row that is
    nearest to its bound or furthest beyond it, and what is counted in what."""
    found = tree.profile
    if found is None:
        return []
    first, summary = outside_sentence(tree), summary_sentence(tree)
    same = bool(first) and summary.endswith(first)
    said = [f"first beyond its bound: {first}" if first else "", "" if same else summary]
    return [text for text in (*said, unit_sentence(found)) if text]


def unit_sentence(found: Profile) -> str:
    """``ULP of f32; bounds for f32``: what the counts count, and what the bounds are for."""
    units = sorted({row.unit for row in found.rows if row.unit not in ("", INTEGERS)})
    mixed = any(row.ref_dtype != row.dut_dtype for row in found.rows)
    said = [f"ULP of {' and '.join(units)}{', the narrower format' if mixed else ''}"] * bool(units)
    said += [f"bounds for {found.arithmetic}"] * bool(found.judged and found.arithmetic)
    return "; ".join(said)


def layer_lines(found: Profile) -> list[LayerLine]:
    """One line a layer, in dataflow order; what stands outside the layers last."""
    by_layer: dict[int | None, list[ProfileRow]] = {}
    for row in found.rows:
        by_layer.setdefault(row.layer, []).append(row)
    layers = sorted(by_layer, key=lambda layer: (layer is None, layer or 0))
    return [_line(layer, by_layer[layer]) for layer in layers]


def _line(layer: int | None, rows: Sequence[ProfileRow]) -> LayerLine:
    distances = [row.max_ulp for row in rows if row.max_ulp is not None]
    return LayerLine(
        AFTER if layer is None else str(layer),
        sum(row.keys for row in rows),
        sum(row.equal for row in rows),
        max(distances, default=None),
        max(rows, key=nearness),
        rows,
    )


def nearness(row: ProfileRow) -> float:
    """How near a row is to its bound, 1 on it; without a bound the share of its rms."""
    if row.unmeasured or row.nonfinite or row.relative is None:
        return math.inf
    if row.bound is None:
        return row.relative
    if not row.bound:  # integers
        return math.inf if row.relative else 0.0
    return row.relative / row.bound


def chosen(lines: Sequence[LayerLine], most: int) -> list[LayerLine]:
    """At most so many lines: the first, the last, the worst, and others evenly between."""
    if len(lines) <= most:
        return list(lines)
    worst = max(range(len(lines)), key=lambda at: nearness(lines[at].worst))
    kept = dict.fromkeys([worst, len(lines) - 1, 0])
    even = (round(at * (len(lines) - 1) / (most - 1)) for at in range(most)) if most > 1 else ()
    places = list(dict.fromkeys([*kept, *even]))[:most]
    return [lines[at] for at in sorted(places)]


def heads(found: Profile) -> tuple[str, ...]:
    """The heads of ``cells``."""
    return HEADS if found.judged else UNJUDGED


def cells(line: LayerLine, judged: bool) -> tuple[str, ...]:
    """The texts of one line, in the order of ``heads``."""
    row = line.worst
    bound = (figure(row.bound or 0.0),) if judged else ()
    return (
        line.name,
        of(line.equal, line.keys),
        "" if line.max_ulp is None else f"{line.max_ulp:,}",
        figure(row.max_diff),
        share(row),
        *bound,
        place_of(row) or "nowhere",
    )


def place_of(row: ProfileRow) -> str:
    """``t34_l2_x [17]``: the key and the element of the largest difference."""
    index = ",".join(map(str, row.element))
    return f"{row.key} [{index}]" if row.key and index else row.key


def share(row: ProfileRow) -> str:
    """The largest difference over the rms of the ref."""
    if row.unmeasured:
        return "unmeasured"
    return "ref is 0" if row.relative is None else figure(row.relative)


def figure(value: float) -> str:
    """``4.1e-06``; ``0`` for nothing."""
    return f"{value:.1e}" if value else "0"
