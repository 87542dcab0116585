"""An op as one call of arrays: what every adapter needs to be a ``SummingOp``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import InputError, NotRunError
from parity.order.tree import Format, Terms

Floats = npt.NDArray[np.float32]
Call = Callable[[Floats | None, Floats], npt.NDArray[Any]]


@dataclass
class CalledOp:
    """A ``SummingOp`` made of one function. ``call(x, w)``: x (n,) float32, None where the terms
    are not products; w (rows, n) float32, all rows filled; it returns (rows,) or, of a batch of
    equal rows, (rows, M) float32 or float64.
    ``key``: what the order holds for: device, versions, shape, layout, batch M, flags."""

    name: str
    n: int
    rows: int
    terms: Terms
    dtype: Format
    out: str
    call: Call
    key: dict[str, str] = field(default_factory=dict)

    def run(self, x: Floats | None, w: Floats) -> npt.NDArray[Any]:
        """The op's sum for each row of w, (any number, n) float32, in calls of ``rows`` rows; the
        last call is filled up with zeros, so that each has the op's true shape."""
        found = []
        for at in range(0, len(w), self.rows):
            part = w[at : at + self.rows]
            full = part
            if len(part) < self.rows:
                full = np.zeros((self.rows, self.n), np.float32)
                full[: len(part)] = part
            found.append(self.call(x, full)[: len(part)])
        return np.concatenate(found) if found else np.zeros(0, np.float32)


@dataclass(frozen=True)
class Spread:
    """Which row of a batch answers. An op of M rows, all holding the same x, gives (M, N) outputs:
    each sum M times, which must be the same bits. ``row``: the only one to look at, or None."""

    M: int
    N: int
    row: int | None = None

    def pick(self, outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(M, N) -> (N,) of one row, or (N, M) of all, as ``SummingOp.run`` returns them."""
        picked: npt.NDArray[Any] = outputs[0] if self.M == 1 else outputs.T
        return picked if self.row is None else outputs[self.row]

    @property
    def told(self) -> str:
        """For the key of an order."""
        if self.M == 1:
            return "1"
        return f"{self.M}, all rows" if self.row is None else f"{self.M}, row {self.row}"


def spread(op: str, options: Mapping[str, str], M: int, N: int) -> Spread:
    """The spread that ``@row`` asks for; InputError for a row that the batch does not have."""
    text = options.get("row", "all")
    if text == "all":
        return Spread(M, N)
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text) < M):
        raise InputError(f"{op}: @row={text}: no row of a batch of {M}", f"0 to {M - 1}, or all")
    return Spread(M, N, int(text))


def narrow(values: Floats, dtype: str) -> npt.NDArray[Any]:
    """``values``, exact in ``dtype``, as an array of that dtype. NotRunError without ml_dtypes,
    which bf16 needs."""
    if dtype == "f32":
        return values
    if dtype == "f16":
        return values.astype(np.float16)
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise NotRunError(
            "bf16 arrays need the package ml_dtypes", "pip install ml_dtypes, or --dtype f32"
        ) from error
    made: npt.NDArray[Any] = values.astype(bfloat16)
    return made
