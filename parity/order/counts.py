"""The tree of a sum by counting: which ones are gone when a large number meets its negative.

A query puts +big at leaf i, -big at leaf j and 1 at others. A one that is added to a partial sum
holding big is absorbed; one that comes in after +big and -big have met survives. So the answer
counts the ones outside the lowest common addition of i and j. That masks show a tree is the idea of
FPRev (arXiv 2411.00442).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parity.order.asking import Asker, NoTree, Reals
from parity.order.op import Carrying, Floats, SummingOp
from parity.order.parts import Part, Question, parts_of
from parity.order.tree import Ints, Tree

# Units that a format's sums count exactly; f32 could do 2^24, and no sum is as long as 2^22.
EXACT_COUNTS = {"f32": 1 << 22, "bf16": 256, "f16": 2048}
# A fused sum may keep bits below f32's last: big must hide all units of a sum from those as well.
HIDDEN_BITS = 24 + 4


@dataclass(frozen=True)
class Scale:
    """What stands for one and for big: weights beside a constant x (1 where terms are values)."""

    x: float
    unit: float
    big: float

    @property
    def hidden(self) -> int:
        """Units that an f32 partial sum holding big absorbs, all of them together."""
        return max(1, int(min(2.0**31, self.big / self.unit / 2.0**HIDDEN_BITS)))


# 2^100: over it products or an op's own scaling may leave f32; it hides ones from f64 as well.
# f16 reaches from 2^-24 (a subnormal) to below 2^16; the last is for ops that drop subnormals.
WIDE_RANGE = (Scale(1.0, 1.0, 2.0**100), Scale(1.0, 1.0, 2.0**60))
F16_RANGE = (
    Scale(1.0, 2.0**-24, 2.0**15),
    Scale(2.0**15, 2.0**-24, 2.0**15),
    Scale(2.0**15, 2.0**-14, 2.0**15),
)


class Counter:
    """Count queries of one op, in slices where its output cannot hold a large count.

    Raises NoTree for an op that does not count at all.
    """

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        op = asker.op
        self.n = op.n
        self.scale, self.slice = self._range(op)

    @property
    def x(self) -> Floats | None:
        """float32[n], the constant x of products, else None."""
        if self.asker.op.terms != "products":
            return None
        return np.full(self.n, self.scale.x, np.float32)

    @property
    def unit(self) -> float:
        """The value of one."""
        return self.scale.unit * (self.scale.x if self.asker.op.terms == "products" else 1.0)

    def survivors(self, questions: list[Question]) -> list[Ints]:
        """For each question int64[pairs]: the ones outside the lowest common addition of a pair.

        Raises NoTree for an answer that is no count.
        """
        parts = parts_of(questions, self.n, shared=isinstance(self.asker.op, Carrying))
        rows = _Rows(parts, self.slice, self.scale)
        counts = self.asker.ask(rows.count, rows.fill, self.x) / self.unit
        found = [np.zeros(len(question.left), np.int64) for question in questions]
        for first, part in rows.segments:
            count = counts[first : first + len(part.pairs)]
            _require_counts(count, part, len(part.ones))
            found[part.question][part.pairs] += count.astype(np.int64)
        return found

    def few(self, places: Ints, values: Reals) -> Reals:
        """float64[rows]: sums of few terms, given and answered in units."""
        fill = self.asker.entries(places, values * self.scale.unit)
        return self.asker.ask(len(places), fill, self.x) / self.unit

    def _range(self, op: SummingOp) -> tuple[Scale, int]:
        """The first scale at which the op is finite, and the longest slice that it counts."""
        problem = ""
        for self.scale in F16_RANGE if op.dtype == "f16" else WIDE_RANGE:
            pairs = np.array([[0, op.n - 1], [op.n // 2, 0], [op.n - 1, op.n // 2]])
            pairs = pairs[pairs[:, 0] != pairs[:, 1]]
            signs = np.array([[1.0, -1.0]]) * (self.scale.big / self.scale.unit)
            rest = self.few(pairs, np.repeat(signs, len(pairs), axis=0))
            if rest.any() or np.isnan(rest).any():
                first = rest[np.flatnonzero(rest != 0)[0]] * self.unit
                problem = problem or f"big and -big alone gave {first:.9g}"
                continue
            largest = min(self.scale.hidden, EXACT_COUNTS.get(op.out, EXACT_COUNTS["f32"]))
            for length in sorted({largest, *(c for c in (2048, 256, 16) if c < largest)})[::-1]:
                wrong = self._miscounted(length)
                if not wrong:
                    return self.scale, length
                problem = problem or wrong
        raise NoTree(problem)

    def _miscounted(self, length: int) -> str:
        """What is wrong with the counts of all units in slices of ``length``; "" nothing."""
        starts = np.arange(0, self.n, length)
        wanted = np.minimum(length, self.n - starts)

        def fill(first: int, last: int, w: Floats) -> None:
            for row, start in enumerate(starts[first:last]):
                w[row, start : start + length] = self.scale.unit

        counts = self.asker.ask(len(starts), fill, self.x) / self.unit
        wrong = np.flatnonzero(counts != wanted)
        return f"{wanted[wrong[0]]} ones gave {counts[wrong[0]]:.9g}" if wrong.size else ""


class _Rows:
    """The sums of parts of questions: for each slice of a part's ones, a row a pair."""

    def __init__(self, parts: Sequence[Part], length: int, scale: Scale) -> None:
        self.scale = scale
        self.segments: list[tuple[int, Part]] = []
        self.count = 0
        for part in parts:
            for at in range(0, max(len(part.ones), 1), length):
                self.segments.append((self.count, replace(part, ones=part.ones[at : at + length])))
                self.count += len(part.pairs)
        self.starts = np.array([start for start, _ in self.segments] or [0])

    def fill(self, first: int, last: int, w: Floats) -> None:
        """Sums first..last-1 into w, which is all zeros."""
        at = int(np.searchsorted(self.starts, first, side="right")) - 1
        while at < len(self.segments) and self.segments[at][0] < last:
            start, part = self.segments[at]
            low, high = max(start, first), min(start + len(part.pairs), last)
            if low < high:
                self._fill_pairs(
                    w[low - first : high - first], part, slice(low - start, high - start)
                )
            at += 1

    def _fill_pairs(self, w: Floats, part: Part, pairs: slice) -> None:
        ones = part.ones
        if 4 * len(ones) > w.shape[1]:  # most of the row: copying it is faster than to scatter
            row = np.zeros(w.shape[1], np.float32)
            row[ones] = self.scale.unit
            w[:] = row
        else:
            w[:, ones] = self.scale.unit
        every = np.arange(len(w))
        w[every, part.left[pairs]] = self.scale.big
        w[every, part.right[pairs]] = -self.scale.big


def _require_counts(counts: Reals, part: Part, most: int) -> None:
    wrong = ~((counts >= 0) & (counts <= most) & (counts == np.rint(counts)))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise NoTree(
            f"big at leaf {part.left[k]}, -big at leaf {part.right[k]}: "
            f"the answer is {counts[k]:.9g}, no count from 0 to {most}"
        )


@dataclass
class _Job:
    """Leaves whose part of the tree is not known yet: they hang below node ``into``.

    Either they are all under one operand of it, or under several (a fused sum); ``witness`` is a
    leaf under another operand of ``into``, and tells which. The whole sum has no witness.
    """

    leaves: Ints
    into: int
    witness: int | None


@dataclass
class _Growth:
    """Additions found so far: operands of each, as node numbers (leaves first)."""

    n: int
    children: list[list[int]] = field(default_factory=list)

    def new(self, operand: int) -> int:
        """A new addition with one operand as yet."""
        self.children.append([operand])
        return self.n + len(self.children) - 1


def tree_by_counts(counter: Counter, rng: np.random.Generator) -> Tree:
    """The tree, near n log n queries: each open set of leaves picks a pivot and asks for its lowest
    common addition with every other. Leaves of one answer hang at one addition, and are a new set.

    Raises NoTree where counts contradict each other.
    """
    if counter.n == 1:
        return Tree(1, ())
    growth = _Growth(counter.n)
    top: list[int] = []
    jobs = [_Job(np.arange(counter.n), -1, None)]
    while jobs:
        pivots = [int(job.leaves[rng.integers(len(job.leaves))]) for job in jobs]
        asked = [_question(job, pivot) for job, pivot in zip(jobs, pivots, strict=True)]
        found = counter.survivors(asked)
        later: list[_Job] = []
        for job, pivot, question, counts in zip(jobs, pivots, asked, found, strict=True):
            node, more = _grown(growth, job, pivot, question, len(question.ones) - counts)
            (top if job.into < 0 else growth.children[job.into - growth.n]).append(node)
            later += more
        jobs = later
    return Tree.joined(growth.n, growth.children)


def _question(job: _Job, pivot: int) -> Question:
    """The pivot with every other leaf of the set, over the set and its witness."""
    others = job.leaves[job.leaves != pivot]
    ones = job.leaves if job.witness is None else np.append(job.leaves, job.witness)
    return Question(np.full(len(others), pivot), others, ones)


def _grown(
    growth: _Growth, job: _Job, pivot: int, question: Question, sizes: Ints
) -> tuple[int, list[_Job]]:
    """The operand of ``job.into`` that holds the pivot, and the sets still open.

    ``sizes``: for each other leaf, how many of the question's ones are under its lowest common
    addition with the pivot; all of them, the witness too: another operand of ``job.into``.
    """
    order = np.argsort(sizes, kind="stable")
    levels, firsts = np.unique(sizes[order], return_index=True)
    node, below = pivot, 1
    jobs: list[_Job] = []
    for size, group in zip(levels, np.split(question.right[order], firsts[1:]), strict=True):
        if job.witness is not None and size == len(question.ones):
            jobs.append(_Job(group, job.into, job.witness))
            size -= 1  # the witness is no leaf of the set
        else:
            node = growth.new(node)
            jobs.append(_Job(group, node, pivot))
        if below + len(group) != size:
            raise NoTree(_misfit(pivot, group, int(size), below + len(group)))
        below += len(group)
    return node, _settled(growth, jobs)


def _settled(growth: _Growth, jobs: list[_Job]) -> list[_Job]:
    """The sets that need questions; a set of one leaf is an operand at once."""
    for job in jobs:
        if len(job.leaves) == 1:
            growth.children[job.into - growth.n].append(int(job.leaves[0]))
    return [job for job in jobs if len(job.leaves) > 1]


def _misfit(pivot: int, group: Ints, said: int, found: int) -> str:
    return (
        f"leaf {pivot} and leaf {group[0]} meet in an addition of {said} leaves by their count, "
        f"but {found} leaves count that few or fewer with leaf {pivot}"
    )
