"""``parity.elementary.tally`` in Numba: pairs that lie in host memory, counted on all threads.

Integers only: a result is its bit pattern, and nothing here rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from parity.elementary import tally
from parity.elementary.tally import COLUMNS, KEEP, Tally, empty_words

F = TypeVar("F", bound=Callable[..., Any])
Bits = npt.NDArray[np.uint32]

BLOCK = 4096  # pairs of one cheap pass: 32 KB of results, as much as a core keeps at hand
# Where each count stands. An argument, as compiled code is kept on disk: a layout that changes in
# another file must not meet code that knows the old one.
LAYOUT = (
    *(tally.EQUAL, tally.OUTSIDE, tally.KIND, tally.BELOW, tally.ABOVE, tally.RESULTS),
    *(tally.DIFFER, tally.LARGEST, tally.ROWS),
)
_ABS, _SIGN, _INF = np.uint32(0x7FFFFFFF), np.uint32(0x80000000), np.uint32(0x7F800000)
_MIN_NORMAL, _ONE, _ZERO = np.uint32(0x00800000), np.uint32(0x3F800000), np.uint32(0)
_U23 = np.uint32(23)


def _compiled(parallel: bool) -> Callable[[F], F]:
    """Compile, and keep the code on disk where there is a folder that can be written."""

    def decorate(function: F) -> F:
        options: dict[str, Any] = {"parallel": parallel, "nogil": True}
        try:
            made: Any = numba.njit(cache=True, **options)(function)
        except RuntimeError:
            made = numba.njit(**options)(function)
        return cast(F, made)

    return decorate


class PairCounter:
    """Counts pairs, chunk by chunk. ``bounded``: count results beyond 1 in size as well."""

    def __init__(self, bounded: bool) -> None:
        self._bounded = bounded
        self._parts = np.stack([empty_words() for _ in range(get_num_threads())])

    def add(self, x: Bits, ref: Bits, dut: Bits) -> None:
        """Count (n,) pairs of results, with their inputs, all as bit patterns."""
        count_pairs(self._parts, LAYOUT, x, ref, dut, self._bounded)

    def move_to(self, total: Tally) -> None:
        """Add what was counted to ``total``, and start again from nothing."""
        total.add(list(self._parts))
        self._parts[:] = empty_words()


@_compiled(parallel=False)
def class_of(size: Any) -> Any:
    """Place in CLASSES of a result whose bits without the sign are ``size``."""
    if size > _INF:
        return 0
    if size == _INF:
        return 1
    if size == _ZERO:
        return 2
    return 3 if size < _MIN_NORMAL else 4


@_compiled(parallel=False)
def insert(words: Any, place: Any, rank: Any, x: Any, ref: Any, dut: Any) -> None:
    """Put a row into the list at ``place`` if it is among its best; a row already there stays."""
    last = place + (KEEP - 1) * COLUMNS
    if rank > words[last] or (rank == words[last] and x >= words[last + 1]):
        return
    for at in range(place, last + 1, COLUMNS):
        if words[at] == rank and words[at + 1] == x:
            return
    at = last
    while at > place:
        before = at - COLUMNS
        if words[before] < rank or (words[before] == rank and words[before + 1] < x):
            break
        for column in range(COLUMNS):
            words[at + column] = words[before + column]
        at = before
    words[at], words[at + 1] = rank, x
    words[at + 2], words[at + 3] = ref, dut


@_compiled(parallel=False)
def count_difference(words: Any, layout: Any, x: Any, ref: Any, dut: Any) -> None:
    """Count one pair whose bits differ: x, ref, dut: uint32."""
    _, _, kind, below, above, results, differ, largest, rows = layout
    a, b = np.int64(ref & _ABS), np.int64(dut & _ABS)
    ref_class, dut_class = class_of(ref & _ABS), class_of(dut & _ABS)
    row = KEEP * COLUMNS
    wide = np.int64(x), np.int64(ref), np.int64(dut)
    # The cheap pass counted every pair as (ref's class, ref's class).
    words[results + 6 * ref_class] -= 1
    words[results + 5 * ref_class + dut_class] += 1
    words[differ + np.int64(x >> _U23)] += 1
    insert(words, rows, 0, wide[0], wide[1], wide[2])
    which = -1
    if ref_class == 0 or dut_class == 0:
        which = 1 if ref_class == dut_class else (2 if ref_class == 0 else 3)
    elif a == 0 and b == 0:
        which = 0
    elif ref_class == 1 or dut_class == 1:
        which = 4
    if which >= 0:
        words[kind + which] += 1
        insert(words, rows + (2 + which) * row, 0, wide[0], wide[1], wide[2])
    if which >= 0 and which != 4:
        return
    minus = (ref & _SIGN) != _ZERO
    together = minus == ((dut & _SIGN) != _ZERO)
    distance = abs(a - b) if together else a + b
    at = largest + np.int64(x >> _U23)
    words[at] = max(words[at], distance)
    insert(words, rows + row, -distance, wide[0], wide[1], wide[2])
    if which == 4:
        return
    place, rest = 0, distance - 1
    while rest > 0:
        place, rest = place + 1, rest >> 1
    larger = ((b > a) != minus) if together else minus
    words[(above if larger else below) + place] += 1


@_compiled(parallel=False)
def count_outside(
    words: Any, layout: Any, x: Any, ref: Any, dut: Any, start: Any, stop: Any
) -> None:
    """Count results beyond 1 in size, infinities too; a NaN has no size."""
    outside, rows = layout[1], layout[8]
    row = KEEP * COLUMNS
    for i in range(start, stop):
        for side in range(2):
            size = (ref[i] if side == 0 else dut[i]) & _ABS
            if _ONE < size <= _INF:
                words[outside + side] += 1
                insert(words, rows + (7 + side) * row, 0, x[i], ref[i], dut[i])


@_compiled(parallel=False)
def count_block(
    words: Any, layout: Any, x: Any, ref: Any, dut: Any, start: Any, stop: Any, bounded: Any
) -> None:
    """Count the pairs ``start`` to ``stop - 1``."""
    equal, results = layout[0], layout[5]
    nan = inf = zero = subnormal = unequal = beyond = 0
    # No branch, so that the compiler takes several pairs at once.
    for i in range(start, stop):
        size, other = ref[i] & _ABS, dut[i] & _ABS
        nan += size > _INF
        inf += size == _INF
        zero += size == _ZERO
        subnormal += size < _MIN_NORMAL
        unequal += ref[i] != dut[i]
        beyond += (size > _ONE) | (other > _ONE)
    count = stop - start
    words[equal] += count - unequal
    words[results] += nan
    words[results + 6] += inf
    words[results + 12] += zero
    words[results + 18] += subnormal - zero
    words[results + 24] += count - nan - inf - subnormal
    if bounded and beyond > 0:
        count_outside(words, layout, x, ref, dut, start, stop)
    if unequal > 0:
        for i in range(start, stop):
            if ref[i] != dut[i]:
                count_difference(words, layout, x[i], ref[i], dut[i])


@_compiled(parallel=True)
def count_pairs(parts: Any, layout: Any, x: Any, ref: Any, dut: Any, bounded: Any) -> None:
    """parts: (threads, SIZE) int64, one tally a thread. x, ref, dut: (n,) uint32."""
    threads = parts.shape[0]
    for thread in prange(threads):
        first, end = x.size * thread // threads, x.size * (thread + 1) // threads
        for start in range(first, end, BLOCK):
            stop = min(start + BLOCK, end)
            count_block(parts[thread], layout, x, ref, dut, start, stop, bounded)
