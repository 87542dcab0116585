"""The second writing of every op, by name, and the faults that can be planted in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracle import twin_heads, twin_products, twin_rows, twin_shared

_MODULES = (twin_heads, twin_products, twin_rows, twin_shared)
FAULTS: dict[str, tuple[str, ...]] = {
    op: faults for module in _MODULES for op, faults in module.FAULTS.items()
}
_OPS: dict[str, Callable[..., Any]] = {
    op: getattr(module, op) for module in _MODULES for op in module.FAULTS
}


def run(op_name: str, args: tuple[Any, ...], fault: str | None = None) -> tuple[Any, ...]:
    """The op's outputs as a tuple, right or with one named fault."""
    if fault is not None and fault not in FAULTS[op_name]:
        raise KeyError(f"{op_name} has no fault {fault!r}; it has {FAULTS[op_name]}")
    with np.errstate(all="ignore"):
        result = _OPS[op_name](*args, fault=fault)
    return result if isinstance(result, tuple) else (result,)
