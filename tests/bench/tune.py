"""Measure which tile each projection likes best on this device and keep it: `just tune`.

Usage: tune.py [--dry]. Prints each shape with the default's time and the best one's. Only a tile
that is at least 3 % faster than the default is kept. A tile can change no bit: see tuning.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import kernels
import numpy as np
from kernels import HYBRID, MOE, Data, copies, replayed

from parity.protocol import EngineSettings
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.ops import Ops
from parity_cuda.row_shapes import WARPS
from parity_cuda.tuning import Tuning, keep_tuning, key

TILES = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 32)
MANY_TILES = (40, 48, 64, 78, 96, 132)  # of many rows too, where a block holds so many
WORTH = 0.97
SHAPES = {
    MOE: ((4096, 2048), (512, 2048), (2048, 4096), (151936, 2048)),
    HYBRID: ((17408, 5120), (5120, 17408), (10240, 5120), (12288, 5120), (6144, 5120),
             (5120, 6144), (1024, 5120), (248320, 5120)),
}  # fmt: skip
# Matrices that one row is multiplied with in one launch: q, k, v; qkv, z; gate, up.
TOGETHER = {MOE: ((5120, 2048),), HYBRID: ((14336, 5120), (16384, 5120), (34816, 5120))}
EXPERTS = ((768, 2048, 1), (2048, 768, 8))
ROUTERS = ((128, 2048), (48, 5120))


@dataclass(frozen=True)
class Choice:
    """``launches`` with the ops of a tuning; ``name``: the tuning's key of this shape; ``rows``:
    the most that can be chosen."""

    name: str
    rows: int
    launches: Callable[[Ops], list[Callable[[], None]]]


def choices(data: Data) -> Iterator[Choice]:
    """Every shape; the arrays of one are dropped before those of the next are made."""
    together = [shape for shapes in TOGETHER.values() for shape in shapes]
    for rows, cols in [*(shape for shapes in SHAPES.values() for shape in shapes), *together]:
        nb = cols // 32
        weights = [
            (data.halves(rows, nb), data.bytes(rows, nb * 16))
            for _ in range(copies(rows * nb * 18))
        ]
        for count in (1,) if (rows, cols) in together else (1, 2, 4, 8):
            x, out = data.floats(count, cols), data.empty(count, rows)
            args = (out, weights, x)
            name = key("across" if count == 1 else "warp", rows, nb, count)
            most = WARPS if count == 1 else rows
            yield Choice(name, most, lambda ops, args=args: _q4(ops, *args))  # type: ignore[misc]
    for rows, cols in ROUTERS:
        matrices = [data.floats(rows, cols) for _ in range(8)]
        for count in (1, 8):
            x, out = data.floats(count, cols), data.empty(count, rows)
            given = (out, matrices, x)
            yield Choice(
                key("f32", rows, cols, count), rows, lambda ops, given=given: _f32(ops, *given)
            )  # type: ignore[misc]
    for rows, cols, groups in EXPERTS:
        case = kernels.expert(MOE, rows, cols, groups)
        yield Choice(
            key("expert", rows, cols // 32, 1), rows, lambda ops, case=case: case.make(ops, data)[1]
        )  # type: ignore[misc]


def _q4(ops: Ops, out: Any, weights: list[Any], x: Any) -> list[Callable[[], None]]:
    return [lambda w=w: ops.q4_matvec(out, *w, x, 0) for w in weights]  # type: ignore[misc]


def _f32(ops: Ops, out: Any, weights: list[Any], x: Any) -> list[Callable[[], None]]:
    return [lambda w=w: ops.f32_matvec(out, w, x, 0) for w in weights]  # type: ignore[misc]


def tune(backend: CupyBackend) -> dict[str, int]:
    """The tiles that are faster than the default's, by key; prints what it finds."""
    kept = {}
    for choice in choices(Data(backend)):
        default = replayed(backend, choice.launches(Ops(backend)))
        more = MANY_TILES if choice.name.startswith("warp ") else ()
        every_side = range(1, WARPS + 1)
        tried = every_side if choice.name.startswith("across ") else (*TILES, *more)
        tiles = [tile for tile in tried if tile <= choice.rows]
        times = {
            tile: replayed(
                backend,
                choice.launches(Ops(backend, Tuning({choice.name: tile}, backend.processors))),
            )
            for tile in tiles
        }
        best = min(times, key=lambda tile: times[tile])
        if times[best] < WORTH * default:
            kept[choice.name] = best
        every = " ".join(f"{tile}:{time:.1f}" for tile, time in times.items())
        print(f"{choice.name}: default {default:.2f} us, tile {best} {times[best]:.2f} ({every})")
    return kept


def main(argv: Sequence[str]) -> int:
    """Tune the device and keep what is better; with ``--dry`` print it alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args(argv)
    backend = CupyBackend(EngineSettings())
    with np.errstate(all="ignore"):
        tiles = tune(backend)
    device = backend.info()["device"]
    where = "not kept" if given.dry else f"kept in {keep_tuning(device, tiles)}"
    print(f"{device}: {len(tiles)} tiles, {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
