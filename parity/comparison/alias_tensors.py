"""Aliases where both sides hold values: fused and split tensors are compared by their bytes.

The dut is brought into the ref's keys: a tensor that the dut fused is cut into the ref's parts, and
tensors that it split are put together, along the one axis on which the shapes fit, else in flat
order. Each then has a digest of its own and compares like any other key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import prod

import numpy as np

from parity.comparison.alias import Aliased, Joined, Rule, apart_by, joined, rename
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.table import Table
from parity.dumps.tensor_files import Loader, Tensor
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key

Shape = tuple[int, ...]
FLAT = -1  # in place of an axis: elements in C order


def apply_to_tensors(
    rules: Sequence[Rule], ref: Dump, dut: Dump, load: Loader
) -> tuple[Aliased, Loader]:
    """Bring the dut's tensors into the ref's keys; raises as ``alias.apply_aliases`` does.

    ``load`` gives the dut's tensors by their own names; the loader returned, by the ref's. Where
    no shape fits, the keys are set apart.
    """
    given = rename(rules, ref, dut)
    renamed = Table.of(given.dut.segments[MAIN])
    own = Table.of(dut.segments[MAIN])
    made = _Made(
        {renamed.key(row).tag: partial(load, own.key(row).tag) for row in range(len(renamed))}
    )
    refs = Table.of(ref.segments[MAIN])
    notes = list(given.notes)
    puts_together = [rule for rule in rules if not rule.renames]
    for rule in puts_together:
        for found in joined(rule, refs, renamed):
            for pos in found.positions.tolist():
                made.join(rule, *_entries(found, refs, renamed, pos), BASES[dut.hash_name])
        notes += made.told(rule)
    segments = {MAIN: made.in_place(renamed)}
    rebuilt = replace(given.dut, segments=segments)
    # Keys that were joined are gone from the dut: only where no shape fits is anything set apart.
    return Aliased(rebuilt, notes, apart_by(puts_together)), lambda name: made.loaders[name]()


def axis_of(whole: Shape, parts: Sequence[Shape]) -> int | None:
    """The axis along which ``parts`` one after another have the shape ``whole``.

    FLAT where only the number of elements fits, None where not even that does.
    """
    for axis in range(len(whole)):
        around = (whole[:axis], whole[axis + 1 :])
        fits = all(
            len(part) == len(whole) and (part[:axis], part[axis + 1 :]) == around for part in parts
        )
        if fits and sum(part[axis] for part in parts) == whole[axis]:
            return axis
    return FLAT if sum(map(prod, parts)) == prod(whole) else None


def cut(whole: np.ndarray, parts: Sequence[Shape], axis: int) -> list[np.ndarray]:
    """``whole`` as arrays of the shapes ``parts``, along ``axis`` (see ``axis_of``)."""
    sizes = [prod(part) if axis == FLAT else part[axis] for part in parts]
    ends = np.cumsum([0, *sizes]).tolist()
    along = whole.reshape(-1) if axis == FLAT else np.moveaxis(whole, axis, 0)
    pieces = [along[begin:end] for begin, end in pairwise(ends)]
    if axis == FLAT:
        return [piece.reshape(part) for piece, part in zip(pieces, parts, strict=True)]
    return [np.moveaxis(piece, 0, axis) for piece in pieces]


def put_together(parts: Sequence[np.ndarray], whole: Shape, axis: int) -> np.ndarray:
    """``parts`` one after another along ``axis``, as an array of the shape ``whole``."""
    if axis == FLAT:
        return np.concatenate([part.reshape(-1) for part in parts]).reshape(whole)
    return np.concatenate(parts, axis)


@dataclass
class _Made:
    """The dut's tensors by the ref's names, and what took the place of which keys."""

    loaders: dict[str, Callable[[], Tensor]]
    gone: set[Key] = field(default_factory=set)
    instead: dict[Key, list[Entry]] = field(default_factory=dict)  # by the first key gone
    along: dict[Rule, Counter[int]] = field(default_factory=dict)  # axis: keys of the dut
    unfit: Counter[Rule] = field(default_factory=Counter)

    def join(self, rule: Rule, refs: list[Entry], duts: list[Entry], basis: int) -> None:
        """Compare the keys ``refs`` and ``duts`` of one position as one, where their shapes fit."""
        shapes = [[_type(entry).shape for entry in side] for side in (refs, duts)]
        dtypes = {_type(entry).dtype for entry in duts}
        fused = len(rule.dut) == 1
        axis = axis_of(shapes[1][0], shapes[0]) if fused else axis_of(shapes[0][0], shapes[1])
        if axis is None or len(dtypes) > 1:
            self.unfit[rule] += len(refs) + len(duts)
            return
        loads = [self.loaders[entry.key.tag] for entry in duts]
        for at, entry in enumerate(refs):
            load = (
                partial(_part, loads[0], shapes[0], axis, at)
                if fused
                else partial(_whole, loads, shapes[0][0], axis)
            )
            self.loaders[entry.key.tag] = load
            tensor = load()
            kind = TensorType(tensor.dtype, tensor.array.shape)
            made = Entry(entry.key, fnv1a64_array(tensor.array, basis), kind)
            self.instead.setdefault(duts[0].key, []).append(made)
        self.gone.update(entry.key for entry in duts)
        self.along.setdefault(rule, Counter())[axis] += len(duts)

    def in_place(self, table: Table) -> list[Entry]:
        """Entries of the dut, the new ones in the place of those they were made of."""
        made: list[Entry] = []
        for entry in table:
            made += self.instead.get(entry.key, [])
            if entry.key not in self.gone:
                made.append(entry)
        return made

    def told(self, rule: Rule) -> list[str]:
        """What was done under ``rule``, one line each."""
        each = len(rule.dut)
        lines = [
            f"{rule}: {keys:,} keys of the dut compared as {keys // each * len(rule.ref):,}, "
            + ("in flat order" if axis == FLAT else f"along axis {axis}")
            for axis, keys in self.along.get(rule, Counter()).items()
        ]
        if self.unfit[rule]:
            lines.append(f"{rule}: {self.unfit[rule]:,} keys not comparable: no shape fits")
        return lines


def _entries(found: Joined, refs: Table, duts: Table, pos: int) -> tuple[list[Entry], list[Entry]]:
    """Entries of ref and of dut at one position, in the rule's order."""
    ref, dut = (
        [table[int(np.flatnonzero((table.place == at) & (table.pos == pos))[0])] for at in places]
        for table, places in ((refs, found.refs), (duts, found.duts))
    )
    return ref, dut


def _type(entry: Entry) -> TensorType:
    assert entry.type is not None  # a tensor file's always has one
    return entry.type


def _part(load: Callable[[], Tensor], parts: list[Shape], axis: int, at: int) -> Tensor:
    whole = load()
    return Tensor(cut(whole.array, parts, axis)[at], whole.dtype)


def _whole(loads: list[Callable[[], Tensor]], whole: Shape, axis: int) -> Tensor:
    parts = [load() for load in loads]
    return Tensor(put_together([part.array for part in parts], whole, axis), parts[0].dtype)
