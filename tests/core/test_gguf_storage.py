"""Stored blocks to f32 (contract 1.0): golden blocks of B30, a scalar writing, the gguf package."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from parity.model.gguf import storage
from parity.model.gguf.storage import q4_blocks, q4_nibbles, q4_scales, widen
from tests.core.gguf_files import KINDS

# B30: codes 0..15 in the low nibbles, 15..0 in the high ones.
PAYLOAD = bytes.fromhex("f0e1d2c3b4a59687 78695a4b3c2d1e0f".replace(" ", ""))
UP, DOWN = [*range(16)], [*range(15, -1, -1)]


def same_bits(found: np.ndarray, wanted: np.ndarray) -> bool:
    """dtype, shape and bytes."""
    return (found.dtype, found.shape, found.tobytes()) == (
        wanted.dtype,
        wanted.shape,
        wanted.tobytes(),
    )


def block(scale: int, *more: int, payload: bytes = PAYLOAD) -> np.ndarray:
    """One block with f16 bits before its payload, uint8[1, 1, n]."""
    raw = struct.pack(f"<{1 + len(more)}H", scale, *more) + payload
    return np.frombuffer(raw, np.uint8).reshape(1, 1, -1)


def test_golden_q4_0() -> None:
    wanted = np.array([[code - 8 for code in UP + DOWN]], np.float32)
    assert same_bits(widen("Q4_0", block(0x3C00)), wanted)


def test_golden_q4_1() -> None:
    wanted = np.array([[code + 0.5 for code in UP + DOWN]], np.float32)
    assert same_bits(widen("Q4_1", block(0x3C00, 0x3800)), wanted)


@pytest.mark.parametrize(
    ("scale", "value"),
    [(0xBC00, -1.0), (0x0000, 0.0), (0x0001, 2.0**-24)],
    ids=["-1", "0", "subnormal"],
)
def test_golden_q4_0_scales(scale: int, value: float) -> None:
    codes = [np.float32(code - 8) for code in UP + DOWN]
    wanted = np.array([[np.float32(value) * code for code in codes]], np.float32)
    assert same_bits(widen("Q4_0", block(scale)), wanted)


def test_an_infinite_scale_stays_visible() -> None:
    """inf times code - 8: infinities, and a NaN where the code is 8; never a number."""
    found = widen("Q4_0", block(0x7C00))
    assert not np.isfinite(found).any()
    assert np.flatnonzero(np.isnan(found)).tolist() == [8, 16 + 7]


def test_pairwise_nibbles_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: neighbours from one byte, as some readers have it. Begins -8, 7, -7, 6."""

    def pairwise(packed: np.ndarray) -> np.ndarray:
        return np.stack((packed & 0x0F, packed >> 4), axis=-1).reshape(packed.shape[0], 32)

    monkeypatch.setattr(storage, "_codes", pairwise)
    found = widen("Q4_0", block(0x3C00))
    assert found[0, :4].tolist() == [-8, 7, -7, 6]
    with pytest.raises(AssertionError):
        test_golden_q4_0()
    with pytest.raises(AssertionError):
        test_golden_q4_1()


def test_q4_0_is_taken_apart_and_put_together() -> None:
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 256, (3, 7, 2, 18), np.uint8)
    scales, nibbles = q4_scales(blocks), q4_nibbles(blocks)
    assert (scales.dtype, scales.shape) == (np.uint16, (3, 7, 2))
    assert (nibbles.dtype, nibbles.shape) == (np.uint8, (3, 7, 32))
    assert scales[1, 2, 1] == int.from_bytes(blocks[1, 2, 1, :2].tobytes(), "little")
    assert nibbles[1, 2, 16:].tobytes() == blocks[1, 2, 1, 2:].tobytes()
    assert same_bits(q4_blocks(scales, nibbles), blocks)


def half(raw: bytes) -> np.float32:
    return np.float32(struct.unpack("<e", raw)[0])


def scalar_q4_0(raw: bytes) -> list[np.float32]:
    d = half(raw[:2])
    codes = [byte & 15 for byte in raw[2:]] + [byte >> 4 for byte in raw[2:]]
    return [d * np.float32(code - 8) for code in codes]


def scalar_q4_1(raw: bytes) -> list[np.float32]:
    d, m = half(raw[:2]), half(raw[2:4])
    codes = [byte & 15 for byte in raw[4:]] + [byte >> 4 for byte in raw[4:]]
    products = [d * np.float32(code) for code in codes]
    return [product + m for product in products]


def scalar_q8_0(raw: bytes) -> list[np.float32]:
    return [half(raw[:2]) * np.float32(code) for code in struct.unpack("<32b", raw[2:])]


def scalar_q6_k(raw: bytes) -> list[np.float32]:
    """Element by element, in the order in which ggml's C loop writes them."""
    low, high, scales, d = raw[:128], raw[128:192], struct.unpack("<16b", raw[192:208]), raw[208:]
    out = [np.float32(0)] * 256
    for start in (0, 128):
        ql, qh, sc = low[start // 2 :], high[start // 4 :], scales[start // 16 :]
        for at in range(32):
            for quarter in range(4):
                nibble = ql[at + 32 * (quarter % 2)] >> (4 * (quarter // 2)) & 15
                code = (nibble | (qh[at] >> (2 * quarter) & 3) << 4) - 32
                scale = half(d) * np.float32(sc[at // 16 + 2 * quarter])
                out[start + 32 * quarter + at] = scale * np.float32(code)
    return out


def scalar_f16(raw: bytes) -> list[np.float32]:
    return [half(raw)]


def scalar_bf16(raw: bytes) -> list[np.float32]:
    return [np.frombuffer(b"\0\0" + raw, "<f4")[0]]


SCALAR: dict[str, Callable[[bytes], list[np.float32]]] = {
    "Q4_0": scalar_q4_0,
    "Q4_1": scalar_q4_1,
    "Q8_0": scalar_q8_0,
    "Q6_K": scalar_q6_k,
    "F16": scalar_f16,
    "BF16": scalar_bf16,
}
SCALES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q6_K": (208,), "F16": (0,), "BF16": (0,)}


def any_blocks(kind: str, rows: int, count: int) -> np.ndarray:
    """Random bytes with finite f16 numbers, among them zeros and subnormals."""
    rng = np.random.default_rng(list(kind.encode()))
    blocks = rng.integers(0, 256, (rows, count, KINDS[kind][2]), np.uint8)
    for at in SCALES[kind]:
        blocks[..., at + 1] &= 0xBF  # below infinity, of either sign
        blocks[0, :3, at + 1] = (0, 0x80, 0)
        blocks[0, :3, at] = (0, 0, 1)
    return blocks


@pytest.mark.parametrize("kind", SCALAR)
def test_against_the_scalar_writing(kind: str) -> None:
    blocks = any_blocks(kind, 3, 5)
    wanted = [[SCALAR[kind](one.tobytes()) for one in row] for row in blocks]
    assert same_bits(widen(kind, blocks), np.array(wanted, np.float32).reshape(3, -1))


@pytest.mark.parametrize("kind", SCALAR)
def test_against_the_gguf_package(kind: str) -> None:
    from gguf import GGMLQuantizationType, dequantize

    blocks = any_blocks(kind, 40, 9)
    flat = blocks.reshape(40, -1)
    stored = flat.view("<f2") if kind == "F16" else flat
    wanted = dequantize(stored, GGMLQuantizationType[kind])
    assert same_bits(widen(kind, blocks), np.ascontiguousarray(wanted, np.float32))


def test_every_half_widens_exactly() -> None:
    bits = np.arange(1 << 16, dtype="<u2")
    finite = bits[(bits & 0x7C00) != 0x7C00]
    blocks = finite.view(np.uint8).reshape(-1, 1, 2)
    wanted = [struct.unpack("<e", struct.pack("<H", one))[0] for one in finite]
    assert same_bits(widen("F16", blocks), np.array(wanted, np.float32).reshape(-1, 1))


def test_bf16_is_no_f16() -> None:
    """1e10 is finite in bf16, and infinite for whoever reads or rounds it as f16."""
    raw = np.array([[[0x15, 0x50]]], np.uint8)  # 0x5015
    assert widen("BF16", raw)[0, 0] == np.float32(9999220736.0)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = any_blocks("Q6_K", 7, 3)
    whole = widen("Q6_K", blocks)
    monkeypatch.setattr(storage, "_CHUNK", 512)
    assert same_bits(widen("Q6_K", blocks), whole)


def test_f32_stays_where_it_lies() -> None:
    raw = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    found = widen("F32", raw)
    assert np.shares_memory(found, raw)
    assert found.shape == (2, 3)
