"""The fused launches of a Gated DeltaNet step beside the ops that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from parity.variants import variant_mask
from parity_cuda.backend import Backend
from parity_cuda.fused import delta
from parity_cuda.ops import Ops
from parity_cuda.weights import Gdn
from tests.engines.cuda.op_runner import WroteOutside
from tests.oracle.values import generator

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]
EPS = F(1e-6)
NORM_TREE = variant_mask(["norm_tree"])
SENTINEL = 64  # elements after each output that no kernel may touch
MADE = ("conv", "qn", "kn", "beta", "g", "o", "gn")  # then hist and s, in place


@dataclass(frozen=True)
class Shape:
    """key_heads and heads of key_width x width, M rows."""

    key_heads: int
    heads: int
    key_width: int
    width: int
    rows: int = 1

    @property
    def channels(self) -> int:
        """Q, K and V side by side."""
        return 2 * self.key_heads * self.key_width + self.heads * self.width

    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of ``MADE``."""
        keys = (self.rows, self.key_heads, self.key_width)
        heads, values = (self.rows, self.heads), (self.rows, self.heads, self.width)
        shapes = ((self.rows, self.channels), keys, keys, heads, heads, values, values)
        return dict(zip(MADE, shapes, strict=True))

    def __str__(self) -> str:
        """``2/6 heads of 96 x 96, 1 rows``."""
        heads = f"{self.key_heads}/{self.heads} heads of {self.key_width} x {self.width}"
        return f"{heads}, {self.rows} rows"


# Each tail of a chain, a tile that is full, is not, is one of several; a key width that is wide.
SHAPES = (
    Shape(1, 1, 1, 1), Shape(2, 4, 5, 3, 2), Shape(2, 6, 96, 96), Shape(1, 2, 33, 70, 3),
    Shape(1, 3, 16, 130), Shape(1, 1, 31, 129, 2), Shape(2, 2, 128, 128), Shape(1, 2, 130, 33, 2),
    Shape(1, 1, 150, 20, 3), Shape(3, 3, 64, 32, 5),
)  # fmt: skip
SMALL = (Shape(1, 1, 1, 1), Shape(2, 4, 17, 6), Shape(1, 2, 9, 131), Shape(1, 1, 129, 3, 3),
         Shape(1, 2, 6, 5, 2))  # fmt: skip
SPECIAL = (0.0, -0.0, 1e-45, -1e-40, 3e38, np.inf, -np.inf, np.nan)


def data(shape: Shape, special: bool = False) -> Arrays:
    """Inputs, state and weights; ``special``: some are zeros, subnormals, infinities and NaNs."""
    rng = generator(f"delta {shape} {special}")
    rows, heads, channels = shape.rows, shape.heads, shape.channels

    def wide(*size: int) -> Array:
        values = np.ldexp(rng.standard_normal(size), rng.integers(-3, 4, size)).astype(F)
        if special:
            values = np.where(rng.random(size) < 0.03, rng.choice(SPECIAL, size).astype(F), values)
        return values.astype(F)

    return {
        "qkv": wide(rows, channels), "z": wide(rows, heads, shape.width),
        "a": wide(rows, heads), "b": wide(rows, heads), "conv_w": wide(channels, 4),
        "rates": -np.abs(wide(heads)), "dt_bias": wide(heads), "norm": wide(shape.width),
        "hist": wide(3, channels), "s": wide(heads, shape.key_width, shape.width),
    }  # fmt: skip


def by_ops(backend: Backend, shape: Shape, given: Arrays, mask: int) -> Arrays:
    """Op by op, row by row."""
    ops = Ops(backend)
    out = {name: backend.empty(size, F) for name, size in shape.outputs().items()}
    held = {name: backend.upload(array) for name, array in given.items()}
    at, normed = shape.key_heads * shape.key_width, backend.empty(shape.outputs()["o"], F)
    for m in range(shape.rows):
        ops.conv_step(out["conv"][m], held["hist"], held["qkv"][m], held["conv_w"], mask)
    flat = out["conv"].reshape(-1)
    ops.l2norm(out["qn"], flat, F(1.0 / sqrt(shape.key_width)), shape.channels)
    ops.l2norm(out["kn"], flat[at:], F(1.0), shape.channels)
    gates = (held["a"], held["b"], held["rates"], held["dt_bias"])
    ops.delta_gates(out["beta"], out["g"], *gates, mask)
    for m in range(shape.rows):
        q, k, beta, g = (out[name][m] for name in ("qn", "kn", "beta", "g"))
        ops.delta_step(out["o"][m], held["s"], q, k, out["conv"][m, 2 * at :], beta, g)
    if mask & NORM_TREE:
        heads = (normed.reshape(-1, shape.width), out["o"].reshape(-1, shape.width))
        ops.norm_tree(*heads, held["norm"], EPS, mask)
    else:
        ops.headnorm(normed, out["o"], held["norm"], EPS, mask)
    ops.silu_gate(out["gn"], normed, held["z"], mask)
    return _taken(backend, {**out, "hist": held["hist"], "s": held["s"]})


def by_launches(
    backend: Backend, shape: Shape, given: Arrays, mask: int, garbage: int = 0xFF
) -> Arrays:
    """In two launches; WroteOutside where one wrote past the end of an output."""
    sizes = {**shape.outputs(), "hist": given["hist"].shape, "s": given["s"].shape}
    whole = {name: _guarded(backend, size, garbage) for name, size in sizes.items()}
    out = {
        name: held[: int(np.prod(sizes[name]))].reshape(sizes[name]) for name, held in whole.items()
    }
    for name in ("hist", "s"):
        backend.write(out[name], given[name])
    held = {name: backend.upload(array) for name, array in given.items()}
    read = delta.Read(out["qn"], out["kn"], out["conv"], out["beta"], out["g"])
    projected = delta.Projected(held["qkv"], held["z"], held["a"], held["b"])
    delta.inputs(Ops(backend), read, out["hist"], projected, weights_of(held), mask)
    norm = (held["norm"], EPS)
    delta.step(Ops(backend), out["o"], out["gn"], out["s"], read, held["z"], norm, mask)
    for name, memory in whole.items():
        after = backend.download(memory)[int(np.prod(sizes[name])) :]
        if (after.view(np.uint8) != garbage).any():
            raise WroteOutside(f"fused_delta: wrote past the end of its output {name}")
    return _taken(backend, out)


def weights_of(held: dict[str, Any]) -> Gdn:
    """What the launches read of a layer's weights."""
    none: Any = None
    names = (held["conv_w"], held["rates"], held["dt_bias"], held["norm"])
    return Gdn(none, none, none, none, *names, none)


def differing(ref: Arrays, dut: Arrays) -> list[str]:
    """Names of the arrays with other bytes; which NaN it is is the compiler's choice (contract
    1.10)."""
    pairs = ((name, *(np.where(np.isnan(x), F(np.nan), x) for x in (ref[name], dut[name])))
             for name in ref)  # fmt: skip
    return [name for name, one, other in pairs if one.tobytes() != other.tobytes()]


def masks() -> Iterator[int]:
    """Every set of the variants that these launches read."""
    for norm in ([], ["rsqrt"], ["norm_tree"], ["norm_tree", "rsqrt"]):
        for exponential in ([], ["libm_exp"], ["exp_via_double"]):
            yield variant_mask([*norm, *exponential])


def _guarded(backend: Backend, size: tuple[int, ...], garbage: int) -> Any:
    count = 4 * (int(np.prod(size)) + SENTINEL)
    return backend.upload(np.full(count, garbage, np.uint8).view(F))


def _taken(backend: Backend, out: dict[str, Any]) -> Arrays:
    return {name: backend.download(buffer) for name, buffer in out.items()}
