"""Read tensors from ``.npz``, ``.safetensors`` or a folder of ``.npy`` as a dump.

A tensor's name is its key. Names of the key form compare in dataflow order; other names keep the
order of the ``.npz`` file. A ``.safetensors`` file and a folder do not keep the order in which
they were written (their writers sort), so there other names are sorted, numbers by their value:
``layers.9`` before ``layers.10``.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, NamedTuple

from parity.dtypes import dtype_name
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.safetensors import read_layout

if TYPE_CHECKING:
    import numpy as np

# What a damaged .npy or .npz can raise: all of them are the file's fault.
_DAMAGED = (
    *(ValueError, EOFError, MemoryError, OverflowError, RuntimeError, SyntaxError),
    *(TokenError, zipfile.BadZipFile, zlib.error),
)
# safetensors dtype to (the dump's name, NumPy's code of the carrier).
_STORED = {
    **{"BF16": ("bf16", "<u2"), "F16": ("f16", "<f2"), "F32": ("f32", "<f4")},
    **{"F64": ("f64", "<f8"), "BOOL": ("bool", "|b1")},
    **{f"I{8 * size}": (f"int{8 * size}", f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": (f"uint{8 * size}", f"<u{size}") for size in (1, 2, 4, 8)},
}


class Tensor(NamedTuple):
    """One tensor: its array and the dump's name of its dtype (bf16 is carried in uint16)."""

    array: np.ndarray
    dtype: str


Loader = Callable[[str], Tensor]


def is_tensor_path(path: Path) -> bool:
    """Whether ``read_tensors`` is the reader for ``path``: by suffix, or a folder."""
    return path.suffix in (".npz", ".safetensors") or path.is_dir()


def read_tensors(path: Path, hash_name: str = "fnv1a64") -> tuple[Dump, Loader]:
    """(dump of every tensor in ``path``, loader of one tensor by its name).

    NaN and infinities are hashed like any value and do not end the comparison: contract 1.10 is
    about runs. Raises InputError, naming the file, for anything malformed, and for a dtype that
    no dump can name.
    """
    try:
        names, load = _open(path)
        entries = [_entry(name, load(name), BASES[hash_name]) for name in _unique(path, names)]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file that exists") from error
    return Dump({"hash": hash_name}, {MAIN: entries}, str(path)), load


def _entry(name: str, tensor: Tensor, basis: int) -> Entry:
    digest = fnv1a64_array(tensor.array, basis)
    return Entry(Key.of_name(name), digest, TensorType(tensor.dtype, tensor.array.shape))


def _open(path: Path) -> tuple[list[str], Loader]:
    """(names in order, loader) by the kind of file."""
    if path.is_dir():
        return _open_folder(path)
    if path.suffix == ".npz":
        return _open_npz(path)
    if path.suffix == ".safetensors":
        return _open_safetensors(path)
    raise InputError(
        f"{path}: not a tensor file", "give a .npz, a .safetensors or a folder of .npy files"
    )


def _open_folder(path: Path) -> tuple[list[str], Loader]:
    names = [file.name.removesuffix(".npy") for file in path.glob("*.npy")]

    def load(name: str) -> Tensor:
        import numpy as np

        file = path / f"{name}.npy"
        with _named_faults(str(file)), file.open("rb") as stream:
            return _named(np.lib.format.read_array(stream, allow_pickle=False))

    return sorted(names, key=_natural), load


def _open_npz(path: Path) -> tuple[list[str], Loader]:
    """The archive stays open for as long as the loader is kept."""
    with _named_faults(str(path)):
        archive = zipfile.ZipFile(path)
    members = archive.namelist()
    foreign = [member for member in members if not member.endswith(".npy")]
    if foreign:
        raise InputError(f"{path}: {foreign[0]!r} is not a .npy", "write it with numpy.savez")

    def load(name: str) -> Tensor:
        import numpy as np

        with _named_faults(f"{path}: {name}"), archive.open(f"{name}.npy") as stream:
            return _named(np.lib.format.read_array(stream, allow_pickle=False))

    return [member.removesuffix(".npy") for member in members], load


def _open_safetensors(path: Path) -> tuple[list[str], Loader]:
    layout = read_layout(path)

    def load(name: str) -> Tensor:
        import numpy as np

        stored = layout[name]
        if stored.dtype not in _STORED:
            raise InputError(
                f"{path}: {name}: dtype {stored.dtype} cannot be compared",
                "give floats of 16 bits or more, integers or booleans",
            )
        with path.open("rb") as stream:
            stream.seek(stored.begin)
            data = stream.read(stored.end - stored.begin)
        dtype, code = _STORED[stored.dtype]
        return Tensor(np.frombuffer(data, code).reshape(stored.shape), dtype)

    return sorted(layout, key=_natural), load


def _named(array: np.ndarray) -> Tensor:
    return Tensor(array, dtype_name(array.dtype))


@contextmanager
def _named_faults(where: str) -> Iterator[None]:
    """Name ``where`` in what NumPy and zipfile say of a damaged or unsupported file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.next_step) from error
    except _DAMAGED as error:
        raise InputError(
            f"{where}: damaged or not plain data: {error}", "write the file again, without pickles"
        ) from error


def _unique(path: Path, names: Iterable[str]) -> Iterator[str]:
    """``names`` as they come; refuses a repeated, an empty and an unprintable one."""
    seen: set[str] = set()
    for name in names:
        if not name.isprintable() or not name:
            raise InputError(f"{path}: bad tensor name {name!r}", "name it in printable letters")
        if name in seen:
            raise InputError(f"{path}: {name} appears twice", "write each tensor once")
        seen.add(name)
        yield name


def _natural(name: str) -> list[str | int]:
    """Sort key in which numbers count by their value: text and numbers alternate."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]
