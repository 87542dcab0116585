"""Tiny GGUF files, written with ``struct`` alone: neither our writer nor the gguf package's.

``file_bytes`` takes what it is told to write, true or not, so that a test can plant any fault.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

# The format's numbers of the types, and (elements, bytes) of a block.
KINDS = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q8_0": (8, 32, 34),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "BF16": (30, 1, 2),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor to write; ``dims`` and ``offset`` override what the shape and place would be."""

    shape: tuple[int, ...]
    data: bytes
    kind: str = "F32"
    dims: tuple[int, ...] | None = None
    offset: int | None = None


@dataclass(frozen=True)
class U32:
    """A value written as uint32."""

    value: int


@dataclass
class Content:
    """All that a file says. ``counts``: overrides of the numbers of tensors and of values."""

    values: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    alignment: int = 32
    version: int = 3
    counts: tuple[int | None, int | None] = (None, None)
    twice: str = ""  # a tensor whose entry and bytes are written a second time

    def values_with(self, changes: Mapping[str, Any]) -> Content:
        """A copy with other values; None takes one away."""
        values = {**self.values, **changes}
        return replace(self, values={key: it for key, it in values.items() if it is not None})

    def tensors_with(self, changes: Mapping[str, Tensor | None]) -> Content:
        """A copy with other tensors; None takes one away."""
        tensors = {**self.tensors, **changes}
        return replace(self, tensors={name: it for name, it in tensors.items() if it is not None})


def f32(values: Any) -> Tensor:
    """An F32 tensor of these values."""
    array = np.asarray(values, "<f4")
    return Tensor(array.shape, array.tobytes())


def text(value: str) -> bytes:
    """A length and the bytes."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value: Any) -> bytes:
    """A value with its type before it; int is int32, float is f32, a list an array of its first
    member's type."""
    if isinstance(value, list):
        kind, *_ = struct.unpack("<I", value_bytes(value[0])[:4])
        members = b"".join(value_bytes(member)[4:] for member in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + members
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, U32):
        return struct.pack("<II", 4, value.value)
    if isinstance(value, int):
        return struct.pack("<Ii", 5, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + text(value)


def header_bytes(content: Content) -> bytes:
    """Everything before the padding that precedes the tensors' bytes."""
    listed = list(content.tensors.items())
    if content.twice:
        listed.append((content.twice, content.tensors[content.twice]))
    tensors, values = content.counts
    counts = (
        len(listed) if tensors is None else tensors,
        len(content.values) if values is None else values,
    )
    made = b"GGUF" + struct.pack("<IQQ", content.version, *counts)
    for key, value in content.values.items():
        made += text(key) + value_bytes(value)
    offset = 0
    for name, tensor in listed:
        dims = tensor.dims or tensor.shape[::-1]
        made += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        stated = offset if tensor.offset is None else tensor.offset
        made += struct.pack("<IQ", KINDS[tensor.kind][0], stated)
        offset += -(-len(tensor.data) // content.alignment) * content.alignment
    return made


def file_bytes(content: Content) -> bytes:
    """The whole file."""
    made = header_bytes(content)
    listed = [tensor.data for tensor in content.tensors.values()]
    if content.twice:
        listed.append(content.tensors[content.twice].data)
    for data in listed:
        made += bytes(-len(made) % content.alignment) + data
    return made + bytes(-len(made) % content.alignment)


HIDDEN, HEADS, HEAD_DIM, INTER, VOCAB = 32, 2, 16, 32, 7


def random_tensor(name: str, shape: tuple[int, ...], kind: str = "F32") -> Tensor:
    """A tensor of small finite values that depend on the name alone."""
    rng = np.random.default_rng(list(name.encode()))
    if kind == "F32":
        return f32(rng.standard_normal(shape, np.float32))
    _, elements, width = KINDS[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, width), np.uint8)
    if kind in ("F16", "BF16"):
        blocks[..., 1] &= 0x3B  # an exponent far from infinity
    elif kind == "Q6_K":
        blocks[..., 209] &= 0x3B
    else:
        blocks[..., 1] &= 0x3B
        if kind == "Q4_1":
            blocks[..., 3] &= 0x3B
    return Tensor(shape, blocks.tobytes(), kind)


def dense_content(layers: int = 1, kind: str = "F32") -> Content:
    """A whole qwen3 model with an output head; matrices stored as ``kind``."""
    values = {
        "general.architecture": "qwen3",
        "general.name": "tiny",
        "qwen3.block_count": layers,
        "qwen3.context_length": 64,
        "qwen3.embedding_length": HIDDEN,
        "qwen3.feed_forward_length": INTER,
        "qwen3.attention.head_count": HEADS,
        "qwen3.attention.head_count_kv": 1,
        "qwen3.attention.key_length": HEAD_DIM,
        "qwen3.attention.value_length": HEAD_DIM,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.rope.freq_base": 1e6,
    }
    shapes = {"token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,), "output": (VOCAB, HIDDEN)}
    for layer in range(layers):
        at = f"blk.{layer}."
        shapes |= {
            **{f"{at}attn_norm": (HIDDEN,), f"{at}ffn_norm": (HIDDEN,)},
            **{f"{at}attn_q": (HEADS * HEAD_DIM, HIDDEN), f"{at}attn_k": (HEAD_DIM, HIDDEN)},
            **{f"{at}attn_v": (HEAD_DIM, HIDDEN), f"{at}attn_output": (HIDDEN, HEADS * HEAD_DIM)},
            **{f"{at}attn_q_norm": (HEAD_DIM,), f"{at}attn_k_norm": (HEAD_DIM,)},
            **{f"{at}ffn_gate": (INTER, HIDDEN), f"{at}ffn_up": (INTER, HIDDEN)},
            **{f"{at}ffn_down": (HIDDEN, INTER)},
        }
    tensors = {
        f"{name}.weight": random_tensor(name, shape, "F32" if len(shape) == 1 else kind)
        for name, shape in shapes.items()
    }
    return Content(values, tensors)
