"""From stored blocks to what engines hold: Q4_0 taken apart, every other type widened to f32.

Contract 1.0: f16 and bf16 widen exactly; Q8_0, Q4_1 and Q6_K by the format's own formula, each
operation rounded to f32. The formulas are those of ggml's dequantize_row functions (ggml-quants.c),
which the ``gguf`` package's own agree with, bit for bit, where d is finite. ggml's are C: a build
with contraction may fuse Q4_1's product and sum, which here are two roundings.

Blocks are uint8[..., blocks of a row, bytes of a block]; f16 numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
_CHUNK = 1 << 18  # elements widened at a time: what lies between stays in the cache
_Q4_BLOCK = np.dtype([("d", "<u2"), ("qs", "V16")])


def q4_scales(blocks: Blocks) -> np.ndarray:
    """d of Q4_0 blocks: uint16[..., blocks of a row], f16 bits."""
    return np.ascontiguousarray(_q4(blocks)["d"])


def q4_nibbles(blocks: Blocks) -> np.ndarray:
    """The codes of Q4_0 blocks as stored: uint8[..., 16 * blocks of a row]."""
    return np.ascontiguousarray(_q4(blocks)["qs"]).view(np.uint8)


def q4_blocks(scales: np.ndarray, nibbles: np.ndarray) -> Blocks:
    """The inverse of the two: blocks uint8[..., blocks of a row, 18]."""
    made = np.empty(scales.shape, _Q4_BLOCK)
    made["d"] = scales
    made["qs"] = np.ascontiguousarray(nibbles).view("V16")
    return made.view(np.uint8).reshape(*scales.shape, _Q4_BLOCK.itemsize)


def _q4(blocks: Blocks) -> np.ndarray:
    return np.ascontiguousarray(blocks).view(_Q4_BLOCK)[..., 0]


def widen(kind: str, blocks: Blocks) -> Floats:
    """The values as float32[..., elements of a row]; a view for F32.

    ``kind``: one of ``reading.SUPPORTED``. Non-finite scales give non-finite values.
    """
    *rows, width, size = blocks.shape
    if kind == "F32":
        floats = np.ascontiguousarray(blocks).view(np.dtype("<f4"))
        # A file may be aligned to less than a float; compiled ops want whole ones.
        return np.require(floats, requirements="A").reshape(*rows, width)
    formula, elements = _FORMULAS[kind]
    flat = blocks.reshape(-1, size)
    out = np.empty((flat.shape[0], elements), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # refused, with its place, when it is loaded
        for part in _parts(flat.shape[0], elements):
            out[part] = formula(np.ascontiguousarray(flat[part]))
    return out.reshape(*rows, width * elements)


def _parts(count: int, elements: int) -> Iterator[slice]:
    step = max(1, _CHUNK // elements)
    return (slice(start, start + step) for start in range(0, count, step))


def _half(raw: Blocks) -> Floats:
    """f16 numbers from pairs of bytes uint8[..., 2 n]: float32[..., n], exact."""
    return np.ascontiguousarray(raw).view(np.dtype("<f2")).astype(np.float32)


def _codes(packed: Blocks) -> Blocks:
    """Low nibbles are elements 0..15, high ones 16..31: uint8[n, 32]."""
    return np.concatenate((packed & np.uint8(0x0F), packed >> np.uint8(4)), axis=1)


def _bf16(raw: Blocks) -> Floats:
    return (raw.view(np.dtype("<u2")).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _q4_0(raw: Blocks) -> np.ndarray:
    """d * (code - 8)."""
    return _half(raw[:, :2]) * (_codes(raw[:, 2:]).astype(np.float32) - np.float32(8))


def _q4_1(raw: Blocks) -> np.ndarray:
    """d * code + m: two roundings."""
    return _half(raw[:, :2]) * _codes(raw[:, 4:]).astype(np.float32) + _half(raw[:, 2:4])


def _q8_0(raw: Blocks) -> np.ndarray:
    """d * code."""
    return _half(raw[:, :2]) * raw[:, 2:].view(np.int8).astype(np.float32)


def _q6_k(raw: Blocks) -> np.ndarray:
    """(d * scale) * (code - 32): two roundings. A block is ql[128], qh[64], int8 scales[16], d.

    Half h of the block: 64 bytes of ql, 32 of qh, 8 scales; quarter k of it takes its 4 low bits
    from the low (k < 2) or high nibbles of ql's bytes 32 * (k mod 2) on, its 2 high bits from bits
    2k of qh. A scale serves 16 elements.
    """
    low = raw[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    pairs = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    high = raw[:, 128:192].reshape(-1, 2, 1, 32) >> pairs
    codes = (low & 0x0F).reshape(-1, 2, 4, 32) | ((high & 0x03) << 4)
    scales = _half(raw[:, 208:210]) * raw[:, 192:208].view(np.int8).astype(np.float32)
    values = codes.reshape(-1, 16, 16).astype(np.float32) - np.float32(32)
    return (scales[:, :, np.newaxis] * values).reshape(-1, 256)


# Formula and elements of a block.
_FORMULAS: dict[str, tuple[Callable[[Blocks], np.ndarray], int]] = {
    "F16": (_half, 1),
    "BF16": (_bf16, 1),
    "Q4_0": (_q4_0, 32),
    "Q4_1": (_q4_1, 32),
    "Q8_0": (_q8_0, 32),
    "Q6_K": (_q6_k, 256),
}
