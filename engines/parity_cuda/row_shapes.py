"""How the weight rows of a one-row projection are shared out: blocks, warps and shared memory.

Kernels: q4_row.cuh, f32_row.cuh. A choice moves work between blocks and threads and can change no
bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parity.variants import variant_mask

GROUPS = 16  # warps of 32 blocks of columns each, side by side in one block of threads
AHEAD = 4  # rows that a warp loads at once
WARPS = 16  # at work at once on a multiprocessor: what its registers are enough for
MOST_TILE = 64  # rows whose sums are kept at once; 32 where two of them make a third value
MOST_SHARED = 227 * 1024  # bytes of a block of an sm_90 multiprocessor
RESERVED = 1024  # bytes that each block takes beside what it asks for
F32_TILE = 8  # f32 rows of a block: their weights come in fast enough for the chains
LANES = 32  # most of them
TALL = 128  # rows a multiprocessor from which one row at a time of each block was faster (H200)
_WARP_BYTES = 4 * 32 * 36  # q4_row.cuh: ROW_WARP
_PRODUCT_BYTES = 2 * 4 * (512 + 4)  # f32_row.cuh: two windows of a row's products
_FMA, _NORM_TREE = variant_mask(["fma"]), variant_mask(["norm_tree"])


@dataclass(frozen=True)
class RowShape:
    """``blocks``: the grid, the first ``f32_blocks`` for f32 rows, ``f32_tile`` rows each;
    ``shared``: bytes of dynamic shared memory; ``tile``: Q4_0 rows whose sums are kept at once."""

    blocks: int
    threads: int
    shared: int
    tile: int
    f32_blocks: int = 0
    f32_tile: int = 1


def fits_row(nb: int) -> bool:
    """Whether a block of threads has room for rows of ``nb`` blocks of columns."""
    return _room(nb, GROUPS, variants=_FMA) >= 4


def q4_row_shape(
    rows: int,
    nb: int,
    variants: int,
    processors: int,
    pairs: bool = False,
    taken: int = 0,
    sides: int = 0,
) -> RowShape:
    """``rows`` Q4_0 rows, those of all matrices together. ``pairs``: two rows of two matrices stand
    together. ``taken``: blocks of the same launch that do something else. ``sides``: rows that a
    block of threads works on at once, as measured for a device, 0 for the default."""
    groups, unit = min(GROUPS, -(-nb // 32)), 2 if pairs else 1
    units = -(-rows // unit)
    # no more warps than a multiprocessor's share of the rows keeps busy
    most = unit * -(-units // processors)
    sides = max(1, min(sides or _sides(groups, rows, processors), most, WARPS // groups))
    warps = groups * sides
    resident = max(1, WARPS // warps) if processors > 1 else 1
    blocks = min(max(1, processors * resident - taken), units)
    share = unit * -(-units // blocks)
    room = _room(nb, warps, variants, resident)
    tile, buffers = _tile(share, room, unit, unit * AHEAD * sides)
    shared = warps * _WARP_BYTES + buffers * tile * _row_bytes(nb, variants)
    return RowShape(blocks, 32 * warps, shared, tile)


def _sides(groups: int, rows: int, processors: int) -> int:
    """As many as keep a multiprocessor's registers in use, but one where several blocks of threads
    do that and each has many rows (docs/performance.md); the emulator pays for every thread."""
    several = WARPS // groups > 1 and groups > WARPS // 4
    tall = several and rows >= TALL * processors
    return WARPS // groups if processors > 1 and not tall else 1


def _row_bytes(nb: int, variants: int) -> int:
    """The sums of one row, and with fma its scales."""
    return 4 * (-(-nb // 32) * 32 + 4) * (2 if variants & _FMA else 1)


def _room(nb: int, warps: int, variants: int, resident: int = 1) -> int:
    """Rows that a block of threads has memory for, ``resident`` of them on a multiprocessor."""
    each = MOST_SHARED // resident - RESERVED * (resident > 1)
    return (each - warps * _WARP_BYTES) // _row_bytes(nb, variants)


def _tile(share: int, room: int, unit: int, group: int) -> tuple[int, int]:
    """The tile for ``share`` rows and how many are kept at once: all rows, or as many whole groups
    as there is room for twice, or equal parts."""
    most = MOST_TILE // unit
    if share <= min(most, room):
        return share, 1
    most = max(unit, min(most, room // 2) // unit * unit)
    if most >= group:
        return most // group * group, 2
    parts = -(-share // most)
    return unit * -(-share // (unit * parts)), 2


def project_shape(
    q4: Sequence[int],
    f32: Sequence[int],
    cols: int,
    variants: int,
    processors: int,
    *,
    norm: bool,
    pairs: bool,
    sides: int = 0,
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
        return RowShape(f32_blocks, threads, shared, 1, f32_blocks, tile)
    shape = q4_row_shape(sum(q4), cols // 32, variants, processors, pairs, f32_blocks, sides)
    rings = shape.threads // 32 * _WARP_BYTES
    blocks, shared = f32_blocks + shape.blocks, max(shared, shape.shared, rings + room)
    return RowShape(blocks, shape.threads, shared, shape.tile, f32_blocks, tile)
