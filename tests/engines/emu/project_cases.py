"""Launches of fused_project at the borders of its shapes, beside the ops that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.model.layers import Q4, Floats
from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.fused import project as fused
from parity_cuda.ops import Ops
from parity_cuda.tuning import Tuning
from parity_cuda.weights import Matrix
from tests.engines.cuda.shape_cases import halves, wide

F = np.float32
EPS = F(1e-6)
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]
NAMES = ("rsqrt", "norm_tree", "fma", "split_k", "unpaired", "libm_exp", "exp_via_double")
LEAST, MOST = F(2.0**-86), F(2.0**26)  # q4_row.cuh: what its scaling is exact for


@dataclass(frozen=True)
class Shape:
    """``q4`` and ``f32``: rows of each matrix. ``end``: '', 'act' or 'total'."""

    cols: int
    q4: tuple[int, ...] = ()
    f32: tuple[int, ...] = ()
    norm: bool = True
    end: str = ""


SHAPES = (
    Shape(32, (1,)),
    Shape(160, (40,), norm=False, end="total"),
    Shape(288, (33, 7, 40), (3, 9)),
    Shape(96, (20, 20), end="act"),
    Shape(96, (65, 65), norm=False, end="act"),
    Shape(1056, (37,), end="total"),
    Shape(608, (3,), (2, 1, 4, 33)),
    Shape(50, (), (20, 20), end="act"),
    Shape(1540, (), (5,), norm=False, end="total"),
    Shape(16_640, (9,), norm=False),  # two windows of columns
)


def masks() -> Iterator[int]:
    """The exact tier, each variant that is read, and some of them together."""
    yield 0
    yield from (variant_mask([name]) for name in NAMES)
    for together in (
        ("fma", "unpaired"), ("fma", "split_k", "norm_tree"), ("unpaired", "split_k", "rsqrt"),
        ("fma", "unpaired", "split_k", "norm_tree", "rsqrt", "libm_exp"),
    ):  # fmt: skip
        yield variant_mask(together)


def _zeros(x: Array) -> None:
    x[::3], x[1::5] = 0, -0.0


def _tiny(x: Array) -> None:
    x *= F(2.0**-110)


def _edges(x: Array) -> None:
    x[:4] = LEAST, MOST, -LEAST, -MOST


def _far(place: int, value: float) -> Callable[[Array], None]:
    def change(x: Array) -> None:
        x[place % len(x)] = value

    return change


SPECIAL: dict[str, Callable[[Array], None]] = {
    "zeros": _zeros,
    "all zero": lambda x: x.fill(-0.0),
    "the borders of the scaling": _edges,
    "below the border": _far(5, float(np.nextafter(LEAST, F(0)))),
    "above the border": _far(7, float(np.nextafter(MOST, F(np.inf)))),
    "subnormal": _far(1, 1e-44),
    "huge": _far(11, 3e38),
    "an infinity": _far(3, float("-inf")),
    "a NaN": _far(2, float("nan")),
    "all tiny": _tiny,
}


def data(shape: Shape, special: str = "") -> Arrays:
    """What a launch is given, by name."""
    rng = np.random.default_rng((7, shape.cols, *shape.q4, *shape.f32))
    given: Arrays = {"x": wide(rng, 1, shape.cols), "w": wide(rng, shape.cols)}
    if special:
        SPECIAL[special](given["x"][0])
    for i, rows in enumerate(shape.q4):
        given[f"d{i}"] = halves(rng, rows, shape.cols // 32)
        given[f"qs{i}"] = rng.integers(0, 256, (rows, shape.cols // 2), np.uint8)
    for i, rows in enumerate(shape.f32):
        given[f"f{i}"] = wide(rng, rows, shape.cols)
    given["base"] = wide(rng, 1, (*shape.q4, *shape.f32)[0])
    return given


Run = Callable[..., None]


def found(
    run: Run, backend: Backend, shape: Shape, given: Arrays, mask: int, tuning: Tuning | None = None
) -> Arrays:
    """What ``run`` leaves, by name; outputs start as NaNs with sentinels behind them."""
    sent = {name: backend.upload(array) for name, array in given.items()}
    q4: list[Matrix] = [Q4(sent[f"d{i}"], sent[f"qs{i}"]) for i in range(len(shape.q4))]
    matrices: Sequence[Matrix] = [*q4, *(Floats(sent[f"f{i}"]) for i in range(len(shape.f32)))]
    rows = (*shape.q4, *shape.f32)
    names = [f"out{i}" for i in range(len(rows))]
    sizes = dict(zip(names, rows, strict=True))
    sizes |= {"normed": shape.cols} if shape.norm else {}
    sizes |= {shape.end: rows[0]} if shape.end else {}
    held = {name: backend.upload(np.full(n + 64, np.nan, F)) for name, n in sizes.items()}
    out = {name: held[name][:n].reshape(1, n) for name, n in sizes.items()}
    norm = fused.Norm(out["normed"], sent["w"], EPS) if shape.norm else None
    total = (out["total"], sent["base"]) if shape.end == "total" else None
    outs: list[tuple[Buffer, Matrix]] = list(zip((out[n] for n in names), matrices, strict=True))
    ops = Ops(backend, tuning)
    with np.errstate(all="ignore"):
        run(ops, sent["x"], outs, mask, norm=norm, act=out.get("act"), total=total)
    made = {name: backend.download(held[name]) for name in sizes}
    for name, n in sizes.items():
        assert np.isnan(made[name][n:]).all(), f"{name}: written past its end"
    return {name: made[name][:n] for name, n in sizes.items()}


def by_launch(*args: Any) -> Arrays:
    """By ``project``."""
    return found(fused.project, *args)


def by_ops(*args: Any) -> Arrays:
    """Op by op."""
    return found(fused.by_ops, *args)


def differing(ref: Arrays, dut: Arrays) -> list[str]:
    """Names of the values whose bytes differ."""
    assert list(ref) == list(dut)
    return [name for name in ref if ref[name].tobytes() != dut[name].tobytes()]
