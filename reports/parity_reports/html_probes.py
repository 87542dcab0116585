"""The panels of the probes: rows against single steps, rollback, chunks, controls, cost.

Each is made of what the records of ``parity-probe`` files hold; one without it gives None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parity.runs.checks import CheckRun
from parity.status import Verdict
from parity_reports.html_elements import LISTED
from parity_reports.html_panels import SHOWN
from parity_reports.html_shell import fragment
from parity_reports.wording import counted

if TYPE_CHECKING:
    from markupsafe import Markup

Record = Mapping[str, Any]
WIDEST = 12  # rows of a block that stand side by side on a page of A4
PLAIN = "rows"  # how a block is run that is nothing special
EQUAL, NOT_RUN = "equal", "not run"  # cells of a rollback's table


@dataclass(frozen=True)
class Cell:
    """One row of a block: how many logits differ (None: the row is absent), how many of its keys
    are not the same (None: not compared), and whether the verdict tells of it."""

    logits: int | None
    keys: int | None
    first: bool

    @property
    def differs(self) -> bool:
        """Whether anything in it is not the same."""
        return self.logits != 0 or bool(self.keys)


@dataclass(frozen=True)
class Line:
    """One block: the position of its first row, what is special of it, its cells, and what came
    after (None: not compared)."""

    pos: int
    remark: str
    cells: list[Cell]
    state: str | None
    further: str | None


@dataclass(frozen=True)
class Blocks:
    """All blocks of one M of one seed; ``asked``: M was asked for, not tried to find a smaller."""

    seed: int
    m: int
    asked: bool
    lines: list[Line]

    @property
    def tall(self) -> bool:
        """Whether its rows go downwards: there are too many to stand side by side."""
        return self.m > WIDEST


def records(run: CheckRun, part: str) -> list[Record]:
    """The probes that hold ``part``."""
    return [one for one in run.records if one["format"] == "parity-probe" and one.get(part)]


def rows(run: CheckRun) -> Markup | None:
    """The grid of isodiff: M x position x row."""
    found = [block for record in records(run, "blocks") for block in record["blocks"]]
    return _made("rows_grid", list(_grids(found))) if found else None


def rows_lead(run: CheckRun) -> str:
    """What each number is."""
    return "M rows of one forward against M single steps; row r is col=r of the published lines."


def _grids(found: list[Record]) -> Iterator[Blocks]:
    for seed, m in dict.fromkeys((block["seed"], block["m"]) for block in found):
        mine = [block for block in found if (block["seed"], block["m"]) == (seed, m)]
        asked = any(block["asked"] for block in mine if block["how"] == PLAIN)
        yield Blocks(seed, m, asked, [_line(block) for block in mine])


def _line(block: Record) -> Line:
    tapped = block["how"] == PLAIN
    keys: list[int | None] = list(block["keys"]) if tapped else [None] * len(block["logits"])
    cells = [Cell(*pair, False) for pair in zip(block["logits"], keys, strict=True)]
    if block["telling"]:
        at = next((at for at, cell in enumerate(cells) if cell.differs), None)
        cells = [Cell(one.logits, one.keys, here == at) for here, one in enumerate(cells)]
    return Line(
        pos=block["pos"],
        remark=_remark(block),
        cells=cells,
        state=block["state"] if tapped else None,
        further=block["further"] if tapped else None,
    )


def _remark(block: Record) -> str:
    if block["verdict"] == Verdict.NOT_RUN:
        return "not comparable"
    return "" if block["how"] == PLAIN else str(block["how"])


def batches(run: CheckRun) -> Markup | None:
    """Every batch of isodiff --batch, then every sequence in one."""
    found = [one for record in records(run, "batches") for one in record["batches"]]
    if not found:
        return None
    rows = [(one, [mate for mate in one["mates"] if _apart(mate)]) for one in found]
    every = [(one, mate) for one in found for mate in one["mates"]]
    return _made("batches_table", rows, every, LISTED, SHOWN)


def _apart(mate: Record) -> bool:
    return bool(mate["keys"] or mate["logits"])


def batches_lead(run: CheckRun) -> str:
    """What each is held against."""
    return "B sequences of one batch, each held against itself alone."


def rollback(run: CheckRun) -> Markup | None:
    """The table of rollback by M; below it every check and every rule."""
    found = records(run, "grid")
    if not found:
        return None
    record = found[0]
    names = list(dict.fromkeys(name for one in record["drafts"] for name in one["cells"]))
    grid, drafts, rules = record["grid"], record["drafts"], record["rules"]
    return _made("rollback_table", grid, names, drafts, rules, LISTED, SHOWN)


def rollback_lead(run: CheckRun) -> str:
    """The claim, as the probe makes it."""
    return _claim(run, "grid")


def chunks(run: CheckRun) -> Markup | None:
    """Every size and way of feeding a prompt."""
    found = [one for record in records(run, "fed") for one in record["fed"]]
    return _made("chunks_table", found, LISTED, SHOWN) if found else None


def chunks_lead(run: CheckRun) -> str:
    """The claim, as the probe makes it."""
    return _claim(run, "fed")


def controls(run: CheckRun) -> Markup | None:
    """What was planted, and whether it was seen."""
    found = [
        (record["name"], one) for record in records(run, "controls") for one in record["controls"]
    ]
    return _made("controls_table", found) if found else None


def controls_lead(run: CheckRun) -> str:
    """Why they are there."""
    return "Faults planted on purpose: a check that misses one proves nothing."


def cost(run: CheckRun) -> Markup | None:
    """Calls and time of one forward of M rows and of M single steps."""
    found = [one for record in records(run, "costs") for one in record["costs"]]
    if not found:
        return None
    names = dict.fromkeys(
        name for one in found for side in ("rows_calls", "single_calls") for name in one[side]
    )
    return _made("cost_table", found, list(names), SHOWN)


def cost_lead(run: CheckRun) -> str:
    """What was timed."""
    if records(run, "batches"):
        return "A batch of M copies and the sequence alone M times, both without a tap."
    return "One forward of M rows and M single steps, both without a tap; the best of a few rounds."


def lines(run: CheckRun) -> Markup | None:
    """The lines as published, unbroken; the table of a file that holds no other."""
    found = [
        line
        for record in run.records
        if record["format"] == "parity-probe"
        for line in (*record["lines"], *([] if record.get("grid") else record["table"]))
    ]
    return _made("published", found) if found else None


def lines_lead(run: CheckRun) -> str:
    """How many there are."""
    return counted(sum(len(record["lines"]) for record in records(run, "lines")), "line")


def _claim(run: CheckRun, part: str) -> str:
    return next((f"{one['claim']}." for one in records(run, part) if one.get("claim")), "")


def _made(name: str, *values: Any) -> Markup:
    return fragment(name, *values, template="panels.html.j2")
