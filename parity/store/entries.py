"""Entries and the head as text: canonical JSON that holds its own digest.

An entry says: this record was accepted under this name, after that entry. Its digest is SHA-256
over its other fields, and the file must be exactly the canonical text: no byte of it can change
unseen. The head names the last entry of every name in the same way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.errors import InputError

ENTRY_FORMAT, HEAD_FORMAT = "parity-entry 1", "parity-head 1"
RESTORE = "bring back the store as it was, from a copy; nothing was written"

# (kind, name) -> (seq, digest) of the last accepted entry.
Heads = dict[tuple[str, str], tuple[int, str]]


@dataclass(frozen=True)
class Entry:
    """One acceptance. ``seq`` from 1; ``address``: SHA-256 of the record; ``previous``: digest of
    the entry before, "" for the first; ``digest``: of this entry; ``created``: UTC, as
    ``2026-01-31T12:00:00Z``; ``record``: the record itself."""

    kind: str
    name: str
    seq: int
    action: str
    address: str
    previous: str
    created: str
    digest: str
    record: dict[str, Any] = field(default_factory=dict)


def canonical(body: Mapping[str, Any]) -> bytes:
    """The one text of ``body``: sorted names, no blanks, ASCII, one line end."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{text}\n".encode()


def sha256(data: bytes) -> str:
    """64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sealed(body: Mapping[str, Any]) -> bytes:
    """The canonical text of ``body`` with the digest of that body in it."""
    return canonical({**body, "digest": sha256(canonical(body))})


def unsealed(data: bytes, path: Path, format_name: str) -> dict[str, Any]:
    """The fields of a sealed text, its digest too; raises InputError unless it is intact."""
    try:
        body = json.loads(data)
        digest = body.pop("digest")
        intact = body["format"] == format_name and sealed(body) == data
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise altered(path, "it is no entry of this store") from error
    if not intact:
        raise altered(path, "its bytes are not those that were written")
    return {**body, "digest": digest}


def entry_text(entry: Entry) -> bytes:
    """The file of an entry; ``digest`` and ``record`` of it are not asked."""
    names = ("kind", "name", "seq", "action", "previous", "created")
    body = {name: getattr(entry, name) for name in names}
    return sealed({**body, "format": ENTRY_FORMAT, "record": entry.address})


def read_entry(data: bytes, path: Path) -> Entry:
    """The entry of a file's bytes, without its record; InputError where they were altered."""
    body = unsealed(data, path, ENTRY_FORMAT)
    try:
        del body["format"]
        return Entry(address=body.pop("record"), **body)
    except (KeyError, TypeError) as error:
        raise altered(path, f"not the fields of an entry: {error}") from error


def head_text(heads: Heads) -> bytes:
    """The file of the head."""
    names = [[kind, name, seq, digest] for (kind, name), (seq, digest) in sorted(heads.items())]
    return sealed({"format": HEAD_FORMAT, "names": names})


def read_head(data: bytes, path: Path) -> Heads:
    """The head of a file's bytes; InputError where they were altered."""
    body = unsealed(data, path, HEAD_FORMAT)
    try:
        return {(kind, name): (int(seq), digest) for kind, name, seq, digest in body["names"]}
    except (KeyError, TypeError, ValueError) as error:
        raise altered(path, f"not the fields of a head: {error}") from error


def altered(path: Path, problem: str) -> InputError:
    """What is said of a file of the store that is not what was written."""
    return InputError(f"{path}: altered: {problem}", RESTORE)


def absent(path: Path, problem: str) -> InputError:
    """What is said of a file of the store that is gone."""
    return InputError(f"{path}: missing: {problem}", RESTORE)
