"""Every engine op against the scalar oracle, case by case: dtype, shape and bytes.

A backend is anything with a name and run(op, args); another engine joins by being added to
BACKENDS, and then answers the same cases.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.oracle import check
from tests.oracle.inputs import OPS


class CpuBackend:
    """The Numba ops, outputs first; outputs start as garbage, so that unwritten parts show."""

    name = "cpu"

    def run(self, op_name: str, args: check.Args) -> check.Outputs:
        """Allocate, call parity_cpu.ops.<op>.<op>, and hand the outputs back."""
        op = getattr(import_module(f"parity_cpu.ops.{op_name}"), op_name)
        outputs = tuple(_garbage(spec) for spec in check.output_specs(op_name, args))
        op(*outputs, *_inputs(op_name, args))
        return outputs


def _garbage(spec: check.Spec) -> np.ndarray[Any, np.dtype[Any]]:
    """Every byte ff: NaN as float32, -1 as integer."""
    shape, dtype = spec
    out = np.empty(shape, dtype)
    out.view(np.uint8)[...] = 0xFF
    return out


def _inputs(op_name: str, args: check.Args) -> check.Args:
    """The router's k is the length of its outputs."""
    return (args[0], args[2]) if op_name == "router_topk" else args


BACKENDS: tuple[check.OpBackend, ...] = (CpuBackend(),)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_op_has_the_oracles_bytes(backend: check.OpBackend, op: str) -> None:
    """All cases of one op."""
    assert check.check_op(op, backend.run) > 5


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_one_flipped_bit_is_caught(backend: check.OpBackend, op: str) -> None:
    """Planted: the backend's own result with its very last bit of output changed."""

    def flipped(op_name: str, args: check.Args) -> check.Outputs:
        outputs = backend.run(op_name, args)
        outputs[-1].view(np.uint8).reshape(-1)[-outputs[-1].itemsize] ^= 1
        return outputs

    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, flipped)
