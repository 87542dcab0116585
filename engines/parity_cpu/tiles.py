"""Tiles: sixteen rows of a stored matrix at a time, whose chains run side by side in lanes."""

from __future__ import annotations

import numpy as np

from parity_cpu.jit import jit_part
from parity_cpu.lanes import LANES, column, fetch, four_words, halves, lane, spread, store

i32 = np.int32
AHEAD = 2  # so many tiles before they are read, memory is asked for them


@jit_part
def tiles(rows):  # type: ignore[no-untyped-def]
    """How many tiles hold ``rows`` rows."""
    return (rows + LANES - 1) // LANES


@jit_part
def scales(d, start, nb, count):  # type: ignore[no-untyped-def]
    """Scales of ``count`` rows: (nb * 16,) f32, a block's sixteen lanes side by side.

    d: (..., rows, nb) u16; start: the first row's element of it.
    """
    found = np.empty(nb * LANES, np.float32)
    whole = nb - nb % 8
    for b in range(0, whole, 8):  # two in a word, eight in the 16 bytes of a row
        fetch(d, (start + AHEAD * LANES * nb + LANES * b) * 2)
        words = four_words(d, (start + b) * 2, nb * 2, count)
        for i in range(4):
            store(found, (b + 2 * i) * LANES, halves(words[i]))
            store(found, (b + 2 * i + 1) * LANES, halves(words[i] >> spread(i32(16))))
    for b in range(whole, nb):
        store(found, b * LANES, halves(column(d, start + b, nb, count)))
    return found


@jit_part
def put(out, at, values, count):  # type: ignore[no-untyped-def]
    """The first ``count`` lanes of values into out: (n,) f32 from ``at``."""
    for row in range(count):
        out[at + row] = lane(values, row)
