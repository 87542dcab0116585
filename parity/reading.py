"""Text of files that parity or a user wrote."""

from __future__ import annotations

from pathlib import Path

from parity.errors import InputError


def text_of(path: Path, missing: str, unreadable: str, encoding: str = "utf-8") -> str:
    """The text of a file. InputError for one that cannot be opened, with the next step ``missing``,
    and for one that is no UTF-8, with ``unreadable``."""
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", missing) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8", unreadable) from error
