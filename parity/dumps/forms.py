"""What the steps of a run tell alike: keys but for their position, and types.

An engine hands over digests; the entries of a step are a ``Table``, which makes them when somebody
looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.dump import TensorType
from parity.dumps.table import Kinds, Places, Table
from parity.errors import ParityBug
from parity.keys import Key, KeyOrder

Where = tuple[int | None, str]  # layer and field


@dataclass(frozen=True, eq=False)
class Form:
    """The records of one row of a forward. ``at`` int64[n]: which of the values that the forward
    offers they are, in dataflow order; the others as in a Table."""

    at: np.ndarray
    place: np.ndarray
    kind: np.ndarray
    places: list[Key]
    kinds: list[TensorType | None]

    def table(
        self, pos: int, digests: np.ndarray, nonfinite: Mapping[int, tuple[int, int]]
    ) -> Table:
        """The row's records at position ``pos``: digests uint64[N] and ``nonfinite`` are of all the
        values that the forward offered. Nothing given is shared with the table."""
        positions = np.full(len(self.at), pos, np.int32)
        copied, told = digests[self.at], {}
        if nonfinite:
            mine = enumerate(self.at.tolist())
            told = {row: nonfinite[at] for row, at in mine if at in nonfinite}
        return Table(positions, self.place, copied, self.kind, self.places, self.kinds, told)


class Forms:
    """The forms of a forward's rows, made anew when it offers other values than the one before."""

    def __init__(self) -> None:
        self._latest: tuple[object, ...] = ()
        self._forms: list[Form] = []

    def of(
        self,
        rows: Sequence[int | None],
        where: Sequence[Where],
        kinds: Sequence[TensorType],
        count: int,
    ) -> list[Form]:
        """One form for each of ``count`` rows, from the row, the place and the type of every value
        in the order of offering; None for a row: a value that is not told."""
        latest = (rows, where, kinds, count)
        if latest != self._latest:
            self._forms = _made(rows, where, kinds, count)
            self._latest = latest
        return self._forms


def _made(
    rows: Sequence[int | None], where: Sequence[Where], kinds: Sequence[TensorType], count: int
) -> list[Form]:
    order = KeyOrder()
    told: list[list[int]] = [[] for _ in range(count)]
    for at in sorted(range(len(where)), key=lambda at: order(Key(0, *where[at]))):
        row = rows[at]
        if row is not None and not 0 <= row < count:
            raise ParityBug(f"{where[at]} of row {row}: a forward of {count} rows has none")
        if row is not None:
            told[row].append(at)
    forms: list[Form] = []
    before: list[tuple[Where, TensorType]] | None = None
    for each in told:
        items = [(where[at], kinds[at]) for at in each]
        # Rows that tell the same share their columns, and so does what is made of them.
        form = replace(forms[-1], at=np.array(each, np.int64)) if items == before else None
        forms.append(form or _form(each, items))
        before = items
    return forms


def _form(at: list[int], items: Sequence[tuple[Where, TensorType]]) -> Form:
    places, kinds = Places(), Kinds()
    place = np.array([places.id_of(Key(0, *where)) for where, _ in items], np.int32)
    kind = np.array([kinds.id_of(kind) for _, kind in items], np.int32)
    for column in (place, kind):
        column.flags.writeable = False  # every step of the form has these
    return Form(np.array(at, np.int64), place, kind, places.keys, kinds.types)
