"""The private per-user folder for compiled code."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
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
