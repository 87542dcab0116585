"""The hash on a device against the serial loop: any length and alignment, many blocks a buffer."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from parity.fnv import BASES
from parity.protocol import EngineSettings
from parity_cpu.ops.digest import serial_bytes
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.digests import digest_once
from tests.engines.cuda.digest_cases import Buffers, differing, memory_of, one_by_one

pytestmark = pytest.mark.gpu

CASES = {name: (buffers, count) for name, buffers, count in one_by_one()}


@cache
def backend() -> CupyBackend:
    """One device for all tests."""
    return CupyBackend(EngineSettings())


@pytest.mark.parametrize("name", CASES)
def test_every_hash_is_the_serial_loops(name: str) -> None:
    buffers, count = CASES[name]
    memory = memory_of(count)
    wanted = buffers.wanted(memory)
    for found in buffers.results(backend(), memory, launches=20):
        assert differing(found, wanted, buffers.places) == []


def test_a_long_buffer_beside_many_short_ones() -> None:
    """More tiles than the device holds at once, so that blocks look back past several windows."""
    memory = memory_of(64 << 20)
    places = [(0, 64 << 20, False), *((4096 * n + n % 16, 3 * n, False) for n in range(500))]
    buffers = Buffers("fnv1a64", places)
    wanted = buffers.wanted(memory)
    for found in buffers.results(backend(), memory, launches=5):
        assert differing(found, wanted, buffers.places) == []


def test_red_another_byte_is_another_hash() -> None:
    memory = memory_of(200_000)
    held = backend().upload(memory)
    memory[123_456] ^= 1
    found = digest_once(backend(), [held], [False], BASES["fnv1a64"])
    assert int(found["hash"][0]) != int(serial_bytes(memory, np.uint64(BASES["fnv1a64"])))
