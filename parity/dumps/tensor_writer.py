"""Write tensors one after the other into a ``.npz`` or a ``.safetensors`` file.

The file grows beside its name and gets it at the end, whole or not at all, and never over another
one unless that is asked for. A tensor is not kept in memory.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from parity.dumps.safetensors import STORED
from parity.dumps.tensor_files import Tensor
from parity.dumps.writer import name_beside, named_errors, publish
from parity.errors import InputError

_SAFE = {name: (stored, code) for stored, (name, code) in STORED.items()}


class TensorWriter(ABC):
    """A file of tensors while it is written. Raises InputError where it cannot be."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path, self._force = path, force
        self._real = Path(os.path.realpath(path))
        self._beside = name_beside(self._real)
        with named_errors(path):
            self._open()

    def add(self, name: str, tensor: Tensor) -> None:
        """Append one tensor; each name once."""
        with named_errors(self.path):
            self._add(name, tensor)

    def publish(self) -> None:
        """Close the file and give it its name."""
        try:
            with named_errors(self.path):
                self._finish()
                publish(self._beside, self._real, force=self._force)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close what was written and take it away; after ``publish`` nothing is left to take."""
        self._close()
        with suppress(FileNotFoundError):
            self._beside.unlink()

    @abstractmethod
    def _open(self) -> None:
        """Make the file beside the name."""

    @abstractmethod
    def _add(self, name: str, tensor: Tensor) -> None:
        """Append one tensor."""

    @abstractmethod
    def _finish(self) -> None:
        """Make the file beside the name whole."""

    @abstractmethod
    def _close(self) -> None:
        """Close all files; may be called twice."""


class NpzWriter(TensorWriter):
    """``.npz`` without compression, in the order of writing. It has no name for bf16."""

    def _open(self) -> None:
        self._archive = zipfile.ZipFile(self._beside, "x")

    def _add(self, name: str, tensor: Tensor) -> None:
        if tensor.dtype == "bf16":
            raise InputError(
                f"{self.path}: {name} is bf16, which a .npz cannot hold",
                "name a .safetensors file instead",
            )
        member = zipfile.ZipInfo(f"{name}.npy")
        with self._archive.open(member, "w", force_zip64=True) as stream:
            array = np.asarray(tensor.array, order="C")
            np.lib.format.write_array(stream, array, allow_pickle=False)

    def _finish(self) -> None:
        self._archive.close()

    def _close(self) -> None:
        self._archive.close()


class SafetensorsWriter(TensorWriter):
    """``.safetensors``: the tensors' bytes first, then the table that stands before them."""

    def _open(self) -> None:
        self._data_path = name_beside(self._real)
        self._data: IO[bytes] = self._data_path.open("x+b")
        self._table: dict[str, dict[str, object]] = {}

    def _add(self, name: str, tensor: Tensor) -> None:
        stored, code = _SAFE[tensor.dtype]
        begin = self._data.tell()
        self._data.write(np.asarray(tensor.array, code, order="C").tobytes())
        offsets = [begin, self._data.tell()]
        shape = list(tensor.array.shape)
        self._table[name] = {"dtype": stored, "shape": shape, "data_offsets": offsets}

    def _finish(self) -> None:
        text = json.dumps(self._table).encode()
        text += b" " * (-len(text) % 8)
        self._data.seek(0)
        with self._beside.open("xb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            shutil.copyfileobj(self._data, stream, 1 << 24)

    def _close(self) -> None:
        self._data.close()
        with suppress(FileNotFoundError):
            self._data_path.unlink()


def open_writer(path: Path, *, force: bool = False) -> TensorWriter:
    """The writer for ``path`` by its suffix; raises InputError for any other."""
    if path.suffix == ".npz":
        return NpzWriter(path, force=force)
    if path.suffix == ".safetensors":
        return SafetensorsWriter(path, force=force)
    raise InputError(f"{path}: not a tensor file", "name a .npz or a .safetensors file")
