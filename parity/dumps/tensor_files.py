"""Read tensors from ``.npz``, ``.safetensors`` or a folder of ``.npy`` as a dump.

A tensor's name is its key. Names of the key form compare in dataflow order; other names keep the
order of the ``.npz`` file. A ``.safetensors`` file and a folder do not keep the order in which
they were written (their writers sort), so there other names are sorted, numbers by their value:
``layers.9`` before ``layers.10``.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from parity.dtypes import dtype_name, flat_pieces
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.safetensors import STORED, read_layout
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key

if TYPE_CHECKING:
    import numpy as np

LARGE = 1 << 26  # bytes: a larger tensor is mapped, not read into memory
_BLOCK = 1 << 18  # bytes copied together
_TIMES = 200  # a large member that grows more than that holds next to nothing
# What a damaged .npy or .npz can raise: all of them are the file's fault.
_DAMAGED = (
    *(ValueError, EOFError, MemoryError, OverflowError, RuntimeError, SyntaxError),
    *(TokenError, zipfile.BadZipFile, zlib.error),
)


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
        entries = [_entry(name, load(name), BASES[hash_name]) for name in unique_names(path, names)]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file that exists") from error
    return Dump({"hash": hash_name}, {MAIN: entries}, str(path)), load


def _entry(name: str, tensor: Tensor, basis: int) -> Entry:
    kind = TensorType(tensor.dtype, tensor.array.shape)
    return Entry(Key.of_name(name), _digest(tensor.array, basis), kind)


def _digest(array: np.ndarray, basis: int) -> int:
    """The digest, of a large array in pieces: what is mapped is never in memory as a whole."""
    if array.nbytes <= LARGE:
        return fnv1a64_array(array, basis)
    for piece in flat_pieces(array):
        basis = fnv1a64_array(piece, basis)
    return basis


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
    found = sorted(path.iterdir())
    foreign = [file.name for file in found if file.suffix != ".npy" and file.name[0] != "."]
    if foreign:
        raise InputError(
            f"{path}: {foreign[0]!r} is not a .npy", "give a folder of .npy files alone"
        )
    names = [file.stem for file in found if file.suffix == ".npy"]

    def load(name: str) -> Tensor:
        file = path / f"{name}.npy"
        with _named_faults(str(file)), file.open("rb") as stream:
            return read_npy(stream, file.stat().st_size, file)

    return sorted(names, key=_natural), load


def _open_npz(path: Path) -> tuple[list[str], Loader]:
    """The archive stays open for as long as the loader is kept."""
    with _named_faults(str(path)):
        archive = zipfile.ZipFile(path)
    members = archive.infolist()
    foreign = [member.filename for member in members if not member.filename.endswith(".npy")]
    if foreign:
        raise InputError(f"{path}: {foreign[0]!r} is not a .npy", "write it with numpy.savez")
    _refuse_bombs(path, members)

    def load(name: str) -> Tensor:
        member = archive.getinfo(f"{name}.npy")
        with _named_faults(f"{path}: {name}"), archive.open(member) as stream:
            return read_npy(stream, member.file_size)

    return [member.filename.removesuffix(".npy") for member in members], load


def _refuse_bombs(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse members that share bytes, and what takes much more room than it has in the file."""
    if sum(member.compress_size for member in members) > path.stat().st_size:
        raise InputError(f"{path}: its members overlap: a zip bomb", "write it with numpy.savez")
    for member in members:
        times = member.file_size / max(1, member.compress_size)
        if member.file_size > LARGE and times > _TIMES:
            raise InputError(
                f"{path}: {member.filename} grows {times:,.0f} times to {member.file_size:,} bytes"
                ": it looks like a zip bomb",
                "write it with numpy.savez, without compression",
            )


def _open_safetensors(path: Path) -> tuple[list[str], Loader]:
    layout = read_layout(path)

    def load(name: str) -> Tensor:
        import numpy as np

        stored = layout[name]
        if stored.dtype not in STORED:
            raise InputError(
                f"{path}: {name}: dtype {stored.dtype} cannot be compared",
                "give floats of 16 bits or more, integers or booleans",
            )
        dtype, code = STORED[stored.dtype]
        size = stored.end - stored.begin
        if size > LARGE:
            return Tensor(np.memmap(path, code, "r", stored.begin, stored.shape), dtype)
        with path.open("rb") as stream:
            stream.seek(stored.begin)
            data = stream.read(size)
        return Tensor(np.frombuffer(data, code).reshape(stored.shape), dtype)

    return sorted(layout, key=_natural), load


def read_npy(stream: IO[bytes], size: int, path: Path | None = None) -> Tensor:
    """The array of a ``.npy`` of ``size`` bytes; a large one is mapped, from the plain file
    ``path`` or, where that is None, from a copy on the disk.

    Raises ValueError where the bytes are more or fewer than its shape needs, and where reading
    them would run code (pickle); InputError for a dtype that no dump can name.
    """
    import numpy as np

    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of .npy")
    read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_{version[1]}")
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError("objects, which only pickle can read")
    name, begin = dtype_name(dtype), stream.tell()
    if size - begin != dtype.itemsize * math.prod(shape):
        needed = dtype.itemsize * math.prod(shape)
        raise ValueError(f"{size - begin:,} bytes after its header, {needed:,} needed")
    order: Literal["C", "F"] = "F" if fortran else "C"
    if size <= LARGE:
        data = stream.read(size)
        return Tensor(np.frombuffer(data, dtype).reshape(shape, order=order), name)
    if path is not None:
        return Tensor(np.memmap(path, dtype, "r", begin, shape, order), name)
    with tempfile.TemporaryFile(prefix="parity-") as copy:
        shutil.copyfileobj(stream, copy, _BLOCK)  # the end of a member is where its CRC is checked
        copy.flush()
        return Tensor(np.memmap(copy, dtype, "r", 0, shape, order), name)


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


def unique_names(where: Path | str, names: Iterable[str]) -> Iterator[str]:
    """``names`` as they come; refuses a repeated, an empty and an unprintable one, saying ``where``
    they stand."""
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InputError(f"{where}: bad tensor name {name!r}", "name it in printable letters")
        if name in seen:
            raise InputError(f"{where}: {name} appears twice", "write each tensor once")
        seen.add(name)
        yield name


def _natural(name: str) -> list[str | int]:
    """Sort key in which numbers count by their value: text and numbers alternate."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]
