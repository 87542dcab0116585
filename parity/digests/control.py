"""Digest trees against what can run or be read: the control of a green search, and a running side.

The control plants a fault in a copy of what the dut gave; the search must find exactly its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.digests.key_layout import Place
from parity.digests.search import compare_trees, find_first
from parity.digests.tree import DigestTree, grow
from parity.dump import MAIN, Dump
from parity.dumps.table import Table
from parity.explain.drill import Start
from parity.model.generator import words
from parity.protocol import Injection
from parity.runs.control import INTEGERS
from parity.runs.run import Run, Side, run_side
from parity.runs.stability import confirm
from parity.status import Level, Verdict
from parity.tree import Control, Tree


@dataclass(frozen=True)
class Planted:
    """A dut with a fault in it: its tree, and where the fault is. ``unit``: what an element was
    moved by; "" where a digit of a digest was changed."""

    tree: DigestTree
    place: Place
    element: int | None = None
    unit: str = ""


def compare_written(ref: DigestTree, dut: DigestTree, given: Dump | None, seed: int) -> Tree:
    """The tree of a dut that was written before; ``given``: its dump, where that is at hand."""
    tree = compare_trees(ref, dut)
    if tree.verdict is Verdict.SAME:
        planted = plant_in_tree(dut, seed) if given is None else plant_in_dump(dut, given, seed)
        check_control(tree, ref, planted)
    return tree


def compare_running(ref: DigestTree, side: Side, run: Run, fed: Sequence[int], seed: int) -> Tree:
    """The tree of an engine that now runs, fed ``fed`` after the prompt (nothing: its choices)."""
    done = run_side(side, run, fed=fed or None)
    dut = _like(ref, done.dump)
    tree = compare_trees(ref, dut)
    if tree.verdict is Verdict.DIVERGED:
        confirm(tree, side, run, done)
    if tree.verdict is Verdict.SAME and side.has("inject"):
        start = Start(side, run, done.fed, done.start, done.end)
        check_control(tree, ref, plant_in_step(dut, start, done.dump, seed))
    elif tree.verdict is Verdict.SAME:
        check_control(tree, ref, plant_in_dump(dut, done.dump, seed))
    return tree


def grown_like(other: DigestTree | None, dump: Dump, *, bits: int, typed: bool) -> DigestTree:
    """The tree of ``dump``; without types where ``other``, which it meets, has none."""
    whole = other is None or not other.layout.untyped
    return grow(dump, bits=bits, typed=typed and whole)


def plant_in_tree(dut: DigestTree, seed: int) -> Planted:
    """One bit of every digest from a random key on is changed, as a change of that key would."""
    index, _ = _draw(dut, seed)
    links = [link ^ (at >= index) for at, link in enumerate(dut.links)]
    return Planted(replace(dut, links=links, whole=dut.whole ^ 1), dut.layout[index])


def plant_in_dump(dut: DigestTree, dump: Dump, seed: int) -> Planted:
    """One digit of a random key is changed in a copy of the dump, and the tree grown again."""
    index, digit = _draw(dut, seed)
    place = dut.layout[index]
    table = Table.of(dump.segments[place.segment])
    row = next(row for row in range(len(table)) if table.key(row) == place.key)
    digest = table[row].digest ^ (1 << 4 * (digit % 16))
    segments = {**dump.segments, place.segment: table.with_digest(row, digest)}
    return Planted(_like(dut, replace(dump, segments=segments)), place)


def plant_in_step(dut: DigestTree, start: Start, dump: Dump, seed: int) -> Planted:
    """One step of the dut again, with one element behind a random key moved before it is hashed
    and used."""
    index, draw = _draw(dut, seed)
    place = dut.layout[index]
    key = place.key
    entry = next(entry for entry in dump.entries if entry.key == key)
    size = 1
    for side in entry.type.shape if entry.type is not None else ():
        size *= side
    injection = Injection(key, draw % max(1, size))
    step = start.step_at(key.pos, inject=injection)
    others = [entry for entry in dump.entries if entry.key.pos != key.pos]
    changed = replace(dump, segments={MAIN: [*others, *step.entries]})
    unit = "step" if entry.type is not None and entry.type.dtype in INTEGERS else "ULP"
    return Planted(_like(dut, changed), place, injection.index, unit)


def check_control(tree: Tree, ref: DigestTree, planted: Planted) -> None:
    """Search for what is planted; where it is not found, nothing is proved."""
    place = find_first(ref, planted.tree).place
    found, key = None if place is None else place.key.tag, planted.place.key.tag
    kind = "inject" if planted.unit else "dump level"
    unit = planted.unit or "ULP"
    fired = place is not None and place[:2] == planted.place[:2]
    tree.control = Control(kind, fired, key, found, planted.element, unit)
    if not fired:
        tree.verdict, tree.level = Verdict.NOT_RUN, Level.NONE
        tree.reason = (
            f"the control did not fire: a fault planted at {key} was found at {found or 'nothing'}"
            "\nthe tap of the dut does not show what it computes: parity doctor"
        )


def _like(other: DigestTree, dump: Dump) -> DigestTree:
    return grown_like(other, dump, bits=other.bits, typed=True)


def _draw(dut: DigestTree, seed: int) -> tuple[int, int]:
    """A key of the tree and a number for the place in it, from ``seed``."""
    draw, place = (int(word) for word in words(seed, "control", 0, 2))
    return draw % len(dut), place
