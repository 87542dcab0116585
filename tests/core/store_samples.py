"""A small store to be harmed, and what to look at in it."""

from __future__ import annotations

from pathlib import Path

from parity.store import Entry, Store


def sample_store(folder: Path) -> Store:
    """Two baselines, one of them promoted once, and a gate; 3 objects beside the records."""
    store = Store(folder)
    first = store.put(b"t0_l0_x 0000000000000001\n")
    other = store.put(b"t0_l0_x 0000000000000002\n")
    report = store.put(b"a report")
    entry = accept(store, "one", first)
    accept(store, "one", other, after=entry)
    accept(store, "two", first)
    record = {"objects": {"report": report}, "verdict": "default"}
    store.append("gate", "fast", record, action="gate", expected=None)
    return store


def accept(store: Store, name: str, dump: str, *, after: Entry | None = None) -> Entry:
    """An entry whose record needs the object ``dump``."""
    record = {"objects": {"dump": dump, "tensors": None}, "keys": 1}
    expected, action = (None, "save") if after is None else (after.digest, "promote")
    return store.append("baseline", name, record, action=action, expected=expected)


def content(folder: Path) -> dict[str, bytes]:
    """Every file that the store needs, by its path in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def put_back(folder: Path, name: str, data: bytes) -> None:
    """Give a file other bytes; those of the store are read-only."""
    path = folder / name
    path.chmod(0o644)
    path.write_bytes(data)
