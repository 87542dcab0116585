"""A function of the user's own as an op: ``module:function``, NumPy, Numba or anything that calls.

``--terms products``: ``f(x, w)``; ``values`` and ``squares``: ``f(w)``. It is given either all rows
at once, w (rows, K), and returns (rows,), or one row at a time, w (K,), and returns one number:
which of the two it takes is tried out first. With M > 1 a function of products is given x (M, K)
and w (N, K), and returns (M, N); one of values or squares is given w (M, K), and returns (M,).
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.dtypes import dtype_name
from parity.errors import InputError
from parity.order.adapters.called import CalledOp, Floats, narrow, spread
from parity.order.sums import DTYPES, TERMS, Ask, refuse_unknown
from parity.registry import foreign_object

Function = Callable[..., Any]
LINE, ALIGNMENTS = 64, 4  # bytes of a cache line; NumPy aligns to 16 bytes
_TAKES = {"products": "f(x, w)", "values": "f(w)", "squares": "f(w)"}


def foreign_op(ask: Ask, M: int) -> CalledOp:
    """The function that ``ask`` names, called once with zeros to see what it takes and returns.

    Raises InputError for one that is not there, raises, or returns another shape or dtype.
    """
    op = ask.name
    refuse_unknown(op, ask.settings, ("row",) if ask.terms == "products" else ())
    if not ask.terms:
        raise InputError(f"{op}: what does it sum?", f"write --terms {'|'.join(TERMS)}")
    if ask.device != "cpu":
        raise InputError(f"{op} is given NumPy arrays", "write --device cpu")
    function = foreign_object(op, "op", "a function")
    if not callable(function):
        raise InputError(f"op {op} is no function", "name a function")
    called = _Called(op, function, ask, M)
    whole = called.takes_rows()
    picked = spread(op, ask.options, M, called.rows)
    if M > 1 and ask.terms == "products" and not whole:
        raise InputError(f"op {op} takes one row at a time: it has no batch of {M}", "write --M 1")
    key = _key(op, ask.dtype, _version(op))
    key["called"] = "all rows at once" if whole else "one row at a time"
    if ask.terms == "products" and M > 1:
        key |= {"shape": f"x ({M}, {ask.K}), w ({ask.N}, {ask.K})", "batch": picked.told}
    elif whole:
        key["shape"] = f"w ({called.rows}, {ask.K})"
    else:
        key["shape"] = f"w ({ask.K},)"

    def call(x: Floats | None, w: Floats) -> npt.NDArray[Any]:
        if not whole:
            return called.singles(x, w)
        found = called.rows_of(x, w)
        return picked.pick(found) if found.ndim == 2 else found

    batch = picked.batch if ask.terms == "products" else 1
    return CalledOp(op, ask.K, called.rows, ask.terms, ask.dtype, called.out, call, key, batch)


class _Called:
    """One function and how it is called. ``out``: the dtype of what it returned last."""

    def __init__(self, op: str, function: Function, ask: Ask, M: int) -> None:
        self.op = op
        self.out = ""
        self.rows = ask.N if ask.terms == "products" else max(M, 1)
        self._function = function
        self._ask = ask
        self._batch = M if ask.terms == "products" else 1
        self._turn = 0

    def takes_rows(self) -> bool:
        """Whether it takes all rows at once; InputError where it takes neither them nor one."""
        x = np.zeros(self._ask.K, np.float32) if self._ask.terms == "products" else None
        w = np.zeros((self.rows, self._ask.K), np.float32)
        try:
            self.rows_of(x, w)
        except InputError as error:
            try:
                self.singles(x, w[:1])
            except InputError as single:
                raise (single if "returned" in single.message else error) from error
            return False
        return True

    def rows_of(self, x: Floats | None, w: Floats) -> npt.NDArray[Any]:
        """(rows,), or (M, rows) of a batch."""
        shape: tuple[int, ...] = (len(w),)
        if x is not None and self._batch > 1:
            x = np.ascontiguousarray(np.broadcast_to(x, (self._batch, x.shape[-1])))
            shape = (self._batch, len(w))
        return self._checked(self._said(x, w), shape)

    def singles(self, x: Floats | None, w: Floats) -> npt.NDArray[Any]:
        """(rows,), from one call a row."""
        found = [self._checked(self._said(x, row), ()) for row in w]
        return np.array(found, np.float32).reshape(len(w))

    def _said(self, x: Floats | None, w: Floats) -> Any:
        turns = (self._turn,) if x is None else (self._turn // ALIGNMENTS, self._turn)
        self._turn += 1
        given = [
            _moved(narrow(part, self._ask.dtype), turn)
            for part, turn in zip((w,) if x is None else (x, w), turns, strict=True)
        ]
        try:
            with np.errstate(all="ignore"):
                return self._function(*given)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:  # what is wrong in it is the user's to mend
            said = (str(error).splitlines() or [""])[0]
            raise InputError(
                f"op {self.op} raised {type(error).__name__}: {said}",
                f"--terms {self._ask.terms} calls {_TAKES[self._ask.terms]} "
                f"with {self._ask.dtype} arrays",
            ) from error

    def _checked(self, result: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """float32 of the result; a Python float, which Numba makes of a float32, is rounded."""
        if type(result) is float:
            result = np.float32(result)
        dtype = getattr(result, "dtype", None)
        name = type(result).__name__ if dtype is None else dtype_name(np.dtype(dtype))
        if name not in DTYPES:
            raise InputError(f"op {self.op} returned {name}", f"return {', '.join(DTYPES)}")
        if np.shape(result) != shape:
            raise InputError(
                f"op {self.op} returned shape {np.shape(result)} for {shape}",
                "return one sum for each row",
            )
        self.out = name
        return np.asarray(result).astype(np.float32)


def _moved(values: npt.NDArray[Any], turn: int) -> npt.NDArray[Any]:
    """A copy, so that a function may work in what it is given; its address is of each alignment
    that NumPy's arrays have, in turn: one that adds otherwise at some of them is found out."""
    room = np.empty(values.nbytes + LINE, np.uint8)
    start = (turn * (LINE // ALIGNMENTS) - room.ctypes.data) % LINE
    made = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def _version(op: str) -> dict[str, str]:
    """Numba's version where its module uses it: another one may compile another order."""
    module = sys.modules.get(op.partition(":")[0])
    names = ("numba", "scipy")
    used = [name for name in names if name in sys.modules and _mentions(module, name)]
    return {name: str(sys.modules[name].__version__) for name in used}


def _mentions(module: Any, package: str) -> bool:
    found = (getattr(type(one), "__module__", "") for one in vars(module).values())
    return hasattr(module, package) or any(f"{name}.".startswith(f"{package}.") for name in found)


def _key(op: str, dtype: str, versions: dict[str, str]) -> dict[str, str]:
    device = f"cpu, {platform.machine()}"
    return {"op": op, "dtype": dtype, "device": device, "numpy": np.__version__, **versions}
