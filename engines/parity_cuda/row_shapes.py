"""How the weight rows of a one-row projection are shared out: blocks, warps and shared memory.

Kernels: q4_row.cuh, row_plan.cuh, row_input.cuh, project.cuh. A choice moves work between blocks
and threads and can change no bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from parity.variants import variant_mask

WARPS = 12  # of a block at most: what a multiprocessor's registers are enough for (q4_row.cuh)
FEW_WARPS = 8  # of a block that asks for all of its weights at once
# Bytes of such a block: two never share a multiprocessor, and one leaves room to other launches.
FEW_LEAST, FEW_MOST = 115 * 1024, 130 * 1024
SPREAD = 64  # rows of a warp from which it takes whole rows
ALONE_TILE = 64  # rows whose sums a warp that is a side keeps at once
MOST_TILE = 192  # the same of several warps
MOST_SHARED = 226 * 1024  # bytes of a block of an sm_90 multiprocessor, less what kernels name
F32_TILE = 4  # f32 rows of a block: all of their weights are in its memory
LANES = 32  # most of them
EMU_WARPS = 2  # the emulator pays for every thread
_BLOCK_BYTES = 4 * 36  # row_input.cuh: ROW_PAD
_STEP = 4  # q4_row.cuh: ROW_STEP
_STEP_BYTES = _STEP * 32 * (16 + 2)  # q4_row.cuh: ROW_BYTES
RING = 2  # q4_row.cuh: ROW_RING
_FMA, _NORM_TREE = variant_mask(["fma"]), variant_mask(["norm_tree"])


@dataclass(frozen=True)
class RowShape:
    """``blocks``: the grid, the first ``f32_blocks`` for f32 rows, ``f32_tile`` rows each;
    ``shared``: bytes of dynamic shared memory; ``tile``: Q4_0 rows whose sums a side makes at once;
    ``kept``: rows that it has memory for, one tile or two; ``across``: warps of a side; ``ring``:
    steps whose weights each warp has memory for; ``few``: all of them, for fused_project_few."""

    blocks: int
    threads: int
    shared: int
    tile: int
    kept: int = 1
    across: int = 1
    ring: int = RING
    few: bool = False
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


def few_rows_shape(
    rows: int, nb: int, variants: int, processors: int, pairs: bool
) -> RowShape | None:
    """The same for rows so few that a block has room for all of its weights; None for more, and
    where there is no other launch to begin beside."""
    groups, unit = -(-nb // 32), 2 if pairs else 1
    blocks = min(processors, -(-rows // unit))
    kept = unit * -(-rows // (unit * blocks))
    warps = min(FEW_WARPS, kept * groups)
    # a step more where a piece ends, and a place that is not asked for ahead
    ring = -(-(kept * groups) // (_STEP * warps)) + 2
    shared = _fixed(nb, warps, ring) + kept * _row_bytes(nb, variants)
    if processors == 1 or shared > FEW_MOST:
        return None
    shared = max(shared, FEW_LEAST)
    return RowShape(blocks, 32 * warps, shared, kept, kept, warps, ring, few=True)


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


def _fixed(nb: int, warps: int, ring: int = RING) -> int:
    """The rings of the warps, and the inputs."""
    return warps * ring * _STEP_BYTES + nb * _BLOCK_BYTES


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
    inputs = 4 * (-(-cols // 4) * 4)
    row = inputs + 4 * 4  # project.cuh: stride
    most = (MOST_SHARED - inputs - room) // row
    tile = max(1, min(F32_TILE if processors > 1 else LANES, max(f32, default=1), most))
    f32_blocks = sum(-(-rows // tile) for rows in f32)
    shared = inputs + tile * row + room if f32 else 0
    if not q4:
        threads = 288 if processors > 1 else 64
        return RowShape(f32_blocks, threads, shared, 1, f32_blocks=f32_blocks, f32_tile=tile)
    nb, asked = cols // 32, (variants, processors, pairs)
    few = None if across or f32 else few_rows_shape(sum(q4), nb, *asked)
    shape = few or q4_row_shape(sum(q4), nb, *asked, f32_blocks, across)
    room += 4 * cols if norm else 0  # the norm's weights
    least = _fixed(nb, shape.threads // 32, shape.ring) + room
    blocks, shared = f32_blocks + shape.blocks, max(shared, shape.shared, least)
    return replace(shape, blocks=blocks, shared=shared, f32_blocks=f32_blocks, f32_tile=tile)
