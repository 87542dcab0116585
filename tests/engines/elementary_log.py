"""The scalar oracle with its elementary functions logged: which were called, with which arguments.

The oracle computes as before; each function writes down its argument first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tests.oracle import (
    check,
    hybrid_check,
    hybrid_scalar,
    scalar,
    scalar_f32,
    variants,
    variants_heads,
    variants_products,
)
from tests.oracle.elementary import expf
from tests.oracle.variants_shared import Names

F = np.float32
Log = list[tuple[str, np.float32]]
# Where the oracle's modules name the functions of contract 4.
NAMED = (
    *((scalar, name) for name in ("expf", "cosf", "sinf", "logf")),
    *((scalar_f32, "expf"), (hybrid_scalar, "logf")),
    *((variants_heads, name) for name in ("cosf", "sinf")),
)


def oracle_log(op: str, args: check.Args, names: Names = frozenset()) -> Log:
    """Every elementary call of an op on one case, in the oracle's order."""
    log: Log = []
    with logged(log):
        if op in hybrid_check.WITH_VARIANTS:
            hybrid_check.oracle(op, args, _logging(log, "expf", expf))
        elif names:
            variants.run(op, args, names)
        else:
            check.oracle(op, args)
    return log


@contextmanager
def logged(log: Log) -> Iterator[None]:
    """Every function that the oracle's modules name writes into ``log`` meanwhile."""
    exponential = variants_heads.exponential
    with ExitStack() as patches:
        for module, name in NAMED:
            call = _logging(log, name, getattr(module, name))
            patches.enter_context(mock.patch.object(module, name, call))
        for module, name, told in (
            (scalar, "_inverse_root", _root_logging(log)),
            (variants_products, "_norm_row", _row_logging(log)),
            (
                variants_heads,
                "exponential",
                lambda names: _logging(log, "expf", exponential(names)),
            ),
        ):
            patches.enter_context(mock.patch.object(module, name, told))
        yield


def _logging(log: Log, name: str, function: Any) -> Callable[[np.float32], np.float32]:
    def call(x: np.float32) -> np.float32:
        log.append((name, x))
        result: np.float32 = function(x)
        return result

    return call


def _root_logging(log: Log) -> Callable[..., np.float32]:
    inverse_root = scalar._inverse_root

    def call(ss: np.float32, d: int, eps: np.float32) -> np.float32:
        log.append(("rsqrt", F(F(ss / F(d)) + eps)))
        return inverse_root(ss, d, eps)

    return call


def _row_logging(log: Log) -> Callable[..., list[np.float32]]:
    norm_row = variants_products._norm_row

    def call(x: Any, w: Any, eps: Any, ss: Any, names: Names) -> list[np.float32]:
        log.append(("rsqrt", F(F(ss / F(len(x))) + eps)))
        return norm_row(x, w, eps, ss, names)

    return call
