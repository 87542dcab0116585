"""What the store asks of the file system: a file appears whole or not at all, and stays.

Every write goes to a temporary file in the store's own folder, is synced, and only then gets its
name. Whoever writes holds the lock, which ends with its process: a temporary file that a writer
finds was left by one that was killed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from parity.errors import InputError

LOCK, TEMPORARY = "lock", ".tmp"
READ_ONLY = 0o444


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the store's lock, the only one to write; waits for another writer."""
    import fcntl

    with named_errors(folder / LOCK):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except BaseException:
            os.close(handle)
            raise
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of a write into an InputError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror or error}",
            "give --store a folder that can be written",
        ) from error


def sweep(folder: Path) -> None:
    """Remove what killed writers left; the lock is held."""
    for name in os.listdir(folder):
        if name.endswith(TEMPORARY):
            with suppress(FileNotFoundError):
                os.unlink(folder / name)


def create(folder: Path, path: Path, data: bytes) -> None:
    """Make the new, read-only file ``path`` with ``data``; FileExistsError where one stands there.

    ``folder`` is the store's; the folders of ``path`` are made.
    """
    make_folders(folder, path.parent)
    beside = _written(folder, data, READ_ONLY)
    try:
        _link(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)
    sync_folder(path.parent)


def replace(folder: Path, path: Path, data: bytes) -> None:
    """Put ``data`` in the place of the file ``path``, or make it; readers see either whole."""
    with replacing(folder, path, data):
        pass


@contextmanager
def replacing(folder: Path, path: Path, data: bytes) -> Iterator[None]:
    """``replace`` at the end of a block that succeeds. ``data`` is on the disk before the block
    begins: a full disk fails while nothing that the block does has been done."""
    beside = _written(folder, data, 0o644)
    try:
        yield
        os.replace(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)
    sync_folder(path.parent)


def make_folders(folder: Path, wanted: Path) -> None:
    """The folders between the store's ``folder`` and ``wanted``, each one synced into its own."""
    missing = []
    while wanted != folder and not wanted.is_dir():
        missing.append(wanted)
        wanted = wanted.parent
    for path in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was named in ``folder`` survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _written(folder: Path, data: bytes, mode: int) -> Path:
    """A synced temporary file with ``data``."""
    path = folder / f"{secrets.token_hex(8)}{TEMPORARY}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        os.fchmod(handle, mode)
        os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(handle)
    return path


def _link(beside: Path, path: Path) -> None:
    """Give ``beside`` the name ``path`` unless it is taken."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:
        # No hard links here (FAT, some network disks); the lock keeps other writers out.
        if path.exists():
            raise FileExistsError(path) from None
        os.replace(beside, path)
