"""Kill a save and a promote of the library at every call (tests/core/test_store_killed.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parity.errors import InputError
from parity.store import Store, files
from parity.store.entries import head_text, read_entry
from tests.core import killing
from tests.core.store_samples import accept, content, sample_store


def save(folder: Path) -> int:
    store = Store(folder)
    accept(store, "three", store.put(b"new"))
    return 0


def promote(folder: Path) -> int:
    store = Store(folder)
    history = store.history("baseline", "one")
    accept(store, "one", store.put(b"newer"), after=history[1])
    return 0


def look_at(old: dict[str, bytes], name: str, before: int, again: str) -> object:
    """What must hold of a store that a killed writer left."""

    def look(folder: Path, at: int) -> None:
        store = Store(folder)
        store.verify()
        now = content(folder)
        kept = {path: data for path, data in old.items() if path != "head.json"}
        assert {path: now.get(path) for path in kept} == kept, f"call {at}: the old is gone"
        done = name in store.names("baseline") and len(store.history("baseline", name)) > before
        try:
            status = {"save": save, "promote": promote}[again](folder)
            assert status == 0
            assert not done, f"call {at}: accepted twice"
        except InputError:
            assert done, f"call {at}: refused, though nothing was accepted"
        assert len(store.history("baseline", name)) == before + 1
        store.verify()
        assert not list(folder.glob("*.tmp")), f"call {at}: leftovers"

    return look


def in_place(folder: Path, path: Path, data: bytes) -> None:
    """How a store must not write: under its name from the first byte on."""
    files.make_folders(folder, path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(handle, data)
    os.close(handle)


@contextmanager
def replacing_in_place(folder: Path, path: Path, data: bytes) -> Iterator[None]:
    """The same for a file that stands there."""
    yield
    in_place(folder, path, data)


def head_first(folder: Path, path: Path, data: bytes) -> None:
    """Another way: the head names an entry before it stands there."""
    if path.parent.parent.parent.name == "names":
        entry = read_entry(data, path)
        heads = Store(folder)._heads()
        place = {(entry.kind, entry.name): (entry.seq, entry.digest)}
        files.replace(folder, folder / "head.json", head_text({**heads, **place}))
    CREATE(folder, path, data)


CREATE = files.create
FAULTS = {
    "create in place": ("create", in_place),
    "replace in place": ("replacing", replacing_in_place),
    "head first": ("create", head_first),
}


def main(folder: Path, fault: str = "") -> None:
    if fault:
        setattr(files, *FAULTS[fault])
    base = folder / "store"
    killed = killing.at_every_call(base, save, look_at({}, "three", 0, "save"))  # type: ignore[arg-type]
    print("first save", killed)
    sample_store(base)
    old = content(base)
    killed = killing.at_every_call(base, save, look_at(old, "three", 0, "save"))  # type: ignore[arg-type]
    print("save", killed)
    killed = killing.at_every_call(base, promote, look_at(old, "one", 2, "promote"))  # type: ignore[arg-type]
    print("promote", killed)
    assert content(base) == old


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
