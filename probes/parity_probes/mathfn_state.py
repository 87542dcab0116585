"""Where a sweep over all floats stands, in a file: stopped, it goes on from there.

The file holds the tally so far and the next input, so how the inputs were cut into chunks is no
part of it. It appears whole or not at all, and a file of another comparison is refused.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.elementary.tally import SIZE, Tally
from parity.errors import InputError

FORMAT = "parity-mathfn-state"
VERSION = 1


@dataclass(frozen=True)
class SweepState:
    """``identity``: what is compared, label to text. ``next``: bit pattern of the next input."""

    identity: dict[str, str]
    next: int
    tally: Tally


def write_state(path: str, state: SweepState) -> None:
    """Write the file, whole or not at all, and have it on the disk before the old one goes.

    Raises InputError when it cannot be written.
    """
    body = {
        "format": FORMAT,
        "version": VERSION,
        "identity": state.identity,
        "next": state.next,
        "tally": state.tally.words.tolist(),
    }
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            with partial.open("w", encoding="utf-8") as stream:
                stream.write(json.dumps(body))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, target)
            _sync_folder(target.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"--state {path}: cannot be written: {error.strerror or error}",
            "give a file in a folder that exists and can be written",
        ) from error


def read_state(path: str, identity: dict[str, str], start: int) -> SweepState | None:
    """The state in the file of a sweep that began at ``start``, or None where there is no file.

    Raises InputError for a file that is damaged or of another comparison than ``identity``.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, f"cannot be read: {error}") from error
    found = _parsed(path, text)
    for label in dict.fromkeys([*identity, *found.identity]):
        there, here = found.identity.get(label, "absent"), identity.get(label, "absent")
        if there != here:
            raise _refused(path, f"is of another sweep: {label} {there} there, {here} here")
    if found.tally.pairs != found.next - start:
        counted = f"{found.tally.pairs:,} pairs counted, {found.next - start:,} inputs done"
        raise _refused(path, f"is damaged: {counted}")
    return found


def _parsed(path: str, text: str) -> SweepState:
    try:
        body = json.loads(text)
        if body["format"] != FORMAT or body["version"] != VERSION:
            raise _refused(path, f"is not of {FORMAT} {VERSION}")
        words = np.array(body["tally"], np.int64)
        identity, at = dict(body["identity"]), int(body["next"])
        if words.shape != (SIZE,):
            raise _refused(path, "holds a tally of another length")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _refused(path, f"is damaged: {_short(error)}") from error
    return SweepState(identity, at, Tally(words))


def _short(error: Exception) -> str:
    return f"{type(error).__name__} {error}".partition("\n")[0]


def _refused(path: str, why: str) -> InputError:
    return InputError(f"--state {path} {why}", "give another file, or delete this one")


def _sync_folder(folder: Path) -> None:
    """The new name, too, is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def identity_of(parts: dict[str, Any]) -> dict[str, str]:
    """Nested facts as ``ref library``: text."""
    found: dict[str, str] = {}
    for label, value in parts.items():
        if isinstance(value, dict):
            found |= {f"{label} {name}": text for name, text in identity_of(value).items()}
        else:
            found[label] = str(value)
    return found
