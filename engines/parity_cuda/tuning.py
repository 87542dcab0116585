"""How many weight rows a block of a projection takes, and the shared memory it needs.

A choice moves work between blocks and threads and can change no bit (each kernel's head says why).
What a device likes best is measured by ``just tune`` and kept for it; where nothing is kept, the
defaults below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from parity.builds.cache import cache_folder, write_whole
from parity.errors import InputError
from parity.variants import variant_mask

Q4_THREADS = 256  # q4_rows.cuh
EXPERT_THREADS = 128  # expert_matvec.cu
MOST_TILE = 32  # weight rows of a block: a lane each in the chains
F32_BLOCKS = 4  # by multiprocessor: what an f32 launch is cut into by default, if it has the rows
EXPERT_BLOCKS = 32  # blocks that one expert is cut into by default, one a multiprocessor at most
PROCESSORS = 132  # multiprocessors of an H100 or H200
SLOTS = {1: 3, 2: 2, 4: 2, 8: 2}  # blocks at work at once on a multiprocessor, by rows of inputs

_FMA = variant_mask(["fma"])
_Q4_PAD, _STAGES, _INPUT_WORDS = 36, 4, 20  # of the kernels


@dataclass(frozen=True)
class Shape:
    """``blocks``: the grid's first axis; ``shared``: bytes of dynamic shared memory; ``tile``:
    weight rows that a block takes at once."""

    blocks: int
    shared: int
    tile: int


@dataclass(frozen=True)
class Tuning:
    """``tiles``: weight rows of a block by ``kernel rows x columns x M``, as a device likes it.
    ``processors``: multiprocessors of the device, which the defaults spread the rows over."""

    tiles: Mapping[str, int] = field(default_factory=dict)
    processors: int = PROCESSORS

    def q4(self, rows: int, nb: int, count: int, variants: int) -> Shape:
        """q4_matvec, and q4_matvec_rows for ``count`` rows."""
        m = next(each for each in (1, 2, 4, 8) if each >= min(count, 8))
        tile = self._tile(key("q4", rows, nb, m), rows, q4_tile(rows, m, self.processors))
        window = q4_window(nb, m)
        stride = -(-window // 32) * 32 + 4
        inputs = (2 if nb > window else 1) * m * (32 if m > 2 else window) * _Q4_PAD
        sums = (2 if m <= 4 else 1) * tile * stride * (m + bool(variants & _FMA))
        slots = SLOTS[m] * self.processors
        return Shape(min(slots, -(-rows // tile)), 4 * (inputs + sums), tile)

    def f32(self, rows: int, cols: int, count: int) -> Shape:
        """f32_matvec, f32_matvec_rows and expert_f32_matvec."""
        usual = _over(rows, F32_BLOCKS * self.processors)
        tile = self._tile(key("f32", rows, cols, count), rows, usual)
        most = max(tile, count)
        window = next(2048 // each for each in (4, 8, 16, 32) if most <= each)
        stage = tile * (window + 4) + count * window
        return Shape(-(-rows // tile), 4 * _STAGES * stage, tile)

    def expert(self, rows: int, nb: int) -> Shape:
        """expert_matvec."""
        usual = max(4, rows // min(EXPERT_BLOCKS, self.processors))
        tile = self._tile(key("expert", rows, nb, 1), rows, usual)
        stride = -(-nb // 32) * 32 + 4
        return Shape(-(-rows // tile), 4 * (nb * (_INPUT_WORDS + 1) + tile * stride), tile)

    def _tile(self, name: str, rows: int, default: int) -> int:
        """The tile that the kernel finds from its grid: rows over blocks, rounded up."""
        tile = max(1, min(self.tiles.get(name, default), MOST_TILE, rows))
        return -(-rows // -(-rows // tile))


def key(kernel: str, rows: int, columns: int, count: int) -> str:
    """Name of a choice in a file of tiles."""
    return f"{kernel} {rows}x{columns}x{count}"


def q4_window(nb: int, m: int) -> int:
    """Blocks of a window, as q4_rows.cuh cuts a row of ``nb``."""
    windows = _over(nb, {1: 160, 2: 64}.get(m, 32))
    return nb if windows == 1 else 4 * _over(_over(nb, windows), 4)


def q4_tile(rows: int, m: int, processors: int) -> int:
    """Rows of a tile by default: the largest that gives every multiprocessor as many blocks as the
    others, one, two or more; even where it can be, as a thread works on pairs."""
    full = SLOTS[m] * processors
    slots = [processors * n for n in range(1, SLOTS[m])]
    slots += [full * n for n in range(1, 2 + rows // (full * (MOST_TILE - 1)))]
    tiles = (-(-rows // each) for each in slots)
    return next(tile if tile < 4 else -(-tile // 2) * 2 for tile in tiles if tile <= MOST_TILE)


def _over(count: int, by: int) -> int:
    """Rounded up."""
    return -(-count // by)


# --- kept by device -------------------------------------------------------------------------------


def tuning_file(device: str) -> Path:
    """Where the tiles of a device are kept, in the user's private cache."""
    return cache_folder("tuning") / (re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-") + ".json")


def keep_tuning(device: str, tiles: Mapping[str, int]) -> Path:
    """Keep what was measured; the whole file is replaced."""
    path = tuning_file(device)
    text = json.dumps({"device": device, "tiles": dict(sorted(tiles.items()))}, indent=1)
    write_whole(path, text.encode())
    return path


def kept_tuning(device: str, processors: int = PROCESSORS) -> Tuning:
    """What is kept for a device, else the defaults; InputError for a file that is not one."""
    path = tuning_file(device)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tiles = found["tiles"]
        whole = all(type(tile) is int and 1 <= tile <= MOST_TILE for tile in tiles.values())
    except FileNotFoundError:
        return Tuning(processors=processors)
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise InputError(f"{path}: not a file of tiles", "delete it, or write it anew: just tune")
    return Tuning(tiles, processors)
