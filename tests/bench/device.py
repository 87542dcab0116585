"""Time the device: the hash, and decode steps of both tiers, op by op, fused and overlapping.

Usage: device.py [--no-hash] [--launched] [--tier TIER] [MODEL ...] (default moe-48). Needs an
NVIDIA device; ends 3 without. Device times are CUDA events around replays of a recorded graph,
medians; wall times are whole steps of the engine, the copy to the host and Python included. Every
hash that is timed is checked first; tests/gpu/test_fused_gpu.py has all ways give the same bits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from parity.errors import NotRunError
from parity.families import dumped_fields
from parity.fnv import BASES, fnv1a64_array
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity.variants import TIERS
from parity_cuda.digests import PART, RESULT, launch_digests, make_table, zeros
from parity_cuda.engine import CudaEngine
from parity_cuda.graph import Graphs
from parity_cuda.state import ROWS

BASIS = BASES["fnv1a64"]
LAUNCHES = 20  # in one graph: the gap between graphs is shared by so many
REPLAYS = 60
LAYER = (8192, 2048, 2048, 512, 16, 512, 16, 16384, 16384, 8192, 8192)  # bytes, qwen3-30b-a3b
LOGITS = 607_744
CONTEXT, STEPS = 1024, 20
BANDWIDTH = 4.3  # TB/s: what an H200 copies
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


def fill_rows(engine: Any) -> None:
    """A context of CONTEXT positions. What memory was left with may hold NaNs, whose products take
    another, longer way; zeros would never move attention's maximum."""
    rng = np.random.default_rng(7)
    for parts in engine._state.layers:
        for buffer in parts.values():
            integers = buffer.dtype == np.int8
            rows = rng.integers(-127, 128, buffer.shape) if integers else rng.random(buffer.shape)
            engine.backend.write(buffer, (rows if integers else rows / 32).astype(buffer.dtype))
    engine.length = CONTEXT


def wall_us(step: Callable[[], object]) -> float:
    """Median wall time of a step, microseconds."""
    times = []
    for _ in range(3 + STEPS):
        begin = time.perf_counter()
        step()
        times.append(1e6 * (time.perf_counter() - begin))
    return median(times[3:])


@dataclass(frozen=True)
class Way:
    """How steps of one row are launched, and the tier of the engine that takes them."""

    tier: str
    fuse: bool
    overlap: bool

    def __str__(self) -> str:
        how = ("fused, overlapping" if self.overlap else "fused") if self.fuse else "op by op"
        return f"{self.tier}, {how}"

    def take(self, engine: Any) -> None:
        """Make a loaded engine go this way from its next step on; its weights stay."""
        backend = engine.backend
        backend.fuse = self.fuse
        backend._programmatic = engine.programmatic if self.overlap else "not asked for"
        engine._graphs = Graphs(backend, engine._arena)


WAYS = tuple(
    Way(tier, fuse, overlap)
    for tier in ("exact", "fast")
    for fuse, overlap in ((False, False), (True, False), (True, True))
)


def token_bytes(engine: Any) -> int:
    """Bytes that one token at position CONTEXT must move: weights once, of experts the chosen ones,
    the cache's rows, a recurrent state read and written."""
    config, total = engine.model.config, 0
    for name, buffer in engine._tensors.items():
        share = config.top_k / config.experts if ".experts." in name else 1.0
        if name.split(".")[0] != "embed" or config.tied:
            total += int(buffer.nbytes * share)
    for parts in engine._state.layers:
        for part, buffer in parts.items():
            rows = part in ROWS
            total += buffer[:CONTEXT].nbytes if rows else 2 * buffer.nbytes
    return total


def steps(name: str, ways: Sequence[Way]) -> dict[str, float]:
    """Microseconds of a decode step at position CONTEXT, by what is done."""
    found: dict[str, float] = {}
    for tier in dict.fromkeys(way.tier for way in ways):
        found |= tier_steps(name, tier, [way for way in ways if way.tier == tier])
    return found


def tier_steps(name: str, tier: str, ways: Sequence[Way]) -> dict[str, float]:
    """The same of ways of one tier, by an engine of it: its kernels are compiled for its mask."""
    model = synthetic(name, 7)
    plan = Plan(dumped_fields(model.config))
    found: dict[str, float] = {}
    engine: Any = CudaEngine(EngineSettings(tier, TIERS[tier]))
    engine.programmatic = engine.backend._programmatic
    engine.load(model, CONTEXT + 2 + len(ways) * 2 * (5 + STEPS))
    fill_rows(engine)
    for given in (plan, None):  # the arena grows now, not when steps have been recorded
        engine.step(1, given)
    moved = token_bytes(engine)
    print(f"  {name}: {moved / 1e9:.3f} GB a token, {moved / BANDWIDTH / 1e6:.0f} us at "
          f"{BANDWIDTH:.1f} TB/s", flush=True)  # fmt: skip
    for way in ways:
        way.take(engine)
        engine.length = CONTEXT
        found |= times(engine, str(way), plan)
    for label, time_us in found.items():
        print(f"  {name:16} {label:40} {time_us:12.1f} us", flush=True)
    return {**found, "bytes": float(moved)}


def times(engine: Any, way: str, plan: Plan) -> dict[str, float]:
    """Wall times of replayed steps with and without the dump, then device times of the graphs."""
    found = {}
    for what, given in (("no dump", None), ("dump", plan)):
        found[f"{way}, {what}, wall"] = wall_us(lambda g=given: engine.step(1, g))  # type: ignore[misc]
    for each in engine._graphs._found.values():
        if each is not None:
            what = "dump" if each.table else "no dump"
            found[f"{way}, {what}, device"] = device_us(engine.backend, each.recorded, STEPS)
    return found


def launched(name: str) -> None:
    """Wall times of steps that are not recorded."""
    engine: Any = CudaEngine(EngineSettings(options={"graph": "off"}))
    model = synthetic(name, 7)
    engine.load(model, CONTEXT + 10 + STEPS)
    fill_rows(engine)
    time_us = wall_us(lambda: engine.step(1, None))
    print(f"  {name:16} {'exact, launch by launch, wall':40} {time_us:12.1f} us", flush=True)


def main(given: Sequence[str]) -> int:
    """Print every time, then all of them as one line of JSON."""
    parser = argparse.ArgumentParser(description="Time the device.")
    parser.add_argument("models", nargs="*", default=["moe-48"])
    parser.add_argument("--no-hash", action="store_true", help="steps alone")
    parser.add_argument("--launched", action="store_true", help="steps launch by launch, too")
    parser.add_argument("--tier", choices=["exact", "fast"], help="of one tier alone")
    asked = parser.parse_args(given)
    try:
        backend = CudaEngine(EngineSettings()).backend
    except NotRunError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 3
    info = dict(backend.info())
    print(f"{info['device']}, driver {info['driver']}, {info['compiler']}, {info['launches']}")
    record: dict[str, Any] = {"machine": info}
    if not asked.no_hash:
        record["hash"] = hashes(backend)
    ways = [way for way in WAYS if asked.tier in (None, way.tier)]
    record["steps"] = {name: steps(name, ways) for name in asked.models}
    for name in asked.models if asked.launched else ():
        launched(name)
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
