"""The control: a green run must find a fault that is planted in it, at exactly that key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.comparison.matching import dump_order
from parity.comparison.profile import FieldTally
from parity.dump import MAIN, Dump, Entry
from parity.dumps.table import Table, tables
from parity.explain.drill import Start
from parity.keys import Key
from parity.model.generator import words
from parity.profiles import BOUND, TIMES, Profile, ProfileRow, place_name
from parity.protocol import Injection
from parity.tree import Control

INTEGERS = ("int8", "int32")
DUMP_LEVEL = "dump level"


def inject_control(start: Start, ref: Dump, dut: Dump, seed: int) -> Control:
    """Repeat one step of the dut with one element behind a random key moved by 1 ULP before it is
    hashed and used; the comparison with the ref must name exactly that key."""
    segment, row, index = _target(dut, seed, start.run.start)
    entry = dut.segments[segment][row]
    key = entry.key
    step = start.step_at(key.pos, inject=Injection(key, index))
    changed = Dump(dict(dut.header), {MAIN: step.entries}, dut.source)
    told = Table.of(ref.entries)
    wanted = told.select(told.pos == key.pos)
    tree = compare_dumps(Dump(dict(ref.header), {MAIN: wanted}, ref.source), changed)
    unit = "step" if entry.type is not None and entry.type.dtype in INTEGERS else "ULP"
    return Control("inject", tree.first == key.tag, key.tag, tree.first, index, unit)


def dump_control(ref: Dump, dut: Dump, seed: int) -> Control:
    """Change one hexadecimal digit in a copy of the dut's dump; the comparison must find it."""
    segment, row, index = _target(dut, seed, 0)
    table = Table.of(dut.segments[segment])
    entry = table[row]
    planted = table.with_digest(row, entry.digest ^ (1 << 4 * (index % 16)))
    changed = replace(dut, segments={**dut.segments, segment: planted})
    tree = compare_dumps(ref, changed, partial=True)
    return Control(DUMP_LEVEL, tree.first == entry.key.tag, entry.key.tag, tree.first)


def bound_control(
    starts: tuple[Start, Start], dumps: tuple[Dump, Dump], profile: Profile, seed: int
) -> Control:
    """Repeat one step of both sides, one element of the dut moved by TIMES the bound of its field
    before it is used; of all fields of the step exactly that one, first, must lie outside. A dut
    that lacks the capability ``inject`` has the value moved that it gave."""
    rows = {row.name: row for row in profile.rows if row.bound and row.rms and row.elements}
    judged = [entry for entry in dumps[1].entries if _row(rows, entry.key) is not None]
    _, at, index = _target(Dump(segments={MAIN: judged}), seed, starts[0].run.start)
    key = judged[at].key
    row = rows[place_name(key.layer, key.field)]

    def moved(value: np.ndarray) -> np.ndarray:
        changed = value.copy()
        flat = changed.reshape(-1)
        flat[index] = flat[index].astype(np.float64) + TIMES * (row.bound or 0.0) * row.rms
        return changed

    told = [{entry.key for entry in dump.entries} for dump in dumps]
    keys = frozenset(one for one in told[0] & told[1] if one.pos == key.pos)
    injected = starts[1].side.has("inject")
    plan = {"inject": Injection(key, index, moved)} if injected else {}
    ref = starts[0].step_at(key.pos, tensors=keys).tensors
    dut = dict(starts[1].step_at(key.pos, tensors=keys, **plan).tensors)
    if not injected and key in dut:
        dut[key] = moved(dut[key])
    found = _first_outside(sorted(keys, key=dump_order(*dumps)), rows, ref, dut)
    kind = "inject" if injected else DUMP_LEVEL
    return Control(kind, found == key.tag, key.tag, found, index, BOUND)


def _first_outside(
    keys: list[Key],
    rows: Mapping[str, ProfileRow],
    ref: Mapping[Key, np.ndarray],
    dut: Mapping[Key, np.ndarray],
) -> str | None:
    """The first key whose values lie further apart than their field may."""
    for key in keys:
        row = _row(rows, key)
        if row is None or key not in ref or key not in dut:
            continue
        tally = FieldTally(key.layer, key.field)
        tally.add(key, ref[key], dut[key])
        seen = tally.row()
        if seen.nonfinite or seen.max_diff > (row.bound or 0.0) * row.rms:
            return key.tag
    return None


def _row(rows: Mapping[str, ProfileRow], key: Key) -> ProfileRow | None:
    return rows.get(place_name(key.layer, key.field))


def _target(dut: Dump, seed: int, lowest: int) -> tuple[str, int, int]:
    """(segment, row, element) of a key at or after position ``lowest``, drawn from ``seed``."""
    parts = tables(dut)
    rows = {name: np.flatnonzero(table.pos >= lowest) for name, table in parts.items()}
    if not any(map(len, rows.values())):
        rows = {name: np.arange(len(table)) for name, table in parts.items()}
    draw, place = (int(word) for word in words(seed, "control", 0, 2))
    ends = np.cumsum([len(found) for found in rows.values()])
    at = draw % int(ends[-1])
    which = int(np.searchsorted(ends, at, side="right"))
    segment = list(rows)[which]
    row = int(rows[segment][at - int(ends[which])])  # counted from the segment's end
    return segment, row, place % max(1, _size(parts[segment][row]))


def _size(entry: Entry) -> int:
    """Elements of a value; 16, the digits of its digest, where no type says so."""
    size = 1
    for side in entry.type.shape if entry.type is not None else (16,):
        size *= side
    return size
