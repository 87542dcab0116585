"""Ops that the scalar oracle does not know: cases for them, answered by the Numba twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from tests.engines.op_arguments import op_arguments, parameters
from tests.oracle import check

SEED = 20_261_130
Array = np.ndarray[Any, np.dtype[Any]]
Case = tuple[str, check.Spec, check.Args]


def _wide(rng: np.random.Generator, *shape: int) -> Array:
    """Values of both signs over many binades, so that an order of addition shows."""
    return np.ldexp(rng.standard_normal(shape), rng.integers(-12, 13, shape)).astype(np.float32)


def _attention_f32(rng: np.random.Generator) -> Iterator[Case]:
    for rows, heads, n_kv, hd, pos in ((1, 4, 2, 96, 0), (1, 4, 2, 96, 70), (3, 6, 2, 32, 40)):
        # Of one size, or one key would outweigh all others and their scores would not show.
        q = rng.standard_normal((rows, heads, hd)).astype(np.float32)
        k = rng.standard_normal((pos + rows, n_kv, hd)).astype(np.float32)
        v = _wide(rng, pos + rows, n_kv, hd)
        scale = np.float32(1 / np.sqrt(hd))
        name = f"{rows} rows, {heads}/{n_kv} heads of {hd} at {pos}"
        yield name, (q.shape, np.float32), (q, k, v, scale, pos)


def _embed_f32(rng: np.random.Generator) -> Iterator[Case]:
    for hidden in (5, 160):
        w, tokens = _wide(rng, 7, hidden), np.array([3, 0, 6, 3], np.int32)
        yield f"{hidden} wide", ((4, hidden), np.float32), (w, tokens)


def _expert_f32_matvec(rng: np.random.Generator) -> Iterator[Case]:
    for rows, cols, groups in ((96, 160, 1), (33, 70, 3)):
        w = _wide(rng, 5, rows, cols)
        ids = np.array([[4, 0, 2], [1, 1, 3]], np.int32)
        x = _wide(rng, 2, groups, cols)
        yield f"{rows} x {cols}, {groups} inputs", ((2, 3, rows), np.float32), (w, ids, x)


def _norm_tree(rng: np.random.Generator) -> Iterator[Case]:
    for rows, d in ((1, 1), (3, 8), (2, 160), (1, 257)):
        x, w = _wide(rng, rows, d), _wide(rng, d)
        yield f"{rows} rows of {d}", (x.shape, np.float32), (x, w, np.float32(1e-6))


def _router_tree(rng: np.random.Generator) -> Iterator[Case]:
    for rows, experts, cols in ((1, 8, 160), (3, 5, 33)):
        w, x = _wide(rng, experts, cols), _wide(rng, rows, cols)
        yield f"{rows} rows, {experts} x {cols}", ((rows, experts), np.float32), (w, x)


TABLES: dict[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    "attention_f32": _attention_f32,
    "embed_f32": _embed_f32,
    "expert_f32_matvec": _expert_f32_matvec,
    "norm_tree": _norm_tree,
    "router_tree": _router_tree,
}


def twin_output(op_name: str, spec: check.Spec, args: check.Args) -> Array:
    """What the Numba op gives."""
    op = getattr(import_module(f"parity_cpu.ops.{op_name}"), op_name)
    out = np.full(spec[0], np.nan, spec[1])
    op(*op_arguments(op_name, parameters(op), [out], args))
    return out


def check_by_twin(
    op_name: str, run: Callable[[str, check.Args, tuple[check.Spec, ...]], check.Outputs]
) -> int:
    """Raise OpMismatch where a backend's output is not the Numba twin's; returns the cases."""
    count = 0
    for name, spec, args in TABLES[op_name](np.random.default_rng(SEED)):
        ref, (dut,) = twin_output(op_name, spec, args), run(op_name, args, (spec,))
        if (ref.dtype, ref.shape, ref.tobytes()) != (dut.dtype, dut.shape, dut.tobytes()):
            wrong = int(check.differing(ref, dut, any_nan=False).sum())
            raise check.OpMismatch(f"{op_name}[{name}]: {wrong} of {ref.size} differ")
        count += 1
    return count
