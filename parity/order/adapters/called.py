"""An op as one call of arrays: what every adapter needs to be a ``SummingOp``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import InputError, NotRunError
from parity.order.tree import Format, Terms

Floats = npt.NDArray[np.float32]
Call = Callable[[Any, Any], Any]
MANY = 1 << 22  # numbers of w, of as many calls as that, which a library is given at once


@dataclass(frozen=True)
class Library:
    """Where an op's arrays lie, if not in NumPy's memory. To bring them there takes longer than a
    small call, so it is done for many calls at once.

    ``load(w, rows)``: w (calls * rows, n) float32 as a list of what each call is given, aligned as
    the library aligns arrays; ``fetch``: what calls returned, joined on the host; ``within``: the
    settings under which calls are made.
    """

    load: Callable[[Floats, int], Sequence[Any]]
    fetch: Callable[[list[Any]], npt.NDArray[Any]]
    within: Callable[[], AbstractContextManager[None]] = nullcontext


def _rows(w: Floats, rows: int) -> Sequence[Floats]:
    return [w[at : at + rows] for at in range(0, len(w), rows)]


NUMPY = Library(_rows, np.concatenate)


@dataclass
class CalledOp:
    """A ``SummingOp`` made of one function. ``call(x, w)``: x (n,) float32, None where the terms
    are not products; w (rows, n) float32, all rows filled; it returns (rows,) or, of a batch of
    equal rows, (rows, M) float32 or float64.
    ``key``: what the order holds for: device, versions, shape, layout, batch M, flags.
    ``batch``: the M of an op of products whose x may also be (M, n), each row another one.
    ``arrays``: what w is for ``call``, and what it returns, if not NumPy's."""

    name: str
    n: int
    rows: int
    terms: Terms
    dtype: Format
    out: str
    call: Call
    key: dict[str, str] = field(default_factory=dict)
    batch: int = 1
    arrays: Library = field(default=NUMPY, repr=False)

    @property
    def calls(self) -> int:
        """As in ``parity.order.op.Repeating``: one for NumPy, whose arrays lie where they are."""
        return 1 if self.arrays is NUMPY else max(1, MANY // (self.rows * self.n))

    def run(self, x: Floats | None, w: Floats) -> npt.NDArray[Any]:
        """The op's sum for each row of w, (any number, n) float32, in calls of ``rows`` rows; the
        last call is filled up with zeros, so that each has the op's true shape."""
        return self.called(x, w)

    def called(self, x: Any, w: Floats) -> npt.NDArray[Any]:
        """What ``call`` gives for x, whatever that is for it, and each ``rows`` rows of w."""
        if not len(w):
            return np.zeros(0, np.float32)
        with self.arrays.within():
            return self.arrays.fetch([self.call(x, part) for part in self.parts(w)])[: len(w)]

    def products(self, xs: Floats, w: Floats) -> Floats:
        """As in ``parity.order.op.Multiplying``: w is brought to the library once for all xs."""
        found = np.empty((len(w), len(xs)), np.float32)
        with self.arrays.within():
            for number, part in enumerate(self.parts(w)):
                rows = slice(number * self.rows, (number + 1) * self.rows)
                for at in range(0, len(xs), self.batch):
                    columns = slice(at, at + self.batch)
                    found[rows, columns] = self._columns(xs[columns], part)[: len(w) - rows.start]
        return found

    def _columns(self, xs: Floats, part: Any) -> npt.NDArray[Any]:
        """(rows, len(xs)) of one call."""
        x = np.resize(xs, (self.batch, self.n)) if self.batch > 1 else xs[0]
        sums = self.arrays.fetch([self.call(x, part)])
        return (sums if sums.ndim > 1 else sums[:, None])[:, : len(xs)]

    def parts(self, w: Floats) -> Sequence[Any]:
        """What each call is given."""
        lacking = -len(w) % self.rows
        if lacking:
            w = np.concatenate([w, np.zeros((lacking, self.n), np.float32)])
        return self.arrays.load(w, self.rows)


@dataclass(frozen=True)
class Spread:
    """Which row of a batch answers. An op of M rows, all holding the same x, gives (M, N) outputs:
    each sum M times, which must be the same bits. ``row``: the only one to look at, or None."""

    M: int
    N: int
    row: int | None = None

    def pick(self, outputs: Any) -> Any:
        """(M, N) -> (N,) of one row, or (N, M) of all, as ``SummingOp.run`` returns them."""
        if self.row is not None:
            return outputs[self.row]
        return outputs[0] if self.M == 1 else outputs.T

    @property
    def batch(self) -> int:
        """How many different x one call answers for."""
        return self.M if self.row is None else 1

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
