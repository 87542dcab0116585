"""The device's hash, emulated, against the serial loop: any length, alignment, order of blocks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity_cuda import digests
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.sources import HASH, kernel_sources
from tests.engines.cuda.digest_cases import (
    Buffers,
    borders,
    differing,
    every_length,
    header_constant,
    memory_of,
    one_by_one,
)
from tests.engines.header_digest import planted

SCHEDULES = {
    "ascending": {"ascending": ""},
    "descending": {"descending": ""},
    "shuffled": {"shuffled": "3"},
    "shuffled on 3 threads": {"shuffled": "4", "threads": "3"},
    "threads": {"threads": "4"},
}
CASES = {name: (buffers, count) for name, buffers, count in one_by_one()}


def only_digest(old: str = "", new: str = "") -> dict[str, str]:
    """The hash alone, with one text changed."""
    names = ("digest.cu", *(path.name for path in HASH))
    return planted({name: kernel_sources()[name] for name in names}, old, new)


@cache
def backend(schedule: str) -> EmuBackend:
    """One emulated device a schedule."""
    return EmuBackend(EngineSettings(options=SCHEDULES[schedule]), only_digest())


def wrong(device: EmuBackend, buffers: Buffers, memory: np.ndarray) -> list[list[object]]:
    """Places whose result is another one than the serial loop's, in each of two launches."""
    wanted = buffers.wanted(memory)
    found = buffers.results(device, memory, launches=2)
    return [differing(each, wanted, buffers.places) for each in found]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", CASES)
def test_every_hash_is_the_serial_loops(name: str, schedule: str) -> None:
    buffers, count = CASES[name]
    assert wrong(backend(schedule), buffers, memory_of(count)) == [[], []]


def test_both_bases() -> None:
    assert {CASES[name][0].name for name in CASES} == {"fnv1a64", "kestrel-fnv"}


def test_what_is_not_finite_is_counted_once_and_first() -> None:
    memory = np.zeros(3 * digests.TILE, np.uint8)
    bits = memory.view(np.uint32)
    for at in (5, digests.TILE // 4, digests.TILE // 2 + 7):
        bits[at] = 0x7F800001
    whole, later = (0, memory.size, True), (digests.TILE + 4, memory.size - digests.TILE - 4, True)
    found = Buffers("fnv1a64", [whole, later, (20, 16, True), (20, 16, False)]).results(
        backend("shuffled on 3 threads"), memory
    )[0]
    assert found["nonfinite"].tolist() == [3, 1, 1, 0]
    assert found["first"].tolist()[:3] == [5, digests.TILE // 4 + 7 - 1, 0]


def test_host_and_device_have_the_same_sizes() -> None:
    steps, threads = int(header_constant("PARITY_STEPS")), int(header_constant("PARITY_THREADS"))
    guess = int(header_constant("PARITY_GUESS"))
    assert threads == digests.THREADS
    assert 32 * 32 * steps == digests.WARP_BYTES
    assert threads * 32 * steps == digests.TILE
    assert -(-8 // guess) == digests.ROUNDS


def test_no_buffers() -> None:
    assert digests.digest_once(backend("ascending"), [], [], 1).size == 0


# --- planted faults -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "buffers", "count"),
    [
        ("here + 16 > begin && here < end", "here + 16 > begin && here + 1 < end",
         every_length(18), 4096),
        ("at + i >= begin && at + i < end", "at + i >= begin && at + i + 1 < end",
         every_length(18), 4096),
        ("lane > nearest ? state", "lane > nearest + 1 ? state", borders(), 5 * digests.TILE),
        ("from + warp * PARITY_WARP_BYTES >= (long long)job.bytes",
         "from + warp * PARITY_WARP_BYTES + 1 >= (long long)job.bytes", borders(),
         5 * digests.TILE),
        ("index < (long long)values", "index + 1 < (long long)values", None, 0),
    ],
    ids=["a border one short", "an edge one short", "a predecessor skipped",
         "a warp of one byte idle", "the last value not seen"],
)  # fmt: skip
def test_red_a_fault(old: str, new: str, buffers: Buffers | None, count: int) -> None:
    """Wrong in every order but where two threads show it; what is asked for is one wrong place."""
    memory = memory_of(count) if buffers else np.full(64, 0xFF, np.uint8)
    buffers = buffers or Buffers("fnv1a64", [(0, 64, True)])
    # Ends are posted at once by blocks that run one after the other: 4 threads let trees be read.
    device = EmuBackend(EngineSettings(options={"threads": "4"}), only_digest(old, new))
    wanted = buffers.wanted(memory)
    found = buffers.results(device, memory)[0]
    assert len(differing(found, wanted, buffers.places)) > 0


def test_red_no_reset_for_the_second_launch() -> None:
    old = "parity_post(states + (unsigned long long)round * stride + ticket - part.tile + at, 0);"
    device = EmuBackend(EngineSettings(), only_digest(old, ";"))
    buffers = Buffers("fnv1a64", [(0, 3 * digests.TILE, True)])
    with pytest.raises(AssertionError, match="left something behind for the next one"):
        buffers.results(device, memory_of(3 * digests.TILE), launches=2)


def test_red_a_sum_that_is_not_reset() -> None:
    old = "atomicExch(&total->hash, 0ull)"
    device = EmuBackend(EngineSettings(), only_digest(old, "atomicAdd(&total->hash, 0ull)"))
    buffers, memory = Buffers("fnv1a64", [(0, 3 * digests.TILE, True)]), memory_of(60_000)
    sized = memory[: 3 * digests.TILE]
    held = device.upload(sized)
    table = digests.make_table([device.address(held)], [sized.size], [True])
    text = device.upload(np.frombuffer(table.text, np.uint8))
    work = digests.zeros(device, table.work_bytes)
    results = device.empty((digests.RESULT.itemsize,), np.uint8)
    found = []
    for _ in range(2):
        digests.launch_digests(device, results, table, text, work, 0xCBF29CE484222325)
        found.append(int(device.download(results).view(digests.RESULT)["hash"][0]))
    wanted = int(buffers.wanted(sized)["hash"][0])
    assert found[0] == wanted
    assert found[1] != wanted
