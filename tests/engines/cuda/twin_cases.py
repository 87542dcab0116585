"""Ops that the scalar oracle does not know: cases for them, answered by the Numba twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from tests.engines.op_arguments import op_arguments, parameters
from tests.oracle import check

SEED = 20_261_130
F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Specs = tuple[check.Spec, ...]
Case = tuple[str, Specs, check.Args]
Runner = Callable[[str, check.Args, Specs], check.Outputs]


def _wide(rng: np.random.Generator, *shape: int) -> Array:
    """Values of both signs over many binades, so that an order of addition shows."""
    return np.ldexp(rng.standard_normal(shape), rng.integers(-12, 13, shape)).astype(F)


def _tame(rng: np.random.Generator, *shape: int) -> Array:
    """Values of size 1 or so: what goes through an exponential."""
    return (2 * rng.standard_normal(shape)).astype(F)


def _conv_step(rng: np.random.Generator) -> Iterator[Case]:
    for channels in (1, 65, 320):
        hist, qkv, w = _tame(rng, 3, channels), _tame(rng, channels), _tame(rng, channels, 4)
        yield f"{channels} channels", (((channels,), F),), (hist, qkv, w)


def _decay_rates(rng: np.random.Generator) -> Iterator[Case]:
    for heads in (1, 6, 70):
        yield f"{heads} heads", (((heads,), F),), (_tame(rng, heads),)


def _delta_gates(rng: np.random.Generator) -> Iterator[Case]:
    for rows, heads in ((1, 6), (3, 70)):
        a, b = (8 * _tame(rng, rows, heads) for _ in range(2))
        rates, dt_bias = -np.abs(_tame(rng, heads)), _tame(rng, heads)
        shape = ((rows, heads), F)
        yield f"{rows} rows of {heads}", (shape, shape), (a, b, rates, dt_bias)


def _delta_step(rng: np.random.Generator) -> Iterator[Case]:
    for key_heads, heads, key_width, width in ((1, 1, 1, 1), (2, 6, 96, 96), (2, 4, 33, 70)):
        q, k = (_wide(rng, key_heads, key_width) for _ in range(2))
        s, v = _wide(rng, heads, key_width, width), _wide(rng, heads, width)
        beta, g = (rng.random(heads, F) for _ in range(2))
        name = f"{key_heads}/{heads} heads of {key_width} x {width}"
        yield name, ((v.shape, F),), (s, q, k, v, beta, g)


def _l2norm(rng: np.random.Generator) -> Iterator[Case]:
    for rows, heads, width in ((1, 2, 96), (3, 2, 32), (2, 1, 5)):
        x = _wide(rng, rows, heads, width)
        yield f"{rows} rows, {heads} heads of {width}", ((x.shape, F),), (x, F(width**-0.5))


def _gate(rng: np.random.Generator) -> Iterator[Case]:
    for rows, n in ((1, 384), (3, 33)):
        yield f"{rows} rows of {n}", (((rows, n), F),), (_wide(rng, rows, n), _tame(rng, rows, n))


def _split_gate(rng: np.random.Generator) -> Iterator[Case]:
    for rows, heads, hd in ((1, 4, 96), (3, 2, 5)):
        shape = ((rows, heads, hd), F)
        yield f"{rows} rows, {heads} of {hd}", (shape, shape), (_wide(rng, rows, heads, 2 * hd),)


TABLES: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    "conv_step": _conv_step,
    "decay_rates": _decay_rates,
    "delta_gates": _delta_gates,
    "delta_step": _delta_step,
    "l2norm": _l2norm,
    "sigmoid_gate": _gate,
    "silu_gate": _gate,
    "split_gate": _split_gate,
}


def numba_run(op_name: str, args: check.Args, specs: Specs, mask: int = 0) -> check.Outputs:
    """What the Numba op gives with the variants of ``mask``; its inputs are changed as the op
    changes them."""
    op = getattr(import_module(f"parity_cpu.ops.{op_name}"), op_name)
    outputs = tuple(_garbage(*spec) for spec in specs)
    op(*op_arguments(op_name, parameters(op), outputs, args, mask))
    return outputs


def _garbage(shape: tuple[int, ...], dtype: type) -> Array:
    """An output that nothing has written: NaNs as floats."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(count, 0xFF, np.uint8).view(dtype).reshape(shape)


def cases_of(op_name: str) -> Iterator[Case]:
    """Seeded cases of one op, the same at every call."""
    yield from TABLES[op_name](np.random.default_rng(SEED))


def check_by_twin(op_name: str, run: Runner) -> int:
    """Raise OpMismatch where a backend differs from the Numba twin in an output, or in an input
    after the run; returns how many cases were compared."""
    count = 0
    for name, specs, args in cases_of(op_name):
        ref_args, dut_args = (tuple(map(_copied, args)) for _ in range(2))
        ref = (*numba_run(op_name, ref_args, specs), *ref_args)
        dut = (*run(op_name, dut_args, specs), *dut_args)
        for at, (one, other) in enumerate(
            zip(map(np.asarray, ref), map(np.asarray, dut), strict=True)
        ):
            if (one.dtype, one.shape, one.tobytes()) != (other.dtype, other.shape, other.tobytes()):
                wrong = int(check.differing(one, other, any_nan=False).sum())
                raise check.OpMismatch(f"{op_name}[{name}]: {wrong} of {one.size} in array {at}")
        count += 1
    return count


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
