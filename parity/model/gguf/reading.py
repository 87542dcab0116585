"""The GGUF container, read so that every number in it is checked before it is used.

The ``gguf`` package knows the format's types and their sizes. Its reader trusts the file (a slice
past the end comes out short, a product of sizes wraps), so the header is walked here: whatever
cannot be true of a whole file is an InputError that names the field or the tensor. Layout: magic,
version, two counts, the values by key, one entry per tensor, then the tensors' bytes, each at the
next multiple of the alignment, in the order of the entries.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from parity.errors import InputError, NotRunError
from parity.model.file_model import MAGIC, MISSING_PACKAGE
from parity.model.mapping import map_file

Value = int | float | bool | str | list[Any]

VERSIONS = (2, 3)
MOST_DIMENSIONS = 4  # ggml's own limit
DEFAULT_ALIGNMENT = 32
WRITE_AGAIN = "fetch or convert the file again; it may be cut or damaged"

# Types whose arithmetic contract 1.0 states, by the format's name.
SUPPORTED = ("Q4_0", "Q4_1", "Q6_K", "Q8_0", "F16", "BF16", "F32")

_BOOL, _STRING, _ARRAY = 7, 8, 9
# Code of ``struct`` by the format's number of a value's type.
_SCALARS = {
    **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B"},
    **{10: "Q", 11: "q", 12: "d"},
}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of the file. ``shape``: C order, rows last to vary, elements, not bytes.

    ``kind``: the format's type by name. ``block``: elements and bytes of a block of it. ``begin``:
    the first byte in the file.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    block: tuple[int, int]
    begin: int

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) // self.block[0] * self.block[1]


@dataclass(frozen=True)
class GgufFile:
    """A checked file: values by key, tensors by name in the order of the bytes, and the bytes.

    ``data``: uint8[bytes of the file], mapped (``parity.model.mapping``).
    """

    path: Path
    values: dict[str, Value]
    tensors: dict[str, StoredTensor]
    data: np.ndarray

    def refuse(self, what: str, next_step: str = WRITE_AGAIN) -> NoReturn:
        """Raise InputError about this file."""
        raise InputError(f"{self.path}: {what}", next_step)

    def blocks(self, tensor: StoredTensor) -> np.ndarray:
        """The bytes of ``tensor``, uint8[..., rows, blocks of a row, bytes of a block], a view."""
        elements, width = tensor.block
        shape = (*tensor.shape[:-1], tensor.shape[-1] // elements, width)
        return self.data[tensor.begin : tensor.begin + tensor.size].reshape(shape)


def read_gguf(path: Path) -> GgufFile:
    """Map the file and read its header.

    Raises InputError, naming the file and the field or tensor, for one that is cut, damaged or of
    a type, version or byte order not supported; NotRunError without the ``gguf`` package.
    """
    sizes = block_sizes()
    try:
        data = map_file(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "check the path") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise InputError(f"{path}: the file is empty", WRITE_AGAIN) from error
    walk = _Walk(path, data.data)
    tensors, count = walk.counts()
    values = walk.values(count)
    alignment = _alignment(walk, values)
    entries = [walk.entry(number, tensors, sizes) for number in range(tensors)]
    placed = _placed(walk, entries, alignment)
    return GgufFile(path, values, placed, data)


def block_sizes() -> dict[int, tuple[str, int, int]]:
    """Name, elements and bytes of a block of every type, by the format's number of it."""
    try:
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError as error:
        raise NotRunError("a GGUF file needs the gguf package", MISSING_PACKAGE) from error
    return {kind.value: (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


class _Walk:
    """Reads the header from front to back. ``at``: the next byte, never past the end."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.at = path, data, 0

    def refuse(self, what: str, next_step: str = WRITE_AGAIN) -> NoReturn:
        """Raise InputError about this file."""
        raise InputError(f"{self.path}: {what}", next_step)

    def counts(self) -> tuple[int, int]:
        """Magic and version are checked; numbers of tensors and of values."""
        if bytes(self.data[:4]) != MAGIC:
            self.refuse(f"not a GGUF file: it begins with {bytes(self.data[:4])!r}")
        self.at = 4
        version = self.number("I", "the version")
        if version & 0xFFFF == 0:
            self.refuse("the file is big-endian", "convert the model to little-endian GGUF")
        if version not in VERSIONS:
            known = ", ".join(map(str, VERSIONS))
            self.refuse(f"GGUF version {version} is not supported", f"supported: {known}")
        return self.number("Q", "the number of tensors"), self.number("Q", "the number of values")

    def number(self, code: str, what: str) -> Any:
        """One little-endian number of the ``struct`` code."""
        reader = struct.Struct(f"<{code}")
        return reader.unpack(self.take(reader.size, what))[0]

    def take(self, count: int, what: str) -> memoryview:
        """The next ``count`` bytes."""
        left = len(self.data) - self.at
        if count > left:
            self.refuse(f"{what}: {count} bytes at byte {self.at}, the file ends {left} later")
        self.at += count
        return self.data[self.at - count : self.at]

    def name(self, what: str) -> str:
        """A string that names something: UTF-8 and not empty."""
        raw = bytes(self.take(self.number("Q", what), what))
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            self.refuse(f"{what}: {raw[:40]!r} is not UTF-8")
        if not text or not text.isprintable():
            self.refuse(f"{what}: {text[:40]!r} is no name")
        return text

    def values(self, count: int) -> dict[str, Value]:
        """All values by key."""
        found: dict[str, Value] = {}
        for number in range(count):
            key = self.name(f"key {number + 1} of {count}")
            if key in found:
                self.refuse(f"key {key} appears twice")
            found[key] = self.value(key, self.number("I", key))
        return found

    def value(self, key: str, kind: int) -> Value:
        """One value of the type numbered ``kind``."""
        if kind == _ARRAY:
            return self.array(key, self.number("I", key), self.number("Q", key))
        if kind == _STRING:
            return self.text(key)
        if kind not in _SCALARS:
            self.refuse(f"{key}: there is no value type {kind}")
        found: int | float = self.number(_SCALARS[kind], key)
        return self.flag(key, int(found)) if kind == _BOOL else found

    def text(self, what: str) -> str:
        """Any string; what is not UTF-8 in it stays recoverable (surrogateescape)."""
        raw = self.take(self.number("Q", what), what)
        return str(raw, "utf-8", "surrogateescape")

    def flag(self, key: str, value: int) -> bool:
        """A truth value is one byte, 0 or 1."""
        if value > 1:
            self.refuse(f"{key}: {value} is neither true nor false")
        return bool(value)

    def array(self, key: str, kind: int, count: int) -> list[Any]:
        """``count`` values of one type."""
        if kind == _STRING:
            # Each string has its length before it: a count past that cannot be true.
            self.room(key, count * 8)
            return [self.text(key) for _ in range(count)]
        if kind not in _SCALARS:
            self.refuse(f"{key}: arrays of value type {kind} are not supported")
        code = _SCALARS[kind]
        width = struct.calcsize(f"<{code}")
        found = np.frombuffer(self.take(count * width, key), f"<{code}").tolist()
        return [self.flag(key, value) for value in found] if kind == _BOOL else found

    def room(self, what: str, least: int) -> None:
        """Refuse a count that needs at least ``least`` bytes more than the file has."""
        left = len(self.data) - self.at
        if least > left:
            self.refuse(f"{what}: at least {least} bytes at byte {self.at}, {left} are left")

    def entry(self, number: int, count: int, sizes: dict[int, tuple[str, int, int]]) -> _Entry:
        """One tensor's entry: name, dimensions, type, offset."""
        name = self.name(f"tensor {number + 1} of {count}")
        what = f"tensor {name}"
        dimensions = self.number("I", what)
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            self.refuse(f"{what} has {dimensions} dimensions, 1 to {MOST_DIMENSIONS} are possible")
        shape = tuple(self.number("Q", what) for _ in range(dimensions))[::-1]
        kind, offset = self.number("I", what), self.number("Q", what)
        if kind not in sizes:
            self.refuse(f"{what}: there is no tensor type {kind}")
        stored, *block = sizes[kind]
        if stored not in SUPPORTED:
            self.refuse(
                f"{what} is stored as {stored}, which is not supported",
                f"supported: {', '.join(SUPPORTED)}; convert the model to one of them",
            )
        if 0 in shape:
            self.refuse(f"{what} is empty: {list(shape)}")
        if shape[-1] % block[0]:
            self.refuse(f"{what} is {stored} with rows of {shape[-1]}, no multiple of {block[0]}")
        return _Entry(StoredTensor(name, stored, shape, (block[0], block[1]), 0), offset)


@dataclass(frozen=True)
class _Entry:
    """A tensor before its place in the file is known, and its offset in the data section."""

    tensor: StoredTensor
    offset: int


def _alignment(walk: _Walk, values: dict[str, Value]) -> int:
    """Bytes; every tensor begins at a multiple."""
    found = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(found) is not int or found < 1 or found & (found - 1):
        walk.refuse(f"general.alignment is {found}, no power of two")
    return found


def _placed(walk: _Walk, entries: list[_Entry], alignment: int) -> dict[str, StoredTensor]:
    """Every tensor at its byte of the file; one follows the other without overlap or gap."""
    start = _padded(walk.at, alignment)
    size = len(walk.data)
    placed: dict[str, StoredTensor] = {}
    end = start
    for entry in entries:
        tensor = replace(entry.tensor, begin=start + entry.offset)
        wanted = _padded(end - start, alignment)
        if tensor.name in placed:
            walk.refuse(f"tensor {tensor.name} appears twice")
        if entry.offset != wanted:
            how = "overlaps the tensor before it" if entry.offset < wanted else "leaves a gap"
            walk.refuse(f"tensor {tensor.name} {how}: offset {entry.offset}, {wanted} expected")
        end = tensor.begin + tensor.size
        if end > size:
            walk.refuse(f"tensor {tensor.name} ends at byte {end}, the file at {size}")
        placed[tensor.name] = tensor
    # The writers pad the last tensor too; some leave that away.
    if size not in (end, start + _padded(end - start, alignment)):
        walk.refuse(f"the tensors end at byte {end}, the file at {size}")
    return placed


def _padded(count: int, alignment: int) -> int:
    return -(-count // alignment) * alignment
