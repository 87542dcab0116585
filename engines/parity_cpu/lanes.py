"""Sixteen weight rows side by side, one a lane: how the ops compute serial chains at SIMD speed.

Nothing is added across lanes, so each lane has the bits of its row alone. Rows are turned into
lanes as they are read: the stored arrays stay as they are, and no copy of them exists. A width that
the processor lacks is LLVM's to split. For compiled code only, like ``intrinsics``.

``F32`` and ``I32`` are sixteen float32 and int32. ``+`` and ``*`` of two F32 work lane by lane,
each rounded as scalars are; ``+``, ``&`` and ``>>`` (of unsigned bits) of two I32.
"""

import operator
import struct
from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel
from numba.core.datamodel.registry import register_default
from numba.core.errors import TypingError
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin

LANES = 16
SHORTS = ir.VectorType(ir.IntType(16), 2 * LANES)
WORDS = ir.VectorType(ir.IntType(32), LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)


class Lanes(types.Type):  # type: ignore[misc]
    """The Numba type of sixteen values; ``llvm``: what LLVM calls it."""

    def __init__(self, name: str, llvm: Any) -> None:
        self.llvm = llvm
        super().__init__(name)


@register_default(Lanes)
class _LanesModel(PrimitiveModel):  # type: ignore[misc]
    """Held in vector registers."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, fe_type.llvm)


F32 = Lanes("F32x16", FLOATS)
I32 = Lanes("I32x16", WORDS)


def teach_operator(symbol: Any, kind: Lanes, instruction: str) -> None:
    """Teach Numba ``kind symbol kind``: one LLVM instruction without flags."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        key = symbol

        def generic(self, args: Any, kws: Any) -> Any:
            return signature(kind, kind, kind) if tuple(args) == (kind, kind) else None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args)

    teachers: tuple[Any, Any] = (infer_global(symbol), lower_builtin(symbol, kind, kind))
    for teach, how in zip(teachers, (Template, lower), strict=True):
        teach(how)


for _symbol, _kind, _instruction in (
    (operator.add, F32, "fadd"),
    (operator.sub, F32, "fsub"),
    (operator.mul, F32, "fmul"),
    (operator.add, I32, "add"),
    (operator.and_, I32, "and_"),
    (operator.rshift, I32, "lshr"),
):
    teach_operator(_symbol, _kind, _instruction)


def compiled_only(typing: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's ``intrinsic``, typed as its callers see it: without the typing context."""
    operation: Callable[..., Any] = intrinsic(typing)
    return operation


def has(context: Any, feature: str) -> bool:
    """Whether code is made for x86 processors with ``feature``; kept code is found by that too."""
    _, _, features = context.codegen().magic_tuple()
    return f"+{feature}" in features.split(",")


def call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def fma_of_lanes(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The code of ``intrinsics.fma32`` of three F32; llvmlite's own knows scalars alone."""
    return call(builder, "llvm.fma.v16f32", FLOATS, *args)


def picked(builder: Any, a: Any, b: Any, places: Iterable[int]) -> Any:
    """The elements at ``places`` of a, then b."""
    chosen = list(places)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
    return builder.shuffle_vector(a, b, mask)


def spread_value(builder: Any, value: Any, vector: Any) -> Any:
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, value, _index(0))
    return picked(builder, first, empty, [0] * vector.count)


def _index(lane: int) -> Any:
    return ir.Constant(ir.IntType(32), lane)


@compiled_only
def spread(typingctx: Any, value: Any) -> Any:
    """spread(value: float32 or int32) -> F32 or I32, the value in every lane."""
    kind = F32 if value == types.float32 else I32

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return spread_value(builder, args[0], kind.llvm)

    return kind(types.float32 if kind is F32 else types.int32), codegen


@compiled_only
def floats(typingctx: Any, value: Any) -> Any:
    """floats(value: I32) -> F32, every int32 rounded to float32."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.sitofp(args[0], FLOATS)

    return F32(I32), codegen


@compiled_only
def as_floats(typingctx: Any, value: Any) -> Any:
    """as_floats(value: I32) -> F32 of the same bits."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], FLOATS)

    return F32(I32), codegen


def _weights(nibbles: tuple[int, ...], zero: int = 8) -> Callable[..., Any]:
    """Those of ``nibbles`` (n beside n + 4) less ``zero``, in their order."""

    def typing(typingctx: Any, words: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            found: dict[int, Any] = {}
            for nibble in nibbles:
                shifted = builder.lshr(args[0], _all(4 * (nibble % 4)))
                if nibble < 4 and has(context, "avx512bw"):
                    found[nibble], found[nibble + 4] = _two_weights(builder, shifted, zero)
                elif nibble not in found:
                    shifted = builder.lshr(args[0], _all(4 * nibble))
                    whole = builder.and_(shifted, _all(15))
                    less = builder.sub(whole, _all(zero)) if zero else whole
                    found[nibble] = builder.sitofp(less, FLOATS)
            values = [found[nibble] for nibble in nibbles]
            return context.make_tuple(builder, sig.return_type, values)

        return types.UniTuple(F32, len(nibbles))(I32), codegen

    return typing


# eight_weights(words: I32) -> eight F32: the nibbles of each lane from the lowest, less 8; and four
# of them: of the bytes' low halves, and of their high ones.
eight_weights = compiled_only(_weights((0, 1, 2, 3, 4, 5, 6, 7)))
low_weights = compiled_only(_weights((0, 2, 4, 6)))
high_weights = compiled_only(_weights((1, 3, 5, 7)))
# The same of the nibbles as they are stored.
low_nibbles = compiled_only(_weights((0, 2, 4, 6), zero=0))
high_nibbles = compiled_only(_weights((1, 3, 5, 7), zero=0))


def _two_weights(builder: Any, words: Any, zero: int) -> tuple[Any, Any]:
    """Nibbles 0 and 4 of each lane less ``zero``, by one look-up: a float32 so small is its upper
    half."""
    values = (float(value % 16 - zero) for value in range(32))
    upper = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    table = ir.Constant(
        SHORTS, upper
    )  # found by five bits, of which the fifth is the next nibble's
    places = builder.bitcast(words, SHORTS)
    both = call(builder, "llvm.x86.avx512.permvar.hi.512", SHORTS, table, places)
    both = builder.bitcast(both, WORDS)
    low, high = builder.shl(both, _all(16)), builder.and_(both, _all(0xFFFF0000))
    return builder.bitcast(low, FLOATS), builder.bitcast(high, FLOATS)


def _all(value: int) -> Any:
    return ir.Constant(WORDS, [value] * LANES)


@compiled_only
def halves(typingctx: Any, bits: Any) -> Any:
    """halves(bits: I32) -> F32 of the finite f16 in the low half of each lane; exact, subnormals
    too, as ``ops.q4.half_to_f32``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        placed = builder.shl(builder.and_(args[0], _all(0x7FFF)), _all(13))
        scale = ir.Constant(FLOATS, [2.0**112] * LANES)
        magnitude = builder.fmul(builder.bitcast(placed, FLOATS), scale)
        sign = builder.shl(builder.and_(args[0], _all(0x8000)), _all(16))
        return builder.bitcast(builder.or_(builder.bitcast(magnitude, WORDS), sign), FLOATS)

    return F32(I32), codegen


@compiled_only
def pair_dot(typingctx: Any, a: Any, b: Any) -> Any:
    """pair_dot(a: I32, b: I32) -> I32: the two int16 of each lane multiplied and added, exact."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        halves = [builder.bitcast(value, SHORTS) for value in args]
        if has(context, "avx512bw"):
            return call(builder, "llvm.x86.avx512.pmaddw.d.512", WORDS, *halves)
        products = []
        for start in (0, 1):
            taken = (picked(builder, half, half, range(start, 2 * LANES, 2)) for half in halves)
            products.append(builder.mul(*(builder.sext(value, WORDS) for value in taken)))
        return builder.add(*products)

    return I32(I32, I32), codegen


@compiled_only
def lane(typingctx: Any, values: Any, at: Any) -> Any:
    """lane(values: F32, at: int) -> float32, the value of lane ``at``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], ir.IntType(32)))

    return types.float32(F32, types.int64), codegen


@compiled_only
def every(typingctx: Any, data: Any, at: Any) -> Any:
    """every(data: float32 or int32 array, at: int) -> F32 or I32: element ``at`` in every lane."""
    kind = F32 if data.dtype == types.float32 else I32

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start = context.make_array(sig.args[0])(context, builder, args[0]).data
        return spread_value(builder, builder.load(builder.gep(start, [args[1]])), kind.llvm)

    require_c(data)
    return kind(data, types.int64), codegen


@compiled_only
def store(typingctx: Any, out: Any, at: Any, values: Any) -> Any:
    """store(out: float32 array, at: int, values: F32): all lanes from element ``at`` on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _sixteen(context, builder, sig, args), align=4)
        return context.get_dummy_value()

    require_c(out)
    return types.none(out, types.int64, F32), codegen


@compiled_only
def load(typingctx: Any, data: Any, at: Any) -> Any:
    """load(data: float32 array, at: int) -> F32: sixteen elements from ``at`` on."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_sixteen(context, builder, sig, args), align=4)

    require_c(data)
    return F32(data, types.int64), codegen


def _sixteen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), FLOATS.as_pointer())


@compiled_only
def four_words(typingctx: Any, data: Any, start: Any, stride: Any, count: Any) -> Any:
    """four_words(data, start: int, stride: int, count: int) -> (I32, I32, I32, I32).

    Word i of 16 bytes each: lane l reads at byte ``start + l * stride`` of the C-contiguous array
    ``data``; lanes from ``count`` on read what lane ``count - 1`` does.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _row_pointers(context, builder, sig.args[0], args)
        quarter = ir.VectorType(ir.IntType(32), 4)
        rows = []
        for pointer in at:
            read = builder.load(builder.bitcast(pointer, quarter.as_pointer()))
            read.align = 1
            rows.append(read)
        # Rows i, 4 + i, 8 + i, 12 + i in one register each: a 4 x 4 turn in every quarter of it.
        quarters = [joined(builder, rows[i::4]) for i in range(4)]
        return context.make_tuple(builder, sig.return_type, _turned(builder, quarters))

    require_c(data)
    words = types.UniTuple(I32, 4)
    return words(data, types.int64, types.int64, types.int64), codegen


@compiled_only
def column(typingctx: Any, data: Any, start: Any, stride: Any, count: Any) -> Any:
    """column(data, start: int, stride: int, count: int) -> I32: one element a lane, as bits.

    Lane l reads element ``start + l * stride`` of the C-contiguous array ``data`` (uint16, widened,
    or float32); lanes from ``count`` on read what lane ``count - 1`` does.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = 2 if sig.args[0].dtype == types.uint16 else 4
        scaled = (builder.mul(arg, ir.Constant(arg.type, size)) for arg in args[1:3])
        bits, item = ir.Constant(WORDS, ir.Undefined), ir.IntType(8 * size)
        for number, pointer in enumerate(
            _row_pointers(context, builder, sig.args[0], [args[0], *scaled, args[3]])
        ):
            read = builder.load(builder.bitcast(pointer, item.as_pointer()))
            wide = builder.zext(read, ir.IntType(32)) if size == 2 else read
            bits = builder.insert_element(bits, wide, _index(number))
        return bits

    require_c(data)
    return I32(data, types.int64, types.int64, types.int64), codegen


def require_c(data: Any) -> None:
    if data.layout != "C":
        raise TypingError(f"lanes are read from C-contiguous arrays alone, not from {data}")


def _row_pointers(context: Any, builder: Any, kind: Any, args: Any) -> list[Any]:
    """A byte pointer a lane."""
    array, start, stride, count = args
    data = context.make_array(kind)(context, builder, array).data
    base = builder.bitcast(data, cgutils.voidptr_t)
    last = builder.sub(count, ir.Constant(count.type, 1))
    found = []
    for number in range(LANES):
        row = ir.Constant(count.type, number)
        row = builder.select(builder.icmp_signed("<", row, last), row, last)
        found.append(builder.gep(base, [builder.add(start, builder.mul(row, stride))]))
    return found


def joined(builder: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [picked(builder, *pair, range(2 * pair[0].type.count)) for pair in pairs]
    return parts[0]


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """Vector i of four: element i of each quarter of each of the four ``rows``."""

    def mixed(a: Any, b: Any, picks: tuple[int, ...]) -> Any:
        # picks: 0 to 3 of a quarter of a, 4 to 7 of the same quarter of b
        at = (
            4 * quarter + (pick if pick < 4 else LANES + pick - 4)
            for quarter in range(LANES // 4)
            for pick in picks
        )
        return picked(builder, a, b, at)

    low, high, first, second = (0, 4, 1, 5), (2, 6, 3, 7), (0, 1, 4, 5), (2, 3, 6, 7)
    halves = [
        (mixed(rows[0], rows[1], picks), mixed(rows[2], rows[3], picks)) for picks in (low, high)
    ]
    return [mixed(*half, picks) for half in halves for picks in (first, second)]


@compiled_only
def fetch(typingctx: Any, data: Any, at: Any) -> Any:
    """fetch(data, at: int): have the four cache lines from byte ``at`` of ``data`` brought near.

    Changes no value. Nothing need be there: past the end nothing happens.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = context.make_array(sig.args[0])(context, builder, args[0])
        base = builder.bitcast(array.data, cgutils.voidptr_t)
        # To read, into the second cache, data.
        how = [ir.Constant(ir.IntType(32), value) for value in (0, 2, 1)]
        for line in range(4):
            where = builder.add(args[1], ir.Constant(args[1].type, 64 * line))
            pointer = builder.gep(base, [where])
            call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, *how)
        return context.get_dummy_value()

    return types.none(data, types.int64), codegen
