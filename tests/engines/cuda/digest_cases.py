"""Buffers for the device's hash, and what the serial loop makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.fnv import BASES
from parity_cpu.ops.digest import count_nonfinite, serial_bytes
from parity_cuda.backend import Backend
from parity_cuda.digests import PART, RESULT, TILE, WARP_BYTES, launch_digests, make_table, zeros
from parity_cuda.sources import HASH

NOTHING = (1 << 64) - 1
ALIGNMENTS = 16


def header_constant(name: str) -> str:
    """The text of an enum constant of the header."""
    texts = "".join(path.read_text(encoding="utf-8") for path in HASH)
    (text,) = re.findall(rf"^  {name} = ([^,\n]+)", texts, re.MULTILINE)
    return str(text).split("  //")[0].strip()


@dataclass
class Buffers:
    """Places inside one memory: (start, bytes, whether float32). ``name``: the hash."""

    name: str
    places: list[tuple[int, int, bool]] = field(default_factory=list)

    def wanted(self, memory: np.ndarray) -> np.ndarray:
        """RESULT[n] by the serial loop."""
        found = np.zeros(len(self.places), RESULT)
        for at, (start, count, is_float) in enumerate(self.places):
            data = memory[start : start + count]
            odd, first = 0, -1
            if is_float:
                odd, first = count_nonfinite(data[: count // 4 * 4].copy().view(np.uint32))
            digest = int(serial_bytes(data, np.uint64(BASES[self.name])))
            found[at] = digest, odd, first if odd else NOTHING
        return found

    def results(self, backend: Backend, memory: np.ndarray, launches: int = 1) -> list[np.ndarray]:
        """RESULT[n] of each of several launches that follow each other on the same memory."""
        held = backend.upload(memory)
        address = backend.address(held)
        table = make_table(
            [address + start for start, _, _ in self.places],
            [count for _, count, _ in self.places],
            [is_float for _, _, is_float in self.places],
        )
        text = backend.upload(np.frombuffer(table.text + bytes(PART.itemsize), np.uint8))
        work = zeros(backend, table.work_bytes)
        found = []
        for _ in range(launches):
            results = backend.upload(np.full(len(self.places) * RESULT.itemsize, 0xA5, np.uint8))
            launch_digests(backend, results, table, text, work, BASES[self.name])
            taken = np.zeros(len(self.places), RESULT)
            taken[table.order] = backend.download(results).view(RESULT)
            found.append(taken)
        if backend.download(work).any():
            raise AssertionError("a launch left something behind for the next one")
        return found


def memory_of(count: int) -> np.ndarray:
    """uint8[count], a few float32 of them not finite, long runs of zeros and of 0xff."""
    rng = np.random.default_rng(20_261_130)
    memory: np.ndarray = rng.integers(0, 256, count, np.uint8)
    memory[count // 3 : count // 3 + 5000] = 0
    memory[count // 2 : count // 2 + 5000] = 255
    return memory


def every_length(lengths: int = 701, step: int = 1) -> Buffers:
    """Lengths 0 to 700 at 16 alignments."""
    places = [
        (16 * (count % 7) + shift, count, count % 4 == 0 and shift % 4 == 0)
        for count in range(0, lengths, step)
        for shift in range(ALIGNMENTS)
    ]
    return Buffers("fnv1a64", places)


def borders() -> Buffers:
    """Lengths around every border: of a lane, of a warp, of a tile, of several tiles."""
    around = [64 * n for n in (1, 31, 33)] + [WARP_BYTES * n for n in range(1, 9)]
    around += [TILE * n for n in (2, 3, 4)]
    places = []
    for border in around:
        for more in (-17, -16, -4, -1, 0, 1, 4, 16, 17):
            places.append(((border + more) % 32, border + more, more % 4 == 0))
        # From a border of the memory on, so that one byte alone is past a border of the hash.
        places += [(0, border + more, False) for more in (-1, 0, 1)]
    return Buffers("kestrel-fnv", places)


def one_by_one() -> Iterator[tuple[str, Buffers, int]]:
    """Name, buffers, bytes of memory."""
    yield "every length", every_length(), 4096
    yield "borders", borders(), 5 * TILE
    long = Buffers("fnv1a64", [(1, 2_000_003, True), (0, 2_000_000, True)])
    yield "2,000,003 bytes", long, 2_000_016


def differing(found: np.ndarray, wanted: np.ndarray, places: list[Any]) -> list[Any]:
    """Places whose result is another one."""
    return [place for place, one, two in zip(places, found, wanted, strict=True) if one != two]
