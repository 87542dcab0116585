"""A file as bytes in memory: mapped, or read whole."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np

from parity.errors import InputError


def map_file(path: Path) -> np.ndarray:
    """The bytes of a file, uint8; raises OSError, and ValueError for an empty file.

    Its pages are read when they are looked at, and never written. Not read-only for NumPy, since a
    compiler would make every function once more for such arrays: what is written would stay in this
    process. A file larger than the memory can only be mapped read-only.
    """
    try:
        return np.asarray(np.memmap(path, np.uint8, "c"))
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return np.asarray(np.memmap(path, np.uint8, "r"))


def read_file(path: Path) -> bytes:
    """The bytes of a small file; InputError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "check the path") from error
