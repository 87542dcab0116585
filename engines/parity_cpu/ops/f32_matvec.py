"""f32_matvec: f32 rows times float rows (the router). Contract 1.5."""

from __future__ import annotations

import numpy as np
from numba import prange

from parity_cpu.jit import jit_parallel, jit_part
from parity_cpu.lanes import LANES, as_floats, column, every, fetch, four_words, spread
from parity_cpu.ops.variants import product_sum
from parity_cpu.tiles import put, tiles

f32 = np.float32


@jit_part
def tile_f32(w, x, start, count, variants):  # type: ignore[no-untyped-def]
    """``count`` rows of w; start: the first one's element of it. x: (cols,) f32."""
    cols = x.shape[0]
    whole = cols - cols % 4
    acc = spread(f32(0.0))
    # step 1: one accumulator, ascending
    for j in range(0, whole, 4):
        fetch(w, (start + LANES * cols + LANES * j) * 4)
        words = four_words(w, (start + j) * 4, cols * 4, count)
        for i in range(4):
            acc = product_sum(as_floats(words[i]), every(x, j + i), acc, variants)
    for j in range(whole, cols):
        bits = column(w, start + j, cols, count)
        acc = product_sum(as_floats(bits), every(x, j), acc, variants)
    return acc


@jit_parallel
def f32_matvec(out, w, x, variants):  # type: ignore[no-untyped-def]
    """out: (M, rows) f32; w: (rows, cols) f32; x: (M, cols) f32. Tiles of rows run in parallel.
    variants: fma.
    """
    rows, cols = w.shape
    for tile in prange(tiles(rows)):
        first = tile * LANES
        count = min(LANES, rows - first)
        for m in range(x.shape[0]):
            acc = tile_f32(w, x[m], first * cols, count, variants)
            put(out[m], first, acc, count)
