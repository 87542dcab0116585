"""From the inputs of an oracle case to the arguments of an engine's op, by parameter name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parity_cuda.ops import scratch_width
from tests.oracle import check

Array = np.ndarray[Any, np.dtype[Any]]


def parameters(op: Callable[..., Any]) -> list[str]:
    """Names of an op's parameters, those by keyword alone left out: of a compiled function, or of a
    launch method."""
    signature = inspect.signature(getattr(op, "py_func", op))
    return [each.name for each in signature.parameters.values() if each.kind != each.KEYWORD_ONLY]


def op_arguments(
    op_name: str, names: Sequence[str], outputs: Sequence[Any], args: check.Args, mask: int = 0
) -> list[Any]:
    """Outputs first, then the oracle's inputs in order, with what only engines take between them.

    ``mask``: the variants, 0 for the exact tier. What the exact tier must not read is NaN: the
    probabilities of ``expert_matvec``, and ``scratch``.
    """
    added: dict[str, Any] = {"variants": mask}
    if "scratch" in names:
        added["scratch"] = _scratch(outputs[0].shape, args[-1])
    if op_name == "l2norm":
        added["stride"] = int(np.prod(outputs[0].shape[1:]))
    if op_name == "router_topk":  # its k is the length of its outputs
        args = (args[0], args[2])
    if op_name == "expert_matvec":
        added["probs"] = args[5] if len(args) > 5 else np.full(args[2].shape, np.nan, np.float32)
        args = args[:5]
    inputs = iter(args)
    wanted = names[len(outputs) :]
    found = [*outputs, *(added[name] if name in added else next(inputs) for name in wanted)]
    assert not list(inputs), f"{op_name}: inputs are left over"
    return found


def _scratch(shape: Sequence[int], pos: int) -> Array:
    """Room for the scores of all keys, for each row and head, and for three keys more."""
    rows, heads, _ = shape
    return np.full((rows, heads, scratch_width(pos + rows + 3)), np.nan, np.float32)
