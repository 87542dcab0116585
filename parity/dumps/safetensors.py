"""The safetensors container: 8 bytes of length, a JSON table, then the tensors' bytes.

Read with the standard library. Every byte after the table belongs to exactly one tensor, or the
file is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from parity.errors import InputError

# Bytes of one element by the format's dtype name.
WIDTHS = {
    **{"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2},
    **{"BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8},
}
# safetensors dtype to (the dump's name, NumPy's code of the carrier).
STORED = {
    **{"BF16": ("bf16", "<u2"), "F16": ("f16", "<f2"), "F32": ("f32", "<f4")},
    **{"F64": ("f64", "<f8"), "BOOL": ("bool", "|b1")},
    **{f"I{8 * size}": (f"int{8 * size}", f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": (f"uint{8 * size}", f"<u{size}") for size in (1, 2, 4, 8)},
}
_TABLE_LIMIT = 100_000_000  # bytes of JSON; the limit the format's own reader sets


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies: dtype by the format's name, shape, byte range in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_layout(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of the file by name, in the order of the bytes.

    Raises InputError, naming the file, when the table is malformed, does not cover the bytes
    exactly, or holds a dtype not listed in WIDTHS; OSError when the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _TABLE_LIMIT):
            _refuse(path, f"the table of {length} bytes does not fit the file of {size}")
        text = stream.read(length)
    table = parse_object(path, text, "the table")
    table.pop("__metadata__", None)
    tensors = [_tensor(path, name, fields, 8 + length) for name, fields in table.items()]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    at, before = 8 + length, "the table"
    for tensor in tensors:
        if tensor.begin != at:
            how = f"overlaps {before}" if tensor.begin < at else f"leaves a gap after {before}"
            _refuse(path, f"{tensor.name!r} begins at byte {tensor.begin}, {at} expected: it {how}")
        at, before = tensor.end, repr(tensor.name)
    if at != size:
        _refuse(path, f"the tensors end at byte {at}, the file at {size}")
    return {tensor.name: tensor for tensor in tensors}


def parse_object(path: Path, text: bytes, what: str) -> dict[str, Any]:
    """The JSON object in ``text``; InputError, naming ``path`` and ``what``, for anything else and
    for a name given twice."""
    try:
        table = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"{what} is not JSON: {error}")
    if not isinstance(table, dict):
        _refuse(path, f"{what} is not a JSON object")
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError for a name given twice."""
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} appears twice")
    return table


def _tensor(path: Path, name: str, fields: Any, base: int) -> StoredTensor:
    fields = fields if isinstance(fields, dict) else {}
    dtype, shape, offsets = (fields.get(part) for part in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        _refuse(path, f"the entry of {name!r} lacks a proper dtype, shape or data_offsets")
    if dtype not in WIDTHS:
        _refuse(path, f"{name!r} has the dtype {dtype!r}, which is not supported")
    begin, end = offsets
    needed = math.prod(shape) * WIDTHS[dtype]
    if end - begin != needed:
        _refuse(path, f"{name!r} has {end - begin} bytes, {needed} needed")
    return StoredTensor(name, dtype, tuple(shape), base + begin, base + end)


def _sizes(value: Any) -> bool:
    """Whether ``value`` is a list of integers from 0 up."""
    return isinstance(value, list) and all(type(part) is int and part >= 0 for part in value)


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(f"{path}: {what}", "write the file again; it may be cut or damaged")
