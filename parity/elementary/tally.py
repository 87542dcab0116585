"""Counts of two functions compared over float32 inputs: what a sweep adds up, pair by pair.

A tally is one array of int64. Counts of two parts are added, the largest distances compared, the
rows merged by rank: so neither chunks nor threads nor the order of the parts can change a tally of
all pairs. Whoever fills one (Numba, a CUDA kernel) uses the layout below.

===========  =======  ==============================================================================
EQUAL        1        pairs with the same bits
OUTSIDE      2        results beyond 1 in size, by ref and by dut (counted for cosf and sinf alone)
KINDS        5        differing pairs that have no plain distance, in the order of ``KINDS``
BELOW        33       differing pairs with the dut the smaller, by bin of the distance
ABOVE        33       the same with the dut the larger
RESULTS      25       all pairs, by class of the ref's result, then of the dut's
INPUTS       5        all pairs, by class of the input
PAIRS        512      all pairs, by the input's sign and exponent (its upper nine bits)
DIFFER       512      differing pairs, likewise
LARGEST      512      the largest distance, likewise; 0 where no distance was measured
ROWS         9 x 8    (rank, input, ref, dut) of the lists named in ``LISTS``; EMPTY ranks last
===========  =======  ==============================================================================

Distances are those of comparison/elements.py: between bit patterns ordered as their values are. Bin
b holds distances of 2^(b-1) + 1 to 2^b, bin 0 the distance 1. The list of the worst is ranked by
distance, every other by input as an unsigned number; equals stand by input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt

from parity.comparison.elements import KINDS as ELEMENT_KINDS
from parity.errors import ParityBug

CLASSES = ("NaN", "inf", "zero", "subnormal", "normal")
KINDS = ELEMENT_KINDS[1:]  # all but a plain value
LISTS = ("first", "worst", *KINDS, "ref beyond 1", "dut beyond 1")
BINS = 33  # the largest distance is below 2^32
KEEP = 8  # rows of one list
COLUMNS = 4  # rank, input, ref, dut
EXPONENTS = 512  # sign and exponent of a float32
EVERY_FLOAT = 1 << 32
EMPTY = 1 << 40  # rank of a row that holds nothing
INFINITY_BITS = 0x7F800000

_SIZES = (1, 2, len(KINDS), BINS, BINS, len(CLASSES) ** 2, len(CLASSES), *[EXPONENTS] * 3)
EQUAL, OUTSIDE, KIND, BELOW, ABOVE, RESULTS, INPUTS, PAIRS, DIFFER, LARGEST, ROWS = (
    0,
    *accumulate(_SIZES),
)
SIZE = ROWS + len(LISTS) * KEEP * COLUMNS

Bits = npt.NDArray[np.uint32]
Words = npt.NDArray[np.int64]


def bin_names() -> list[str]:
    """``1``, ``2``, ``3 to 4``, ``5 to 8``, ... in the order of the bins."""
    tops = [1 << place for place in range(BINS)]
    names = [f"{top // 2 + 1:,} to {top:,}" if top > 2 else str(top) for top in tops]
    return names


def empty_words() -> Words:
    """A tally of no pairs: (SIZE,) int64."""
    words = np.zeros(SIZE, np.int64)
    words[ROWS:].reshape(-1, COLUMNS)[:, 0] = EMPTY
    return words


@dataclass(frozen=True)
class Row:
    """One input with both results, as bit patterns."""

    x: int
    ref: int
    dut: int


class Tally:
    """A view of ``words`` by name."""

    def __init__(self, words: Words | None = None) -> None:
        self.words: Words = empty_words() if words is None else words

    @property
    def pairs(self) -> int:
        """All pairs."""
        return int(self.results.sum())

    @property
    def equal(self) -> int:
        """Pairs with the same bits."""
        return int(self.words[EQUAL])

    @property
    def outside(self) -> tuple[int, int]:
        """Results beyond 1 in size: by ref, by dut."""
        return int(self.words[OUTSIDE]), int(self.words[OUTSIDE + 1])

    @property
    def kinds(self) -> Words:
        """(5,) differing pairs without a plain distance."""
        return self.words[KIND:BELOW]

    @property
    def below(self) -> Words:
        """(33,) pairs with the dut the smaller."""
        return self.words[BELOW:ABOVE]

    @property
    def above(self) -> Words:
        """(33,) pairs with the dut the larger."""
        return self.words[ABOVE:RESULTS]

    @property
    def results(self) -> Words:
        """(5, 5) pairs by class of the ref's result, then of the dut's."""
        return self.words[RESULTS:INPUTS].reshape(len(CLASSES), -1)

    @property
    def inputs(self) -> Words:
        """(5,) pairs by class of the input."""
        return self.words[INPUTS:PAIRS]

    @property
    def by_exponent(self) -> tuple[Words, Words, Words]:
        """(512,) each: pairs, differing pairs and the largest distance."""
        words = self.words
        return words[PAIRS:DIFFER], words[DIFFER:LARGEST], words[LARGEST:ROWS]

    def rows(self, name: str) -> list[Row]:
        """The list ``name`` of LISTS, in its order."""
        place = ROWS + LISTS.index(name) * KEEP * COLUMNS
        found = self.words[place : place + KEEP * COLUMNS].reshape(KEEP, COLUMNS)
        return [Row(*map(int, row[1:])) for row in found if row[0] != EMPTY]

    def add(self, parts: Sequence[Words]) -> None:
        """Add other tallies to this one."""
        words = self.words
        for part in parts:
            words[:LARGEST] += part[:LARGEST]
            words[LARGEST:ROWS] = np.maximum(words[LARGEST:ROWS], part[LARGEST:ROWS])
        for place in range(ROWS, SIZE, KEEP * COLUMNS):
            _merge_rows(words, parts, slice(place, place + KEEP * COLUMNS))

    def add_inputs(self, bits: Bits) -> None:
        """Count inputs that stand in no order: (n,) uint32 bit patterns."""
        exponents = np.bincount(bits >> np.uint32(23), minlength=EXPONENTS)
        size = bits & np.uint32(0x7FFFFFFF)
        self._count_inputs(
            exponents, int((size == 0).sum()), int((size == np.uint32(INFINITY_BITS)).sum())
        )

    def add_range(self, start: int, stop: int) -> None:
        """Count the inputs whose bit patterns are ``start`` to ``stop - 1``."""
        edges = np.arange(EXPONENTS + 1, dtype=np.int64) << 23
        inside = np.clip(edges, start, stop)
        zeros, infinities = (
            sum(start <= sign | size < stop for sign in (0, 1 << 31)) for size in (0, INFINITY_BITS)
        )
        self._count_inputs(np.diff(inside), zeros, infinities)

    def _count_inputs(self, exponents: Words, zeros: int, infinities: int) -> None:
        self.words[PAIRS:DIFFER] += exponents
        low, high = (int(exponents[[at, 256 + at]].sum()) for at in (0, 255))
        special = (high - infinities, infinities, zeros, low - zeros)
        self.words[INPUTS : PAIRS - 1] += special
        self.words[PAIRS - 1] += int(exponents.sum()) - sum(special)

    def check(self, pairs: int) -> None:
        """Raise ParityBug unless every way of counting gives ``pairs``."""
        by_exponent, differing, _ = self.by_exponent
        binned = int(self.below.sum() + self.above.sum() + self.kinds.sum())
        classes = self.results
        sums = {
            "classes of results": int(classes.sum()),
            "classes of inputs": int(self.inputs.sum()),
            "exponents": int(by_exponent.sum()),
            "equal pairs and bins": self.equal + binned,
            "equal pairs and exponents that differ": self.equal + int(differing.sum()),
        }
        for what, total in sums.items():
            if total != pairs:
                raise ParityBug(f"tally: {what} add up to {total:,}, not to {pairs:,} pairs")
        if (self.words[:LARGEST] < 0).any():
            raise ParityBug("tally: a count is negative")


class PairSource(Protocol):
    """Makes and counts the pairs of a sweep. ``where``: the memory they lie in, "host" or "device".
    ``chunk``: how many it takes at a time, unless the user says so."""

    where: str
    chunk: int

    def add_range(self, start: int, count: int) -> None:
        """Count the inputs of ``count`` bit patterns from ``start`` on, all below 2^32."""
        ...

    def move_to(self, total: Tally) -> None:
        """Add what was counted to ``total``, but for its inputs, and start again from nothing."""
        ...


def _merge_rows(words: Words, parts: Sequence[Words], place: slice) -> None:
    """Keep the best rows of one list; an input that two parts hold is kept once."""
    found = np.concatenate([words[place], *(part[place] for part in parts)]).reshape(-1, COLUMNS)
    found = found[found[:, 0] != EMPTY]
    ordered = found[np.lexsort((found[:, 3], found[:, 2], found[:, 1], found[:, 0]))]
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered[1:, :2] != ordered[:-1, :2]).any(axis=1)
    best = ordered[new][:KEEP]
    words[place].reshape(-1, COLUMNS)[: len(best)] = best
