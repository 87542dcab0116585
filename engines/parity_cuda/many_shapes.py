"""How the work of a projection of many rows is shared out: tiles, windows, threads, shared memory.

Kernel: q4_rows.cuh. A choice moves work between blocks and threads and can change no bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from parity.variants import variant_mask

CHAIN = 4  # weight rows of a thread's chains
LAUNCH_ROWS = 8  # most rows of inputs in one block
GROUPS = {2: 4, 4: 4, 8: 3}  # weight rows of a thread (q4_group), by the rows it is compiled for
MOST_SHARED = 227 * 1024  # bytes of an sm_90 multiprocessor's blocks together
RESERVED = 1024  # bytes that each block takes beside what it asks for
# threads, blocks at work at once on a multiprocessor, and what their work costs, as measured
BLOCKS = ((384, 1, 1.0), (512, 1, 1.0), (256, 2, 1.02), (256, 1, 1.06))
EMULATED = ((128, 1, 1.0),)  # where each thread is paid for
WINDOW_COST = 0.15  # of a window, beside its sums: in rounds of all threads
_FMA, _SPLIT = variant_mask(["fma"]), variant_mask(["split_k"])


@dataclass(frozen=True)
class ManyShape:
    """``blocks``: the grid's first axis; ``tile``: weight rows that a block takes at once;
    ``window``: blocks of columns in shared memory; ``buffers``: windows whose sums are there."""

    blocks: int
    threads: int
    shared: int
    tile: int
    window: int
    buffers: int


@dataclass(frozen=True)
class Work:
    """What is shared out: ``m``: rows of inputs that the kernel is compiled for."""

    rows: int
    nb: int
    m: int
    variants: int

    def most_tile(self, threads: int) -> int:
        """Rows whose chains the threads can run; with split_k four threads have one."""
        return CHAIN * (threads // (self.m * (4 if self.variants & _SPLIT else 1)))

    def groups(self, tile: int) -> int:
        """Threads side by side that have one block of a tile."""
        return -(-tile // GROUPS[self.m])

    def shared(self, tile: int, window: int, buffers: int) -> int:
        """Bytes that q4_rows.cuh lays out: weights, inputs, sums and with fma scales, halves."""
        slots = self.groups(tile) * GROUPS[self.m]
        high = -(-slots // CHAIN) * CHAIN
        weights = 2 * slots * (window | 1) * 16
        inputs = 2 * window * (32 * self.m + 4)
        sums = buffers * window * high * (self.m + bool(self.variants & _FMA))
        return weights + 4 * (inputs + sums + 2 * slots * ((window + 2) // 2 | 1))

    def rounds(self, shape: ManyShape) -> float:
        """Rounds of all threads that the busiest block makes."""
        tiles = -(-self.rows // shape.tile)
        groups, (whole, rest) = self.groups(shape.tile), divmod(self.nb, shape.window)
        rounds = whole * -(-groups * shape.window // shape.threads)
        rounds += -(-groups * rest // shape.threads)
        return -(-tiles // shape.blocks) * (rounds + WINDOW_COST * -(-self.nb // shape.window))


def compiled_rows(count: int) -> int:
    """The rows of inputs that the kernel works on for ``count``."""
    return next(each for each in GROUPS if each >= min(count, LAUNCH_ROWS))


@lru_cache(maxsize=1024)
def many_shape(
    rows: int, nb: int, count: int, variants: int, processors: int, tile: int = 0
) -> ManyShape:
    """``rows`` weight rows of ``nb`` blocks, ``count`` rows of inputs. ``tile``: as measured for a
    device, 0 for the one that looks best."""
    work = Work(rows, nb, compiled_rows(count), variants)
    found: list[tuple[float, ManyShape]] = []
    for threads, resident, price in BLOCKS if processors > 1 else EMULATED:
        slots = processors * resident
        tiles = [tile] if tile else _tiles(rows, slots)
        for each in sorted({max(1, min(each, work.most_tile(threads), rows)) for each in tiles}):
            for window in _windows(nb, threads, work.groups(each)):
                shape = _sized(work, slots, threads, each, window, MOST_SHARED // resident)
                if shape is not None:
                    cost = work.rounds(shape) * threads * resident * price
                    found.append((cost, shape))
    return min(found, key=lambda pair: pair[0])[1]


def _tiles(rows: int, slots: int) -> Iterator[int]:
    """Those that give every slot as many rows as the others, in one, two or more turns."""
    yield from (-(-rows // (slots * turns)) for turns in range(1, 2 + rows // (8 * slots)))
    yield 8


def _windows(nb: int, threads: int, groups: int) -> set[int]:
    """Those that give whole rounds of the threads, or a row in equal parts; and one that fits."""
    rounds = [max(1, turns * threads // (2 * groups)) for turns in (1, 2, 4, 6, 8, 10, 12, 16)]
    most = {min(nb, each) for each in (*rounds, 4)}
    return most | {-(-nb // -(-nb // each)) for each in most}


def _sized(
    work: Work, slots: int, threads: int, tile: int, window: int, room: int
) -> ManyShape | None:
    """The shape with two buffers of sums, or with one, or None where it does not fit."""
    for buffers in (2, 1):
        shared = work.shared(tile, window, buffers)
        if shared <= room - RESERVED:
            blocks = min(slots, -(-work.rows // tile))
            return ManyShape(blocks, threads, shared, tile, window, buffers)
    return None
