"""The dtypes a dump can name: their names, bytes, bit patterns and printed values."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


@dataclass(frozen=True)
class FloatFormat:
    """A sign-magnitude format: width in bits, explicit mantissa bits, digits to print."""

    bits: int
    mantissa: int
    digits: int

    @property
    def infinity(self) -> int:
        """Bit pattern of +inf; larger magnitudes are NaN."""
        return (1 << (self.bits - 1)) - (1 << self.mantissa)


# Significant digits: as many as tell two neighbours apart (9 for f32 and shorter, 17 for f64).
FLOATS = {
    "f16": FloatFormat(16, 10, 9),
    "bf16": FloatFormat(16, 7, 9),
    "f32": FloatFormat(32, 23, 9),
    "f64": FloatFormat(64, 52, 17),
}
INTEGERS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}
BOOL = "bool"
PIECE = 1 << 21  # elements looked at together: a comparison keeps some 50 bytes for each of them
# NumPy's names to the dump's. NumPy knows bfloat16 only with ml_dtypes; without it a bf16 tensor
# is carried in uint16 and its name travels beside it.
_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", BOOL: BOOL}


def dtype_name(dtype: np.dtype) -> str:
    """The dump's name of a NumPy dtype, e.g. ``f32``, ``int8``; InputError when it has none."""
    name = _NAMES.get(dtype.name, dtype.name)
    if name not in FLOATS and name not in INTEGERS and name != BOOL:
        raise InputError(
            f"dtype {dtype} cannot be compared", "give real floats, integers or booleans"
        )
    return name


def dtype_bits(name: str) -> int:
    """Width of one element in bits; ``name`` is one that ``dtype_name`` returns."""
    return FLOATS[name].bits if name in FLOATS else INTEGERS.get(name, 8)


def is_signed(name: str) -> bool:
    """Whether ``name`` is a signed integer."""
    return name in INTEGERS and not name.startswith("u")


def tensor_bytes(array: np.ndarray) -> bytes:
    """The bytes a digest is taken over: C order, little-endian."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes("C")


def bit_patterns(array: np.ndarray) -> np.ndarray:
    """The elements of ``array`` in C order as uint8/16/32/64[size] bit patterns."""
    import numpy as np

    return np.frombuffer(tensor_bytes(array), f"<u{array.dtype.itemsize}")


def flat_pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The elements of ``array`` in C order, PIECE at a time: a mapped file stays on its disk."""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    for begin in range(0, array.size, PIECE):
        yield flat[begin : begin + PIECE]


def value_text(bits: int, name: str) -> str:
    """The value of one bit pattern: ``+1.38679042e-01``, ``-inf``, ``NaN``, ``-127``, ``true``."""
    if name in FLOATS:
        return _float_text(bits, name)
    if name == BOOL:
        return "true" if bits else "false"
    width = INTEGERS[name]
    negative = is_signed(name) and bits >> (width - 1)
    return str(bits - (1 << width) if negative else bits)


def _float_text(bits: int, name: str) -> str:
    form = FLOATS[name]
    if bits & ((1 << (form.bits - 1)) - 1) > form.infinity:
        return "NaN"
    if name == "bf16":  # the upper half of an f32
        bits, name = bits << 16, "f32"
    layout, code = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}[name]
    (value,) = struct.unpack(code, struct.pack(layout, bits))
    return f"{value:+.{form.digits - 1}e}"


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether dtype, shape and bytes are the same."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
