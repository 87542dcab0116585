"""How the work of a projection of many rows is shared out: blocks, warps, tiles, shared memory.

Kernel: q4_rows.cuh. A choice moves work between blocks and warps and can change no bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from parity.variants import variant_mask
from parity_cuda.row_shapes import MOST_SHARED, WARPS

LAUNCH_ROWS = 8  # most rows of inputs in one block
COMPILED = (2, 4, LAUNCH_ROWS)  # rows of inputs that the kernel is compiled for
EMULATED_WARPS = 4  # where each thread is paid for
WINDOW = 32  # blocks of columns: a lane each
UNITS = 3  # of a warp, at least, from one barrier of its block to the next, where there is room
_UNIT = 4  # q4_sums.cuh: MANY_ROWS
_RING = 2 * _UNIT * WINDOW * 16  # bytes: two of MANY_STAGE
_STRIDE = WINDOW + 4  # floats: MANY_STRIDE
_FMA, _SPLIT, _UNPAIRED, _ZERO = (
    variant_mask([name]) for name in ("fma", "split_k", "unpaired", "zero_point")
)


@dataclass(frozen=True)
class ManyShape:
    """``blocks``: the grid's first axis; ``m``: rows of inputs that the kernel is compiled for;
    ``tile``: weight rows of a warp whose chains are kept at once; ``stock``: windows whose inputs
    are brought at once."""

    blocks: int
    threads: int
    shared: int
    m: int
    tile: int
    stock: int


def as_in_a_tier(variants: int) -> bool:
    """Whether a mask says of Q4_0 rows what the exact tier does or what the fast one does: these
    have code of their own, all others share a short loop. Beside zero_point unpaired says
    nothing."""
    given = variants & (_FMA | _SPLIT | _UNPAIRED | _ZERO)
    return given == 0 or given | _UNPAIRED == _FMA | _SPLIT | _UNPAIRED | _ZERO


def compiled_rows(count: int, variants: int = 0) -> int:
    """The rows of inputs that the kernel works on for ``count``. What is in no tier is compiled for
    the most alone."""
    if not as_in_a_tier(variants):
        return LAUNCH_ROWS
    return next(each for each in COMPILED if each >= min(count, LAUNCH_ROWS))


def shared_bytes(m: int, variants: int, warps: int, tile: int, stock: int) -> int:
    """What q4_rows.cuh lays out: inputs, with zero_point what is taken off the sums of their
    windows; of each warp its weights, the sums of a unit, with fma scales, and what is kept of
    chains."""
    inputs = stock * WINDOW * (2 * (32 * m + 4) + m * bool(variants & _ZERO))
    sums = _UNIT * (m + bool(variants & _FMA)) * _STRIDE
    kept = tile * m * (4 if variants & _SPLIT else 1)
    return 4 * inputs + warps * (_RING + 4 * (sums + kept))


def many_shape(
    rows: int, nb: int, count: int, variants: int, processors: int, each: int = 0
) -> ManyShape:
    """``rows`` weight rows of ``nb`` blocks, ``count`` rows of inputs. ``each``: weight rows of a
    warp, as measured for a device, 0 for as few as all warps have."""
    m = compiled_rows(count, variants)
    blocks = min(processors, rows)
    share = _over(rows, blocks)
    most = WARPS if processors > 1 else EMULATED_WARPS
    warps = min(most, share, _over(share, each) if each else most)
    own = _over(share, warps)
    none = shared_bytes(m, variants, warps, 0, 1)
    room = (MOST_SHARED - none) // (shared_bytes(m, variants, warps, 1, 1) - none)
    tile = _over(own, _over(own, room))
    wanted = min(_over(nb, WINDOW), _over(UNITS, _over(tile, _UNIT)))
    for stock in range(wanted, 0, -1):
        shared = shared_bytes(m, variants, warps, tile, stock)
        if shared <= MOST_SHARED:
            break
    return ManyShape(blocks, 32 * warps, shared, m, tile, stock)


def _over(count: int, by: int) -> int:
    """Rounded up."""
    return -(-count // by)
