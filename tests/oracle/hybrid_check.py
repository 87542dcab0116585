"""Any implementation of the hybrid family's ops against the scalar twins: dtype, shape, bytes.

The ops that change S or hist in place are held to what they leave there; every other input must
come out unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tests.oracle import check, hybrid_scalar, platform_math, scalar, scalar_f32
from tests.oracle.elementary import Float32Function, expf
from tests.oracle.hybrid_inputs import TABLES
from tests.oracle.inputs import is_non_finite

Specs = tuple[check.Spec, ...]
# run(op, args, specs of the outputs, mask of the variants): the outputs; args change in place.
Runner = Callable[[str, check.Args, Specs, int], check.Outputs]

# Ops whose first input is the state: the oracle's last output is that input after the run.
IN_PLACE = ("conv_step", "delta_step")
EXPONENTIALS: dict[str, Float32Function] = {
    "libm_exp": platform_math.expf,
    "exp_via_double": platform_math.exp_via_double,
}
WITH_VARIANTS = ("sigmoid_gate", "silu_gate", "conv_step", "delta_gates")
_SHARED = {"rope": scalar.rope, "attention_f32": scalar_f32.attention_f32}


def oracle(op_name: str, args: check.Args, exp: Float32Function = expf) -> check.Outputs:
    """The scalar twin's outputs, always as a tuple."""
    given = (*args, exp) if op_name in WITH_VARIANTS else args
    op: Any = _SHARED.get(op_name) or getattr(hybrid_scalar, op_name)
    with np.errstate(all="ignore"):
        result = op(*given)
    return result if isinstance(result, tuple) else (result,)


@cache
def expected(op_name: str, variant: str = "") -> tuple[tuple[str, check.Args, check.Outputs], ...]:
    """Every case of an op with the oracle's outputs; worked out once a process."""
    exp = EXPONENTIALS[variant] if variant else expf
    return tuple((name, args, oracle(op_name, args, exp)) for name, args in TABLES[op_name]())


def _copied(args: check.Args) -> check.Args:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def _bytes(args: check.Args) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in args]


def check_case(
    op_name: str, case: str, args: check.Args, ref: check.Outputs, run: Runner, mask: int = 0
) -> None:
    """Run one case; OpMismatch unless every output and the state have the oracle's bytes."""
    where, state = f"{op_name}[{case}]", op_name in IN_PLACE
    given = _copied(args)
    wanted = ref[:-1] if state else ref
    outputs = run(op_name, given, tuple((out.shape, out.dtype.type) for out in wanted), mask)
    if state:
        outputs, given, args = (*outputs, given[0]), given[1:], args[1:]
    if _bytes(given) != _bytes(args):
        raise check.OpMismatch(f"{where}: the run changed its inputs")
    for at, (one, other) in enumerate(zip(ref, outputs, strict=True)):
        _compare(f"{where} output {at}", one, other, is_non_finite(case))


def _compare(where: str, ref: check.Array, dut: Any, any_nan: bool) -> None:
    if (ref.dtype, ref.shape) != (dut.dtype, dut.shape):
        raise check.OpMismatch(
            f"{where}: ref {ref.dtype}{list(ref.shape)}, dut {dut.dtype}{list(dut.shape)}"
        )
    wrong = check.differing(ref, dut, any_nan)
    if wrong.any():
        first = int(np.argmax(wrong))
        values = (array.reshape(-1)[first] for array in (ref, dut))
        ref_value, dut_value = (f"{v.tobytes()[::-1].hex()} ({v!s})" for v in values)
        raise check.OpMismatch(
            f"{where}: {int(wrong.sum())} of {wrong.size} differ, first at {first}: "
            f"ref {ref_value}, dut {dut_value}"
        )


def check_op(op_name: str, run: Runner, variant: str = "", mask: int = 0) -> int:
    """Hold every case of an op against the oracle; returns how many cases were compared."""
    table = expected(op_name, variant)
    for case, args, ref in table:
        check_case(op_name, case, args, ref, run, mask)
    if not table:
        raise check.OpMismatch(f"{op_name}: no case was compared")
    return len(table)
