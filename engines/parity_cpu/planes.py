"""Bytes as planes of bits, and words of 64 bits side by side. For compiled code only.

Bit j of plane k is bit k of byte j. A width that the processor lacks is LLVM's to split. ``Eight``
is eight uint64, ``Wide`` is RUNS of them; ``^``, ``&``, ``+``, ``-``, ``*``, ``<<`` and ``>>`` of
two of a kind work lane by lane.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from parity_cpu.lanes import (
    Lanes,
    call,
    compiled_only,
    has,
    joined,
    picked,
    require_c,
    spread_value,
    teach_operator,
)

RUN = 64  # bytes of a plane
RUNS = 16
EIGHT = 8
WORD, BYTE, BIT = ir.IntType(64), ir.IntType(8), ir.IntType(1)
BYTES = ir.VectorType(BYTE, RUN)
Eight = Lanes("U64x8", ir.VectorType(WORD, EIGHT))
Wide = Lanes("U64x16", ir.VectorType(WORD, RUNS))

for _symbol, _instruction in (
    (operator.xor, "xor"),
    (operator.and_, "and_"),
    (operator.add, "add"),
    (operator.sub, "sub"),
    (operator.mul, "mul"),
    (operator.lshift, "shl"),
    (operator.rshift, "lshr"),
):
    for _kind in (Eight, Wide):
        teach_operator(_symbol, _kind, _instruction)


def _spreading(kind: Lanes) -> Callable[..., Any]:
    def typing(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return spread_value(builder, args[0], kind.llvm)

        return kind(types.uint64), codegen

    return typing


def _reading(kind: Lanes) -> Callable[..., Any]:
    def typing(typingctx: Any, data: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.load(_place(context, builder, sig.args[0], args, kind.llvm), align=1)

        require_c(data)
        return kind(data, types.int64), codegen

    return typing


def _place(context: Any, builder: Any, kind: Any, args: Any, vector: Any) -> Any:
    """Where ``vector`` lies from element ``args[1]`` of the array ``args[0]`` on."""
    data = context.make_array(kind)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())


# eight(value: uint64) -> Eight, and so on: the value in every lane.
eight, wide = compiled_only(_spreading(Eight)), compiled_only(_spreading(Wide))
# eight_words(data: uint8 or uint64 array, at: int) -> Eight, and so on: from element ``at`` on.
eight_words, wide_words = compiled_only(_reading(Eight)), compiled_only(_reading(Wide))


@compiled_only
def keep_words(typingctx: Any, out: Any, at: Any, values: Any) -> Any:
    """keep_words(out: uint64 array, at: int, values: Eight or Wide): from element ``at`` on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _place(context, builder, sig.args[0], args, values.llvm), align=8)
        return context.get_dummy_value()

    require_c(out)
    return types.none(out, types.int64, values), codegen


@compiled_only
def planes(typingctx: Any, data: Any, at: Any) -> Any:
    """planes(data: uint8 array, at: int) -> eight Wide: bit j of lane l of number k is bit k of
    byte ``at + 64 * l + j``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        halves = []
        for begin in range(0, RUNS * RUN, EIGHT * RUN):
            runs = []
            for start in range(begin, begin + EIGHT * RUN, RUN):
                first = builder.add(args[1], ir.Constant(args[1].type, start))
                place = _place(context, builder, sig.args[0], (args[0], first), BYTES)
                runs.append(builder.load(place, align=1))
            halves.append(_eight_planes(builder, runs))
        found = [joined(builder, list(parts)) for parts in zip(*halves, strict=True)]
        return context.make_tuple(builder, sig.return_type, found)

    require_c(data)
    return types.UniTuple(Wide, 8)(data, types.int64), codegen


def _eight_planes(builder: Any, runs: list[Any]) -> list[Any]:
    """The planes of eight runs of 64 bytes, a lane each."""
    # Bytes b, 8 + b, .. 56 + b of a run into lane b, then of all runs into number b.
    order = [EIGHT * word + byte for byte in range(EIGHT) for word in range(EIGHT)]
    found = [builder.bitcast(picked(builder, run, run, order), Eight.llvm) for run in runs]
    for by in (4, 2, 1):
        low = [lane if not lane & by else EIGHT + lane - by for lane in range(EIGHT)]
        high = [lane + by if not lane & by else EIGHT + lane for lane in range(EIGHT)]
        for at in (at for at in range(EIGHT) if not at & by):
            pair = found[at], found[at + by]
            found[at], found[at + by] = (picked(builder, *pair, lanes) for lanes in (low, high))
    # Bit k of a byte of number b and bit b of that byte of number k change places.
    for by, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        places = ir.Constant(Eight.llvm, [by] * EIGHT)
        chosen = ir.Constant(Eight.llvm, [mask * 0x0101010101010101] * EIGHT)
        for at in (at for at in range(EIGHT) if not at & by):
            lower, upper = found[at], found[at + by]
            other = builder.and_(builder.xor(builder.lshr(lower, places), upper), chosen)
            found[at + by] = builder.xor(upper, other)
            found[at] = builder.xor(lower, builder.shl(other, places))
    return found


@compiled_only
def xor_upto(typingctx: Any, values: Any) -> Any:
    """xor_upto(values: Wide) -> Wide: bit j of a lane is the xor of its bits 0 to j."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if has(context, "vpclmulqdq") and has(context, "avx512f"):
            return _products_of_ones(builder, args[0])
        found = args[0]
        for by in (1, 2, 4, 8, 16, 32):
            found = builder.xor(found, builder.shl(found, ir.Constant(Wide.llvm, [by] * RUNS)))
        return found

    return Wide(Wide), codegen


def _products_of_ones(builder: Any, values: Any) -> Any:
    """The same by carry-less products of each lane and 64 ones, of which the low half counts."""
    ones, parts = ir.Constant(Eight.llvm, [-1] * EIGHT), []
    for begin in range(0, RUNS, EIGHT):
        part = picked(builder, values, values, range(begin, begin + EIGHT))
        even, odd = (
            call(
                builder,
                "llvm.x86.pclmulqdq.512",
                Eight.llvm,
                part,
                ones,
                ir.Constant(BYTE, which),
            )
            for which in (0, 1)
        )
        lanes = [half * EIGHT + lane for lane in range(0, EIGHT, 2) for half in (0, 1)]
        parts.append(picked(builder, even, odd, lanes))
    return joined(builder, parts)


@compiled_only
def tops(typingctx: Any, values: Any) -> Any:
    """tops(values: Wide) -> uint64: bit l is the top bit of lane l."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        below = builder.icmp_signed("<", args[0], ir.Constant(Wide.llvm, [0] * RUNS))
        return builder.zext(builder.bitcast(below, ir.IntType(RUNS)), WORD)

    return types.uint64(Wide), codegen


@compiled_only
def filled(typingctx: Any, bits: Any) -> Any:
    """filled(bits: uint64) -> Wide: lane l is all ones where bit l is set, else 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        chosen = builder.trunc(args[0], ir.IntType(RUNS))
        return builder.sext(builder.bitcast(chosen, ir.VectorType(BIT, RUNS)), Wide.llvm)

    return Wide(types.uint64), codegen


@compiled_only
def bytes_apart(typingctx: Any, word: Any) -> Any:
    """bytes_apart(word: uint64) -> Eight: byte l of ``word`` in lane l."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], ir.VectorType(BYTE, EIGHT)), Eight.llvm)

    return Eight(types.uint64), codegen
