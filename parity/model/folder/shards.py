"""The safetensors of a folder as one set of tensors, mapped into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from parity.dumps.safetensors import StoredTensor, parse_object, read_layout
from parity.errors import InputError
from parity.model.mapping import map_file, read_file

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FETCH_AGAIN = "fetch the folder again; it may be incomplete"
# NumPy's code of what is stored; bfloat16 is carried as the upper half of a float32.
CARRIERS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class Shards:
    """Every tensor of a folder by its stored name, and the bytes of the files they lie in.

    ``files``: which file a tensor is in. ``mapped``: uint8[bytes of the file], read-only, by file.
    """

    folder: Path
    tensors: Mapping[str, StoredTensor]
    files: Mapping[str, str]
    mapped: Mapping[str, np.ndarray]

    def raw(self, name: str) -> np.ndarray:
        """The stored values of a tensor in its shape, a view of the file: <f4, <f2, or <u2 for
        bfloat16; not aligned where the file's writer did not care."""
        tensor = self.tensors[name]
        data = self.mapped[self.files[name]][tensor.begin : tensor.end]
        return data.view(CARRIERS[tensor.dtype]).reshape(tensor.shape)


def open_shards(folder: Path) -> Shards:
    """The tensors of ``model.safetensors``, or of the shards that the index names.

    Raises InputError, naming file and tensor, where container and index do not fit together: a
    shard or tensor that is missing, in another shard or in two; a file that is cut.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.exists() and index.exists():
        raise InputError(f"{folder}: both {SINGLE} and {INDEX}", "keep the one that is meant")
    if single.exists():
        layouts = {SINGLE: _layout(single)}
    elif index.exists():
        layouts = _indexed(folder, index)
    else:
        raise InputError(f"{folder}: neither {SINGLE} nor {INDEX}", FETCH_AGAIN)
    files = _one_file_each(folder, layouts)
    tensors = {name: layouts[file][name] for name, file in files.items()}
    mapped = {file: map_file(folder / file) for file in layouts}
    return Shards(folder, tensors, files, mapped)


def widened(raw: np.ndarray) -> np.ndarray:
    """The exact float32 values of stored ones, in the same shape; float32 itself is not copied."""
    if raw.dtype == np.uint16:
        wide: np.ndarray = np.left_shift(raw, np.uint32(16), dtype=np.uint32)
        return wide.view(np.float32)
    return raw.astype(np.float32, copy=False)


def _layout(path: Path) -> Mapping[str, StoredTensor]:
    try:
        return read_layout(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", FETCH_AGAIN) from error


def _indexed(folder: Path, index: Path) -> dict[str, Mapping[str, StoredTensor]]:
    """The layouts of all shards, each name where the index says it is."""
    places = parse_object(index, read_file(index), "the file").get("weight_map")
    if not isinstance(places, dict) or not places:
        _refuse(index, "weight_map names no tensors")
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or not file.strip("."):
            _refuse(index, f"{name!r} lies in {file!r}, which is no file of the folder")
    layouts: dict[str, Mapping[str, StoredTensor]] = {}
    for file in sorted(set(places.values())):
        if not (folder / file).is_file():
            _refuse(index, f"the shard {file} is missing")
        layouts[file] = _layout(folder / file)
    for name, file in places.items():
        if name not in layouts[file]:
            _refuse(index, f"{name!r} is not in {file}")
    for file, layout in layouts.items():
        for name in layout:
            if name not in places:
                _refuse(index, f"{name!r} of {file} is not named")
    return layouts


def _one_file_each(
    folder: Path, layouts: Mapping[str, Mapping[str, StoredTensor]]
) -> dict[str, str]:
    files: dict[str, str] = {}
    for file, layout in layouts.items():
        for name in layout:
            if name in files:
                _refuse(folder, f"{name!r} is in {files[name]} and in {file}")
            files[name] = file
    return files


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(f"{path}: {what}", FETCH_AGAIN)
