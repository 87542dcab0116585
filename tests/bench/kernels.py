"""Time each kernel of the device engine at the shapes of two models, on random data on the device.

Usage: kernels.py [--json FILE] [--against FILE] [--only WORD]. Each case is captured into a CUDA
graph over as many copies of its weights as it takes that none is in the second cache, and replayed:
the time is the median replay over its launches, so it counts the gap between two kernels of a graph
and no launch by the host. `--json` keeps times and a digest of every output; `--against` puts the
times of such a file beside the new ones and ends 1 where an output of the exact tier differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from parity.model.layers import Q4, Floats
from parity.protocol import EngineSettings
from parity.variants import TIERS, variant_mask
from parity_cuda.backend import Buffer
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.fused import delta as delta_launches
from parity_cuda.fused.project import Norm
from parity_cuda.fused.project import project as project_launch
from parity_cuda.ops import Ops, padded, scratch_width
from parity_cuda.weights import Gdn
from tests.bench.moe_run import MoeRun, MoeShape

SEED = 20_261_130
COLD = 200 << 20  # bytes of weights that no cache keeps between two uses
BUDGET = 20_000.0  # microseconds of one replay
REPLAYS = 15
FAST = variant_mask(TIERS["fast"])
F = np.float32


@dataclass(frozen=True)
class Case:
    """``make(ops, data)`` gives the output and a launch for each copy; ``size``: bytes moved."""

    model: str
    name: str
    size: int
    make: Callable[[Ops, Data], tuple[Buffer, list[Callable[[], None]]]]


@dataclass(frozen=True)
class Timed:
    """``us``: of one launch of the op; ``digest``: of its output."""

    model: str
    name: str
    size: int
    us: float
    digest: str


class Data:
    """Random arrays on the device; large ones repeat a random piece."""

    def __init__(self, backend: CupyBackend) -> None:
        self.backend = backend
        self.rng = np.random.default_rng(SEED)
        self.piece = self.rng.integers(0, 256, 1 << 24, np.uint8)

    def bytes(self, *shape: int, dtype: type = np.uint8) -> Buffer:
        """Any bytes."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.backend.upload(np.resize(self.piece, count).view(dtype).reshape(shape))

    def floats(self, *shape: int, scale: float = 1.0) -> Buffer:
        """Normal values."""
        some = self.rng.standard_normal(min(int(np.prod(shape)), 1 << 20)) * scale
        return self.backend.upload(np.resize(some.astype(F), shape))

    def uniform(self, *shape: int) -> Buffer:
        """Between 0 and 1."""
        return self.backend.upload(self.rng.random(shape, F))

    def halves(self, *shape: int) -> Buffer:
        """Scales of Q4_0 blocks, as bits of f16."""
        some = (0.002 + 0.01 * self.rng.random(1 << 20)).astype(np.float16).view(np.uint16)
        return self.backend.upload(np.resize(some, shape))

    def empty(self, *shape: int) -> Buffer:
        """Room for an output."""
        return self.backend.upload(np.zeros(shape, F))


def copies(size: int) -> int:
    """How many copies of weights of ``size`` bytes keep the caches cold."""
    return max(2, min(48, -(-COLD // size)))


def q4(model: str, rows: int, cols: int, count: int = 1, tier: int = 0) -> Case:
    """A Q4_0 projection."""
    nb = cols // 32
    size = rows * nb * 18

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        x, out = data.floats(count, cols), data.empty(count, rows)
        weights = [(data.halves(rows, nb), data.bytes(rows, nb * 16)) for _ in range(copies(size))]
        return out, [lambda w=w: ops.q4_matvec(out, *w, x, tier) for w in weights]  # type: ignore[misc]

    kind = " fast" if tier else ""
    return Case(model, f"q4_matvec {rows}x{cols} M={count}{kind}", size, make)


def project(
    model: str, rows: tuple[int, ...], cols: int, what: str = "", floats: int = 0, tier: int = 0
) -> Case:
    """Matrices of one row in one launch, the last ``floats`` f32. what: norm, act, total."""
    split = len(rows) - floats
    size = sum(rows[:split]) * cols // 32 * 18 + sum(rows[split:]) * cols * 4

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        x, w, base = data.floats(1, cols), data.floats(cols), data.floats(1, rows[0])
        outs, made = [data.empty(1, n) for n in rows], data.empty(1, rows[0])
        norm = Norm(data.empty(1, cols), w, F(1e-6)) if "norm" in what else None
        given: dict[str, Any] = {"norm": norm, "act": made if "act" in what else None}
        given["total"] = (made, base) if "total" in what else None
        matrices: list[list[Any]] = [
            [Q4(data.halves(n, cols // 32), data.bytes(n, cols // 2)) for n in rows[:split]]
            + [Floats(data.floats(n, cols)) for n in rows[split:]]
            for _ in range(copies(size))
        ]
        return outs[0], [
            partial(project_launch, ops, x, list(zip(outs, each, strict=True)), tier, **given)
            for each in matrices
        ]

    name = f"fused_project {'+'.join(map(str, rows))}x{cols}"
    kind = f"{' ' if what else ''}{what}{' fast' if tier else ''}"
    return Case(model, name + kind, size, make)


def f32(model: str, rows: int, cols: int, count: int = 1) -> Case:
    """An f32 projection: the router, in_proj_a and in_proj_b."""
    size = rows * cols * 4

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        x, out = data.floats(count, cols), data.empty(count, rows)
        weights = [data.floats(rows, cols) for _ in range(min(8, copies(size)))]
        return out, [lambda w=w: ops.f32_matvec(out, w, x, 0) for w in weights]  # type: ignore[misc]

    return Case(model, f"f32_matvec {rows}x{cols} M={count}", size, make)


def expert(model: str, rows: int, cols: int, groups: int, tier: int = 0) -> Case:
    """8 of 128 experts."""
    nb, ranks = cols // 32, 8
    size = ranks * rows * nb * 18

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        out, q = data.empty(1, ranks, rows), data.bytes(1, groups, cols, dtype=np.int16)
        s_a, probs = data.uniform(1, groups, nb), data.uniform(1, ranks)
        d, qs = data.halves(128, rows, nb), data.bytes(128, rows, nb * 16)
        chosen = [data.rng.permutation(128)[:ranks].astype(np.int32)[None] for _ in range(16)]
        ids = [data.backend.upload(each) for each in chosen]
        return out, [
            lambda i=i: ops.expert_matvec(out, d, qs, i, probs, q, s_a, tier)  # type: ignore[misc]
            for i in ids
        ]

    kind = " fast" if tier else ""
    return Case(model, f"expert_matvec 8 x {rows}x{cols}{kind}", size, make)


def attention(
    model: str, heads: tuple[int, int, int], ctx: int, int8: bool, count: int = 1, tier: int = 0
) -> Case:
    """``count`` rows, the first of which sees ``ctx`` keys."""
    n_q, n_kv, hd = heads
    size = 2 * ctx * n_kv * (hd + 4 if int8 else 4 * hd)
    keys = ctx + count - 1

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        out, scale = data.empty(count, n_q, hd), F(hd**-0.5)
        scratch = data.empty(count, n_q, scratch_width(padded(keys)))
        pos = ops.backend.upload(np.array([ctx - 1], np.int32))
        if not int8:
            q = data.floats(count, n_q, hd)
            caches = [[data.floats(keys, n_kv, hd) for _ in range(2)] for _ in range(8)]
            return out, [
                lambda c=c: ops.attention_f32(out, q, *c, scale, pos, tier, scratch)  # type: ignore[misc]
                for c in caches
            ]
        q8, q_scale = data.bytes(count, n_q, hd, dtype=np.int8), data.floats(count, n_q, scale=0.01)
        cached = [
            [part for _ in range(2) for part in
             (data.bytes(keys, n_kv, hd, dtype=np.int8), data.floats(keys, n_kv, scale=0.01))]
            for _ in range(8)
        ]  # fmt: skip
        return out, [
            lambda c=c: ops.attention_int8(out, q8, q_scale, *c, scale, pos, tier, scratch)  # type: ignore[misc]
            for c in cached
        ]

    kind = " fast" if tier else ""
    name = f"attention_{'int8' if int8 else 'f32'} {n_q}/{n_kv}x{hd} ctx {ctx} M={count}{kind}"
    return Case(model, name, size, make)


def small(
    model: str, name: str, size: int, make: Callable[[Ops, Data], tuple[Buffer, Any]]
) -> Case:
    """A kernel of few bytes: launched eight times in turn."""

    def many(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        out, launch = make(ops, data)
        return out, [launch] * 8

    return Case(model, name, size, many)


def rmsnorm(model: str, d: int) -> Case:
    """One row."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        out, x, w = data.empty(1, d), data.floats(1, d), data.floats(d)
        return out, lambda: ops.rmsnorm(out, x, w, F(1e-6), 0)

    return small(model, f"rmsnorm {d}", 12 * d, make)


def headnorm(model: str, heads: int, hd: int) -> Case:
    """All heads of one row."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        out, x, w = data.empty(1, heads, hd), data.floats(1, heads, hd), data.floats(hd)
        return out, lambda: ops.headnorm(out, x, w, F(1e-6), 0)

    return small(model, f"headnorm {heads}x{hd}", 8 * heads * hd, make)


def l2norm(model: str, heads: int, width: int) -> Case:
    """All key heads of one row."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        out, x = data.empty(1, heads, width), data.floats(heads * width)
        return out, lambda: ops.l2norm(out, x, F(1.0), heads * width)

    return small(model, f"l2norm {heads}x{width}", 8 * heads * width, make)


def quant8(model: str, heads: int, hd: int) -> Case:
    """All heads of one row."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        q, scale = data.bytes(1, heads, hd, dtype=np.int8), data.empty(1, heads)
        x = data.floats(1, heads, hd)
        return q, lambda: ops.quant8(q, scale, x, 0)

    return small(model, f"quant8 {heads}x{hd}", 5 * heads * hd, make)


def quant16(model: str, width: int) -> Case:
    """One row."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        q, scale = data.bytes(1, 1, width, dtype=np.int16), data.empty(1, 1, width // 32)
        x = data.floats(1, 1, width)
        return q, lambda: ops.quant16(q, scale, x, 0)

    return small(model, f"quant16 {width}", 6 * width, make)


def topk(model: str, experts: int, ranks: int) -> Case:
    """One row."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        ids, probs = data.bytes(1, ranks, dtype=np.int32), data.empty(1, ranks)
        logits = data.floats(1, experts)
        return probs, lambda: ops.router_topk(ids, probs, logits, True, 0)

    return small(model, f"router_topk {ranks} of {experts}", 4 * experts, make)


def conv(model: str, channels: int) -> Case:
    """One row; the history moves on with every launch."""

    def make(ops: Ops, data: Data) -> tuple[Buffer, Any]:
        out, hist = data.empty(channels), data.floats(3, channels)
        qkv, w = data.floats(channels), data.floats(channels, 4)
        return out, lambda: ops.conv_step(out, hist, qkv, w, 0)

    return small(model, f"conv_step {channels}", 48 * channels, make)


def delta(model: str, key_heads: int, heads: int, width: int) -> Case:
    """One row; S decays with every launch."""
    size = 8 * heads * width * width

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        o, v = data.empty(heads, width), data.floats(heads, width)
        q, k = (data.floats(key_heads, width, scale=0.1) for _ in range(2))
        beta, g = data.uniform(heads), data.uniform(heads)
        states = [data.floats(heads, width, width) for _ in range(48)]
        return o, [lambda s=s: ops.delta_step(o, s, q, k, v, beta, g) for s in states]  # type: ignore[misc]

    return Case(model, f"delta_step {heads}x{width}x{width}", size, make)


def fused_delta(model: str, key_heads: int, heads: int, width: int, count: int = 1) -> Case:
    """What lies between the projections of a Gated DeltaNet layer, in two launches, M rows."""
    channels = (2 * key_heads + heads) * width
    size = 8 * heads * width * width + 4 * channels * (10 + 2 * count)

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        keys, row = (count, key_heads, width), (count, heads)
        read = delta_launches.Read(
            data.empty(*keys), data.empty(*keys), data.empty(count, channels),
            data.empty(*row), data.empty(*row),
        )  # fmt: skip
        z, o, gn = data.floats(*row, width), data.empty(*row, width), data.empty(*row, width)
        given = delta_launches.Projected(
            data.floats(count, channels), z, data.floats(*row), data.floats(*row)
        )
        none: Any = None
        rates = data.backend.upload(-data.rng.random(heads, F))  # S decays with every launch
        weights = Gdn(none, none, none, none, data.floats(channels, 4), rates, data.floats(heads),
                      data.floats(width), none)  # fmt: skip
        states = [(data.floats(3, channels), data.floats(heads, width, width)) for _ in range(48)]

        def launch(hist: Buffer, s: Buffer) -> None:
            delta_launches.inputs(ops, read, hist, given, weights, 0)
            delta_launches.step(ops, o, gn, s, read, z, (weights.norm, F(1e-6)), 0)

        return gn, [lambda each=each: launch(*each) for each in states]  # type: ignore[misc]

    return Case(model, f"fused_delta {heads}x{width}x{width} M={count}", size, make)


MOE, HYBRID = "qwen3-30b-a3b", "qwen3.5-27b"


def moe(model: str, launch: str, shape: MoeShape, tier: int = 0) -> Case:
    """One of the fused launches of an MoE FFN, or all three."""
    experts, ranks, inter, hidden = shape
    sizes = {"route": experts * hidden * 4, "gate_up": ranks * inter * hidden * 9 // 8,
             "down": ranks * inter * hidden * 9 // 16}  # fmt: skip
    names = [name for name in sizes if launch in (name, "ffn")]

    def make(ops: Ops, data: Data) -> tuple[Buffer, list[Callable[[], None]]]:
        layers = [MoeRun(ops, data, shape, tier) for _ in range(6)]
        for layer in layers:
            layer.run([*sizes])
        return layers[0].x, [partial(layer.run, names) for layer in layers]

    kind = " fast" if tier else ""
    name = f"fused {launch} {ranks} of {experts} x {inter}x{hidden}{kind}"
    return Case(model, name, sum(sizes[name] for name in names), make)


def cases() -> Iterator[Case]:
    """Every kernel whose time is not that of a launch alone."""
    for rows, cols in ((4096, 2048), (512, 2048), (5120, 2048), (2048, 4096), (151936, 2048)):
        yield from (q4(MOE, rows, cols), q4(MOE, rows, cols, tier=FAST))
    for tier in (0, FAST):
        yield project(MOE, (4096, 512, 512), 2048, "norm", tier=tier)
        yield project(MOE, (2048,), 4096, "total", tier=tier)
        yield project(MOE, (151936,), 2048, "norm", tier=tier)
        yield project(HYBRID, (10240, 6144, 48, 48), 5120, "norm", 2, tier)
        yield project(HYBRID, (12288, 1024, 1024), 5120, "norm", tier=tier)
        yield project(HYBRID, (17408, 17408), 5120, "norm act", tier=tier)
        yield project(HYBRID, (5120,), 6144, "total", tier=tier)
        yield project(HYBRID, (5120,), 17408, "total", tier=tier)
        yield project(HYBRID, (248320,), 5120, "norm", tier=tier)
    yield from (f32(MOE, 128, 2048), f32(MOE, 128, 2048, 4), f32(MOE, 128, 2048, 8))
    yield from (expert(MOE, 768, 2048, 1), expert(MOE, 2048, 768, 8))
    yield from (expert(MOE, 768, 2048, 1, FAST), expert(MOE, 2048, 768, 8, FAST))
    for ctx in (256, 1024, 4096, 16384):
        for tier in (0, FAST):
            yield attention(MOE, (32, 4, 128), ctx, int8=True, tier=tier)
    yield from (attention(MOE, (32, 4, 128), 1024, int8=True, count=m) for m in (2, 4, 8))
    yield from (rmsnorm(MOE, 2048), headnorm(MOE, 32, 128), quant8(MOE, 32, 128))
    yield from (quant16(MOE, 2048), topk(MOE, 128, 8))
    for tier in (0, FAST):
        for launch in ("route", "gate_up", "down", "ffn"):
            yield moe(MOE, launch, (128, 8, 768, 2048), tier)
    for rows, cols in ((17408, 5120), (5120, 17408), (10240, 5120), (6144, 5120), (1024, 5120)):
        yield from (q4(HYBRID, rows, cols), q4(HYBRID, rows, cols, tier=FAST))
        yield from (q4(HYBRID, rows, cols, m) for m in (2, 4, 8))
    yield from (q4(HYBRID, 248320, 5120, m) for m in (1, 4, 8))
    yield from (f32(HYBRID, 48, 5120), f32(HYBRID, 48, 5120, 8))
    for ctx in (1024, 4096):
        for tier in (0, FAST):
            yield attention(HYBRID, (24, 4, 256), ctx, int8=False, tier=tier)
    yield attention(HYBRID, (24, 4, 256), 1024, int8=False, count=8)
    yield from (delta(HYBRID, 16, 48, 128), conv(HYBRID, 10240), l2norm(HYBRID, 16, 128))
    yield from (fused_delta(HYBRID, 16, 48, 128, m) for m in (1, 4, 8))
    yield from (rmsnorm(HYBRID, 5120), headnorm(HYBRID, 24, 256))


def replayed(backend: CupyBackend, launches: Sequence[Callable[[], None]]) -> float:
    """Microseconds of one launch in a graph of all of them."""
    cupy, stream = backend._cupy, backend._stream  # overlapping launches know no other stream
    with stream:
        for launch in launches:
            launch()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        launches[0]()
        end.record(stream)
        end.synchronize()
        once = max(1.0, 1000 * cupy.cuda.get_elapsed_time(begin, end))
        turns = max(1, min(-(-96 // len(launches)), int(BUDGET / once / len(launches))))
        stream.begin_capture()
        for _ in range(turns):
            for launch in launches:
                launch()
        graph = stream.end_capture()
        times = []
        for _ in range(REPLAYS + 3):
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            times.append(1000 * cupy.cuda.get_elapsed_time(begin, end))
    return median(times[3:]) / (turns * len(launches))


def measure(case: Case, backend: CupyBackend) -> Timed:
    """The first launch is digested; then all are timed."""
    out, launches = case.make(Ops(backend), Data(backend))
    launches[0]()
    digest = hashlib.sha256(backend.download(out).tobytes()).hexdigest()[:16]
    us = replayed(backend, launches)
    return Timed(case.model, case.name, case.size, us, digest)


def table(rows: Sequence[Timed], before: dict[str, Timed]) -> list[str]:
    """Markdown: time, bytes over time, and what was measured before."""
    lines = ["| model | kernel | before us | us | GB/s |", "| --- | --- | ---: | ---: | ---: |"]
    for row in rows:
        old = before.get(f"{row.model} {row.name}")
        was = f"{old.us:.1f}" if old else "-"
        rate = row.size / row.us / 1000
        lines.append(f"| {row.model} | {row.name} | {was} | {row.us:.2f} | {rate:.0f} |")
    return lines


def main(argv: Sequence[str]) -> int:
    """Print the table; 1 where outputs differ from those of ``--against``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args(argv)
    before = {}
    if given.against:
        kept = (Timed(**each) for each in json.loads(given.against.read_text())["cases"])
        before = {f"{each.model} {each.name}": each for each in kept}
    # A device has its own tier's code alone; other masks would be timed in the code for all.
    devices = {tier: CupyBackend(EngineSettings(tier, TIERS[tier])) for tier in TIERS}
    backend = devices["exact"]
    pool = backend._cupy.get_default_memory_pool()
    rows = []
    for case in cases():
        if given.only in f"{case.model} {case.name}":
            rows.append(measure(case, devices["fast"] if "fast" in case.name else backend))
            pool.free_all_blocks()
    print(", ".join(f"{name} {value}" for name, value in backend.info().items()))
    print("\n".join(table(rows, before)))
    if given.json:
        given.json.write_text(json.dumps({"cases": [asdict(row) for row in rows]}))
    differ = [
        row.name
        for row in rows
        if "fast" not in row.name
        and (old := before.get(f"{row.model} {row.name}"))
        and old.digest != row.digest
    ]
    print(f"compared {len(before)} cases; other bytes: {differ}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
