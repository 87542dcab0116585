"""What the page's script is told, as JSON: every place's state, and hashes, types and sources.

States are run-length coded in the order of places, so a run of equal keys costs nothing. Hashes of
all keys stand here up to MARKS_LIMIT keys; above, those of differing keys alone, HELD_LIMIT at
most: the JSON of the run has the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from parity.families import feeding_fields, field_op
from parity.presenting import printable
from parity.tree import KeyRow, KeyState, Tree
from parity_reports.html_grid import STATES, Grid, first_index
from parity_reports.html_key import twins
from parity_reports.html_map import MARKS_LIMIT, build_sheet, control_index
from parity_reports.states import LOOKS, WORST

HELD_LIMIT = 10_000  # keys with hashes in the file, where it has more than MARKS_LIMIT
ABSENT = "-"  # in the place of the hash of a side without the key


def script_data(tree: Tree, grid: Grid, names: tuple[str, str]) -> dict[str, Any]:
    """Where each key stands and what it holds, by place. ``names``: what the sides are called."""
    sheet = build_sheet(grid)
    held = held_places(tree, grid)
    rows = [tree.keys[grid.keys[place]] for place in held]
    first, control = (
        None if index is None or grid.places[index] < 0 else grid.places[index]
        for index in (first_index(tree), control_index(tree))
    )
    fields = {field for col in grid.cols for field in col.fields}
    return {
        "names": names,
        "rows": _rows(grid),
        "cols": [[col.label, col.name, list(map(printable, col.fields))] for col in grid.cols],
        "looks": [[name, shown.kind, shown.word] for name, shown in LOOKS.items()],
        "worst": [WORST.index(name) for name in STATES],
        "states": [number for run in grid.runs() for number in run],
        "held": list(_gaps(held)),
        "hashes": [_hashes(row) for row in rows],
        **_types(grid, held, rows),
        **_sources(rows),
        "ops": {printable(field): _op(tree, field) for field in sorted(fields)},
        "first": first,
        "start": first if first is not None else control if control is not None else min(grid.keys),
        "born": [STATES.index(name) for name, shown in LOOKS.items() if shown.kind == "born"],
        "detailed": sheet.detailed,
        **{name: getattr(sheet, name) for name in ("pitch", "slot", "gap", "width", "edges")},
    }


def held_places(tree: Tree, grid: Grid) -> list[int]:
    """Places of the keys whose hashes stand in the file, ascending."""
    if len(grid.keys) <= MARKS_LIMIT:
        return sorted(grid.keys)
    unequal = (
        place for place in sorted(grid.keys) if tree.keys[grid.keys[place]].state != KeyState.SAME
    )
    return [place for place, _ in zip(unequal, range(HELD_LIMIT), strict=False)]


def _rows(grid: Grid) -> list[list[Any]]:
    """[segment, first position, how many rows follow each other], in the order of the rows."""
    runs: list[list[Any]] = []
    for segment, pos in grid.rows:
        last = runs[-1] if runs else None
        if last is not None and last[0] == segment and last[1] + last[2] == pos:
            last[2] += 1
        else:
            runs.append([segment, pos, 1])
    return [[printable(segment), pos, number] for segment, pos, number in runs]


def _gaps(places: Iterable[int]) -> Iterable[int]:
    """Ascending places as runs: how many are left out, then how many follow each other."""
    at = 0
    runs = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    for _, run in runs:
        inside = [place for _, place in run]
        yield inside[0] - at
        yield len(inside)
        at = inside[-1] + 1


def _hashes(row: KeyRow) -> str:
    """One hash where both sides have it, else both."""
    ref, dut = (ABSENT if text is None else text.split(" ", 1)[0] for text in (row.ref, row.dut))
    return ref if ref == dut else f"{ref} {dut}"


def _type(text: str | None) -> str:
    return "" if text is None else text.partition(" ")[2]


def _types(grid: Grid, held: list[int], rows: list[KeyRow]) -> dict[str, Any]:
    """``types``: their names; ``typed``: by place in a row, which most have; ``others``: [index
    among the held, ref, dut] of those with another one."""
    names: dict[str, int] = {"": 0}
    usual: dict[int, int] = {}
    others = []
    for index, (place, row) in enumerate(zip(held, rows, strict=True)):
        pair = [names.setdefault(_type(text), len(names)) for text in (row.ref, row.dut)]
        present = [n for n, text in zip(pair, (row.ref, row.dut), strict=True) if text is not None]
        common = usual.setdefault(place % grid.stride, present[0] if present else 0)
        if any(number != common for number in present):
            others.append([index, *pair])
    typed = [usual.get(at, 0) for at in range(grid.stride)]
    return {"types": [printable(name) for name in names], "typed": typed, "others": others}


def _sources(rows: list[KeyRow]) -> dict[str, Any]:
    """``sources``: birthplaces; ``from``: runs over the held keys, [which or -1, how many]."""
    names: dict[str, int] = {}
    told = [
        names.setdefault(row.source, len(names)) if row.source and row.source != row.key else -1
        for row in rows
    ]
    if not names:
        return {"sources": [], "from": []}
    runs = [number for value, run in groupby(told) for number in (value, sum(1 for _ in run))]
    return {"sources": [printable(name) for name in names], "from": runs}


def _op(tree: Tree, field: str) -> list[Any]:
    """The op that makes a field, what ref and dut ran for it, the files, and what it reads, as far
    as that is known."""
    op = field_op(field)
    ran = tree.births.kernels.get(field, ([], [])) if tree.births is not None else ([], [])
    shown = ["" if op == field else op, *(", ".join(names) for names in ran)]
    files = [[twin.side, printable(twin.file)] for twin in twins(tree, field)]
    return [*(printable(text) for text in shown), files, _feeds(field)]


def _feeds(field: str) -> list[str]:
    """What the op of a field reads of its position: fields of its layer, with ``<`` of the one
    before; rows of earlier positions have no key here."""
    return [name for name in feeding_fields(field) if not name.endswith("^")]
