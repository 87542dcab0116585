"""From the inputs of an oracle case to the arguments of an engine's op, by parameter name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.oracle import check

Array = np.ndarray[Any, np.dtype[Any]]


def parameters(op: Callable[..., Any]) -> list[str]:
    """Names of an op's parameters: of a compiled function, or of a launch method."""
    return list(inspect.signature(getattr(op, "py_func", op)).parameters)


def op_arguments(
    op_name: str, names: Sequence[str], outputs: Sequence[Any], args: check.Args
) -> list[Any]:
    """Outputs first, then the oracle's inputs in order, with what only engines take between them.

    ``variants`` is 0, the exact tier. What the exact tier must not read is NaN: ``scratch``, and
    the probabilities of ``expert_matvec``.
    """
    # The router's k is the length of its outputs.
    inputs = iter((args[0], args[2]) if op_name == "router_topk" else args)
    found: list[Any] = list(outputs)
    for name in names[len(outputs) :]:
        if name == "variants":
            found.append(0)
        elif name == "scratch":
            found.append(np.full(1, np.nan, np.float32))
        elif name == "probs" and op_name == "expert_matvec":
            found.append(np.full(args[2].shape, np.nan, np.float32))
        else:
            found.append(next(inputs))
    assert not list(inputs), f"{op_name}: inputs are left over"
    return found
