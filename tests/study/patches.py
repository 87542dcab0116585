"""What stands in the place of an op call (``faults.OpCall``)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parity.variants import variant_mask
from parity_cpu.calls import Calls
from parity_cpu.own_functions import own_values
from tests.study.faults import Args, Patch, flush
from tests.study.planted import Run_

LIBM_EXP = variant_mask(["libm_exp"])
Function = Callable[[np.ndarray], np.ndarray]


def turned(by: int) -> Patch:
    """RoPE at another position: the op's last argument but one."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        run(*args[:-2], args[-2] + by, args[-1])

    return patch


def sees(by: int) -> Patch:
    """Attention over one key too few or too many; a row past the last holds zeros."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        *_, pos, _ = args
        for array in cached(args):
            array[pos + 1] = 0
        run(*args[:-2], max(pos + by, 0), args[-1])

    return patch


def cached(args: Args) -> Args:
    """The KV cache among the arguments of either attention op."""
    return args[3:7] if len(args) > 8 else args[2:4]


def masked(hidden: int) -> Patch:
    """Attention that does not see key ``hidden``."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        begin = 3 if len(args) > 8 else 2
        rest = [np.delete(array, hidden, axis=0) for array in cached(args)]
        run(*args[:begin], *rest, *args[begin + len(rest) : -2], args[-2] - 1, args[-1])

    return patch


def looks_ahead(call: Calls, run: Run_, args: Args) -> None:
    """In M rows, every row but the last sees the next row's key too."""
    out, heads = args[0], 3 if len(args) > 8 else 2
    rows, pos = out.shape[0], args[-2]
    queries = (1, 2) if heads == 3 else (1,)
    for m in range(rows):
        at = slice(m, m + 1)
        given = [args[number][at] for number in queries]
        run(out[at], *given, *args[heads:-2], pos + min(m + 1, rows - 1), args[-1])


def stored_at(by: int) -> Patch:
    """K or V codes and scales written one row off; the row itself holds zeros."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        codes, scales, x, variants = args
        made = np.empty_like(codes), np.empty_like(scales)
        run(*made, x, variants)
        for target, values in zip((codes, scales), made, strict=True):
            whole = target.base
            row = (target.ctypes.data - whole.ctypes.data) // target[0].nbytes
            target[...] = 0
            whole[max(row + by, 0)] = values[0]

    return patch


def with_variant(mask: int) -> Patch:
    """The op under another mask of variants: its last argument."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        run(*args[:-1], args[-1] | mask)

    return patch


def flushed(call: Calls, run: Run_, args: Args) -> None:
    """The op's output with its subnormals flushed."""
    run(*args)
    flush(args[0])


def moved(output: int, index: int) -> Patch:
    """One element of an output that no key shows, one ULP larger in magnitude."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        run(*args)
        flat = args[output].reshape(-1).view(np.uint32)
        flat[index % flat.size] += 1

    return patch


def borrowing(function: Function) -> Patch:
    """The op with ``function`` in the place of expf, unless a comparison lends it another."""

    def lend(name: str, x: np.ndarray) -> np.ndarray:
        return function(x) if name == "expf" else own_values(name, x, 0)

    def patch(call: Calls, run: Run_, args: Args) -> None:
        lent = call.borrow
        call.borrow = lent or lend
        try:
            run(*args)
        finally:
            call.borrow = lent

    return patch


def numpy_expf(x: np.ndarray) -> np.ndarray:
    """NumPy's float32 exp."""
    with np.errstate(all="ignore"):
        return np.exp(x)


def libm_expf(x: np.ndarray) -> np.ndarray:
    """This platform's expf."""
    return own_values("expf", x, LIBM_EXP)


def powers_of_two(x: np.ndarray) -> np.ndarray:
    """2^(x log2 e) in float32, as a kernel with exp2f does it."""
    with np.errstate(all="ignore"):
        return np.exp2(x * np.float32(1.4426950408889634))


def now_and_then(every: int) -> Function:
    """The right expf, one ULP off for one argument in ``every`` or so, by the argument's bits."""

    def function(x: np.ndarray) -> np.ndarray:
        made = own_values("expf", x, 0).copy()
        hit = (x.view(np.uint32) * np.uint32(2654435761) >> np.uint32(8)) % every == 0
        made.view(np.uint32)[hit & (made > 0) & np.isfinite(made)] += 1
        return made

    return function


def last_of_equal(call: Calls, run: Run_, args: Args) -> None:
    """Top-k that takes the highest id among equal router logits."""
    ids, _, logits, *_ = args
    run(*args)
    for row, values in zip(ids, logits, strict=True):
        backwards = np.argsort(-values[::-1], kind="stable")[: row.size]
        row[...] = values.size - 1 - backwards


def tail(tile: int, outputs: int, change: str) -> Patch:
    """The rows of a block that fill no whole tile of ``tile`` rows: each a copy of the row before
    it ("stale"), or the last one ULP off ("ulp")."""

    def patch(call: Calls, run: Run_, args: Args) -> None:
        run(*args)
        rows = _rows(call)
        for array in args[:outputs]:
            group = array.shape[0] // rows
            for m in range(max(rows - rows % tile, 1), rows):
                _spoil(array, m, group, change)

    return patch


def _rows(call: Calls) -> int:
    return int(call.fault.rows)  # type: ignore[attr-defined]


def _spoil(array: np.ndarray, m: int, group: int, change: str) -> None:
    row, before = (array[at * group : (at + 1) * group] for at in (m, m - 1))
    if change == "stale":
        row[...] = before
    elif array.dtype == np.float32:
        row.reshape(-1).view(np.uint32)[0] += 1
