"""The reference's ops as sums whose order can be revealed: ``cpu.rmsnorm``, ``cpu.combine``, ..."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

import numpy as np

from parity.errors import InputError
from parity.order.own.asked import asked_of
from parity.order.own.table import OWN, OwnOp, make_own
from parity.order.sums import Ask
from parity_cpu.jit import source_digest
from parity_cpu.threads import threads


class CpuSums:
    """Family ``cpu``. M: rows of one forward."""

    def names(self) -> tuple[str, ...]:
        """The sums of the contract."""
        return tuple(OWN)

    def make(self, name: str, ask: Ask, M: int) -> OwnOp:
        """As ``parity.order.sums.SumFamily.make``."""
        if ask.device != "cpu":
            raise InputError(f"cpu.{name}: --device {ask.device}", f"write cuda.{name}")
        return make_own(asked_of("cpu", name, ask, M, key()), launch)


def key() -> dict[str, str]:
    """What an order of these ops holds for, beside the op's shape and flags."""
    return {"device": "cpu", "numba": metadata.version("numba"), "kernels": source_digest()[:16]}


def launch(op: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Run an op, its arguments by name; the arrays as they are then."""
    run, names = _op(op)
    # Read-only arrays would have the op compiled anew, beside the code that the engine runs.
    arrays = {
        name: np.require(value, requirements=["C", "W"])
        for name, value in given.items()
        if isinstance(value, np.ndarray)
    }
    with threads(1):  # a probe is small: waking others takes longer than the op
        run(*({**given, **arrays}[name] for name in names))
    return arrays


@functools.cache
def _op(name: str) -> tuple[Callable[..., None], tuple[str, ...]]:
    """A compiled op and the names of its arguments."""
    op = getattr(import_module(f"parity_cpu.ops.{name}"), name)
    return op, tuple(inspect.signature(op.py_func).parameters)
