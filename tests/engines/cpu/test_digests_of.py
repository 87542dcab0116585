"""The CPU's hash of many buffers at once against the serial loop, one buffer after the other."""

from __future__ import annotations

import numpy as np
import pytest

from parity.fnv import BASES
from parity_cpu.ops import digest
from parity_cpu.ops.digest import FEW, digests_of, serial_bytes


def buffers() -> list[np.ndarray]:
    """Every length 0 to 140, as few and as many of it as take either way; several dtypes."""
    rng = np.random.default_rng(20_261_130)
    found = [
        rng.integers(0, 256, length, np.uint8)
        for length in range(141)
        for _ in range(FEW - 1 if length % 3 == 0 else FEW + length % 5)
    ]
    found += [rng.standard_normal((4, 33), np.float32) for _ in range(9)]
    found += [np.zeros(4096, np.int8) for _ in range(5)] + [rng.integers(0, 9, 35, np.int32)]
    return [found[at] for at in rng.permutation(len(found))]


def wrong(basis: int) -> int:
    """Buffers of which the digest is another one than the loop's."""
    given = buffers()
    flat = [each.reshape(-1).view(np.uint8) for each in given]
    wanted = [int(serial_bytes(each, np.uint64(basis))) for each in flat]
    pairs = zip(digests_of(given, basis), wanted, strict=True)
    return sum(one != two for one, two in pairs)


@pytest.mark.parametrize("name", BASES)
def test_every_digest_is_the_loops(name: str) -> None:
    assert wrong(BASES[name]) == 0


def test_nothing_to_hash() -> None:
    assert digests_of([], 1) == []


@pytest.mark.parametrize("fault", ["order", "ends"])
def test_red_a_fault(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Digests in the order of sizes; the bytes after the last whole word left out."""
    real = digest._side_by_side

    def faulty(rows: np.ndarray, count: int, basis: int) -> np.ndarray:
        if fault == "order":
            return real(rows, count, basis)[::-1]
        return real(np.ascontiguousarray(rows[:, : count // 8 * 8]), count // 8 * 8, basis)

    monkeypatch.setattr(digest, "_side_by_side", faulty)
    assert wrong(1) > 100
