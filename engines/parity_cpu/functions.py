"""Elementary functions on the CPU: the replicas, and the contract's own with exp by float64.

Contract 4, 1.9 and 5. All loops are threaded, one element at a time: its place cannot change it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from parity.builds.provenance import COMPILED, NONE, PACKAGES, packages
from parity_cpu.c_library import c_library_version
from parity_cpu.code_cache import loaded_code
from parity_cpu.jit import COMPILERS, jit_parallel, source_digest
from parity_cpu.ops.elementary import ELEMENTARY, map_elementary
from parity_cpu.ops.variants import (
    any_expf,
    any_sigmoid,
    any_silu,
    any_softplus,
    inverse_root,
    library_exp,
)
from parity_cpu.threads import threads
from parity_cpu.variants import EXP_VIA_DOUBLE

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Loop = Callable[..., None]

# Below this many elements, waking threads costs more than they save.
WORTHWHILE = 1 << 14
_EXACT = np.int32(0)
_BY_DOUBLE = np.int32(EXP_VIA_DOUBLE)


def run_loop(loop: Loop, out: Any, x: Any, *more: Any) -> None:
    """``loop(out, x, *more)`` on one thread when x is small."""
    with threads(1 if x.size < WORTHWHILE else get_num_threads()):
        loop(out, x, *more)


class InLoops:
    """What implementations in compiled loops have in common: they know the code that ran."""

    def __init__(self) -> None:
        self._ran: dict[Loop, None] = {}

    def code(self) -> dict[str, str]:
        """Digests of the package's sources and of the loops that ran, and versions."""
        return {
            "kernels": source_digest()[:16],
            COMPILED: loaded_code(self._ran) or NONE,
            PACKAGES: packages(COMPILERS),
        }

    def run(self, loop: Loop, x: Any, *more: Any) -> Any:
        """``loop(out, x, *more)`` over all elements of x; returns out."""
        x = np.ascontiguousarray(x)
        out = np.empty_like(x)
        self._ran[loop] = None
        run_loop(loop, out, x, *more)
        return out


class Ucrt(InLoops):
    """The replicas of contract 4, and what 1.1 and 1.9 build on them: rsqrt is 1/sqrtf, sigmoid is
    1/(1 + expf(-x)), silu is x * sigmoid(x), softplus is logf(1 + expf(x)) up to 20, then x."""

    name = "ucrt"
    functions = ("expf", "cosf", "sinf", "logf", "rsqrt", "sigmoid", "silu", "softplus")

    def describe(self) -> Mapping[str, str]:
        """What is replicated, and what compiled the replica."""
        library = "replica of the x64 UCRT, FMA3 path"
        return {"library": library, "compiler": compiler_versions(), **self.code()}

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of x, (n,) float32 to (n,) float32."""
        return self.run(map_elementary(function) if function in ELEMENTARY else inverse_roots, x)


class ExpViaDouble(InLoops):
    """The contract's functions with expf(x) = f32(exp(f64 x)) by the platform's C library: the
    variant exp_via_double of contract 5. softplus keeps the replica's logf."""

    name = "exp_via_double"
    functions = ("expf", "sigmoid", "silu", "softplus")

    def describe(self) -> Mapping[str, str]:
        """The C library that exp comes from, and what compiled the rest."""
        library = f"exp of {c_library_version()}"
        return {"library": library, "compiler": compiler_versions(), **self.code()}

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of x, (n,) float32 to (n,) float32."""
        return self.run(_by_double(function), x)

    def exp64(self, x: Doubles) -> Doubles:
        """The float64 exp itself, (n,) float64 to (n,) float64."""
        return self.run(_exp64_loop, x)


def compiler_versions() -> str:
    """What turns the loops into machine code."""
    return f"Numba {metadata.version('numba')}, llvmlite {metadata.version('llvmlite')}"


@jit_parallel
def inverse_roots(out: Any, x: Any) -> None:
    """1/sqrtf of every element, each step rounded. Contract 1.1. out, x: (n,) float32."""
    for i in prange(x.size):
        out[i] = inverse_root(x[i], _EXACT)


@jit_parallel
def _exp64_loop(out: Any, x: Any) -> None:
    for i in prange(x.size):
        out[i] = library_exp(x[i])


@functools.cache
def _by_double(function: str) -> Loop:
    which = ExpViaDouble.functions.index(function)

    @jit_parallel
    def loop(out: Any, x: Any) -> None:
        for i in prange(x.size):
            if which == 0:
                out[i] = any_expf(x[i], _BY_DOUBLE)
            elif which == 1:
                out[i] = any_sigmoid(x[i], _BY_DOUBLE)
            elif which == 2:
                out[i] = any_silu(x[i], _BY_DOUBLE)
            else:
                out[i] = any_softplus(x[i], _BY_DOUBLE)

    return loop
