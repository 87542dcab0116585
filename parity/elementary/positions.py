"""Is an implementation a function of its argument alone, wherever in memory the argument sits?

Vector code for the body of an array and scalar code for its rest may give the same argument
different bits: results then change with length, offset and stride.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from parity.elementary.functions import Floats, Implementation
from parity.errors import InputError

LENGTHS = range(1, 34)
OFFSETS = range(16)
# Float32 values in a line of cache, or in the widest vector: offsets are counted from one.
LINE = 16
AGAIN = "again"  # the layout of a violation by a result that does not repeat

Bits = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Violation:
    """One argument with two results. ``index``: its place in the array. ``layout``: how it lay the
    second time. Bits: of the argument, of its result in the whole array, of its result there.
    Where the layout is AGAIN, it lay in one place both times."""

    layout: str
    index: int
    x: int
    as_array: int
    as_laid: int

    def __str__(self) -> str:
        if self.layout == AGAIN:
            return (
                f"not repeatable: the same input in the same place, {self.x:08x}, gave "
                f"{self.as_array:08x} and then {self.as_laid:08x}"
            )
        return f"{self.x:08x}: {self.as_array:08x} in the array, {self.as_laid:08x} {self.layout}"


def check_positions(implementation: Implementation, function: str, x: Floats) -> list[Violation]:
    """Every argument whose result in another layout has other bits than in the array x as a whole.

    The layouts: each element alone; slices of 1 to 33 at offsets 0 to 15 from a line's start, laid
    over all of x in turn; every second element; the whole backwards. An implementation that gives
    one array other bits the second time is no matter of places: then the one violation is of the
    layout AGAIN. x: (n,) float32, at least 64. Raises InputError for fewer.
    """
    if x.size < 4 * LINE:
        raise InputError(f"{x.size} arguments are too few to lay out", "give 64 or more")
    x = on_a_line(x)
    whole = _bits(implementation, function, x)
    if unlike := _unlike(implementation, function, x, whole):
        return [unlike]
    found: list[Violation] = []
    for layout, places in layouts(x.size):
        laid = _bits(implementation, function, x[places])
        there = np.arange(x.size)[places]
        if not found and not np.array_equal(laid, whole[places]):
            # Of what is wrong at times only, two calls in a row may have agreed above.
            if unlike := _unlike(implementation, function, x[places], laid):
                return [replace(unlike, index=int(there[unlike.index]))]
            if unlike := _unlike(implementation, function, x, whole):
                return [unlike]
        for at in np.flatnonzero(laid != whole[places]).tolist():
            index = int(there[at])
            words = (int(x.view(np.uint32)[index]), int(whole[index]), int(laid[at]))
            found.append(Violation(layout, index, *words))
    return found


def _unlike(
    implementation: Implementation, function: str, x: Floats, before: Bits
) -> Violation | None:
    """The first argument of x whose result is not the one ``before``, at the same call again."""
    after = _bits(implementation, function, x)
    differing = np.flatnonzero(after != before)
    if not differing.size:
        return None
    at = int(differing[0])
    return Violation(AGAIN, at, *(int(w) for w in (_words(x)[at], before[at], after[at])))


def layouts(n: int) -> Iterator[tuple[str, slice]]:
    """Name and place of every layout of n elements beside the whole."""
    for at in range(n):
        yield "alone", slice(at, at + 1)
    lines = (n - LENGTHS[-1] - OFFSETS[-1]) // LINE + 1
    for turn, (length, offset) in enumerate((k, o) for k in LENGTHS for o in OFFSETS):
        start = turn % lines * LINE + offset
        yield f"in a slice of {length} at offset {offset}", slice(start, start + length)
    yield "at stride 2", slice(0, None, 2)
    yield "at stride 2 from 1", slice(1, None, 2)
    yield "backwards", slice(None, None, -1)


def on_a_line(x: Floats) -> Floats:
    """A copy of x that starts at a multiple of 64 bytes."""
    room = np.empty(x.size + LINE, np.float32)
    start = -(room.ctypes.data // 4) % LINE
    aligned = room[start : start + x.size]
    aligned.view(np.uint32)[:] = x.view(np.uint32)
    return aligned


def _words(x: Floats) -> Bits:
    return np.ascontiguousarray(x).view(np.uint32)


def _bits(implementation: Implementation, function: str, x: Floats) -> Bits:
    return _words(implementation.evaluate(function, x))
