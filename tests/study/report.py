"""The study's tables, and its JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np

from parity import __version__
from tests.study.cases import HELD, NONE, TAPPED, Outcome
from tests.study.equal import Equal
from tests.study.tools import Tool


@dataclass
class Study:
    """Everything a study found. ``quota``: effective faults wanted of each kind; ``skipped``:
    by kind, how many numbers stand for a fault that could not be planted."""

    seed: int
    quota: int
    kinds: Sequence[str]
    faults: list[Outcome] = field(default_factory=list)
    equal: list[Equal] = field(default_factory=list)
    nan: list[Equal] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    tools: list[Tool] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def effective(self) -> list[Outcome]:
        """Faults that changed a tapped byte."""
        return [one for one in self.faults if one.effect == TAPPED]

    @property
    def problems(self) -> list[str]:
        """What keeps the study from its targets; each with what runs it again."""
        found = [_told(one) for one in self.faults if one.miss]
        for one in [*self.equal, *self.nan]:
            if not one.equal:
                found.append(f"pair {one.number}: not equal, the study is wrong: {one.what}")
            elif one.alarm:
                found.append(f"pair {one.number}: {one.verdict} {one.found}: {one.what}")
        for kind in self.kinds:
            count = sum(one.kind == kind for one in self.effective)
            if count < self.quota:
                found.append(f"{kind}: {count} effective faults, {self.quota} wanted")
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the tensors."""
        rows = [asdict(one) for one in (*self.faults, *self.equal, *self.nan)]
        for row in rows:
            row.pop("pairs")
        ends = len(self.faults), len(self.faults) + len(self.equal)
        return {
            "seed": self.seed,
            "versions": versions(),
            "faults": rows[: ends[0]],
            "equal": rows[ends[0] : ends[1]],
            "equal_with_nan": rows[ends[1] :],
            "tools": [asdict(tool) for tool in self.tools],
            "problems": self.problems,
            "seconds": self.seconds,
        }


def _told(one: Outcome) -> str:
    found = one.found or "nothing"
    text = f"fault {one.number} ({one.kind}: {one.what}; {one.model}): {one.effect}"
    text += f", oracle {one.wanted or 'nothing'}, parity {one.verdict} {found}"
    if one.digest is False:
        text += ", not caught by the digest"
    return text + (f", {one.planted} not named as a birthplace" if one.born is False else "")


def versions() -> str:
    """What ran the study."""
    return (
        f"parity {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.platform()}"
    )


def lines(study: Study) -> list[str]:
    """The printed report."""
    found = [versions(), "", *_kinds(study), "", *_control(study), "", *_tools(study)]
    found += [""] + ([f"MISS  {text}" for text in study.problems] or ["no problem found"])
    return [*found, f"{study.seconds:.0f} s, seed {study.seed}"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width: the first to the left, the others to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    made = []
    for row in (head, *rows):
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        made.append("  ".join([f"{row[0]:{widths[0]}}", *cells]).rstrip())
    return made


def _kinds(study: Study) -> list[str]:
    head = ("kind", "effective", "found", "right key", "born there", "digest")
    head += ("held: named", "no effect: green", "forwards", "ms")
    rows = [_row(kind, [one for one in study.faults if one.kind == kind]) for kind in study.kinds]
    return table(head, [*rows, _row("all", study.faults)])


def _row(name: str, faults: Sequence[Outcome]) -> tuple[str, ...]:
    by = {effect: [o for o in faults if o.effect == effect] for effect in (TAPPED, HELD, NONE)}
    hits = by[TAPPED]
    return (
        name,
        str(len(hits)),
        _share([one.detected for one in hits]),
        _share([one.detected and one.right for one in hits]),
        _share([one.born for one in faults if one.born is not None]),
        _share([one.digest for one in faults if one.digest is not None]),
        _of([not one.miss for one in by[HELD]]),
        _of([not one.miss for one in by[NONE]]),
        f"{median([one.forwards for one in hits] or [0]):.0f}",
        f"{1000 * median([one.seconds for one in hits] or [0.0]):.0f}",
    )


def _share(hits: Sequence[object]) -> str:
    tenths = 1000 * sum(map(bool, hits)) // len(hits) if hits else 0  # rounded down: 100 is all
    return f"{tenths / 10:.1f} %" if hits else "-"


def _of(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else "-"


def _control(study: Study) -> list[str]:
    head = ("control group", "pairs", "false alarms", "ms")
    named = {"equal pairs": study.equal, "equal pairs with a NaN (not run)": study.nan}
    rows = [
        (
            name,
            str(len(pairs)),
            str(sum(one.alarm for one in pairs)),
            f"{1000 * median([one.seconds for one in pairs] or [0.0]):.0f}",
        )
        for name, pairs in named.items()
    ]
    return table(head, rows)


def _tools(study: Study) -> list[str]:
    """Detection by each tool: any tensor flagged; in brackets the first one, which is the lead."""
    able = [tool for tool in study.tools if not tool.error]
    lines_ = [f"{tool.name}: not installed ({tool.error})" for tool in study.tools if tool.error]
    if not able:
        return lines_
    head = ("faults found (first key right)", "n", "parity", *(tool.name for tool in able))
    kinds = [*study.kinds, "all"]
    rows = [_tool_row(kind, study, able) for kind in kinds]
    for name, pairs, mark in (
        ("equal pairs", study.equal, "e"),
        ("the same with a NaN", study.nan, "n"),
    ):
        kept = [one for one in pairs if one.pairs]
        flagged = (
            sum(_flagged(tool, f"{mark}{o.number}") is not None for o in kept) for tool in able
        )
        alarms = str(sum(one.alarm for one in kept))
        rows.append((f"flagged: {name}", str(len(kept)), alarms, *map(str, flagged)))
    versions_ = [f"{tool.name}: {tool.version}" for tool in able]
    return [*table(head, rows), "", *lines_, "; ".join(versions_)]


def _tool_row(kind: str, study: Study, able: Sequence[Tool]) -> tuple[str, ...]:
    given = [one for one in study.effective if one.pairs and kind in (one.kind, "all")]
    cells = [_cell([one.detected for one in given], [one.right for one in given])]
    for tool in able:
        first = [_flagged(tool, f"f{one.number}") for one in given]
        cells.append(_cell([at is not None for at in first], [at == 0 for at in first]))
    return (kind, str(len(given)), *cells)


def _cell(found: Sequence[bool], right: Sequence[bool]) -> str:
    if not found:
        return "-"
    return f"{_percent(found)} ({_percent(right)})"


def _percent(hits: Sequence[bool]) -> int:
    """Whole percent, rounded down: 100 is all of them."""
    return 100 * sum(hits) // len(hits)


def _flagged(tool: Tool, name: str) -> int | None:
    return tool.flagged.get(name)
