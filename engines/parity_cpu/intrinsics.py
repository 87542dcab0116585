"""Single machine operations that Numba's Python subset cannot write: fma, bit casts, wide products.

Every function here is for compiled code only; called from plain Python it raises. Each is one LLVM
instruction or intrinsic without fast-math flags, so its result is the same on every processor.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from parity_cpu.lanes import F32, fma_of_lanes

Codegen = Callable[[Any, Any, Any, Any], Any]


def _operation(typing: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's `intrinsic`, typed as its callers see it: without the typing context."""
    compiled_only: Callable[..., Any] = intrinsic(typing)
    return compiled_only


def _fma(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.fma(*args)


@_operation
def fma64(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """fma64(a, b, c) -> a * b + c, float64, rounded once.

    A processor without the instruction gets a call of the C library's fma, which rounds once too.
    """
    return types.float64(types.float64, types.float64, types.float64), _fma


@_operation
def fma32(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """fma32(a, b, c) -> a * b + c, float32 or lanes of it, rounded once.

    A processor without the instruction gets a call of the C library's fmaf, which rounds once too.
    """
    if (a, b, c) == (F32, F32, F32):
        return F32(F32, F32, F32), fma_of_lanes
    return types.float32(types.float32, types.float32, types.float32), _fma


def _bit_cast(result: ir.Type) -> Codegen:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], result)

    return codegen


@_operation
def bits_of_f32(typingctx: Any, value: Any) -> Any:
    """bits_of_f32(value: float32) -> uint32, NaN payloads untouched."""
    return types.uint32(types.float32), _bit_cast(ir.IntType(32))


@_operation
def f32_of_bits(typingctx: Any, bits: Any) -> Any:
    """f32_of_bits(bits: uint32) -> float32, NaN payloads untouched."""
    return types.float32(types.uint32), _bit_cast(ir.FloatType())


@_operation
def bits_of_f64(typingctx: Any, value: Any) -> Any:
    """bits_of_f64(value: float64) -> uint64, NaN payloads untouched."""
    return types.uint64(types.float64), _bit_cast(ir.IntType(64))


@_operation
def f64_of_bits(typingctx: Any, bits: Any) -> Any:
    """f64_of_bits(bits: uint64) -> float64, NaN payloads untouched."""
    return types.float64(types.uint64), _bit_cast(ir.DoubleType())


@_operation
def umul64hi(typingctx: Any, a: Any, b: Any) -> Any:
    """umul64hi(a, b) -> the high 64 bits of the 128-bit product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@_operation
def clz64(typingctx: Any, x: Any) -> Any:
    """clz64(x: uint64) -> uint64, the number of zero bits above the highest set bit; 64 for 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen
