"""Named arrays as a dump, and as the bytes of a ``.npz`` that NumPy reads."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np

from parity.dtypes import dtype_name
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key

Arrays = Mapping[str, np.ndarray]
HASH = "fnv1a64"


def arrays_dump(arrays: Arrays, source: str, dtypes: Mapping[str, str] | None = None) -> Dump:
    """Named arrays as a dump; a name of the key form gets its place in dataflow order.

    ``dtypes``: the dump's names of dtypes that an array only carries (bf16 in uint16). Raises
    InputError for a dtype or a name that no dump can hold.
    """
    known = dtypes or {}
    entries = [_entry(name, array, known.get(name, "")) for name, array in arrays.items()]
    return Dump({"hash": HASH}, {MAIN: entries}, source)


def _entry(name: str, array: np.ndarray, dtype: str) -> Entry:
    if not name or not name.isprintable():
        raise InputError(f"bad array name {name!r}", "name it in printable characters")
    kind = TensorType(dtype or dtype_name(array.dtype), array.shape)
    return Entry(Key.of_name(name), array_digest(array, HASH), kind)


def array_digest(array: np.ndarray, hash_name: str) -> int:
    """The digest of an array as a dump tells it."""
    return fnv1a64_array(array, BASES[hash_name])


def carried(array: np.ndarray) -> np.ndarray:
    """bf16 as the uint16 that a file can hold; any other array as it is."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def arrays_text(arrays: Arrays) -> bytes:
    """The bytes of an ``.npz``; the same arrays give the same bytes."""
    stream = io.BytesIO()
    # Not numpy.savez, which takes no array of the name ``file``.
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, carried(array), allow_pickle=False)
    return stream.getvalue()


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """What ``arrays_text`` was given, bf16 as uint16."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {}
        for member in archive.namelist():
            with archive.open(member) as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            found[member.removesuffix(".npy")] = array
    return found
