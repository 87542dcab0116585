"""How the weight rows of a one-row projection are shared out: blocks, warps and shared memory.

Kernels: q4_row.cuh, row_plan.cuh, row_input.cuh, f32_row.cuh. A choice moves work between blocks
and threads and can change no bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parity.variants import variant_mask

WARPS = 12  # of a block at most: what a multiprocessor's registers are enough for (q4_row.cuh)
SPREAD = 64  # rows of a warp from which it takes whole rows
ALONE_TILE = 64  # rows whose sums a warp that is a side keeps at once
MOST_TILE = 192  # the same of several warps
MOST_SHARED = 226 * 1024  # bytes of a block of an sm_90 multiprocessor, less what kernels name
F32_TILE = 8  # f32 rows of a block: their weights come in fast enough for the chains
LANES = 32  # most of them
EMU_WARPS = 2  # the emulator pays for every thread
_BLOCK_BYTES = 4 * 36  # row_input.cuh: ROW_PAD
_RING_BYTES = 2 * 4 * 32 * (16 + 2)  # q4_row.cuh: ROW_RING_BYTES
_PRODUCT_BYTES = 2 * 4 * (512 + 4)  # f32_row.cuh: two windows of a row's products
_FMA, _NORM_TREE = variant_mask(["fma"]), variant_mask(["norm_tree"])


@dataclass(frozen=True)
class RowShape:
    """``blocks``: the grid, the first ``f32_blocks`` for f32 rows, ``f32_tile`` rows each;
    ``shared``: bytes of dynamic shared memory; ``tile``: Q4_0 rows whose sums a side makes at once;
    ``kept``: rows that it has memory for, one tile or two; ``across``: warps of a side."""

    blocks: int
    threads: int
    shared: int
    tile: int
    kept: int = 1
    across: int = 1
    f32_blocks: int = 0
    f32_tile: int = 1


def fits_row(nb: int) -> bool:
    """Whether a block of threads has room for rows of ``nb`` blocks of columns."""
    return _room(nb, WARPS, 1, variants=_FMA) >= 4


def q4_row_shape(
    rows: int,
    nb: int,
    variants: int,
    processors: int,
    pairs: bool = False,
    taken: int = 0,
    across: int = 0,
) -> RowShape:
    """``rows`` Q4_0 rows, those of all matrices together. ``pairs``: two rows of two matrices stand
    together. ``taken``: blocks of the same launch that do something else. ``across``: warps that
    share a row, as measured for a device, 0 for the default."""
    groups, unit = -(-nb // 32), 2 if pairs else 1
    units = -(-rows // unit)
    blocks = min(max(1, processors - taken), units)
    share = -(-units // blocks)  # of a block
    warps = WARPS if processors > 1 else EMU_WARPS
    across = min(across or _across(share * unit, groups, warps), warps)
    sides = max(1, min(warps // across if processors > 1 else 1, share))
    while sides > 1 and _room(nb, sides * across, sides, variants) < 2 * unit:
        sides -= 1
    own = unit * -(-share // sides)  # rows of a side
    tile, tiles = _tile(own, _room(nb, sides * across, sides, variants), unit, across)
    kept = tile * tiles
    shared = _fixed(nb, sides * across) + sides * kept * _row_bytes(nb, variants)
    return RowShape(blocks, 32 * sides * across, shared, tile, kept, across)


def _across(rows: int, groups: int, warps: int) -> int:
    """Warps of a side, for a block of ``rows`` rows of ``groups`` times 32 blocks: all of them, so
    that each has as many pairs of rows as the others; with very many rows a warp alone is a side:
    it waits for nobody, and its inputs come to registers anew for many rows."""
    if rows >= SPREAD * warps:
        return 1
    return min(warps, rows * groups)


def _row_bytes(nb: int, variants: int) -> int:
    """The sums of one row, and with fma its scales."""
    whole = -(-nb // 32) * 32
    return 4 * (whole + 4) + (2 * (whole + 8) if variants & _FMA else 0)


def _fixed(nb: int, warps: int) -> int:
    """The rings of the warps, and the inputs."""
    return warps * _RING_BYTES + nb * _BLOCK_BYTES


def _room(nb: int, warps: int, sides: int, variants: int) -> int:
    """Rows that each side has memory for."""
    return (MOST_SHARED - _fixed(nb, warps)) // (sides * _row_bytes(nb, variants))


def _tile(share: int, room: int, unit: int, across: int) -> tuple[int, int]:
    """The tile for ``share`` rows of a side and how many are kept at once: all rows, or parts, of
    which there is room for two, but one where a side is one warp. Where there is room, a part has
    four rows a step, and as many pairs of rows for every warp."""
    most, tiles = (ALONE_TILE, 1) if across == 1 else (MOST_TILE, 2)
    if share <= min(most, room):
        return share, 1
    most = min(most, room // tiles)
    even = next((n for n in (math.lcm(2 * across, 4 * unit), 2 * unit) if n <= most), unit)
    parts = -(-share // max(even, most // even * even))
    return even * -(-share // (even * parts)), tiles


def project_shape(
    q4: Sequence[int],
    f32: Sequence[int],
    cols: int,
    variants: int,
    processors: int,
    *,
    norm: bool,
    pairs: bool,
    across: int = 0,
) -> RowShape:
    """fused_project: matrices of ``cols`` columns, by their rows. ``norm``: with room for it."""
    room = 0
    if norm:
        room = 4 << (cols - 1).bit_length() if variants & _NORM_TREE else 4 * (cols // 8 + 4)
    tile = max(1, min(F32_TILE if processors > 1 else LANES, max(f32, default=1)))
    f32_blocks = sum(-(-rows // tile) for rows in f32)
    shared = 0
    if f32:
        shared = 4 * (-(-cols // 4) * 4) + max(tile * _PRODUCT_BYTES, room)
    if not q4:
        threads = 288 if processors > 1 else 64
        return RowShape(f32_blocks, threads, shared, 1, 1, 1, f32_blocks, tile)
    shape = q4_row_shape(sum(q4), cols // 32, variants, processors, pairs, f32_blocks, across)
    least = _fixed(cols // 32, shape.threads // 32) + room
    blocks, shared = f32_blocks + shape.blocks, max(shared, shape.shared, least)
    kept, across = shape.kept, shape.across
    return RowShape(blocks, shape.threads, shared, shape.tile, kept, across, f32_blocks, tile)
