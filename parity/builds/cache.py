"""The private per-user folder for compiled code."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from parity.errors import InputError


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """``$PARITY_CACHE``, else ``$XDG_CACHE_HOME/parity``, else ``~/.cache/parity``; not created.

    Raises RuntimeError where no variable names a folder and no home folder is known.
    """
    if env.get("PARITY_CACHE"):
        return Path(env["PARITY_CACHE"])
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "parity"
    return Path.home() / ".cache" / "parity"


def cache_folder(kind: str, env: Mapping[str, str] = os.environ) -> Path:
    """The folder ``kind`` under ``cache_root``.

    Created with mode 0700. A folder that others own or may write to is refused: they could plant
    code in it.
    """
    folder = cache_root(env) / kind
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the cache folder {folder}: {error.strerror}",
            "set PARITY_CACHE to a folder you can write to",
        ) from error
    _refuse_shared(folder)
    return folder


def seal(name: str, *contents: bytes) -> str:
    """sha256 (hex) that binds contents to the name they are kept under.

    Kept beside them, it tells a file that was cut, altered or swapped from the one that was made.
    """
    digest = hashlib.sha256(name.encode())
    for content in contents:
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def keep_sealed(folder: Path, key: str, suffix: str, content: bytes) -> Path:
    """Keep a file under ``key``, with its seal in its name: one name never stands for two contents,
    though two processes make them at once."""
    path = folder / f"{key}.{seal(key, content)}{suffix}"
    write_whole(path, content)
    return path


def find_sealed(folder: Path, key: str, suffix: str) -> Path | None:
    """The file kept under ``key`` whose content is what was kept, or None."""
    for path in sorted(folder.glob(f"{key}.*{suffix}")):
        with suppress(OSError):  # gone in between
            if path.name == f"{key}.{seal(key, path.read_bytes())}{suffix}":
                return path
    return None


def write_whole(path: Path, data: bytes) -> None:
    """Write beside ``path``, then rename: another process sees all of it or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        raise


def _refuse_shared(folder: Path) -> None:
    info = folder.stat()
    if info.st_uid != os.getuid():
        reason = "belongs to another user"
    elif info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = "is writable by others"
    else:
        return
    raise InputError(
        f"the cache folder {folder} {reason}", "set PARITY_CACHE to a folder of your own"
    )
