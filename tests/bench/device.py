"""Time the device: the hash, and decode steps with and without the dump, launched and replayed.

Usage: device.py [MODEL ...] (default moe-48). Needs an NVIDIA device; ends 3 without. Device times
are CUDA events around replays of a recorded graph, medians; wall times are whole steps of the
engine, the copy to the host and Python included. Every hash that is timed is checked first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from parity.errors import NotRunError
from parity.families import dumped_fields
from parity.fnv import BASES, fnv1a64_array
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity_cuda.digests import PART, RESULT, launch_digests, make_table, zeros
from parity_cuda.engine import CudaEngine

BASIS = BASES["fnv1a64"]
LAUNCHES = 20  # in one graph: the gap between graphs is shared by so many
REPLAYS = 60
LAYER = (8192, 2048, 2048, 512, 16, 512, 16, 16384, 16384, 8192, 8192)  # bytes, qwen3-30b-a3b
LOGITS = 607_744
CONTEXT, STEPS = 1024, 20
HASHES: dict[str, tuple[int, ...]] = {
    "530 keys of a token": (*LAYER * 48, 8192, LOGITS),
    "529 keys without logits": (*LAYER * 48, 8192),
    "one row of logits": (LOGITS,),
    "8 KiB": (8192,),
    "64 MiB": (64 << 20,),
    "256 MiB": (256 << 20,),
    "128 x 2 MiB": (2 << 20,) * 128,
}


def device_us(backend: Any, recorded: Any, replays: int = REPLAYS) -> float:
    """Median device time of one replay, microseconds."""
    cuda = backend._cupy.cuda
    begin, end = cuda.Event(), cuda.Event()
    times = []
    for _ in range(3 + replays):
        begin.record(backend._stream)
        backend.replay(recorded)
        end.record(backend._stream)
        end.synchronize()
        times.append(1e3 * cuda.get_elapsed_time(begin, end))
    return median(times[3:])


def hash_us(backend: Any, memory: Any, host: np.ndarray, sizes: tuple[int, ...]) -> float:
    """Median time of one launch over buffers that follow each other in ``memory``."""
    starts = [0, *np.cumsum([-(-size // 16) * 16 for size in sizes])[:-1].tolist()]
    address = backend.address(memory)
    table = make_table([address + at for at in starts], list(sizes), [True] * len(sizes))
    text = backend.upload(np.frombuffer(table.text + bytes(PART.itemsize), np.uint8))
    results = backend.empty((len(sizes) * RESULT.itemsize,), np.uint8)
    work = zeros(backend, table.work_bytes)
    launches = LAUNCHES if sum(sizes) < 16 << 20 else 3

    def run() -> None:
        for _ in range(launches):
            launch_digests(backend, results, table, text, work, BASIS)

    recorded = backend.record(run)
    found = device_us(backend, recorded) / launches
    got = backend.download(results).view(RESULT)["hash"]
    for job in (0, len(sizes) // 2, len(sizes) - 1):
        at, size = starts[table.order[job]], sizes[table.order[job]]
        if size <= LOGITS and int(got[job]) != fnv1a64_array(host[at : at + size], BASIS):
            raise AssertionError(f"a wrong hash: buffer {table.order[job]} of {size} bytes")
    return found


def hashes(backend: Any) -> dict[str, float]:
    """Microseconds by name."""
    # Finite values, as those of a token are.
    host = np.random.default_rng(7).standard_normal(257 << 18, np.float32).view(np.uint8)
    memory = backend.upload(host)
    found = {}
    for name, sizes in HASHES.items():
        found[name] = hash_us(backend, memory, host, sizes)
        rate = sum(sizes) / found[name] / 1e3
        print(f"  {name:24} {found[name]:10.2f} us {rate:8.1f} GB/s", flush=True)
    return found


def wall_us(step: Callable[[], object]) -> float:
    """Median wall time of a step, microseconds."""
    times = []
    for _ in range(3 + STEPS):
        begin = time.perf_counter()
        step()
        times.append(1e6 * (time.perf_counter() - begin))
    return median(times[3:])


def steps(name: str) -> dict[str, float]:
    """Microseconds of a decode step at position CONTEXT, by what is done."""
    model = synthetic(name, 7)
    plan = Plan(dumped_fields(model.config))
    found: dict[str, float] = {}
    for mode in ("on", "off"):
        engine = CudaEngine(EngineSettings(options={"graph": mode}))
        engine.load(model, CONTEXT + 2 + 2 * (3 + STEPS))
        engine.length = CONTEXT  # rows of any content: times do not depend on them
        for given in (plan, None):  # the arena grows now, not when steps have been recorded
            engine.step(1, given)
        for what, given in (("no dump", None), ("dump", plan)):
            found[f"{mode} {what} wall"] = wall_us(lambda g=given, e=engine: e.step(1, g))  # type: ignore[misc]
        if mode == "on":
            captured = [each for each in engine._graphs._found.values() if each is not None]
            for each in captured:
                what = "dump" if each.slots else "no dump"
                found[f"on {what} device"] = device_us(engine.backend, each.recorded, STEPS)
        del engine
    for label, time_us in found.items():
        print(f"  {name:16} graph {label:20} {time_us:12.1f} us", flush=True)
    ratio = found["on dump device"] / found["on no dump device"]
    print(f"  {name:16} dump / no dump, device {ratio:.4f}, wall "
          f"{found['on dump wall'] / found['on no dump wall']:.4f}", flush=True)  # fmt: skip
    return found


def main(names: list[str]) -> int:
    """Print every time, then all of them as one line of JSON."""
    try:
        backend = CudaEngine(EngineSettings()).backend
    except NotRunError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 3
    info = dict(backend.info())
    print(f"{info['device']}, driver {info['driver']}, {info['compiler']}")
    record: dict[str, Any] = {"machine": info, "hash": hashes(backend)}
    record["steps"] = {name: steps(name) for name in names or ["moe-48"]}
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
