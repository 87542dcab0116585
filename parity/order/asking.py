"""Asking an op for sums: every call is made at its true shape, and every place of it answers.

The sums of one call stand in a random rotation of the op's rows, and rows that a call has left over
repeat others: so where the op treats one place unlike another, the same sum is seen to come out
twice, and the study ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from parity.errors import InputError
from parity.order.op import Exceeding, Finishing, Flags, Floats, Numbers, Repeating, SummingOp
from parity.order.tree import Ints

# fill(first, last, w): writes the sums first..last-1 into w, float32[last - first, n] of zeros.
Fill = Callable[[int, int, Floats], None]
Reals = npt.NDArray[np.float64]


class NoTree(Exception):
    """The answers contradict each other, or no count: ``args`` say how, in words."""


class Asker:
    """An op's calls, counted. ``rng`` decides which row of the op answers which sum."""

    def __init__(self, op: SummingOp, rng: np.random.Generator) -> None:
        self.op, self.rng = op, rng
        self.probes = self.calls = 0
        calls = op.calls if isinstance(op, Repeating) else 1
        # One buffer for all calls: fresh pages cost more than what is written to them.
        self._w = np.zeros((calls * op.rows, op.n), np.float32)

    def ask(self, count: int, fill: Fill, x: Floats | None = None) -> Reals:
        """float64[count]: the op's answer to each of ``count`` sums.

        Raises NoTree where the same sum comes out unlike at two places.
        """
        return self._asked(count, fill, lambda w: self.op.run(x, w))

    def exceeds(self, count: int, fill: Fill, big: float) -> Flags:
        """bool[count]: is each sum (of squares) larger than ``big``?"""
        op = self.op
        if isinstance(op, Exceeding):
            found = self._asked(count, fill, lambda w: op.exceeds(w, big))
        elif isinstance(op, Finishing):
            raise InputError(
                f"op {op.name}: its sums are not shown, and it has no exceeds()",
                "give the op exceeds(w, big) as in parity.order.op.Exceeding",
            )
        else:
            found = self.ask(count, fill) - big
        larger: Flags = found > 0
        return larger

    def entries(self, places: Ints, values: Reals) -> Fill:
        """A fill of few terms a sum: ``values[r, k]`` added at leaf ``places[r, k]``."""

        def fill(first: int, last: int, w: Floats) -> None:
            rows = np.arange(last - first)
            for k in range(places.shape[1]):  # two places of one row may be the same leaf
                w[rows, places[first:last, k]] += values[first:last, k]

        return fill

    def _asked(self, count: int, fill: Fill, call: Callable[[Floats], Numbers]) -> Reals:
        answers = np.empty(count)
        for first in range(0, count, len(self._w)):
            last = min(count, first + len(self._w))
            answers[first:last] = self._run(first, last, fill, call)
        self.probes += count
        return answers

    def _run(self, first: int, last: int, fill: Fill, call: Callable[[Floats], Numbers]) -> Reals:
        """The sums first..last-1, which stand in as few calls as have room for them."""
        rows, count = self.op.rows, last - first
        calls = -(-count // rows)
        # The k-th sum of a call stands in its row (turn + k), all of them going round.
        turns = self.rng.integers(rows, size=calls)
        rounds = (turns[:, None] + np.arange(rows)) % rows
        places = (np.arange(calls)[:, None] * rows + rounds).reshape(-1)
        w = self._w[: len(places)]
        self._fill(w, (first, last), turns, fill)
        used = count - (calls - 1) * rows  # of the last call; its other rows repeat these
        same = places[len(places) - rows + np.arange(rows) % used]
        w[places[count:]] = w[same[used:]]
        found = self._called(w, call)
        unlike = np.flatnonzero(_bits(found[places[count:]]) != _bits(found[same[used:]]))
        if unlike.size:
            k, begin = used + int(unlike[0]), len(places) - rows
            late, early = int(places[begin + k]) - begin, int(same[k]) - begin
            raise NoTree(self._told(found[begin:], w[begin:], (late, early), call))
        return found[places[:count]]

    def _told(
        self, found: Reals, w: Floats, rows: tuple[int, int], call: Callable[[Floats], Numbers]
    ) -> str:
        """Two rows of a call hold the same sum and answered unlike; what all rows say to it."""
        late, early = rows
        said = (
            f"the same sum came out unlike in two rows of one call: row {late} gave "
            f"{found[late]:.9g}, row {early} gave {found[early]:.9g}; "
        )
        w[:] = w[early].copy()
        answers = self._called(w, call)
        values, which, counts = np.unique(answers, return_inverse=True, return_counts=True)
        most = int(np.argmax(counts))
        others = np.flatnonzero(which != most)
        if not others.size:
            return said + f"asked once more, all rows gave {values[most]:.9g}"
        listed = ", ".join(map(str, others[:4])) + (", ..." if len(others) > 4 else "")
        return said + (
            f"asked of all rows, {counts[most]} gave {values[most]:.9g} and {len(others)} did not: "
            f"{listed}"
        )

    def _fill(self, w: Floats, sums: tuple[int, int], turns: Ints, fill: Fill) -> None:
        """The sums first..last-1 into the rows of w, of each call from its turn on, then from 0."""
        (begin, last), rows = sums, self.op.rows
        w.fill(0)
        if rows == 1:  # no turns, and many calls
            fill(begin, last, w)
            return
        for at, turn in zip(range(0, len(w), rows), turns.tolist(), strict=True):
            for first, end in ((turn, rows), (0, turn)):
                stop = min(last, begin + end - first)
                if begin < stop:
                    fill(begin, stop, w[at + first : at + first + stop - begin])
                begin = stop

    def _called(self, w: Floats, call: Callable[[Floats], Numbers]) -> Reals:
        """float64[rows of w]: where every sum is made M times, all M must be the same."""
        rows = self.op.rows
        self.calls += len(w) // rows
        with np.errstate(all="ignore"):
            answers = np.asarray(call(w))
        _require_shape(self.op, answers, len(w))
        wide = answers.astype(np.float64)
        if wide.ndim == 1:
            return wide
        unlike = np.argwhere(_bits(wide) != _bits(wide[:, :1]))
        if len(unlike):
            row, column = (int(v) for v in unlike[0])
            raise NoTree(
                f"row {row % rows}: batch row {column} gave {wide[row, column]:.9g} and batch row "
                f"0 {wide[row, 0]:.9g} for the same sum"
            )
        return wide[:, 0]


def random_leaves(rng: np.random.Generator, groups: Sequence[Ints]) -> Ints:
    """int64[groups]: one leaf of each group."""
    chosen = rng.integers(np.array([len(group) for group in groups], np.int64))
    return np.array([group[k] for group, k in zip(groups, chosen, strict=True)], np.int64)


def _bits(values: Reals) -> Ints:
    return np.ascontiguousarray(values).view(np.int64)


def _require_shape(op: SummingOp, answers: Numbers, rows: int) -> None:
    wanted = answers.ndim in (1, 2) and len(answers) == rows and answers.size
    if not wanted or answers.dtype.kind not in "fb":
        raise InputError(
            f"op {op.name} returned {answers.dtype}{list(answers.shape)} for {rows} rows",
            f"return float32 or float64 [{rows}], or [{rows}, M]",
        )
