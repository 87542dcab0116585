"""The tally's CUDA kernel, emulated: the same words as pair by pair, whatever the launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.elementary import tally
from parity.elementary.mathfn import Ask, Sweep
from parity.elementary.tally import EVERY_FLOAT, Tally
from parity.progress import Progress
from parity.protocol import EngineSettings
from parity_cuda import tally as device
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.sources import function_sources
from parity_probes.mathfn import Mathfn
from tests.probes.mathfn_sides import Side
from tests.probes.tally_oracle import words_of

SEED = 20_261_130
RANGES = {
    "from zero": (0, 3_000),
    "around inf": (0x7F800000 - 1_000, 2_500),
    "around 1": (0x3F800000 - 700, 1_500),
    "both signs": (0x80000000 - 900, 1_800),
    "to the end": (EVERY_FLOAT - 1_111, 1_111),
}
TALLY = "tally.cu"


class Resident(Side):
    """A function over bit patterns whose results lie where the emulated kernels see them."""

    def __init__(
        self, name: str, over_bits: Callable[[np.ndarray], np.ndarray], backend: EmuBackend
    ) -> None:
        super().__init__(name, over_bits)
        self.backend = backend

    def evaluate_into(self, function: str, out: Any, x: Any) -> None:
        """Over the buffers' bits."""
        out.view(np.uint32)[:] = self._over_bits(x.view(np.uint32))

    def pair_source(self, function: str, dut: Any, bounded: bool) -> device.DevicePairs:
        """As the implementations on the device do."""
        return device.DevicePairs(function, self, dut, bounded)


@pytest.fixture(scope="module")
def backend() -> EmuBackend:
    return opened(function_sources()[TALLY])


def opened(text: str) -> EmuBackend:
    return EmuBackend(EngineSettings(), {TALLY: text})


def moved(bits: np.ndarray) -> np.ndarray:
    """A third as they are, a third near, a third anywhere: of the bits, not of their place."""
    mixed = (bits * np.uint32(2_654_435_761)) ^ np.uint32(SEED)
    near = bits + (mixed >> np.uint32(28)) - np.uint32(8)
    return np.choose(mixed % np.uint32(3), [bits, near, mixed])


def sides(backend: EmuBackend) -> tuple[Resident, Resident]:
    return Resident("same", lambda bits: bits, backend), Resident("moved", moved, backend)


def counted(backend: EmuBackend, start: int, count: int, bounded: bool = True) -> Tally:
    ref, dut = sides(backend)
    source = ref.pair_source("cosf", dut, bounded)
    source.add_range(start, count)
    total = Tally()
    source.move_to(total)
    total.add_range(start, start + count)
    total.check(count)
    return total


def expected(start: int, count: int, bounded: bool = True) -> np.ndarray:
    bits = np.arange(start, start + count, dtype=np.int64).astype(np.uint32)
    columns = (bits.tolist(), bits.tolist(), moved(bits).tolist())
    return words_of(zip(*columns, strict=True), bounded)


def wrong_words(found: Tally, wanted: np.ndarray) -> list[int]:
    return np.flatnonzero(found.words != wanted).tolist()


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("name", RANGES)
def test_the_words_of_the_oracle(backend: EmuBackend, name: str, bounded: bool) -> None:
    start, count = RANGES[name]
    assert (
        wrong_words(counted(backend, start, count, bounded), expected(start, count, bounded)) == []
    )


@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 32), (3, 64), (1024, 256)])
def test_no_launch_changes_a_word(
    backend: EmuBackend, monkeypatch: pytest.MonkeyPatch, grid: int, block: int
) -> None:
    monkeypatch.setattr(device, "GRID", grid)
    monkeypatch.setattr(device, "BLOCK", block)
    start, count = RANGES["around inf"]
    if grid * block < device.LISTED:  # the rows have one thread each
        monkeypatch.setattr(device.DevicePairs, "_launch", launch_by(grid, block))
    assert wrong_words(counted(backend, start, count), expected(start, count)) == []


def launch_by(grid: int, block: int) -> Callable[..., None]:
    """Launch as told, but for the kernel that has one thread a row."""

    def launch(self: Any, kernel: str, _count: int, arguments: list[object]) -> None:
        shape = (1, 128) if kernel == "tally_rows" else (grid, block)
        self._backend.launch(kernel, shape[:1], shape[1], arguments)

    return launch


@pytest.mark.parametrize("options", [{"descending": ""}, {"shuffled": "5"}, {"threads": "2"}])
def test_no_order_of_the_threads_changes_a_word(options: dict[str, str]) -> None:
    backend = EmuBackend(EngineSettings(options=options), {TALLY: function_sources()[TALLY]})
    start, count = RANGES["around inf"]
    assert wrong_words(counted(backend, start, count), expected(start, count)) == []


def test_a_sweep_on_the_device_is_the_sweep_on_the_host(backend: EmuBackend) -> None:
    ask = Ask("cosf", exhaustive=True, span=(0x3F7FF000, 0x3F801000), chunk=1_000, positions=False)
    ref, dut = sides(backend)
    host = Side("same", lambda bits: bits), Side("moved", moved)
    found = Mathfn().run(ask, ref, dut, Progress(quiet=True))
    wanted = Mathfn().run(ask, *host, Progress(quiet=True))
    assert (found.where, wanted.where) == ("device", "host")
    assert facts(found) == facts(wanted)


def facts(found: Sweep) -> str:
    found.where, found.seconds = "", 0.0
    return found.to_json()


def test_sides_on_two_devices_are_swept_on_the_host(backend: EmuBackend) -> None:
    other = opened(function_sources()[TALLY])
    ask = Ask("expf", exhaustive=True, span=(0, 1_000), positions=False)
    ref = Resident("same", lambda bits: bits, backend)
    dut = Resident("other", lambda bits: bits, other)
    assert Mathfn().run(ask, ref, dut, Progress(quiet=True)).where == "host"


def test_places_are_those_of_the_layout() -> None:
    text = function_sources()[TALLY]
    found = {name: int(value) for name, value in re.findall(r"int TALLY_(\w+) = (\d+);", text)}
    wanted = {
        "EQUAL": tally.EQUAL,
        "OUTSIDE": tally.OUTSIDE,
        "KIND": tally.KIND,
        "BELOW": tally.BELOW,
        "ABOVE": tally.ABOVE,
        "RESULTS": tally.RESULTS,
        "DIFFER": tally.DIFFER,
        "LARGEST": tally.LARGEST,
        "ROWS": tally.ROWS,
        "LISTS": len(tally.LISTS),
        "KEEP": tally.KEEP,
    }
    assert found == wanted
    assert f"TALLY_EMPTY = 1ll << {tally.EMPTY.bit_length() - 1};" in text


# Text in the kernel, what is planted, and the words that are then wrong (all of a section).
FAULTS = {
    "a class": ("return size < TALLY_MIN_NORMAL ? 3 : 4;", "return 4;", "from zero", "RESULTS"),
    "a sign": ("together ? (b > a) != minus : minus", "together ? b > a : minus", "both signs",
               "BELOW"),
    "a bin": ("distance > 1u ? 32", "distance > 2u ? 32", "from zero", "BELOW"),
    "a kind": ("ref_class == 0 ? 2 : 3", "ref_class == 0 ? 3 : 2", "around inf", "KIND"),
    "a bound": ("size <= TALLY_ONE ||", "size < TALLY_ONE ||", "around 1", "OUTSIDE"),
    "a maximum": ("atomicMax(&part[TALLY_LARGEST", "atomicMin(&part[TALLY_LARGEST", "from zero",
                  "LARGEST"),
    "a rank": ("(0xffffffffu - distance) << 32", "distance << 32", "from zero", "ROWS"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_red_planted_in_the_kernel(name: str) -> None:
    right, wrong, where, section = FAULTS[name]
    text = function_sources()[TALLY]
    assert text.count(right) == 1
    backend = opened(text.replace(right, wrong))
    ref, dut = sides(backend)
    source = ref.pair_source("cosf", dut, True)
    start, count = RANGES[where]
    source.add_range(start, count)
    total = Tally()
    source.move_to(total)
    total.add_range(start, start + count)
    first = wrong_words(total, expected(start, count))[0]
    places = sorted((getattr(tally, name), name) for name in SECTIONS)
    assert next(label for place, label in reversed(places) if place <= first) == section


SECTIONS = (
    *("EQUAL", "OUTSIDE", "KIND", "BELOW", "ABOVE", "RESULTS", "INPUTS", "PAIRS", "DIFFER"),
    *("LARGEST", "ROWS"),
)
