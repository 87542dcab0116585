"""parity_dump.cuh on a device: the digests of every length and alignment, floats, long buffers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from parity_cuda import nvrtc
from parity_cuda.cupy_backend import open_cupy
from parity_cuda.sources import Unit
from tests.engines.header_digest import RESULT, THREADS, Jobs, all_jobs, random_bytes, sources

pytestmark = pytest.mark.gpu

MIB = 1 << 20


def differing(jobs: Jobs) -> tuple[list[tuple[int, int]], float]:
    """Buffers whose result on the device is not the one wanted; ms of the second launch."""
    cupy = open_cupy()
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    path, _ = nvrtc.cached_cubin(sources(), arch, Unit(("digests.cu",)))
    kernel = cupy.RawModule(path=str(path)).get_function("digests")
    memory = cupy.asarray(jobs.memory)
    given = cupy.asarray(jobs.array(memory.data.ptr).view(np.uint8))
    results = cupy.full(len(jobs.places) * RESULT.itemsize, 0xA5, np.uint8)
    for _ in range(2):
        began = time.perf_counter()
        kernel((len(jobs.places),), (THREADS,), (results, given, jobs.basis))
        cupy.cuda.runtime.deviceSynchronize()
        took = 1e3 * (time.perf_counter() - began)
    return jobs.differing(results.get().view(RESULT)), took


@pytest.mark.parametrize("name", [name for name, _ in all_jobs()])
def test_every_digest_is_paritys(name: str) -> None:
    wrong, took = differing(dict(all_jobs())[name])
    print(f"{name}: {took:.3f} ms")
    assert wrong == []


def test_long_buffers_and_a_token_of_530_keys() -> None:
    memory = random_bytes(64 * MIB)
    long = Jobs(memory)
    long.add(1, 64 * MIB - 1)
    token = Jobs(memory)
    for key in range(530):
        token.add(8192 * key + key % 8, 8192)
    for name, jobs in (("64 MiB - 1", long), ("530 keys of 8 KiB", token)):
        wrong, took = differing(jobs)
        print(f"{name}: {took:.3f} ms")
        assert wrong == []


def test_red_another_byte_is_another_digest() -> None:
    jobs = Jobs(random_bytes(6000))
    jobs.add(3, 5000)
    jobs.memory[3 + 4999] ^= 1
    assert differing(jobs)[0] == [(3, 5000)]
