"""How the weight rows of a one-row projection are shared out: blocks, warps and shared memory.

Kernels: q4_row.cuh, row_input.cuh, f32_row.cuh. A choice moves work between blocks and threads and
can change no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parity.variants import variant_mask

WARPS = 12  # of a block at most: what a multiprocessor's registers are enough for (q4_row.cuh)
MOST_SIDE = 6  # warps of a side: more of them leave too few sides for the rows of a block
SPREAD = 8  # rows of a warp from which it takes whole rows, the inputs' way to registers apart
MOST_TILE = 64  # rows whose sums are kept at once; 32 where two of them make a third value
MOST_SHARED = 226 * 1024  # bytes of a block of an sm_90 multiprocessor, less what kernels name
F32_TILE = 8  # f32 rows of a block: their weights come in fast enough for the chains
LANES = 32  # most of them
_BLOCK_BYTES = 4 * 36  # row_input.cuh: ROW_PAD
_RING_BYTES = 4 * 2 * 32 * (16 + 4)  # q4_row.cuh: ROW_RING_BYTES
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
    return _room(nb, MOST_SIDE, 1, variants=_FMA) >= 4


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
    across = min(across or _across(groups, share * unit), groups, MOST_SIDE)
    # the emulator pays for every thread
    sides = max(1, min(WARPS // across if processors > 1 else 1, share))
    while sides > 1 and _room(nb, sides * across, sides, variants) < 2 * unit:
        sides -= 1
    own = unit * -(-share // sides)  # rows of a side
    tile, tiles = _tile(own, _room(nb, sides * across, sides, variants), unit, across == 1)
    kept = tile * tiles
    shared = _fixed(nb, sides * across) + sides * kept * _row_bytes(nb, variants)
    return RowShape(blocks, 32 * sides * across, shared, tile, kept, across)


def _across(groups: int, rows: int) -> int:
    """Warps of a side, for a block of ``rows`` rows. The fewest of all warps' turns: a warp's turn
    is its rows times its groups of columns. With rows enough a warp alone is a side: it waits for
    nobody, and its inputs come to registers anew for many rows."""
    if groups > 1 and rows >= SPREAD * WARPS and WARPS % groups:
        return 1
    return min(range(1, MOST_SIDE + 1), key=lambda across: (_turns(groups, rows, across), -across))


def _turns(groups: int, rows: int, across: int) -> int:
    return -(-rows // (WARPS // across)) * -(-groups // across)


def _row_bytes(nb: int, variants: int) -> int:
    """The sums of one row, and with fma its scales."""
    return 4 * (-(-nb // 32) * 32 + 4) * (2 if variants & _FMA else 1)


def _fixed(nb: int, warps: int) -> int:
    """The rings of the warps, and the inputs."""
    return warps * _RING_BYTES + nb * _BLOCK_BYTES


def _room(nb: int, warps: int, sides: int, variants: int) -> int:
    """Rows that each side has memory for."""
    return (MOST_SHARED - _fixed(nb, warps)) // (sides * _row_bytes(nb, variants))


def _tile(share: int, room: int, unit: int, alone: bool) -> tuple[int, int]:
    """The tile for ``share`` rows of a side and how many are kept at once: all rows, or equal
    parts, of which there is room for two, but one where a side is one warp; an even number of rows
    of each matrix if there is room, as they go two by two."""
    most, tiles = MOST_TILE // unit, 1 if alone else 2
    if share <= min(most, room):
        return share, 1
    most = max(unit, min(most, room // tiles) // (2 * unit) * (2 * unit))
    parts = -(-share // most)
    even = 2 * unit if most % (2 * unit) == 0 else unit
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
