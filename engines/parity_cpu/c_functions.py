"""C functions as implementations: the platform's C library, and a symbol of the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from parity.elementary.functions import FUNCTIONS
from parity_cpu.c_library import address, c_library, c_library_version, processor, user_symbol
from parity_cpu.functions import InLoops, compiler_versions
from parity_cpu.jit import jit_parallel, jit_part

Floats = npt.NDArray[np.float32]

# What the contract's composition of each function calls (1.1, 1.9); each of the others is one call.
CALLS = {
    "rsqrt": ("sqrtf", "sqrtf"),
    "sigmoid": ("expf", "expf"),
    "silu": ("expf", "expf"),
    "softplus": ("expf", "logf"),
}
_ONE, _LINEAR = np.float32(1.0), np.float32(20.0)


class Libm(InLoops):
    """This platform's C library: expf, cosf, sinf, logf by one call, the others composed of its
    functions as the contract does: 1/sqrtf(x), 1/(1 + expf(-x)), x * sigmoid, logf(1 + expf(x))."""

    name = "libm"
    functions = FUNCTIONS

    def __init__(self) -> None:
        super().__init__()
        self._library = c_library()

    def describe(self) -> Mapping[str, str]:
        """The C library, the processor it chose its code by, and what compiled the loop."""
        return {
            "library": c_library_version(),
            "processor": processor(),
            "compiler": compiler_versions(),
            **self.code(),
        }

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of x, (n,) float32 to (n,) float32."""
        first, second = (
            np.uint64(address(self._library, symbol))
            for symbol in CALLS.get(function, (function, function))
        )
        return self.run(_by_calls(function if function in CALLS else ""), x, first, second)


class Symbol(InLoops):
    """``LIBRARY:SYMBOL``, a C function ``float f(float)``, as whatever FN the command names.

    Nothing can check the C type: another one gives wrong numbers. Raises InputError for a library
    or a symbol that is not there.
    """

    functions = FUNCTIONS

    def __init__(self, spec: str) -> None:
        super().__init__()
        self.name = spec
        self._library, self._address = user_symbol(spec)

    def describe(self) -> Mapping[str, str]:
        """The library and the symbol."""
        return {
            "library": f"user's symbol {self.name}",
            "processor": processor(),
            "compiler": compiler_versions(),
            **self.code(),
        }

    def evaluate(self, function: str, x: Floats) -> Floats:
        """The symbol's function of x, (n,) float32 to (n,) float32."""
        where = np.uint64(self._address)
        return self.run(_by_calls(""), x, where, where)


def _call_f32(typingctx: Any, where: Any, x: Any) -> Any:
    """call_f32(where: uint64, x: float32) -> float32: calls the C ``float f(float)`` at an address.

    The address is an argument, so that compiled code can be kept from one process to the next.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), [args[1]])

    return types.float32(types.uint64, types.float32), codegen


call_f32: Any = intrinsic(_call_f32)


@jit_part
def _sigmoid(x, expf):  # type: ignore[no-untyped-def]
    return np.float32(_ONE / np.float32(_ONE + call_f32(expf, np.float32(-x))))


@jit_part
def _softplus(x, expf, logf):  # type: ignore[no-untyped-def]
    if x > _LINEAR:
        return x
    return call_f32(logf, np.float32(_ONE + call_f32(expf, x)))


@functools.cache
def _by_calls(function: str) -> Callable[..., None]:
    """The loop of one composition, or of a single call for ""."""
    which = ("", *CALLS).index(function)

    @jit_parallel
    def loop(out: Any, x: Any, first: Any, second: Any) -> None:
        for i in prange(x.size):
            if which == 0:
                out[i] = call_f32(first, x[i])
            elif which == 1:
                out[i] = np.float32(_ONE / call_f32(first, x[i]))
            elif which == 2:
                out[i] = _sigmoid(x[i], first)
            elif which == 3:
                out[i] = np.float32(x[i] * _sigmoid(x[i], first))
            else:
                out[i] = _softplus(x[i], first, second)

    return loop
