"""The control: a green run must find a fault that is planted in it, at exactly that key."""

from __future__ import annotations

from dataclasses import replace

from parity.compare import compare_dumps
from parity.drill import Start
from parity.dump import MAIN, Dump, Entry
from parity.model.generator import words
from parity.protocol import Injection
from parity.tree import Control

INTEGERS = ("int8", "int32")


def inject_control(start: Start, ref: Dump, dut: Dump, seed: int) -> Control:
    """Repeat one step of the dut with one element behind a random key moved by 1 ULP before it is
    hashed and used; the comparison with the ref must name exactly that key."""
    entry, index = _target(dut, seed, start.run.start)
    key = entry.key
    step = start.step_at(key.pos, inject=Injection(key, index))
    changed = Dump(dict(dut.header), {MAIN: step.entries}, dut.source)
    wanted = [other for other in ref.entries if other.key.pos == key.pos]
    tree = compare_dumps(Dump(dict(ref.header), {MAIN: wanted}, ref.source), changed)
    unit = "step" if entry.type is not None and entry.type.dtype in INTEGERS else "ULP"
    return Control("inject", tree.first == key.tag, key.tag, tree.first, index, unit)


def dump_control(ref: Dump, dut: Dump, seed: int) -> Control:
    """Change one hexadecimal digit in a copy of the dut's dump; the comparison must find it."""
    entry, index = _target(dut, seed, 0)
    shift = 4 * (index % 16)
    planted = replace(entry, digest=entry.digest ^ (1 << shift))
    segments = {
        name: [planted if other is entry else other for other in entries]
        for name, entries in dut.segments.items()
    }
    tree = compare_dumps(ref, Dump(dict(dut.header), segments, dut.source))
    return Control("dump level", tree.first == entry.key.tag, entry.key.tag, tree.first)


def _target(dut: Dump, seed: int, lowest: int) -> tuple[Entry, int]:
    """A key at or after position ``lowest`` and an element of it, drawn from ``seed``."""
    entries = [entry for entry in dut.entries if entry.key.pos >= lowest] or dut.entries
    draw, place = (int(word) for word in words(seed, "control", 0, 2))
    entry = entries[draw % len(entries)]
    size = 16
    if entry.type is not None:
        size = 1
        for side in entry.type.shape:
            size *= side
    return entry, place % size
