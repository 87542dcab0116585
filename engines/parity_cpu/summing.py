"""The twin's kernel: one postfix program (parity.order.program), blocks of rows in parallel.

Every value is held in float64, in which float32 values, products of two of them and the error terms
of their sums are exact. A sum of two float32 taken in float64 and rounded to float32 is the float32
sum (53 >= 2 * 24 + 2 bits: no double rounding shows), and so is a product. A sum with an exact
product is rounded to odd in float64 first: then the second rounding cannot go wrong.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import get_num_threads

from parity.order.program import (
    ADD_EXACT,
    ADD_LEAF,
    EXACT,
    FORMATS,
    FUSE,
    LEAF,
    NARROW,
    STORE,
    TERMS,
    WIDE,
    WIDE_EXACT,
    WIDE_LEAF,
)
from parity_cpu.intrinsics import bits_of_f32, bits_of_f64, clz64, f32_of_bits, f64_of_bits
from parity_cpu.jit import jit

# Any: type checkers know no compiled code, in which these are conversions of numbers.
f32: Any = np.float32
f64: Any = np.float64
i64: Any = np.int64
u32: Any = np.uint32
u64: Any = np.uint64

ROWS = 64  # rows that one pass of the program serves: their values stay in the nearest cache
PRODUCTS, VALUES, SQUARES = 0, 1, 2  # places in parity.order.program.TERMS
F32, BF16, F16 = 0, 1, 2  # places in parity.order.program.FORMATS
NO_EXPONENT = -(1 << 20)  # of a term that is 0: below every other
MINUS_ZERO = np.uint64(1 << 63)  # the bits of -0.0
LEAST_F32 = -149  # exponent of the smallest subnormal
UNCUT = 1 << 20  # bits kept below the largest exponent where nothing is cut
LEAST_LIMB = -352  # exponent of the exact sum's lowest bit: products reach down to 2**-298
LIMBS = 22  # and up to 2**256, with 2**30 terms
LIMB_MASK = np.int64(0xFFFFFFFF)
LARGEST_F32 = f64(np.finfo(np.float32).max)


@jit
def odd_sum(a: float, b: float) -> float:
    """a + b in float64, rounded to odd: a later rounding to float32 is then correct.

    a, b: float64 that hold float32 values or products of two. The error term is exact (TwoSum).
    """
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = bits_of_f64(total)
    if (error > 0.0 or error < 0.0) and bits & u64(1) == u64(0):  # false where an infinity made NaN
        outward = (error > 0.0) == (total > 0.0)
        total = f64_of_bits(bits + u64(1) if outward else bits - u64(1))
    return total


@jit
def round_bf16(value: float) -> float:
    """The bf16 nearest to a float32, ties to even; a NaN stays one."""
    if value != value:
        return value
    bits = bits_of_f32(f32(value))
    bits += u32(0x7FFF) + (bits >> u32(16) & u32(1))
    return f64(f32_of_bits(bits & u32(0xFFFF0000)))


@jit
def round_f16(value: float) -> float:
    """The f16 nearest to a float32, ties to even: by a quantum that is a power of two."""
    size = abs(value)
    if not size < 65520.0:  # halfway between the largest and the next power of two; NaN too
        return value if value != value else np.copysign(np.inf, value)
    exponent = max(i64(bits_of_f64(size) >> u64(52)) - 1023, -14)
    quantum = power(exponent - 10)
    return np.copysign(np.rint(size / quantum) * quantum, value)


@jit
def exponent_of(value: float) -> int:
    """floor(log2 |value|) of a float64 that holds a float32."""
    field = i64(bits_of_f64(value) >> u64(52)) & 0x7FF
    return field - 1023 if field else NO_EXPONENT


@jit
def from_quanta(count: int, exponent: int, to_zero: bool) -> float:
    """count * 2**exponent as a float32, cut toward zero or rounded to nearest even."""
    if count == 0:
        return 0.0
    rest = abs(count)
    length = 64 - i64(clz64(u64(rest)))
    drop = max(exponent + length - 24, LEAST_F32) - exponent
    kept, quantum = rest, exponent
    if drop > 62:  # far below the smallest subnormal
        kept, quantum = 0, LEAST_F32
    elif drop > 0:
        kept, quantum = rest >> drop, exponent + drop
        half, below = i64(1) << (drop - 1), rest & ((i64(1) << drop) - 1)
        if not to_zero and (below > half or (below == half and kept & 1)):
            kept += 1
    value = f64(kept) * power(quantum)
    if to_zero:
        value = min(value, LARGEST_F32)
    return f64(f32(-value if count < 0 else value))


@jit
def power(exponent: int) -> float:
    """2.0 ** exponent, -1022 <= exponent <= 1023."""
    return f64_of_bits(u64(1023 + exponent) << u64(52))


@jit
def cut_to(value: float, exponent: int) -> float:
    """A normal float64, cut toward zero to a multiple of 2**exponent."""
    bits = bits_of_f64(value)
    drop = exponent - (i64(bits >> u64(52)) & 0x7FF) + 1075  # low bits of the fraction
    if drop <= 0:
        return value
    return f64_of_bits(bits >> u64(drop) << u64(drop)) if drop <= 52 else 0.0


@jit
def add_to_limbs(limbs: Any, value: float) -> None:
    """limbs: int64[LIMBS] += a float64 that is 0 or a product of two float32, exactly.

    Limb i counts 2**(32 * i + LEAST_LIMB); carries wait, so that 2**30 terms fit.
    """
    bits = bits_of_f64(value)
    field = i64(bits >> u64(52)) & 0x7FF
    if field == 0:
        return
    fraction = (i64(bits) & i64(0xFFFFFFFFFFFFF)) | i64(0x10000000000000)
    place = field - 1075 - LEAST_LIMB
    limb, shift = place >> 5, place & 31
    low, high = (fraction & LIMB_MASK) << shift, (fraction >> 32) << shift
    sign = i64(-1) if bits >> u64(63) else i64(1)
    limbs[limb] += sign * (low & LIMB_MASK)
    limbs[limb + 1] += sign * ((low >> 32) + (high & LIMB_MASK))
    limbs[limb + 2] += sign * (high >> 32)


@jit
def from_limbs(limbs: Any, to_zero: bool) -> float:
    """The exact sum in limbs: int64[LIMBS] as a float32, cut toward zero or to nearest even.

    What lies below the top 29 bits or more only matters as a last bit that is set.
    """
    carry_limbs(limbs)
    negative = limbs[LIMBS - 1] < 0
    if negative:
        for i in range(LIMBS):
            limbs[i] = -limbs[i]
        carry_limbs(limbs)
    top = LIMBS - 1
    while top > 0 and limbs[top] == 0:
        top -= 1
    if top == 0:
        return from_quanta(-limbs[0] if negative else limbs[0], LEAST_LIMB, to_zero)
    window = u64(limbs[top]) << u64(32) | u64(limbs[top - 1])
    below = window & u64(15) != u64(0)
    for i in range(top - 1):
        below = below or limbs[i] != 0
    kept = i64(window >> u64(4)) << 1 | i64(below)
    exponent = 32 * (top - 1) + LEAST_LIMB + 3
    return from_quanta(-kept if negative else kept, exponent, to_zero)


@jit
def carry_limbs(limbs: Any) -> None:
    """Bring all limbs but the last into 0 .. 2**32 - 1."""
    for i in range(LIMBS - 1):
        limbs[i + 1] += limbs[i] >> 32
        limbs[i] &= LIMB_MASK


@jit
def leaf_values(out: Any, wt: Any, x: Any, terms: int, leaf: int, rounded: bool) -> None:
    """out: float64[rows] <- leaf of every row; wt: float32[n, rows], x: float32[n]."""
    for c in range(wt.shape[1]):
        w = f64(wt[leaf, c])
        if terms == VALUES:
            out[c] = w
        else:
            term = w * (w if terms == SQUARES else f64(x[leaf]))
            out[c] = f64(f32(term)) if rounded else term


@jit
def add_values(top: Any, other: Any, op: int) -> None:
    """top: float64[rows] <- top + other, by the addition of ``op``."""
    if op in (WIDE, WIDE_LEAF, WIDE_EXACT):
        for c in range(top.size):
            top[c] = top[c] + other[c]
    elif op == ADD_EXACT:
        for c in range(top.size):
            top[c] = f64(f32(odd_sum(top[c], other[c])))
    else:
        for c in range(top.size):
            top[c] = f64(f32(top[c] + other[c]))


@jit
def fused_values(
    out: Any, wt: Any, x: Any, terms: int, own: Any, inner: Any, cut: int, rz: bool
) -> None:
    """out: float64[rows] <- one fused sum a row of exact terms and of float32 values.

    own: int32[k], the leaves; inner: float64[m, rows]. All terms are aligned to the largest
    exponent and cut toward zero ``cut`` bits below it (UNCUT: not at all), summed exactly, then
    made a float32. The exponent of a product is that of its factors together: not normalised.
    """
    count, rows = own.size + inner.shape[0], wt.shape[1]
    term, size = np.empty((count, rows), np.float64), np.empty((count, rows), np.int64)
    for t in range(count):
        one_term(term[t], size[t], wt, x, terms, own, inner, t)
    for c in range(rows):
        out[c] = fused_column(term, size, count, c, cut, rz)


@jit
def fused_column(term: Any, size: Any, count: int, c: int, cut: int, rz: bool) -> float:
    """The fused sum of the first ``count`` terms in column c: term: float64[:, :], size: their
    exponents, int64[:, :]."""
    largest, odd, minus = NO_EXPONENT, 0.0, True  # odd: of infinities and NaNs; minus: all are -0
    for t in range(count):
        value = term[t, c]
        if not abs(value) < np.inf:
            odd += value
        elif value != 0.0:
            largest = max(largest, size[t, c])
        minus = minus and bits_of_f64(value) == MINUS_ZERO
    if odd != 0.0:
        return odd
    if largest == NO_EXPONENT:
        return -0.0 if minus else 0.0
    room = cut + 2 + (64 - i64(clz64(u64(count)))) < 63  # a cut term lies below 2**(cut + 2)
    if room:
        return cut_sum(term, count, c, largest, cut, rz)
    return exact_sum(term, count, c, largest, cut, rz)


@jit
def cut_sum(term: Any, count: int, c: int, largest: int, cut: int, rz: bool) -> float:
    """Column c of term, each cut ``cut`` bits below 2**largest, and summed."""
    total, scale = i64(0), power(cut - largest)
    for t in range(count):
        total += i64(term[t, c] * scale)
    return from_quanta(total, largest - cut, rz)


@jit
def exact_sum(term: Any, count: int, c: int, largest: int, cut: int, rz: bool) -> float:
    """As ``cut_sum`` where an int64 has no room for it, or nothing is cut."""
    limbs = np.zeros(LIMBS, np.int64)
    for t in range(count):
        add_to_limbs(limbs, term[t, c] if cut == UNCUT else cut_to(term[t, c], largest - cut))
    return from_limbs(limbs, rz)


@jit
def one_term(
    term: Any, size: Any, wt: Any, x: Any, terms: int, own: Any, inner: Any, place: int
) -> None:
    """term: float64[rows], size: int64[rows] <- term ``place`` of a fused sum and its exponent."""
    if place >= own.size:
        for c in range(term.size):
            term[c] = inner[place - own.size, c]
            size[c] = exponent_of(term[c])
        return
    leaf = own[place]
    leaf_values(term, wt, x, terms, leaf, False)
    other = exponent_of(f64(x[leaf])) if terms == PRODUCTS else 0
    for c in range(term.size):
        own_size = exponent_of(f64(wt[leaf, c]))
        size[c] = own_size + (own_size if terms == SQUARES else other)


# --- for the loops that parity.order.loops writes -------------------------------------------------


@jit
def fma(a: float, b: float, c: float) -> float:
    """a * b + c of float32, rounded to float32 once."""
    return f32(odd_sum(f64(a) * f64(b), f64(c)))


@jit
def put(term: Any, size: Any, k: int, a: float, b: float) -> int:
    """Term k of a fused sum is a * b, of float32; returns k + 1. term, size: as fused_column."""
    term[k, 0] = f64(a) * f64(b)
    size[k, 0] = exponent_of(f64(a)) + exponent_of(f64(b))
    return k + 1


@jit
def fused(term: Any, size: Any, k: int, bits: int, rz: bool) -> float:
    """The fused sum of the first k terms, float32; ``bits`` as Order has it, -1: nothing is cut."""
    return f32(fused_column(term, size, k, 0, UNCUT if bits < 0 else 23 + bits, rz))


@jit
def run_block(
    out: Any, w: Any, x: Any, terms: int, steps: Any, leaves: Any, depth: int, cut: int, rz: bool
) -> None:
    """out: float32[rows] <- the program's sum of each row of w: float32[rows, n]."""
    wt = np.ascontiguousarray(w.T)  # a leaf of all rows lies in one place
    rows = wt.shape[1]
    stack, leaf = np.empty((depth, rows), np.float64), np.empty(rows, np.float64)
    top = -1
    for s in range(steps.shape[0]):
        op, a, b, m = steps[s, 0], steps[s, 1], steps[s, 2], steps[s, 3]
        rounded = op in (LEAF, ADD_LEAF, WIDE_LEAF)
        of_leaf = rounded or op in (EXACT, ADD_EXACT, WIDE_EXACT)
        if of_leaf:
            leaf_values(leaf, wt, x, terms, a, rounded)
        if op in (LEAF, EXACT):
            top += 1
            stack[top, :] = leaf
        elif op == FUSE:
            inner = stack[top + 1 - m : top + 1]
            fused_values(leaf, wt, x, terms, leaves[a : a + b], inner, cut, rz)
            top += 1 - m
            stack[top, :] = leaf
        elif op in (NARROW, STORE):
            narrow(stack[top], a if op == STORE else F32)
        else:
            if not of_leaf:
                top -= 1
            add_values(stack[top], leaf if of_leaf else stack[top + 1], op)
    for c in range(rows):
        out[c] = f32(stack[0, c])


@jit
def narrow(values: Any, form: int) -> None:
    """values: float64[rows] <- rounded to f32, then to the format at place ``form`` of FORMATS."""
    for c in range(values.size):
        value = f64(f32(values[c]))
        if form == BF16:
            value = round_bf16(value)
        elif form == F16:
            value = round_f16(value)
        values[c] = value


@jit
def round_values(values: Any, form: int) -> None:
    """values: float32[size] <- the nearest of the format at place ``form`` of FORMATS, in place."""
    for i in range(values.size):
        value = f64(values[i])
        values[i] = f32(round_bf16(value) if form == BF16 else round_f16(value))


class SummingTwin:
    """The entry point of this kernel, as parity.order.twin asks for it."""

    name = "numba"

    @staticmethod
    def run(order: Any, program: Any, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """float32[rows]: the program's sum of each row. x: float32[n]; w: float32[rows, n]."""
        out = np.empty(w.shape[0], np.float32)
        cut = UNCUT if order.bits is None else 23 + order.bits
        rest = (TERMS.index(order.terms), program.steps, program.leaves, program.depth, cut)

        def run(begin: int) -> None:
            rows = slice(begin, begin + ROWS)
            run_block(out[rows], w[rows], x, *rest, order.rounding == "rz")

        begins = range(0, w.shape[0], ROWS)
        if len(begins) < 2:
            for begin in begins:
                run(begin)
            return out
        # Threads, not prange: compiled into a parallel loop, the whole kernel would be made twice.
        with ThreadPoolExecutor(get_num_threads()) as pool:
            list(pool.map(run, begins))
        return out

    @staticmethod
    def rounded(values: np.ndarray, form: str) -> np.ndarray:
        """float32[...] <- each of ``values`` rounded to bf16 or f16, ties to even."""
        out = values.copy()
        round_values(out.reshape(-1), FORMATS.index(form))
        return out
