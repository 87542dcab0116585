"""Elementary functions by MPFR (through gmpy2): the true value, rounded once to float32."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import NotRunError

Doubles = npt.NDArray[np.float64]

# Bits of the values that more than one MPFR operation makes. The closest that 1/(1 + e^-x) and its
# like come to a rounding boundary for a small x is some 2^-150 of the value; 320 leave 2^-170 more.
WIDE = 320


class ExactFunctions:
    """expf, cosf, sinf, logf, rsqrt by one MPFR operation in float32's precision and range, so
    rounded once; sigmoid, silu, softplus in WIDE bits first. Raises NotRunError without gmpy2."""

    def __init__(self) -> None:
        gmpy2 = self._gmpy2 = _gmpy2()
        self.version = f"{gmpy2.mpfr_version()}, gmpy2 {gmpy2.version()}"
        self._wide = gmpy2.context(precision=WIDE)
        # MPFR's exponents belong to significands in [1/2, 1): 2^-149 is 1/2 * 2^-148.
        self._float32 = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True)
        self._single: dict[str, Callable[[Any], Any]] = {
            "expf": gmpy2.exp,
            "cosf": gmpy2.cos,
            "sinf": gmpy2.sin,
            "logf": gmpy2.log,
            "rsqrt": gmpy2.rec_sqrt,
        }
        self._several: dict[str, Callable[[Any], Any]] = {
            "sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x)),
            "silu": lambda x: x / (1 + gmpy2.exp(-x)),
            "softplus": lambda x: max(x, 0) + gmpy2.log1p(gmpy2.exp(-abs(x))),
        }

    def rounded(self, function: str, x: float) -> float:
        """The float32 nearest to ``function`` of a finite float32 x, ties to even."""
        with self._gmpy2.context(self._wide):
            given = self._gmpy2.mpfr(x)
            if function in self._several:
                given = self._several[function](given)
        with self._gmpy2.context(self._float32):
            return float(self._single.get(function, operator.pos)(given))

    def relative_error(self, name: str, x: Doubles, y: Doubles) -> float:
        """The largest |y/f(x) - 1| over float64 points, f being gmpy2's function of that name."""
        function = getattr(self._gmpy2, name)
        with self._gmpy2.context(self._wide):
            return max(
                float(abs(self._gmpy2.mpfr(result) / function(self._gmpy2.mpfr(value)) - 1))
                for value, result in zip(x.tolist(), y.tolist(), strict=True)
            )

    def two_over_pi(self, bits: int) -> int:
        """floor(2/pi * 2^bits)."""
        with self._gmpy2.context(precision=bits + 64):
            return int(self._gmpy2.floor(2 / self._gmpy2.const_pi() * self._gmpy2.exp2(bits)))


def _gmpy2() -> Any:
    """The module, which has no types."""
    try:
        import gmpy2
    except ImportError as error:
        raise NotRunError(
            "correct: gmpy2 is not installed", "pip install -e '.[mathfn]' in parity's folder"
        ) from error
    return gmpy2
