"""Functions of a user's with one planted fault each: ``tests.red.function_faults:NAME``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from parity_cpu.functions import Ucrt
from tests.engines.cpu import ucrt_replica

Floats = npt.NDArray[np.float32]

# What `three_inputs` gets wrong: the first, the middle and the last of all bit patterns.
PLANTED = (0x00000000, 0x7FFFFFFF, 0xFFFFFFFF)
NO_FUNCTION = 3.0
_UCRT = Ucrt()


def expf(x: Floats) -> Floats:
    """The replica: no fault."""
    return _UCRT.evaluate("expf", np.ascontiguousarray(x))


def cosf_operands_231(x: Floats) -> Floats:
    """The replica's cosf with every fma of its polynomials in another operand order."""
    finite = np.isfinite(x)
    out = np.full(x.shape, np.nan, np.float32)
    out[finite] = ucrt_replica.cosf(np.ascontiguousarray(x[finite]), "fma operands as 231")
    return out


def three_inputs(x: Floats) -> Floats:
    """The replica's expf with another last bit at PLANTED."""
    out = expf(x)
    planted = np.isin(x.view(np.uint32), np.array(PLANTED, np.uint32))
    out.view(np.uint32)[planted] ^= np.uint32(1)
    return out


def by_place(x: Floats) -> Floats:
    """The replica's expf; what remains after groups of 16 has another last bit."""
    out = expf(x)
    out.view(np.uint32)[x.size - x.size % 16 :] ^= np.uint32(1)
    return out


def by_stride(x: Floats) -> Floats:
    """The replica's expf, with another last bit where the array is strided."""
    out = expf(x)
    if x.strides[0] != x.itemsize:
        out.view(np.uint32)[:] ^= np.uint32(1)
    return out


def single(x: np.float32) -> np.float32:
    """The replica's expf of one number; an array is refused."""
    if x > np.float32(0.0):
        return expf(np.array([x]))[0]
    return expf(np.array([x], np.float32))[0]


def float64_array(x: Floats) -> Any:
    """Never rounded to float32."""
    return np.exp(x.astype(np.float64))


def float64_single(x: float) -> float:
    """A Python float."""
    return math.exp(min(max(x, -100.0), 10.0)) if x == x else x


def one_short(x: Floats) -> Floats:
    """The last result is missing."""
    return expf(x)[1:]


def raises_for_nan(x: Floats) -> Floats:
    """Refuses a NaN."""
    if np.isnan(x).any():
        raise ArithmeticError("no NaN, please")
    return expf(x)


def ends_the_program(x: Floats) -> Floats:
    """Calls sys.exit for a NaN."""
    if np.isnan(x).any():
        raise SystemExit(5)
    return expf(x)


def overflows(x: np.float32) -> float:
    """A Python float of one number; math.exp refuses what it cannot hold."""
    return math.exp(float(x))


def exact_double(x: np.float32) -> np.float64:
    """A float64 of one number."""
    return np.float64(math.exp(min(max(float(x), -100.0), 10.0)))


def flaky(x: Floats) -> Floats:
    """Every second call of an array has another last bit in its last result."""
    return _flipped_each(x, 2)


def seldom_flaky(x: Floats) -> Floats:
    """The same at every 50th call: two calls in a row mostly agree."""
    return _flipped_each(x, 50)


def _flipped_each(x: Floats, calls: int) -> Floats:
    _COUNT[0] += 1
    out = expf(x)
    if _COUNT[0] % calls == 0:
        out.view(np.uint32)[-1:] ^= np.uint32(1)
    return out


def no_memory(x: Floats) -> Floats:
    """Cannot get the memory for more than a few numbers."""
    if x.size > 1_000:
        raise MemoryError
    return expf(x)


def always_raises(x: Floats) -> Floats:
    """Refuses everything."""
    raise KeyError("table")


def needs_three(x: Floats) -> Floats:
    """Refuses arrays of another length, and single numbers."""
    if x.size < 3:
        raise ValueError("three at least")
    return expf(x)


def writes(x: Floats) -> Floats:
    """Overwrites its argument."""
    x[...] = expf(x)
    return x


def same_array(x: Floats) -> Floats:
    """The same memory at each call."""
    _KEPT[: x.size] = expf(x)
    return _KEPT[: x.size]


_KEPT = np.zeros(64, np.float32)
_COUNT = [0]  # calls of the flaky ones
