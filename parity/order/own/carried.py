"""Sums whose weights hold few values: what a weight cannot hold is carried by the other factor.

A Q4_0 weight is -8 to 7 times its block's scale, a stored V an int8: neither holds the 1, the
large number and its negative of one probe. So the probe's size stands in x, a batch row or a cached
scale, and the weight tells the sign. Probes whose weights can be held as they are share one x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import Floats

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]
# xs (carriers, n), weight rows (any number, n) that the op can hold, and which of these stands in
# each slot, (carriers, slots): the sums, (carriers, slots).
Carry = Callable[[Floats, Floats, Ints], npt.NDArray[Any]]


@dataclass
class CarriedOp:
    """A ``SummingOp`` with ``carriers`` different x in one call, each met by ``slots`` weight rows.

    ``holds``: of a weight array, which values the op can hold. ``levels``: small integers that it
    can, whose products are not all exact: what probes for fused products may use.
    """

    name: str
    n: int
    carriers: int
    slots: int
    terms: str
    carry: Carry
    holds: Callable[[Floats], Bools]
    levels: tuple[int, ...]
    key: dict[str, str]
    dtype: str = "f32"
    out: str = "f32"
    turn: int = field(default=0, repr=False)

    @property
    def rows(self) -> int:
        """Sums of one call."""
        return self.carriers * self.slots

    def run(self, x: Floats | None, w: Floats) -> npt.NDArray[Any]:
        """The op's sum for each row of w, (any number, n) float32."""
        xs, held = self._split(x, w)
        groups = _groups(xs, held, self.slots)
        found = np.empty(len(w), np.float32)
        for at in range(0, len(groups), self.carriers):
            self._call(held, groups[at : at + self.carriers], found)
        return found

    def _call(self, held: Floats, groups: list[_Group], found: Floats) -> None:
        """One call; what it has room for beside the groups repeats them. Which of the repeats
        answers changes with every call, so that all places of the op are looked at."""
        count = len(groups)
        turns = np.arange(self.carriers) % count
        rows = np.stack([np.resize(group.rows, self.slots) for group in groups])[turns]
        used, places = np.unique(rows, return_inverse=True)
        xs = np.stack([group.x for group in groups])[turns]
        sums = self.carry(xs, held[used], places.reshape(rows.shape))
        self.turn += 1
        for number, group in enumerate(groups):
            carriers = range(number, self.carriers, count)
            carrier = carriers[self.turn % len(carriers)]
            for place, row in enumerate(group.rows):
                slots = range(place, self.slots, len(group.rows))
                found[row] = sums[carrier, slots[self.turn % len(slots)]]

    def _split(self, x: Floats | None, w: Floats) -> tuple[Floats, Floats]:
        """x and w of each row with the same products, and weights that the op holds."""
        factor = np.ones(self.n, np.float32) if x is None else x
        xs = np.broadcast_to(factor, w.shape).copy()
        held = w.copy()
        lacking = np.flatnonzero(~self.holds(w).all(axis=1))
        if lacking.size:
            xs[lacking], held[lacking] = self._moved(xs[lacking], w[lacking])
        return xs, held

    def _moved(self, x: Floats, w: Floats) -> tuple[Floats, Floats]:
        """The products as x times 1, 0 or -1; ParityBug for one that float32 does not hold."""
        exact = x.astype(np.float64) * w
        product = exact.astype(np.float32)
        if (product != exact).any():
            raise ParityBug(f"{self.name}: a probe's product cannot be carried by x")
        return np.abs(product), np.sign(product)


@dataclass
class _Group:
    """Rows that share one x. ``asked``: where one of them has a weight; elsewhere x may be any."""

    rows: list[int]
    x: Floats
    asked: Bools

    def takes(self, x: Floats, asked: Bools) -> bool:
        """Whether a row has the same x wherever it and the group have a weight."""
        return not (asked & self.asked & (x != self.x)).any()

    def add(self, row: int, x: Floats, asked: Bools) -> None:
        """One row more."""
        self.rows.append(row)
        self.x[asked] = x[asked]
        self.asked |= asked


def _groups(xs: Floats, held: Floats, slots: int) -> list[_Group]:
    """Rows in groups of at most ``slots``: those that follow each other and can share an x. A row
    that stands there twice (the asker compares the two) is in one group, at two slots."""
    groups: list[_Group] = []
    homes: dict[bytes, _Group] = {}
    for row, (x, w) in enumerate(zip(xs, held, strict=True)):
        asked = w != 0
        key = x.tobytes() + w.tobytes()
        group = homes.get(key, groups[-1] if groups else None)
        if group is None or len(group.rows) == slots or not group.takes(x, asked):
            group = _Group([], x.copy(), np.zeros(len(x), np.bool_))
            groups.append(group)
        group.add(row, x, asked)
        homes[key] = group
    return groups
