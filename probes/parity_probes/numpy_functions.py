"""NumPy's float32 functions: what a reference that is written in NumPy computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_ONE, _LINEAR = np.float32(1.0), np.float32(20.0)


class NumpyFunctions:
    """numpy.exp, cos, sin, log over float32 arrays, and what 1.1 and 1.9 build on them and on
    numpy.sqrt. NumPy may take other code for another length, stride or processor, and other bits
    with it; the array reaches NumPy as it is, strided where it is strided."""

    name = "numpy"

    @property
    def functions(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(_FUNCTIONS)

    def describe(self) -> Mapping[str, str]:
        """NumPy's version, and the vector extensions that it may choose its code by."""
        return {"library": f"NumPy {np.__version__}", "processor": vector_extensions()}

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of x, (n,) float32 to (n,) float32."""
        with np.errstate(all="ignore"):
            return _FUNCTIONS[function](x)


def vector_extensions() -> str:
    """What NumPy was built for, and what it found on this processor and was not told to leave."""
    built: Any = np.show_config(mode="dicts")
    extensions = built.get("SIMD Extensions", {})
    baseline = " ".join(extensions.get("baseline", ())) or "none"
    found = " ".join(extensions.get("found", ())) or "none"
    return f"baseline {baseline}; found {found}"


def _rsqrt(x: Floats) -> Floats:
    root: Floats = np.sqrt(x)
    return _ONE / root


def _sigmoid(x: Floats) -> Floats:
    return _ONE / (_ONE + np.exp(-x))


def _silu(x: Floats) -> Floats:
    return x * _sigmoid(x)


def _softplus(x: Floats) -> Floats:
    return np.where(x > _LINEAR, x, np.log(_ONE + np.exp(x)))


_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "expf": np.exp,
    "cosf": np.cos,
    "sinf": np.sin,
    "logf": np.log,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "softplus": _softplus,
}
