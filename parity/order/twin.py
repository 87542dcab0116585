"""The twin: an order evaluated on this CPU, bit for bit, by the kernel of a plug-in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol, cast

from parity.errors import InputError, NotRunError
from parity.order.program import FORMATS, TERMS, Program, program_of
from parity.registry import INSTALL, plugins

if TYPE_CHECKING:
    import numpy as np

    from parity.order.tree import Order

TWINS = "parity.twins"
MOST_BITS = 600  # cuts nothing: two products differ by 554 exponents at most


class Twin(Protocol):
    """What an entry point of the group ``parity.twins`` offers: the kernel of programs."""

    name: str

    def run(self, order: Order, program: Program, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """float32[rows]: the program's sum of each row. x: float32[n]; w: float32[rows, n]."""
        ...

    def rounded(self, values: np.ndarray, form: str) -> np.ndarray:
        """float32[...] <- each of ``values`` rounded to ``form`` (bf16, f16), ties to even."""
        ...


def evaluate(order: Order, x: np.ndarray | None, w: np.ndarray) -> np.ndarray:
    """float32[rows]: the sum of each row in ``order``, rounded to ``order.out``.

    The sum alone: what ``order.post`` names is done by the op's own functions. ``w``: float32[rows,
    n]; ``x``: float32[n], needed for products alone; both hold values exact in ``order.dtype``.
    A sum starts at its first term, not at +0.0: where all terms are -0 it is -0. A NaN is a NaN of
    any payload. Raises InputError for other shapes, NotRunError without a kernel.
    """
    import numpy as np

    require_known(order)
    _require_shapes(order, x, w)
    given = np.zeros(0, np.float32) if x is None or order.terms != "products" else x
    arrays = np.ascontiguousarray(given), np.ascontiguousarray(w)
    return rounded(_twin().run(order, _program(order), *arrays), order.out)


def rounded(values: np.ndarray, form: str) -> np.ndarray:
    """float32[...]: ``values`` (float32) rounded to f32, bf16 or f16, ties to even."""
    return values if form == "f32" else _twin().rounded(values, form)


@functools.lru_cache(maxsize=64)
def _program(order: Order) -> Program:
    return program_of(order)


def require_known(order: Order) -> None:
    for what, value, known in (
        ("terms", order.terms, TERMS),
        ("dtype", order.dtype, FORMATS),
        ("out", order.out, FORMATS),
        ("stored", order.stored, FORMATS),
        ("rounding", order.rounding, ("rz", "rn")),
    ):
        if value not in known:
            raise InputError(f"order: {what} {value[:20]!r}", f"{what}: {', '.join(known)}")
    if order.bits is not None and not 0 <= order.bits <= MOST_BITS:
        raise InputError(f"order: {order.bits} alignment bits", f"bits: none, or 0 to {MOST_BITS}")


def _require_shapes(order: Order, x: np.ndarray | None, w: np.ndarray) -> None:
    n = order.tree.n
    if w.dtype.name != "float32" or w.ndim != 2 or w.shape[1] != n:
        raise InputError(f"twin: w is {w.dtype}{list(w.shape)}", f"give float32[rows, {n}]")
    if order.terms != "products":
        return
    if x is None or x.dtype.name != "float32" or x.shape != (n,):
        was = "None" if x is None else f"{x.dtype}{list(x.shape)}"
        raise InputError(f"twin: x is {was}", f"give float32[{n}]")


@functools.cache
def _twin() -> Twin:
    """The kernel that is installed; of several the first by name."""
    found = plugins(TWINS)
    if not found:
        raise NotRunError(f"no kernel evaluates an order: {TWINS} has no entry point", INSTALL)
    return cast(Twin, next(iter(found.values())).load())
