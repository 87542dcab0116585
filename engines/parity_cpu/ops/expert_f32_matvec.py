"""expert_f32_matvec: rows of the chosen f32 experts times float rows. Contract 1.5."""

from __future__ import annotations

from numba import prange

from parity_cpu.jit import jit_parallel
from parity_cpu.lanes import LANES
from parity_cpu.ops.f32_matvec import tile_f32
from parity_cpu.tiles import put, tiles


@jit_parallel
def expert_f32_matvec(out, w, ids, x, variants):  # type: ignore[no-untyped-def]
    """out: (M, k, rows) f32; w: (E, rows, cols) f32; ids: (M, k) int32; x: (M, G, cols) f32.

    G = 1: one input for all ranks; G = k: each its own. variants: fma.
    """
    ranks, rows, cols = ids.shape[1], w.shape[1], w.shape[2]
    jobs = ranks * tiles(rows)
    for job in prange(ids.shape[0] * jobs):
        m, rank, first = job // jobs, job % jobs // tiles(rows), job % tiles(rows) * LANES
        g = rank if x.shape[1] > 1 else 0
        count = min(LANES, rows - first)
        # step 1: one accumulator, ascending
        acc = tile_f32(w, x[m, g], (ids[m, rank] * rows + first) * cols, count, variants)
        put(out[m, rank], first, acc, count)
