"""The control: a green run must find a fault that is planted in it, at exactly that key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.dump import MAIN, Dump, Entry
from parity.dumps.table import Table, tables
from parity.explain.drill import Start
from parity.model.generator import words
from parity.protocol import Injection
from parity.tree import Control

INTEGERS = ("int8", "int32")


def inject_control(start: Start, ref: Dump, dut: Dump, seed: int) -> Control:
    """Repeat one step of the dut with one element behind a random key moved by 1 ULP before it is
    hashed and used; the comparison with the ref must name exactly that key."""
    segment, row, index = _target(dut, seed, start.run.start)
    entry = dut.segments[segment][row]
    key = entry.key
    step = start.step_at(key.pos, inject=Injection(key, index))
    changed = Dump(dict(dut.header), {MAIN: step.entries}, dut.source)
    wanted = [other for other in ref.entries if other.key.pos == key.pos]
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
    return Control("dump level", tree.first == entry.key.tag, entry.key.tag, tree.first)


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
