"""``Store``: content-addressed objects, an append-only sequence of entries a name, and the head.

    format                            "parity-store 1"
    head.json                         the last accepted entry of every name
    names/<kind>/<name>/000001.json   entries: each names its record and the entry before it
    objects/ab/<sha256>               records, dumps, tensors; the name is the digest of the bytes
    lock                              held by whoever writes; empty

The entry is the commit: its objects are synced before it, the head follows it. A writer that is
killed in between leaves a head that is one entry behind, which counts as whole, and which the next
writer moves on. Reading creates, moves and mends nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from parity.errors import InputError
from parity.store import files
from parity.store.entries import (
    Entry,
    Heads,
    absent,
    altered,
    canonical,
    entry_text,
    head_text,
    read_entry,
    read_head,
    sha256,
)

FORMAT = b"parity-store 1\n"
FORMAT_FILE, HEAD_FILE, NAMES, OBJECTS = "format", "head.json", "names", "objects"
LONGEST_NAME = 200  # bytes of a name once it is quoted: folders hold 255
_ADDRESS = re.compile("[0-9a-f]{64}")
_ENTRY_FILE = re.compile(r"([0-9]{6})\.json")
_KIND = re.compile("[a-z]+")
Found = TypeVar("Found")
_BEGUN = {files.LOCK, HEAD_FILE}  # what a store holds that was killed before its format stood


class Store:
    """The store in the folder ``path``; opening it creates nothing, and neither does reading."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- objects ----------------------------------------------------------------------------------

    def put(self, data: bytes) -> str:
        """Keep ``data``; returns its address, SHA-256 in hexadecimal. Kept once, however often.

        Raises InputError where it cannot be written, or an object of that name was altered.
        """
        with self._writing():
            return self._put(data)

    def get(self, address: str) -> bytes:
        """The bytes at ``address``, verified; InputError where they are absent or altered."""
        path = self._object(address)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise absent(path, "an entry needs this object") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        if sha256(data) != address:
            raise altered(path, "its SHA-256 is not its name")
        return data

    def _put(self, data: bytes) -> str:
        address = sha256(data)
        path = self._object(address)
        if path.exists():
            self.get(address)
        else:
            files.create(self.path, path, data)
        return address

    def _object(self, address: str) -> Path:
        if _ADDRESS.fullmatch(address) is None:
            raise InputError(f"{address!r} is no address of an object", "give 64 hex digits")
        return self.path / OBJECTS / address[:2] / address

    # --- entries ----------------------------------------------------------------------------------

    def append(
        self, kind: str, name: str, record: Mapping[str, Any], *, action: str, expected: str | None
    ) -> Entry:
        """Accept ``record`` under ``name``, after the entry with the digest ``expected``.

        ``expected`` None: the name must be new. ``record["objects"]`` maps a word to the address
        of each object the record needs, or to None; they must be there already. Raises InputError
        when the name moved on from ``expected``, or the store was altered; nothing is accepted
        then.
        """
        check_name(kind, name)
        with self._writing():
            heads = self._rolled_forward()
            chain = self._chain(kind, name, heads)
            _require_expected(kind, name, chain[-1] if chain else None, expected)
            self._require_objects(record)
            address = self._put(canonical(record))
            previous = chain[-1].digest if chain else ""
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            made = Entry(kind, name, len(chain) + 1, action, address, previous, now, "")
            path = self._entry_path(kind, name, made.seq)
            text = entry_text(made)
            entry = read_entry(text, path)
            moved = {**heads, (kind, name): (entry.seq, entry.digest)}
            with files.replacing(self.path, self.path / HEAD_FILE, head_text(moved)):
                files.create(self.path, path, text)
        return replace(entry, record=json.loads(canonical(record)))

    def latest(self, kind: str, name: str) -> Entry:
        """The last accepted entry with its record, verified against its chain and the head.

        Raises InputError when there is none, when anything was altered, and when the entry on hand
        is not the one last accepted.
        """
        return self.history(kind, name)[-1]

    def history(self, kind: str, name: str) -> list[Entry]:
        """All entries of ``name``, the first one first, verified as ``latest`` does."""
        check_name(kind, name)
        chain = self._settled(lambda heads: self._chain(kind, name, heads))
        if not chain:
            known = ", ".join(map(shlex.quote, self.names(kind))) or "none"
            raise InputError(f"no {kind} {name!r} in {self.path}", f"{kind}s there: {known}")
        return [self._with_record(entry) for entry in chain]

    def names(self, kind: str) -> list[str]:
        """The names that have an entry, or that the head says have one, sorted."""
        heads = self._heads()
        return sorted({name for found, name in (*heads, *self._listed()) if found == kind})

    def verify(self) -> int:
        """Check every object, every entry and the head; returns how many objects and entries.

        Raises InputError, naming the file, for the first that is altered, absent or foreign.
        """
        chains = self._settled(self._chains)
        for chain in chains:
            for entry in chain:
                self._require_objects(self._with_record(entry).record)
        return sum(map(len, chains)) + sum(1 for _ in self._verified_objects())

    # --- reading ----------------------------------------------------------------------------------

    def _settled(self, look: Callable[[Heads], list[Found]]) -> list[Found]:
        """What ``look`` finds under the head; again where a writer moved it on in between."""
        while True:
            heads = self._heads()
            try:
                return look(heads)
            except InputError:
                if self._heads() == heads:
                    raise

    def _heads(self) -> Heads:
        """What the head says; nothing for a store that is not there yet."""
        if not self._stands():
            return {}
        path = self.path / HEAD_FILE
        return read_head(_read(path, "it names the last accepted entries"), path)

    def _stands(self) -> bool:
        """Whether the store is there; InputError where something else is."""
        path = self.path / FORMAT_FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            others = self._others()
            if path.exists():
                return self._stands()  # another writer made the store since it was looked for
            self._require_room(others)
            return False
        except NotADirectoryError as error:
            raise InputError(f"{self.path}: is no folder", "give --store a folder") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        if data != FORMAT:
            raise altered(path, f"it does not say {FORMAT.decode().strip()!r}")
        return True

    def _others(self) -> set[str]:
        """What stands in the folder beside temporary files."""
        if not self.path.exists():
            return set()
        return {name for name in os.listdir(self.path) if not name.endswith(files.TEMPORARY)}

    def _require_room(self, others: set[str]) -> None:
        """Without a format, only what a killed writer began may stand there."""
        if others & {NAMES, OBJECTS}:
            raise absent(self.path / FORMAT_FILE, "without it this is no store")
        if others - _BEGUN:
            raise InputError(
                f"{self.path}: is no store, and not empty", "give --store a new folder"
            )

    def _listed(self) -> list[tuple[str, str]]:
        """(kind, name) of every folder that holds an entry."""
        found = []
        for kind in _listing(self.path / NAMES):
            for folder in _listing(self.path / NAMES / kind):
                if _listing(self.path / NAMES / kind / folder):
                    found.append((kind, unquote(folder)))
        return found

    def _chains(self, heads: Heads) -> list[list[Entry]]:
        """The entries of every name."""
        places = dict.fromkeys([*heads, *self._listed()])
        chains = [self._chain(*place, heads) for place in places]
        self._require_one_ahead(chains, heads)
        return chains

    def _chain(self, kind: str, name: str, heads: Heads) -> list[Entry]:
        """The entries of a name, each following the one before, the last one that of the head."""
        folder = self._entry_path(kind, name, 1).parent
        present = _listing(folder)
        foreign = [file for file in present if _ENTRY_FILE.fullmatch(file) is None]
        if foreign:
            raise altered(folder / foreign[0], "it is no entry")
        last = int(present[-1][:6]) if present else 0
        seq, digest = heads.get((kind, name), (0, ""))
        chain: list[Entry] = []
        for number in range(1, max(last, seq) + 1):
            path = self._entry_path(kind, name, number)
            chain.append(self._link(path, kind, name, chain))
        if seq and chain[seq - 1].digest != digest:
            path = self._entry_path(kind, name, seq)
            raise altered(path, "it is not the entry that was last accepted (head.json)")
        self._require_one_ahead([chain], heads)
        return chain

    def _link(self, path: Path, kind: str, name: str, before: list[Entry]) -> Entry:
        """The entry of ``path``, which must follow ``before``."""
        entry = read_entry(_read(path, "an entry after it, or the head, needs it"), path)
        if (entry.kind, entry.name, entry.seq) != (kind, name, len(before) + 1):
            raise altered(path, f"it is entry {entry.seq} of {entry.kind} {entry.name!r}")
        if entry.previous != (before[-1].digest if before else ""):
            raise altered(path, "it does not follow the entry before it")
        return entry

    def _require_one_ahead(self, chains: list[list[Entry]], heads: Heads) -> None:
        """A killed writer leaves the head one entry behind, never more."""
        ahead = [
            chain[heads.get((chain[0].kind, chain[0].name), (0, ""))[0] :]
            for chain in chains
            if chain
        ]
        if sum(map(len, ahead)) > 1:
            path = self.path / HEAD_FILE
            raise altered(path, "it is older than the entries: not the head last written")

    def _count(self, kind: str, name: str) -> int:
        """How many files there are in the folder of a name."""
        return len(_listing(self._entry_path(kind, name, 1).parent))

    def _with_record(self, entry: Entry) -> Entry:
        data = self.get(entry.address)
        try:
            record = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise altered(self._object(entry.address), "it is no record") from error
        if not isinstance(record, dict):
            raise altered(self._object(entry.address), "it is no record")
        return replace(entry, record=record)

    def _require_objects(self, record: Mapping[str, Any]) -> None:
        for address in (record.get("objects") or {}).values():
            if address is not None and not self._object(address).is_file():
                raise absent(self._object(address), "a record needs this object")

    def _verified_objects(self) -> Iterator[str]:
        folder = self.path / OBJECTS
        for part in _listing(folder):
            for name in _listing(folder / part):
                path = folder / part / name
                if _ADDRESS.fullmatch(name) is None or name[:2] != part:
                    raise altered(path, "it is no object of this store")
                try:
                    with path.open("rb") as stream:
                        digest = hashlib.file_digest(stream, "sha256").hexdigest()
                except OSError as error:
                    raise _unreadable(path, error) from error
                if digest != name:
                    raise altered(path, "its SHA-256 is not its name")
                yield name

    def _entry_path(self, kind: str, name: str, seq: int) -> Path:
        return self.path / NAMES / kind / quote(name, safe="") / f"{seq:06d}.json"

    # --- writing ----------------------------------------------------------------------------------

    def require_writable(self) -> None:
        """Raise InputError where nothing could be kept. It writes nothing: to be asked before a run
        whose result is to be kept."""
        self._stands()
        folder = self.path if os.path.lexists(self.path) else self.path.parent
        problem = "" if os.access(folder, os.W_OK | os.X_OK) else "not writable"
        if not folder.is_dir():
            problem = "no such folder"
        if problem:
            raise InputError(
                f"{self.path}: cannot be written: {folder}: {problem}",
                "give --store a folder that can be written",
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The lock of a store that stands, made where it did not; leftovers are swept."""
        stands = self._stands()
        with files.named_errors(self.path):
            if not stands:
                files.make_folders(self.path.parent, self.path)
            with files.locked(self.path):
                files.sweep(self.path)
                if not self._stands():
                    self._write_head({})
                    files.replace(self.path, self.path / FORMAT_FILE, FORMAT)
                yield

    def _write_head(self, heads: Heads) -> None:
        files.replace(self.path, self.path / HEAD_FILE, head_text(heads))

    def _rolled_forward(self) -> Heads:
        """The head, moved on to the entry that a killed writer left behind it."""
        heads = self._heads()
        places = dict.fromkeys([*heads, *self._listed()])
        moved_on = [place for place in places if self._count(*place) != heads.get(place, (0,))[0]]
        chains = [self._chain(*place, heads) for place in moved_on]
        self._require_one_ahead(chains, heads)
        last = {(chain[-1].kind, chain[-1].name): chain[-1] for chain in chains}
        moved = {**heads, **{place: (entry.seq, entry.digest) for place, entry in last.items()}}
        if moved != heads:
            self._write_head(moved)
        return moved


def check_name(kind: str, name: str) -> None:
    """Raise InputError for a kind or a name that no entry can have."""
    if _KIND.fullmatch(kind) is None:
        raise InputError(f"{kind!r} is no kind of the store", "write it in small letters")
    plain = name.isprintable() and not name.startswith((".", " ", "-"))
    if not name or not plain or len(quote(name, safe="")) > LONGEST_NAME:
        raise InputError(
            f"{name!r} cannot name a {kind}",
            "give 1 to 200 printable characters that do not begin with '.', '-' or a blank",
        )


def _require_expected(kind: str, name: str, last: Entry | None, expected: str | None) -> None:
    """Raise InputError unless ``last`` is what the caller based its work on."""
    if expected is None and last is not None:
        raise InputError(
            f"{kind} {name!r} exists already: entry {last.seq} of {last.created}, "
            f"{last.digest[:12]}",
            "give another name; parity baseline promote is the way to change one",
        )
    if expected is not None and (last is None or last.digest != expected):
        now = "is gone" if last is None else f"was moved on to entry {last.seq} meanwhile"
        raise InputError(f"{kind} {name!r} {now}", "look at it, then do this again")


def _listing(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where there is no folder."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise altered(folder, "it is no folder") from error
    except OSError as error:
        raise _unreadable(folder, error) from error


def _read(path: Path, why: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise absent(path, why) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: cannot be read: {error.strerror or error}", "make the store readable"
    )
