"""The device digests of parity_dump.cuh: a kernel around them, buffers, and what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from parity.fnv import BASES, fnv1a64_array
from tests.c_header import INCLUDE

# As a user writes it, under a name that CuPy finds.
KERNEL = """#include "parity_dump.cuh"
extern "C" __global__ void digests(ParityResult* results, const ParityJob* jobs,
                                   unsigned long long basis) {
  parity_digest_block(results + blockIdx.x, jobs + blockIdx.x, basis);
}
"""
THREADS = 256
JOB = np.dtype([("data", "u8"), ("bytes", "u8"), ("size", "i4"), ("exponent", "i4")])
RESULT = np.dtype([("hash", "u8"), ("nonfinite", "u8"), ("first", "u8")])
# dtype: bytes of an element, exponent's bits in its upper two bytes, and all bits of the exponent
FLOATS = {
    "f32": (4, 0x7F80, 0x7F800000),
    "f16": (2, 0x7C00, 0x7C00),
    "bf16": (2, 0x7F80, 0x7F80),
    "f64": (8, 0x7FF0, 0x7FF0000000000000),
}
BIG = (255, 256, 257, 511, 513, 4096, 8191, 65_537, 607_747)


def sources(old: str = "", new: str = "") -> dict[str, str]:
    """The CUDA texts by name; ``old``, which stands once in them, is replaced."""
    headers = {path.name: path.read_text(encoding="utf-8") for path in INCLUDE.glob("*.cuh")}
    return {"digests.cu": KERNEL, **planted(headers, old, new)}


def planted(texts: dict[str, str], old: str, new: str) -> dict[str, str]:
    """``texts`` with one place changed, which must be the only one; the same without ``old``."""
    if old:
        assert sum(text.count(old) for text in texts.values()) == 1, old
    return {name: text.replace(old, new) if old else text for name, text in texts.items()}


@dataclass
class Jobs:
    """Buffers inside one memory, uint8, and the results they must have."""

    memory: np.ndarray
    hash_name: str = "fnv1a64"
    places: list[tuple[int, int, int, int]] = field(default_factory=list)
    wanted: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def basis(self) -> np.uint64:
        """The kernel's argument."""
        return np.uint64(BASES[self.hash_name])

    def add(self, at: int, size: int, dtype: str = "int8") -> None:
        """The buffer of ``size`` bytes from ``at`` on, as values of ``dtype``."""
        width, exponent, every = FLOATS.get(dtype, (1, 0, 0))
        data = self.memory[at : at + size]
        bits = data.copy().view(f"<u{width}") if exponent else np.zeros(0, "u1")
        odd = np.flatnonzero(bits & every == every) if exponent else bits
        first = int(odd[0]) if odd.size else (1 << 64) - 1
        self.places.append((at, size, width, exponent))
        self.wanted.append((fnv1a64_array(data, BASES[self.hash_name]), odd.size, first))

    def array(self, address: int) -> np.ndarray:
        """The jobs for a device on which ``memory`` lies at ``address``."""
        return np.array([(address + at, *rest) for at, *rest in self.places], JOB)

    def differing(self, results: np.ndarray) -> list[tuple[int, int]]:
        """Place and size of every buffer whose result is another one."""
        given = [tuple(map(int, result)) for result in results]
        pairs = zip(self.places, self.wanted, given, strict=True)
        return [place[:2] for place, wanted, got in pairs if wanted != got]


def random_bytes(count: int, seed: int = 20_261_130) -> np.ndarray:
    """uint8[count]."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def all_jobs() -> Iterator[tuple[str, Jobs]]:
    """Every length from 0 to 300 at every alignment, long buffers, both bases, floats."""
    memory = random_bytes(620_000)
    short = Jobs(memory)
    for size in range(301):
        for at in range(8):
            short.add(at, size)
    yield "short", short
    long, other = Jobs(memory), Jobs(memory, "kestrel-fnv")
    for at, size in enumerate(BIG):
        long.add(at, size)
        other.add(at, size)
    yield "long", long
    yield "kestrel", other
    for byte in (0, 0xFF):
        same = Jobs(np.full(70_000, byte, np.uint8))
        for size in (*range(40), *BIG[:-1]):
            same.add(1, size)
        yield f"bytes of {byte:#x}", same
    yield "floats", float_jobs(memory[:40_000].copy())


def float_jobs(memory: np.ndarray) -> Jobs:
    """Random bits of each float dtype: NaN and infinities at any place, and none at all."""
    memory[30_000:] &= 0x3F  # no exponent is all ones from here on
    jobs = Jobs(memory)
    for dtype, (width, _, _) in FLOATS.items():
        for at in (0, 1, 3):
            jobs.add(at, 4096 * width // 2, dtype)
            jobs.add(30_000 + at, 512 * width, dtype)
        jobs.add(5, width, dtype)
        jobs.add(5, 0, dtype)
    return jobs
