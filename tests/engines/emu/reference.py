"""What the kernels of cuda/good.cu compute, in NumPy, in the same order of operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity_cuda.emu import EmuModule, Schedule

f32 = np.float32
Array = np.ndarray

ASCENDING = Schedule("ascending")
ROWS, WIDTH = 6, 1064
HEADS, POSITIONS, DIM = 3, 37, 32
WARP_ROWS = 24


@dataclass(frozen=True)
class Inputs:
    """x: (ROWS, WIDTH), w: (WIDTH,), q, k, v: (HEADS, POSITIONS, DIM), lanes: (WARP_ROWS, 32)."""

    x: Array
    w: Array
    q: Array
    k: Array
    v: Array
    lanes: Array


def inputs() -> Inputs:
    """Seeded float32 values; row 1 of ``x`` is subnormal, so that a flush to zero shows."""
    random = np.random.default_rng(20251)

    def normal(*shape: int) -> Array:
        return random.standard_normal(shape).astype(f32)

    x = normal(ROWS, WIDTH) * f32(10.0) ** np.arange(-3, ROWS - 3, dtype=f32)[:, None]
    x[1] = normal(WIDTH) * f32(1e-39)
    q, k, v = (normal(HEADS, POSITIONS, DIM) * f32(3.0) for _ in range(3))
    return Inputs(x, normal(WIDTH), q, k, v, normal(WARP_ROWS, 32))


def rmsnorm(x: Array, w: Array, eps: f32) -> Array:
    """Blocks of 8 as trees, the blocks ascending."""
    b = x.reshape(len(x), -1, 8)
    part = b[:, :, :4] * b[:, :, :4] + b[:, :, 4:] * b[:, :, 4:]
    sums = (part[:, :, 0] + part[:, :, 1]) + (part[:, :, 2] + part[:, :, 3])
    ss = np.zeros(len(x), f32)
    for block in range(sums.shape[1]):
        ss = ss + sums[:, block]
    scale = f32(1.0) / np.sqrt(ss / f32(x.shape[1]) + eps)
    return (x * scale[:, None]) * w


def own_exp(x: Array) -> Array:
    """The same steps as good.cuh; both fused products are exact in float64, and so are the sums."""
    k = np.rint(x * f32(1.44269504))
    wide = k.astype(np.float64)
    r = (wide * float(f32(-0.693359375)) + x).astype(f32)
    r = (wide * float(f32(2.12194440e-4)) + r).astype(f32)
    p = f32(1.3981999507e-3)
    for c in (8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + f32(c)
    p = p * (r * r) + r + f32(1.0)
    power = ((k.astype(np.int32) + np.int32(127)) << np.int32(23)).view(f32)
    return np.where(x < f32(-87.0), f32(0.0), p * power)


def attention(q: Array, k: Array, v: Array, sm_scale: f32) -> Array:
    """One head and query row at a time; keys ascending."""
    out = np.empty_like(q)
    for row in range(q.shape[1]):
        scores = np.zeros((len(q), row + 1), f32)
        for e in range(q.shape[2]):
            scores = scores + q[:, row, e, None] * k[:, : row + 1, e]
        scores = scores * sm_scale
        p = own_exp(scores - scores.max(axis=1, keepdims=True))
        total, acc = np.zeros((len(q), 1), f32), np.zeros((len(q), q.shape[2]), f32)
        for key in range(row + 1):
            total = total + p[:, key, None]
            acc = acc + p[:, key, None] * v[:, key]
        out[:, row] = acc / total
    return out


def warp_ops(x: Array) -> tuple[Array, Array]:
    """Sum, scan, rotation, neighbour: (rows, 32, 4) float32; votes: (rows, 2) uint32."""
    lane = np.arange(32)
    total = x
    for distance in (16, 8, 4, 2, 1):
        total = total + total[:, lane ^ distance]
    scan = x
    for by in (1, 2, 4, 8, 16):
        scan = np.where(lane >= by, scan[:, np.maximum(lane - by, 0)] + scan, scan)
    turned = x[:, (lane & ~7) | ((lane + 3) & 7)]
    following = x[:, np.where(lane % 16 == 15, lane, np.minimum(lane + 1, 31))]
    positive = ((x > 0).astype(np.uint32) << lane.astype(np.uint32)).sum(1, dtype=np.uint32)
    checks = 2 * (x > -9).all(1) + (x > 3).any(1)
    values = np.stack([total, scan, turned, following], axis=2)
    return values, np.stack([positive, checks.astype(np.uint32)], axis=1)


def run_all(module: EmuModule, given: Inputs, schedule: Schedule) -> dict[str, bytes]:
    """The bytes that the three kernels give."""
    y, o = np.empty_like(given.x), np.empty_like(given.q)
    lanes, votes = np.empty((WARP_ROWS, 32, 4), f32), np.empty((WARP_ROWS, 2), np.uint32)
    args = (given.x, given.w, y, np.int32(WIDTH), f32(1e-6))
    module.launch("rmsnorm", (ROWS,), (64,), args, schedule=schedule)
    args = (given.q, given.k, given.v, o, np.int32(POSITIONS), f32(0.125))
    shape = ((POSITIONS, HEADS), (DIM,))
    module.launch("attention", *shape, args, shared_bytes=4 * POSITIONS, schedule=schedule)
    args = (given.lanes, lanes, votes)
    module.launch("warp_ops", (WARP_ROWS // 4,), (32, 4), args, schedule=schedule)
    arrays = {"rmsnorm": y, "attention": o, "warp_ops": lanes, "votes": votes}
    return {name: array.tobytes() for name, array in arrays.items()}


def expected(given: Inputs) -> dict[str, bytes]:
    """The bytes that NumPy gives."""
    lanes, votes = warp_ops(given.lanes)
    arrays = {
        "rmsnorm": rmsnorm(given.x, given.w, f32(1e-6)),
        "attention": attention(given.q, given.k, given.v, f32(0.125)),
        "warp_ops": lanes,
        "votes": votes,
    }
    return {name: array.tobytes() for name, array in arrays.items()}
