"""Matrices quantised at load, kept on disk by the digest of what they were made of.

An entry is found by the SHA-256 over the stored bytes in our order, their dtype and the row length,
and believed only when its content has the seal it was kept with (``parity.builds.cache``). Without
a folder to keep them in nothing is lost but time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from threading import Lock

import numpy as np

from parity.builds.cache import cache_folder, find_sealed, keep_sealed
from parity.errors import InputError
from parity.model.checks import check_finite
from parity.model.folder.quantise import quantised
from parity.model.folder.shards import widened
from parity.model.mapping import map_file
from parity.model.model import BLOCK

# Part of the key: another arithmetic or layout of the entry needs another word here.
_ARITHMETIC = b"q4_0 of contract 1.0, d then qs\n"
_CHUNK = 1 << 20  # elements widened and quantised at a time: temporaries of some 20 MB a thread
_KIND, _SUFFIX = "q4", ".q4"

# Stored name and stored values of each part of a matrix, in order.
Parts = Callable[[], Iterable[tuple[str, np.ndarray]]]


class Quantised:
    """One matrix as Q4_0, made when ``d`` or ``qs`` is first asked for.

    ``shape``: of the matrix. ``parts``: its stored values. What was made is held until both have
    been taken.
    """

    def __init__(self, shape: tuple[int, ...], parts: Parts) -> None:
        self._shape, self._parts = shape, parts
        self._lock = Lock()
        self._made: dict[str, np.ndarray] = {}

    def d(self) -> np.ndarray:
        """uint16 (f16 bits) [..., columns / 32]."""
        return self._take("d")

    def qs(self) -> np.ndarray:
        """uint8 [..., columns / 2]."""
        return self._take("qs")

    def _take(self, which: str) -> np.ndarray:
        with self._lock:
            if which not in self._made:
                d, qs = self._pair()
                self._made = {"d": d, "qs": qs}
            return self._made.pop(which)

    def _pair(self) -> tuple[np.ndarray, np.ndarray]:
        *rows, columns = self._shape
        blocks = prod(rows) * (columns // BLOCK)
        folder = _folder()
        key = "" if folder is None else self._key()
        content = None if folder is None else _kept(folder, key, blocks * 18)
        if content is None:
            content = self._make(blocks)
            if folder is not None:
                with suppress(OSError):  # a full disk
                    keep_sealed(folder, key, _SUFFIX, content.tobytes())
        d = content[: 2 * blocks].view(np.uint16).reshape(*rows, columns // BLOCK)
        return d, content[2 * blocks :].reshape(*rows, columns // 2)

    def _key(self) -> str:
        digest = hashlib.sha256(_ARITHMETIC + f"{self._shape[-1]}\n".encode())
        for _, chunk in self._chunks():
            digest.update(chunk.dtype.str.encode())
            digest.update(np.ascontiguousarray(chunk).data)
        return digest.hexdigest()

    def _make(self, blocks: int) -> np.ndarray:
        """d of all blocks, then their nibbles, uint8[18 * blocks]."""
        content = np.empty(18 * blocks, np.uint8)
        d, qs = content[: 2 * blocks].view(np.uint16), content[2 * blocks :]
        at = 0
        for name, chunk in self._chunks():
            values = widened(chunk)
            check_finite(name, values)
            more, nibbles = quantised(values)
            d[at : at + more.size] = more.reshape(-1)
            qs[16 * at : 16 * (at + more.size)] = nibbles.reshape(-1)
            at += more.size
        return content

    def _chunks(self) -> Iterator[tuple[str, np.ndarray]]:
        """Stored name and stored values, some whole rows at a time; the same cuts every time."""
        columns = self._shape[-1]
        step = max(1, _CHUNK // columns)
        for name, part in self._parts():
            stack = part if part.ndim == 3 else part.reshape(1, -1, columns)
            for rows in stack:
                for first in range(0, len(rows), step):
                    yield name, rows[first : first + step]


def _folder() -> Path | None:
    with suppress(InputError, RuntimeError):
        return cache_folder(_KIND)
    return None


def _kept(folder: Path, key: str, size: int) -> np.ndarray | None:
    path = find_sealed(folder, key, _SUFFIX)
    if path is None:
        return None
    with suppress(OSError, ValueError):  # gone in between, or empty
        content = map_file(path)
        return content if content.size == size else None
    return None
