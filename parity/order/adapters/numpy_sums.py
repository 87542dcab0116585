"""NumPy's sums on this CPU: ``numpy.sum``, ``numpy.dot``, ``numpy.matmul``."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np

from parity.errors import InputError
from parity.order.adapters.called import Call, CalledOp, Floats, Spread, narrow, spread
from parity.order.own.asked import needed
from parity.order.sums import Ask, refuse_unknown

THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


class NumpySums:
    """Family ``numpy``. M of ``sum``: rows that one call reduces; of ``matmul``: rows of the batch
    (M = 1: ``w @ x``). ``dot`` gives one sum a call."""

    def names(self) -> tuple[str, ...]:
        """``sum`` of values, ``dot`` and ``matmul`` of products."""
        return ("sum", "dot", "matmul")

    def make(self, name: str, ask: Ask, M: int) -> CalledOp:
        """As ``SumFamily.make``; f32 and f16, on the CPU."""
        op, K, N, dtype = f"numpy.{name}", ask.K, ask.N, ask.dtype
        refuse_unknown(op, ask.settings, ("row",) if name == "matmul" else ())
        if ask.device != "cpu":
            raise InputError(f"{op} runs on the CPU", "write --device cpu")
        if dtype == "bf16":
            raise InputError(f"{op}: NumPy has no bf16", "write --dtype f32 or f16")
        key = _key(op, dtype)
        if name == "sum":
            key["shape"] = f"w ({M}, {K}), sums along the last axis"
            return CalledOp(op, K, M, "values", dtype, dtype, _sum(dtype), key)
        if name == "dot":
            if M != 1:
                raise InputError(f"{op} --M {M}: it gives one sum a call", "write --M 1")
            key["shape"] = f"x ({K},), w ({K},)"
            return CalledOp(op, K, 1, "products", dtype, dtype, _dot(dtype), key)
        picked = spread(op, ask.options, M, N)
        key["shape"] = f"x ({K},), w ({N}, {K})" if M == 1 else f"x ({M}, {K}), w ({N}, {K})"
        key["batch"] = picked.told
        call = _matmul(dtype, picked)
        return CalledOp(op, K, N, "products", dtype, dtype, call, key, picked.batch)


def _sum(dtype: str) -> Call:
    def call(x: Floats | None, w: Floats) -> Floats:
        made = narrow(w, dtype)  # one row as one vector, several along the last axis
        sums = np.sum(made[0], keepdims=True) if len(made) == 1 else np.sum(made, axis=1)
        return np.asarray(sums, np.float32)

    return call


def _dot(dtype: str) -> Call:
    def call(x: Floats | None, w: Floats) -> Floats:
        made = np.dot(narrow(needed(x), dtype), narrow(w, dtype)[0])
        return np.asarray([made], np.float32)

    return call


def _matmul(dtype: str, batch: Spread) -> Call:
    def call(x: Floats | None, w: Floats) -> Floats:
        xs, ws = narrow(needed(x), dtype), narrow(w, dtype)
        if batch.M == 1:
            return np.asarray(np.matmul(ws, xs), np.float32)
        rows = np.ascontiguousarray(np.broadcast_to(xs, (batch.M, xs.shape[-1])))
        return np.asarray(batch.pick(np.matmul(rows, ws.T)), np.float32)

    return call


def _key(op: str, dtype: str) -> dict[str, str]:
    device = f"cpu, {platform.machine()}"
    key = {"op": op, "dtype": dtype, "device": device, "numpy": np.__version__, "blas": _blas()}
    key |= {name: os.environ[name] for name in THREADS if name in os.environ}
    return key


def _blas() -> str:
    """The library NumPy was built with, and the processor features that NumPy's own loops use."""
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    found = config.get("SIMD Extensions", {}).get("found", [])
    return f"{blas.get('name')} {blas.get('version')}; {' '.join(found)}"
