"""Correctly rounded elementary functions: float64 decides, MPFR decides where it cannot.

A float64 estimate y of relative error MARGIN at most leaves one float32, unless a rounding boundary
lies within that of y: such an argument goes to MPFR, which rounds the exact value once. The angle
of cos and sin is reduced here, in integers, for every argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import NotRunError
from parity_probes.exact_functions import ExactFunctions
from parity_probes.quadrants import Quadrants

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

# Relative error that NumPy's float64 exp, log, log1p, and sin and cos up to pi/4, may have here. A
# good one has 1e-16; some hundred times the arguments then go to MPFR that would have to.
ASSUMED = 1e-13
# The estimates take two such functions at most, and a few float64 operations.
MARGIN = 4 * ASSUMED
CHUNK = 1 << 15
ABS_MASK, QUIET_BIT = np.uint32(0x7FFFFFFF), np.uint32(0x00400000)
NAN = np.uint32(0x7FC00000)
# Below this, silu(x) = x/2 + x^2/4 lies between x/2 and the float64 above it.
TINY = 2.0**-60
# Up to this (the last float32 below pi/4) an angle needs no reduction.
DIRECT = np.float32(0.78539813)


class CorrectlyRounded:
    """The float32 nearest to the true value of each function, ties to even. rsqrt is 1/sqrt(x);
    sigmoid 1/(1 + e^-x), silu x/(1 + e^-x) and softplus log(1 + e^x) are the mathematical functions
    with one rounding, not the contract's compositions. Infinities give limits, silu(-inf) = -0.

    A NaN comes back quiet, with its sign and payload; an invalid argument gives 7fc00000.
    ``hard``: how many arguments MPFR has decided. Raises NotRunError without gmpy2, and where
    NumPy's float64 functions are seen to err by more than is assumed of them.
    """

    name = "correct"

    def __init__(self) -> None:
        self._exact = ExactFunctions()
        self._quadrants = Quadrants(self._exact.two_over_pi)
        self.hard = 0
        self._estimates: dict[str, Callable[[Floats], Doubles]] = {
            "expf": lambda x: np.exp(np.float64(x)),
            "cosf": self._cos,
            "sinf": self._sin,
            "logf": lambda x: np.log(np.float64(x)),
            "rsqrt": lambda x: 1.0 / np.sqrt(np.float64(x)),
            "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-np.float64(x))),
            "silu": _silu,
            "softplus": _softplus,
        }
        self._seen = max(platform_errors(self._exact).values())
        if not self._seen <= ASSUMED:
            raise NotRunError(
                f"correct: NumPy's float64 functions err by {self._seen:.1e} on this machine",
                f"it must be {ASSUMED:.0e} at most: try another build of NumPy",
            )

    @property
    def functions(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._estimates)

    def describe(self) -> Mapping[str, str]:
        """Who decides, and how far float64 was trusted."""
        return {
            "library": f"NumPy {np.__version__} float64, {self._exact.version}",
            "float64 error": f"{ASSUMED:.0e} assumed, {self._seen:.1e} seen",
        }

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of x, (n,) float32 to (n,) float32."""
        x = np.ascontiguousarray(x)
        out = np.empty_like(x)
        cuts = [*range(0, x.size, CHUNK), x.size]
        parts = [slice(start, stop) for start, stop in pairwise(cuts)]

        def decide(part: slice) -> npt.NDArray[np.intp]:
            inside = self._decide(function, x[part], out[part])
            return inside + np.intp(part.start)

        hard = [where for found in _in_threads(decide, parts) for where in found.tolist()]
        for where in hard:
            out[where] = self._exact.rounded(function, float(x[where]))
        self.hard += len(hard)
        return out

    def _decide(self, function: str, x: Floats, out: Floats) -> npt.NDArray[np.intp]:
        """Fill ``out`` and say where float64 leaves two candidates."""
        with np.errstate(all="ignore"):  # a thread has its own error state
            y = self._estimates[function](x)
            np.multiply(y, 1.0 - MARGIN, out=out, casting="same_kind", dtype=np.float64)
            other = np.multiply(y, 1.0 + MARGIN).astype(np.float32)
        words = out.view(np.uint32)
        hard = np.flatnonzero(words != other.view(np.uint32))
        invalid = np.isnan(out)
        if invalid.any():
            bits = x[invalid].view(np.uint32)
            given = np.isnan(x[invalid])
            words[invalid] = np.where(given, bits | QUIET_BIT, NAN)
            hard = hard[~invalid[hard]]
        return hard

    def _cos(self, x: Floats) -> Doubles:
        """cos(r), -sin(r), -cos(r), sin(r) in quadrants 0 to 3."""
        return self._turned(x, np.cos, 1)

    def _sin(self, x: Floats) -> Doubles:
        """sin(r), cos(r), -sin(r), -cos(r) in quadrants 0 to 3."""
        return self._turned(x, np.sin, 0)

    def _turned(self, x: Floats, direct: Any, ahead: int) -> Doubles:
        """sin, ``ahead`` quarter turns on; ``direct`` computes that for angles up to pi/4."""
        y: Doubles = direct(np.float64(x))
        far = np.flatnonzero(~(np.abs(x) <= DIRECT))
        if far.size:
            quadrant, angle = self._quadrants.reduce(x[far])
            quadrant = (quadrant + ahead) & 3
            value = np.where(quadrant & 1, np.cos(angle), np.sin(angle))
            y[far] = np.where(quadrant & 2, -value, value)
            y[~np.isfinite(x)] = np.nan
        return y


def platform_errors(exact: ExactFunctions) -> dict[str, float]:
    """The largest relative error of each float64 function that the estimates call, at points spread
    over the arguments that matter; ``exact`` knows the true values."""
    angles = np.linspace(-0.7853982, 0.7853982, 400)
    powers = np.linspace(-104.0, 89.0, 400)
    near_one = 1.0 + np.ldexp(1.0, -np.arange(1.0, 24.0).astype(int))
    points = {
        "exp": powers,
        "log": np.concatenate([np.exp(powers), near_one, 2.0 - near_one]),
        "log1p": np.exp(np.linspace(-104.0, 1.0, 400)),
        "sin": angles,
        "cos": angles,
    }
    return {name: exact.relative_error(name, x, getattr(np, name)(x)) for name, x in points.items()}


def _silu(x: Floats) -> Doubles:
    # From -1000 down the result is -0, at -inf too.
    wide = np.maximum(np.float64(x), -1000.0)
    y: Doubles = wide / (1.0 + np.exp(-wide))
    tiny = (np.abs(wide) < TINY) & (wide != 0.0)
    if tiny.any():
        # Already the float32, since x/2 may be a tie of subnormal results.
        y[tiny] = np.nextafter(wide[tiny] / 2.0, np.inf).astype(np.float32)
    return y


def _softplus(x: Floats) -> Doubles:
    wide = np.float64(x)
    y: Doubles = np.maximum(wide, 0.0) + np.log1p(np.exp(-np.abs(wide)))
    return y


def _in_threads(
    work: Callable[[slice], npt.NDArray[np.intp]], parts: list[slice]
) -> list[npt.NDArray[np.intp]]:
    """``work`` over all parts, in order, on all processors that this process may use."""
    if len(parts) < 2:
        return [work(part) for part in parts]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(usable) as pool:
        return list(pool.map(work, parts))
