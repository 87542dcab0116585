"""Every primitive of the shim with what it must give, by NumPy or by Python's integers.

An Op is one kernel: ``r[i] = expression`` of ``a[i]``, ``b[i]``, ``c[i]``. Type letters: f, d for
float32 and float64; i, u, l, U for int32, uint32, int64, uint64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.oracle.rounding import fma32, fma64

Array = np.ndarray
DTYPES = {
    "f": np.dtype(np.float32),
    "d": np.dtype(np.float64),
    "i": np.dtype(np.int32),
    "u": np.dtype(np.uint32),
    "l": np.dtype(np.int64),
    "U": np.dtype(np.uint64),
}
C_TYPES = {
    "f": "float",
    "d": "double",
    "i": "int",
    "u": "unsigned",
    "l": "long long",
    "U": "unsigned long long",
}


@dataclass(frozen=True)
class Op:
    """``takes`` and ``gives`` are type letters; ``reference`` gets and gives arrays."""

    expression: str
    takes: str
    gives: str
    reference: Callable[..., Array]


def kernels(ops: Sequence[Op]) -> str:
    """CUDA text with one kernel an op: ``op_0``, ``op_1`` and so on."""
    lines = []
    for number, op in enumerate(ops):
        names = list(zip(op.takes, "abc", strict=False))
        pointers = "".join(f"const {C_TYPES[t]}* {n}_, " for t, n in names)
        loads = " ".join(f"const {C_TYPES[t]} {n} = {n}_[i_];" for t, n in names)
        lines.append(
            f'extern "C" __global__ void op_{number}({pointers}{C_TYPES[op.gives]}* r_, int n_) {{ '
            f"const int i_ = blockIdx.x * blockDim.x + threadIdx.x; if (i_ < n_) {{ {loads} "
            f"r_[i_] = {op.expression}; }} }}"
        )
    return "\n".join(lines) + "\n"


# ---- odd bit patterns


def patterns(letter: str) -> Array:
    """Odd values of one type: every kind of float, integers at their limits, and neighbours."""
    dtype = DTYPES[letter]
    size = dtype.itemsize
    unsigned = np.dtype(f"u{size}")
    if letter in "iulU":
        bits = 8 * size
        near = [0, 1, 2, 3, 7, 31, 32, 33, 255, 1 << 24, 1 << bits // 2, 1 << bits - 1]
        values = [
            (sign * v + off) % (1 << bits) for v in near for sign in (1, -1) for off in (-1, 0, 1)
        ]
        return np.unique(np.array(values, unsigned)).view(dtype)
    mantissa = np.finfo(dtype).nmant
    top = 1 << 8 * size - 1
    infinity = (top - 1) >> mantissa << mantissa
    smallest_normal = 1 << mantissa
    quiet = infinity | 1 << mantissa - 1
    words = [0, 1, 2, smallest_normal - 1, smallest_normal, infinity - 1, infinity]
    words += [infinity + 1, quiet, quiet + 5, top - 1]
    limits = [2.0**e for e in (-1, 0, 1, 2, 23, 24, 31, 32, 52, 53, 63, 64)]
    exact = np.array([*limits, 1.5, 2.5, 3.5, 0.1, 87.3, 2147483647.5, 1e9], dtype).view(unsigned)
    words += [int(word) + step for word in exact for step in (-1, 0, 1)]
    signed = [word | sign for word in words for sign in (0, top)]
    return np.unique(np.array(signed, unsigned)).view(dtype)


def arguments(op: Op, random_count: int = 3000) -> list[Array]:
    """All combinations of odd patterns for two arguments, and seeded random bits; a third is mixed."""
    random = np.random.default_rng(7)
    odd = [patterns(letter) for letter in op.takes]
    if len(odd) == 1:
        columns = [odd[0]]
    else:
        pairs = list(product(range(len(odd[0])), range(len(odd[1]))))
        picked = random.permutation(len(pairs))[:random_count]
        columns = [odd[side][[pairs[i][side] for i in picked]] for side in (0, 1)]
        columns += [random.choice(each, len(picked)) for each in odd[2:]]
    return [
        np.concatenate([column, _random_bits(random, letter, random_count)])
        for letter, column in zip(op.takes, columns, strict=True)
    ]


def _random_bits(random: np.random.Generator, letter: str, count: int) -> Array:
    dtype = DTYPES[letter]
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype)


# ---- references that NumPy has no word for


def each(function: Callable[..., int | float]) -> Callable[..., Array]:
    """Apply a function of Python numbers to every element; integers wrap to the result's width."""

    def reference(*columns: Array) -> Array:
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return np.array([function(*row) for row in rows], object)

    return reference


def wrapped(values: Array, letter: str) -> Array:
    """Python integers as the bits of a type."""
    dtype = DTYPES[letter]
    bits = 8 * dtype.itemsize
    words = [int(value) % (1 << bits) for value in values]
    return np.array(words, np.dtype(f"u{dtype.itemsize}")).view(dtype)


def order(x: Array) -> Array:
    """Floats as integers in the order of PTX, where -0 is less than +0."""
    signed = x.view(np.dtype(f"i{x.itemsize}"))
    return np.where(signed < 0, np.iinfo(signed.dtype).min - signed - 1, signed)


def maximum(a: Array, b: Array) -> Array:
    """The greater one; a NaN loses."""
    greater = np.where(order(a) > order(b), a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, greater))


def minimum(a: Array, b: Array) -> Array:
    """The lesser one; a NaN loses."""
    lesser = np.where(order(a) < order(b), a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, lesser))


def half_away(x: Array) -> Array:
    """Rounded to an integer, halves away from zero."""
    whole = np.trunc(x)
    whole = np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)
    return np.copysign(whole, x)


def saturating(round_: Callable[[Array], Array], target: str, nan: int) -> Callable[[Array], Array]:
    """PTX cvt: the rounded value, at the type's limits where it is past them."""
    limits = np.iinfo(DTYPES[target])

    def reference(x: Array) -> Array:
        rounded = round_(x).tolist()
        results = []
        for value in rounded:
            if value != value:
                results.append(nan)
            elif abs(value) == float("inf"):
                results.append(limits.max if value > 0 else limits.min)
            else:
                results.append(min(max(int(value), limits.min), limits.max))
        return np.array(results, object)

    return reference


def dot(left: str, right: str, count: int, skip: int = 0) -> Callable[..., Array]:
    """Sum of products of packed integers, by NumPy's views."""

    def reference(a: Array, b: Array, c: Array) -> Array:
        x = a.view(left).reshape(len(a), -1)[:, :count].astype(np.int64)
        y = b.view(right).reshape(len(b), -1)[:, skip : skip + count].astype(np.int64)
        return ((x * y).sum(1) + c.astype(np.int64)).astype(object)

    return reference


# ---- the table


def float_ops(t: str, names: dict[str, str]) -> Iterator[Op]:
    """Arithmetic of one float type; ``names`` has the words that differ between the two types."""
    suffix = "f" if t == "f" else ""
    one = DTYPES[t].type(1)
    fma = fma32 if t == "f" else fma64
    yield Op(names["add"], t * 2, t, lambda a, b: a + b)
    yield Op(names["sub"], t * 2, t, lambda a, b: a - b)
    yield Op(names["mul"], t * 2, t, lambda a, b: a * b)
    yield Op(names["div"], t * 2, t, lambda a, b: a / b)
    yield Op(names["rcp"], t, t, lambda a: one / a)
    yield Op(names["sqrt"], t, t, np.sqrt)
    yield Op("a * b + c", t * 3, t, lambda a, b, c: a * b + c)
    yield Op("-a", t, t, np.negative)
    exact = {"sqrt": np.sqrt, "fabs": np.abs, "rint": np.rint, "floor": np.floor, "ceil": np.ceil}
    for name, reference in {**exact, "trunc": np.trunc, "round": half_away}.items():
        for word in unique(f"{name}{suffix}", name):
            yield Op(f"{word}(a)", t, t, reference)
    yield Op(f"nearbyint{suffix}(a)", t, t, np.rint)
    for word in unique(names["fma"], f"fma{suffix}(a, b, c)", "fma(a, b, c)"):
        yield Op(word, t * 3, t, lambda a, b, c: _finite_fma(fma, a, b, c))
    for word in unique(f"copysign{suffix}(a, b)", "copysign(a, b)"):
        yield Op(word, t * 2, t, np.copysign)
    for word in unique(f"fmax{suffix}", "fmax", "max"):
        yield Op(f"{word}(a, b)", t * 2, t, maximum)
    for word in unique(f"fmin{suffix}", "fmin", "min"):
        yield Op(f"{word}(a, b)", t * 2, t, minimum)
    yield Op("abs(a)", t, t, np.abs)
    for name, reference in {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}.items():
        yield Op(f"{name}(a)", t, "i", reference)
    yield Op("signbit(a)", t, "i", np.signbit)


def unique(*words: str) -> list[str]:
    """Without the repeats: the double functions have no suffix."""
    return list(dict.fromkeys(words))


def _finite_fma(fma: Callable[..., float], a: Array, b: Array, c: Array) -> Array:
    """One rounding where all is finite; past the greatest float the ratio is infinite."""
    kind = a.dtype.type
    # A finite product never makes an infinite c a NaN, even where it overflows.
    results = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, a * b + c)
    finite = np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    for i in finite:
        try:
            results[i] = fma(kind(a[i]), kind(b[i]), kind(c[i]))
        except OverflowError:
            results[i] = np.copysign(np.inf, float(a[i]) * float(b[i]))
    return results


def conversions() -> Iterator[Op]:
    """Float to integer and back, bit casts."""
    rounding = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
    targets = {"int": "i", "uint": "u", "ll": "l", "ull": "U"}
    for source, target, mode in product(("float", "double"), targets, rounding):
        letter = targets[target]
        width = 8 * DTYPES[letter].itemsize
        nan = 0 if source == "float" and width == 32 else 1 << width - 1
        reference = saturating(rounding[mode], letter, nan)
        yield Op(f"__{source}2{target}_{mode}(a)", source[0], letter, reference)
    for (name, letter), target in product(targets.items(), ("float", "double")):
        dtype = DTYPES[target[0]]
        yield Op(f"__{name}2{target}_rn(a)", letter, target[0], lambda a, d=dtype: a.astype(d))
    yield Op("__double2float_rn(a)", "d", "f", lambda a: a.astype(np.float32))
    yield Op("(double)a", "f", "d", lambda a: a.astype(np.float64))
    casts = {"__float_as_int": "fi", "__float_as_uint": "fu", "__int_as_float": "if"}
    casts |= {"__uint_as_float": "uf", "__double_as_longlong": "dl", "__longlong_as_double": "ld"}
    for name, (takes, gives) in casts.items():
        yield Op(f"{name}(a)", takes, gives, lambda a, d=DTYPES[gives]: a.view(d))
    yield Op("__double2hiint(a)", "d", "i", lambda a: a.view(np.int32)[1::2])
    yield Op("__double2loint(a)", "d", "i", lambda a: a.view(np.int32)[0::2])
    joined = "__double_as_longlong(__hiloint2double(a, b))"
    yield Op(joined, "ii", "l", lambda a, b: np.stack([b, a], 1).view(np.int64)[:, 0])


def integer_ops() -> Iterator[Op]:
    """Bits, products, permutations, extremes."""
    yield Op("__popc(a)", "u", "i", np.bitwise_count)
    yield Op("__popcll(a)", "U", "i", np.bitwise_count)
    yield Op("__clz(a)", "i", "i", each(lambda a: 32 - (a % 2**32).bit_length()))
    yield Op("__clzll(a)", "l", "i", each(lambda a: 64 - (a % 2**64).bit_length()))
    yield Op("__ffs(a)", "i", "i", each(lambda a: (a & -a).bit_length()))
    yield Op("__ffsll(a)", "l", "i", each(lambda a: (a & -a).bit_length()))
    yield Op("__brev(a)", "u", "u", each(lambda a: int(f"{a:032b}"[::-1], 2)))
    yield Op("__brevll(a)", "U", "U", each(lambda a: int(f"{a:064b}"[::-1], 2)))
    yield Op("__mulhi(a, b)", "ii", "i", each(lambda a, b: a * b >> 32))
    yield Op("__umulhi(a, b)", "uu", "u", each(lambda a, b: a * b >> 32))
    yield Op("__mul64hi(a, b)", "ll", "l", each(lambda a, b: a * b >> 64))
    yield Op("__umul64hi(a, b)", "UU", "U", each(lambda a, b: a * b >> 64))
    shifts = {
        "l": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
        "r": lambda a, b, c: (b << 32 | a) >> (c & 31),
        "lc": lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32,
        "rc": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    }
    for name, shift in shifts.items():
        yield Op(f"__funnelshift_{name}(a, b, c)", "uuu", "u", each(shift))
    yield Op("__byte_perm(a, b, c)", "uuu", "u", each(byte_perm))
    yield Op("__dp4a(a, b, c)", "iii", "i", dot("i1", "i1", 4))
    yield Op("__dp4a(a, b, c)", "uuu", "u", dot("u1", "u1", 4))
    yield Op("__dp2a_lo(a, b, c)", "iii", "i", dot("i2", "i1", 2))
    yield Op("__dp2a_hi(a, b, c)", "iii", "i", dot("i2", "i1", 2, skip=2))
    yield Op("__dp2a_lo(a, b, c)", "uuu", "u", dot("u2", "u1", 2))
    yield Op("__dp2a_hi(a, b, c)", "uuu", "u", dot("u2", "u1", 2, skip=2))
    for t in "iulU":
        yield Op("max(a, b)", t * 2, t, np.maximum)
        yield Op("min(a, b)", t * 2, t, np.minimum)
    for takes, gives in (("iu", "u"), ("ui", "u"), ("lU", "U"), ("Ul", "U")):
        yield Op("max(a, b)", takes, gives, as_unsigned(gives, np.maximum))
        yield Op("min(a, b)", takes, gives, as_unsigned(gives, np.minimum))
    yield Op("abs(a)", "i", "i", each(abs))
    yield Op("llabs(a)", "l", "l", each(abs))


def as_unsigned(letter: str, function: Callable[..., Array]) -> Callable[..., Array]:
    """Compare the bits of both arguments as unsigned integers."""
    dtype = DTYPES[letter]
    return lambda a, b: function(a.view(dtype), b.view(dtype))


def byte_perm(x: int, y: int, selector: int) -> int:
    """Four of the eight bytes of y and x."""
    source = x.to_bytes(4, "little") + y.to_bytes(4, "little")
    return int.from_bytes(bytes(source[selector >> 4 * i & 7] for i in range(4)), "little")


def atomics() -> Iterator[Op]:
    """One thread an address: what is there afterwards, and what was there before."""
    changes = {
        "Add": lambda a, b: a + b,
        "And": lambda a, b: a & b,
        "Or": lambda a, b: a | b,
        "Xor": lambda a, b: a ^ b,
        "Max": max,
        "Min": min,
        "Exch": lambda a, b: b,
    }
    for t, (name, change) in product("iuU", changes.items()):
        yield atomic(f"atomic{name}(&m, b)", "m", t, each(change))
        yield atomic(f"old = atomic{name}(&m, b)", "old", t, each(lambda a, b: a))
    for t in "iuU":
        swapped = each(lambda a, b: b if a % 2 == 0 else a)
        yield atomic("atomicCAS(&m, a % 2 == 0 ? a : a ^ 1, b)", "m", t, swapped)
    for t in "iu":
        yield atomic("atomicSub(&m, b)", "m", t, each(lambda a, b: a - b))
    counted = each(lambda a, b: 0 if a >= b else a + 1)
    yield atomic("atomicInc(&m, b)", "m", "u", counted)
    for t in "fd":
        yield atomic("atomicAdd(&m, b)", "m", t, lambda a, b: a + b)


def atomic(call: str, gives: str, t: str, reference: Callable[..., Array]) -> Op:
    """Work on a copy of ``a`` and give that copy or what the call returned."""
    kind = C_TYPES[t]
    expression = f"[&] {{ {kind} m = a, old = a; {call}; (void)old; return {gives}; }}()"
    return Op(expression, t * 2, t, reference)


def all_ops() -> list[Op]:
    """The whole table."""
    single = {"add": "__fadd_rn(a, b)", "sub": "__fsub_rn(a, b)", "mul": "__fmul_rn(a, b)"}
    single |= {"div": "__fdiv_rn(a, b)", "rcp": "__frcp_rn(a)", "sqrt": "__fsqrt_rn(a)"}
    double = {"add": "__dadd_rn(a, b)", "sub": "__dsub_rn(a, b)", "mul": "__dmul_rn(a, b)"}
    double |= {"div": "__ddiv_rn(a, b)", "rcp": "__drcp_rn(a)", "sqrt": "__dsqrt_rn(a)"}
    ops = list(float_ops("f", single | {"fma": "__fmaf_rn(a, b, c)"}))
    ops += float_ops("d", double | {"fma": "__fma_rn(a, b, c)"})
    return [*ops, *conversions(), *integer_ops(), *atomics()]
