"""The shared comparison of any op implementation with the oracle: dtype, shape and bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np

from tests.oracle import scalar, scalar_f32, scalar_shared, variants
from tests.oracle.inputs import cases, is_non_finite, variant_cases
from tests.oracle.values import NON_FINITE

Array = np.ndarray[Any, np.dtype[Any]]
Args = tuple[Any, ...]
Outputs = tuple[Array, ...]
Runner = Callable[[str, Args], Outputs]
VariantRunner = Callable[[str, Args, variants.Names], Outputs]
Spec = tuple[tuple[int, ...], type[np.generic]]


class OpBackend(Protocol):
    """What an engine offers to be held against the oracle, op by op."""

    name: str

    def run(self, op_name: str, args: Args) -> Outputs:
        """The op's outputs (new arrays on the host) for the inputs of one case."""


class OpMismatch(AssertionError):
    """An op's output is not the oracle's: the message says where. Look at that op's contract."""


def output_specs(op_name: str, args: Args) -> tuple[Spec, ...]:
    """Shape and dtype of each output, from the shapes of the inputs alone."""
    first = np.shape(args[0])
    f32, i8, i16, i32 = np.float32, np.int8, np.int16, np.int32
    if op_name == "embed":
        return (((args[2].shape[0], first[1] * 32), f32),)
    if op_name == "embed_f32":
        return (((*args[1].shape, first[1]), f32),)
    if op_name in ("q4_matvec", "f32_matvec", "router_tree"):
        return (((args[-1].shape[0], first[0]), f32),)
    if op_name == "quant8":
        return (first, i8), (first[:2], f32)
    if op_name == "quant16":
        return (first, i16), ((first[0], first[1] // 32), f32)
    if op_name == "router_topk":
        picked = (first[0], args[1])
        return (picked, i32), (picked, f32)
    if op_name in ("expert_matvec", "expert_f32_matvec"):
        ids = args[2 if op_name == "expert_matvec" else 1]
        return (((*ids.shape, first[1]), f32),)
    return ((first, f32),)


def oracle(op_name: str, args: Args) -> Outputs:
    """The oracle's outputs, always as a tuple."""
    if op_name in ("norm_tree", "router_tree"):
        return variants.run(op_name, args)
    module = next(one for one in (scalar, scalar_f32, scalar_shared) if hasattr(one, op_name))
    result = getattr(module, op_name)(*args)
    return result if isinstance(result, tuple) else (result,)


@cache
def expected(op_name: str) -> tuple[tuple[str, Args, Outputs], ...]:
    """Every case of an op with the oracle's outputs; worked out once a process."""
    return tuple((name, args, oracle(op_name, args)) for name, args in cases(op_name))


def _compared(op_name: str, args: Args) -> tuple[Array | None, ...]:
    """For each output, which elements the contract defines; None means all of them.

    A NaN has no maximum and no code, an infinity no code (contract 1.10).
    """
    if op_name not in ("quant8", "quant16"):
        return (None,) * len(output_specs(op_name, args))
    x = args[0]
    groups = x if op_name == "quant8" else x.reshape(x.shape[0], -1, 32)
    coded = np.isfinite(groups).all(axis=-1)
    codes = np.broadcast_to(coded[..., None], groups.shape).reshape(x.shape)
    return codes, ~np.isnan(groups).any(axis=-1)


def differing(ref: Array, dut: Array, any_nan: bool) -> Array:
    """Flat mask of elements whose bytes differ; with any_nan, NaN against NaN passes."""
    size = ref.dtype.itemsize
    ref_bytes = np.frombuffer(ref.tobytes(), np.uint8).reshape(-1, size)
    dut_bytes = np.frombuffer(dut.tobytes(), np.uint8).reshape(-1, size)
    mask = (ref_bytes != dut_bytes).any(axis=1)
    if any_nan and ref.dtype.kind == "f":
        mask &= ~(np.isnan(ref).reshape(-1) & np.isnan(dut).reshape(-1))
    return mask


def _hex(array: Array, index: int) -> str:
    value = np.ascontiguousarray(array).reshape(-1)[index]
    return f"{value.tobytes()[::-1].hex()} ({value!s})"


def _compare(where: str, ref: Array, dut: Any, any_nan: bool, defined: Array | None) -> None:
    if not isinstance(dut, np.ndarray):
        raise OpMismatch(f"{where}: dut is a {type(dut).__name__}, not an array")
    if (ref.dtype, ref.shape) != (dut.dtype, dut.shape):
        raise OpMismatch(
            f"{where}: ref {ref.dtype}{list(ref.shape)}, dut {dut.dtype}{list(dut.shape)}"
        )
    mask = differing(ref, dut, any_nan)
    if defined is not None:
        mask &= defined.reshape(-1)
    if mask.any():
        first = int(np.argmax(mask))
        raise OpMismatch(
            f"{where}: {int(mask.sum())} of {mask.size} differ, first at "
            f"{[int(i) for i in np.unravel_index(first, ref.shape)]}: "
            f"ref {_hex(ref, first)}, dut {_hex(dut, first)}"
        )


def _frozen(args: Args) -> list[bytes]:
    return [a.tobytes() for a in args if isinstance(a, np.ndarray)]


def check_case(op_name: str, case_name: str, args: Args, ref: Outputs, run: Runner) -> None:
    """Run one case and raise OpMismatch unless every output has the oracle's bytes.

    The inputs must come out of the run unchanged.
    """
    where = f"{op_name}[{case_name}]"
    given = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)
    outputs = run(op_name, given)
    if _frozen(given) != _frozen(args):
        raise OpMismatch(f"{where}: the run changed its inputs")
    if len(outputs) != len(ref):
        raise OpMismatch(f"{where}: {len(ref)} outputs expected, the run gave {len(outputs)}")
    any_nan = is_non_finite(case_name)
    for i, defined in enumerate(_compared(op_name, args)):
        _compare(f"{where} output {i}", ref[i], outputs[i], any_nan, defined)


def check_op(op_name: str, run: Runner) -> int:
    """Hold every case of an op against the oracle; returns how many cases were compared.

    Raises OpMismatch at the first case that differs, or when there is no case at all.
    """
    count = 0
    for case_name, args, ref in expected(op_name):
        check_case(op_name, case_name, args, ref, run)
        count += 1
    if count == 0:
        raise OpMismatch(f"{op_name}: no case was compared")
    return count


@cache
def expected_of(op_name: str, names: variants.Names) -> tuple[tuple[str, Args, Outputs], ...]:
    """Every case of an op with the outputs of these variants; worked out once a process."""
    table = variant_cases(op_name)
    return tuple((name, args, variants.run(op_name, args, names)) for name, args in table)


def _has_nan(array: Array) -> bool:
    return array.dtype == np.float32 and bool(np.isnan(array).any())


def check_variants(op_name: str, names: variants.Names, run: VariantRunner) -> int:
    """check_op for an op with variants: ``run(op, args, names)``.

    The inputs are those of the exact form; expert_matvec has probs f32[M, k] as one more.
    """
    count = 0
    for case_name, args, ref in expected_of(op_name, names):
        label = f"{case_name} | {', '.join(sorted(names))}"
        # a NaN that the variants alone make, such as inf - inf: its bits are the processor's (1.10)
        if not is_non_finite(case_name) and any(_has_nan(each) for each in ref):
            label = NON_FINITE + label
        check_case(op_name, label, args, ref, lambda op, given: run(op, given, names))
        count += 1
    if count == 0:
        raise OpMismatch(f"{op_name}: no case was compared")
    return count
