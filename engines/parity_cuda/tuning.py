"""How many weight rows a block of a projection takes, and the shared memory it needs.

A choice moves work between blocks and threads and can change no bit (each kernel's head says why).
What a device likes best is measured by ``just tune`` and kept for it; where nothing is kept, the
defaults below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parity.builds.cache import cache_folder, write_whole
from parity.errors import InputError
from parity_cuda.many_shapes import ManyShape, compiled_rows, many_shape
from parity_cuda.row_shapes import RowShape, project_shape, q4_row_shape

EXPERT_THREADS = 128  # expert_matvec.cu
TOGETHER = 4  # rows that a block of expert_matvec works on at once
MOST_TILE = 32  # weight rows of a block: a lane each in the chains
MOST_KEPT = 256  # of any choice
F32_BLOCKS = 4  # by multiprocessor: what an f32 launch is cut into by default, if it has the rows
EXPERT_BLOCKS = 32  # blocks that one expert is cut into by default, one a multiprocessor at most
WARP = 32
CHAINS = 16  # of a block of f32_many.cuh: a lane each of one warp
MANY_THREADS, F32_COLUMNS = 256, 512  # f32_many.cuh
PROCESSORS = 132  # multiprocessors of an H100 or H200

_STAGES, _INPUT_WORDS = 4, 20  # of the kernels


@dataclass(frozen=True)
class Shape:
    """``blocks``: the grid's first axis; ``shared``: bytes of dynamic shared memory; ``tile``:
    weight rows that a block takes at once."""

    blocks: int
    shared: int
    tile: int


@dataclass(frozen=True)
class ManyF32:
    """``blocks``, ``shared``: as above."""

    blocks: int
    threads: int
    shared: int


@dataclass(frozen=True)
class Tuning:
    """``tiles``: weight rows of a block by ``kernel rows x columns x M``, as a device likes it; of
    ``warp``, which is q4_matvec_rows, weight rows of a warp; of ``across``, which is one row in
    q4_matvec and fused_project, the warps that share a weight row.
    ``processors``: multiprocessors of the device, which the defaults spread the rows over."""

    tiles: Mapping[str, int] = field(default_factory=dict)
    processors: int = PROCESSORS

    def q4(self, rows: int, nb: int, count: int, variants: int) -> ManyShape:
        """q4_matvec_rows for ``count`` rows."""
        each = self._chosen(key("warp", rows, nb, compiled_rows(count)))
        return many_shape(rows, nb, count, variants, self.processors, each)

    def row(self, rows: int, nb: int, variants: int) -> RowShape:
        """q4_matvec of one row."""
        across = self._chosen(key("across", rows, nb, 1))
        return q4_row_shape(rows, nb, variants, self.processors, across=across)

    def project(
        self,
        q4: Sequence[int],
        f32: Sequence[int],
        cols: int,
        variants: int,
        *,
        norm: bool,
        pairs: bool,
    ) -> RowShape:
        """fused_project: matrices of ``cols`` columns, by their rows."""
        across = self._chosen(key("across", sum(q4), cols // 32, 1))
        asked = {"norm": norm, "pairs": pairs}
        return project_shape(q4, f32, cols, variants, self.processors, across=across, **asked)

    def f32(self, rows: int, cols: int, count: int) -> Shape:
        """f32_matvec and expert_f32_matvec."""
        usual = _over(rows, F32_BLOCKS * self.processors)
        tile = self._tile(key("f32", rows, cols, count), rows, usual)
        most = max(tile, count)
        window = next(2048 // each for each in (4, 8, 16, 32) if most <= each)
        stage = tile * (window + 4) + count * window
        return Shape(-(-rows // tile), 4 * _STAGES * stage, tile)

    def f32_many(self, rows: int, cols: int, count: int) -> ManyF32:
        """f32_matvec_rows for ``count`` rows."""
        usual = _over(rows, F32_BLOCKS * self.processors)
        tile = min(self._chosen(key("f32", rows, cols, count)) or usual, CHAINS // count, rows)
        stage = max(tile * count, tile + count) * (F32_COLUMNS + 4)
        threads = MANY_THREADS if self.processors > 1 else 2 * WARP
        return ManyF32(_over(rows, tile), threads, 4 * 2 * stage)

    def expert(self, rows: int, nb: int, count: int = 1, ranks: int = 1) -> Shape:
        """expert_matvec for ``count`` rows that chose ``ranks`` experts each."""
        usual = max(4, rows // min(EXPERT_BLOCKS, self.processors))
        tile = self._tile(key("expert", rows, nb, 1), rows, usual)
        together, stride = min(TOGETHER, count), -(-nb // 32) * 32 + 4
        inputs = together * (nb * (_INPUT_WORDS + 1) + tile * stride)
        return Shape(-(-rows // tile), 4 * (inputs + count * ranks), tile)

    def _chosen(self, name: str) -> int:
        """What was measured, 0 where nothing was."""
        return self.tiles.get(name, 0)

    def _tile(self, name: str, rows: int, default: int) -> int:
        """The tile that the kernel finds from its grid: rows over blocks, rounded up."""
        tile = max(1, min(self._chosen(name) or default, MOST_TILE, rows))
        return -(-rows // -(-rows // tile))


def key(kernel: str, rows: int, columns: int, count: int) -> str:
    """Name of a choice in a file of tiles."""
    return f"{kernel} {rows}x{columns}x{count}"


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
        whole = all(type(tile) is int and 1 <= tile <= MOST_KEPT for tile in tiles.values())
    except FileNotFoundError:
        return Tuning(processors=processors)
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise InputError(f"{path}: not a file of tiles", "delete it, or write it anew: just tune")
    return Tuning(tiles, processors)
