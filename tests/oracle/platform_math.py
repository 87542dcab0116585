"""The platform's C library, called directly: what the variants libm_* and exp_via_double name."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable

import numpy as np

F = np.float32
_LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))


def _float_function(name: str) -> Callable[[np.float32], np.float32]:
    function = getattr(_LIBRARY, name)
    function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float

    def call(x: np.float32) -> np.float32:
        return F(function(float(x)))

    return call


expf = _float_function("expf")
cosf = _float_function("cosf")
sinf = _float_function("sinf")
_exp = _LIBRARY.exp
_exp.argtypes, _exp.restype = [ctypes.c_double], ctypes.c_double


def exp_via_double(x: np.float32) -> np.float32:
    """f32(exp(f64 x)) (contract 5)."""
    return F(_exp(float(x)))


def reciprocal_root(x: np.float32) -> np.float32:
    """f32(1 / sqrt(f64 x)): what stands in for a device's rsqrt (contract 5)."""
    return F(np.float64(1.0) / np.sqrt(np.float64(x)))
