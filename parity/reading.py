"""Text of files that parity or a user wrote, and the JSON in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def read_json(text: str, where: str) -> Any:
    """What a JSON text holds; raises InputError naming ``where`` for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"{where}: not JSON{_json_fault(error)}"
        raise InputError(problem, "give a file of --json") from error


def _json_fault(error: ValueError | RecursionError) -> str:
    """Where or why a text is not JSON; Python's own words say little to a user."""
    if isinstance(error, json.JSONDecodeError):
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        if cut and error.doc.strip():
            return f": cut short, the text ends inside line {error.doc.rstrip().count(chr(10)) + 1}"
        return f", at line {error.lineno} column {error.colno}"
    return ": nested too deep" if isinstance(error, RecursionError) else ": too large a number"
