"""FNV-1a-64 (docs/dump-format.md): scalar for names, NumPy for buffers.

``h' = (h xor byte) * P`` mod 2^64 with P = 0x100000001b3. The xor touches the low byte only, so
with ``u = low(h) xor byte`` the hash of n bytes is ``P^n * h0 + sum of P^(n-i) * (u_i - low_i)``:
a polynomial. The chain of low bytes is found bit by bit, because bit k of ``u * 0xb3`` is
``u_k xor f(lower bits)``: eight prefix-xor scans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

PRIME = 0x100000001B3
BASES = {
    "fnv1a64": 0xCBF29CE484222325,
    # The basis the Kestrel articles print: the standard one with its last decimal digit lost.
    "kestrel-fnv": 1469598103934665603,
}
_MASK = (1 << 64) - 1
_BLOCK = 1 << 14


def fnv1a64(data: bytes, basis: int = BASES["fnv1a64"]) -> int:
    """Hash ``data`` byte by byte; returns an int in 0..2^64-1."""
    value = basis
    for byte in data:
        value = ((value ^ byte) * PRIME) & _MASK
    return value


def hex16(value: int) -> str:
    """The written form of a digest: 16 lower-case hexadecimal digits."""
    return f"{value:016x}"


def fnv1a64_array(array: np.ndarray, basis: int = BASES["fnv1a64"]) -> int:
    """Hash the C-order little-endian bytes of ``array`` (any dtype, any strides)."""
    import numpy as np

    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    data = little.reshape(-1).view(np.uint8)
    powers = _powers(min(data.size, _BLOCK))
    value = basis
    for start in range(0, data.size, _BLOCK):
        value = _fold(data[start : start + _BLOCK], value, powers)
    return value


def fnv1a64_prefixes(data: bytes, ends: Sequence[int], basis: int = BASES["fnv1a64"]) -> list[int]:
    """The hash of ``data[:end]`` for each of ``ends``, which rise from 1 to at most the length.

    With the sum of the module's text divided by P^n, all prefixes of a block are one running sum:
    ``hash of n bytes = P^n * (h0 + sum of P^-i * (u_i - low_i))``, i from 0. P is odd, so that it
    has an inverse mod 2^64.
    """
    import numpy as np

    whole, wanted = np.frombuffer(data, np.uint8), np.array(ends, np.int64)
    powers = _powers(min(whole.size, _BLOCK))[::-1]
    inverse = np.full(powers.size, pow(PRIME, -1, 1 << 64), np.uint64)
    if inverse.size:
        inverse[0] = 1
    inverse = np.multiply.accumulate(inverse)
    found: list[int] = []
    for start in range(0, whole.size, _BLOCK):
        block = whole[start : start + _BLOCK]
        delta = _deltas(block, basis & 0xFF) * inverse[: block.size]
        digests = (np.cumsum(delta, dtype=np.uint64) + np.uint64(basis)) * powers[: block.size]
        last = int(np.searchsorted(wanted, start + block.size, side="right"))
        found += digests[wanted[len(found) : last] - start - 1].tolist()
        basis = int(digests[-1])
    return found


def _powers(count: int) -> np.ndarray:
    """P^count, ..., P^2, P^1 mod 2^64 as uint64[count]."""
    import numpy as np

    steps = np.full(count, PRIME, np.uint64)
    return np.multiply.accumulate(steps)[::-1].copy()


def _fold(data: np.ndarray, value: int, powers: np.ndarray) -> int:
    import numpy as np

    tail = powers[powers.size - data.size :]
    total = int(np.sum(_deltas(data, value & 0xFF) * tail, dtype=np.uint64))
    return (value * pow(PRIME, data.size, 1 << 64) + total) & _MASK


def _deltas(data: np.ndarray, low: int) -> np.ndarray:
    """``u_i - low_i`` mod 2^64 as uint64, given the low byte before the first."""
    import numpy as np

    mixed = _mixed_low_bytes(data, low)
    deltas: np.ndarray = mixed.astype(np.uint64) - (mixed ^ data).astype(np.uint64)
    return deltas


def _mixed_low_bytes(data: np.ndarray, low: int) -> np.ndarray:
    """The chain ``u_i = low_i xor data_i`` as uint8, given the low byte before it."""
    import numpy as np

    mixed = np.zeros(data.size, np.uint8)
    for bit in range(8):
        lower = (mixed * np.uint8(0xB3)) >> np.uint8(bit)
        step = (data >> np.uint8(bit)) & np.uint8(1)
        step[1:] ^= lower[:-1] & np.uint8(1)
        step[0] ^= (low >> bit) & 1
        mixed |= np.bitwise_xor.accumulate(step) << np.uint8(bit)
    return mixed
