"""The store: what is put is got, an entry follows the one before it, reading writes nothing."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from parity.errors import InputError
from parity.store import Entry, Store, canonical, files
from parity.store.entries import entry_text, head_text, sha256
from tests.core.store_samples import accept, content, put_back, sample_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_reading_creates_nothing(store: Store) -> None:
    assert store.names("baseline") == []
    assert store.verify() == 0
    with pytest.raises(InputError, match="no baseline 'one' in"):
        store.latest("baseline", "one")
    with pytest.raises(InputError, match="missing"):
        store.get("0" * 64)
    assert not store.path.exists()


def test_an_object_is_kept_once_and_read_only(store: Store) -> None:
    address = store.put(b"bytes")
    assert address == sha256(b"bytes") == store.put(b"bytes")
    assert store.get(address) == b"bytes"
    path = store.path / "objects" / address[:2] / address
    assert path.stat().st_mode & 0o777 == 0o444
    assert store.verify() == 1


def test_entries_follow_each_other(tmp_path: Path) -> None:
    store = sample_store(tmp_path / "store")
    first, last = store.history("baseline", "one")
    assert (first.seq, first.action, first.previous) == (1, "save", "")
    assert (last.seq, last.action, last.previous) == (2, "promote", first.digest)
    assert last == store.latest("baseline", "one")
    assert last.record == {"keys": 1, "objects": last.record["objects"]}
    assert sha256(canonical(last.record)) == last.address
    assert store.names("baseline") == ["one", "two"]
    assert store.names("gate") == ["fast"]
    # 3 objects, 3 records (both baselines of the first dump have one), 4 entries
    assert store.verify() == 3 + 3 + 4


def test_a_name_is_new_or_followed(tmp_path: Path) -> None:
    """B08 (a): nothing is overwritten."""
    store = sample_store(tmp_path / "store")
    first, last = store.history("baseline", "one")
    before = content(store.path)
    refused = {None: "exists already: entry 2", first.digest: "was moved on to entry 2 meanwhile"}
    for expected, said in refused.items():
        with pytest.raises(InputError, match=said):
            store.append("baseline", "one", {}, action="save", expected=expected)
    with pytest.raises(InputError, match="baseline 'three' is gone"):
        store.append("baseline", "three", {}, action="promote", expected=last.digest)
    assert content(store.path) == before


def test_a_record_needs_its_objects(store: Store) -> None:
    with pytest.raises(InputError, match="a record needs this object"):
        accept(store, "one", "ab" * 32)
    assert store.names("baseline") == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-x", " x", "a\nb", "a\x00b", "x" * 201, "ü" * 40]
)
def test_a_name_that_no_entry_can_have(store: Store, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a baseline"):
        store.append("baseline", name, {}, action="save", expected=None)
    assert not store.path.exists()


@pytest.mark.parametrize("name", ["a/b", "../up", "ü", "a b", "tests/x.py::test[1-2]", "A%2Fb"])
def test_any_other_name_stays_in_its_folder(store: Store, name: str) -> None:
    if name.startswith("."):
        with pytest.raises(InputError, match="cannot name"):
            store.append("gate", name, {}, action="gate", expected=None)
        return
    entry = store.append("gate", name, {"v": 1}, action="gate", expected=None)
    assert store.names("gate") == [name]
    assert store.latest("gate", name).digest == entry.digest
    assert store.verify() == 2
    assert [path.name for path in store.path.parent.iterdir()] == ["store"]


def test_another_kind_of_folder_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    store = Store(tmp_path)
    for ask in (store.verify, lambda: store.put(b"x"), lambda: store.names("baseline")):
        with pytest.raises(InputError, match="is no store, and not empty"):
            ask()
    with pytest.raises(InputError, match="is no folder"):
        Store(tmp_path / "notes.txt").put(b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.*is no folder"):
        Store(tmp_path / "file" / "store").put(b"x")


def test_nothing_is_accepted_where_the_head_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for the head alone: refused is not accepted."""
    store = sample_store(tmp_path / "store")
    dump, written = store.put(b"more"), files._written

    def full(folder: Path, data: bytes, mode: int) -> Path:
        if b"parity-head" in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(folder, data, mode)

    monkeypatch.setattr(files, "_written", full)
    with pytest.raises(InputError, match="store: cannot be written: No space left on device"):
        accept(store, "three", dump)
    assert store.names("baseline") == ["one", "two"]
    monkeypatch.undo()
    assert store.verify()
    assert accept(store, "three", dump).seq == 1


@pytest.mark.parametrize("times", [1, 2], ids=["the reader's look", "both looks"])
def test_a_store_that_another_writer_makes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Its format is not there yet when it is looked for, and stands a moment later."""
    store, read = sample_store(tmp_path / "store"), Path.read_bytes
    missed: list[Path] = []

    def late(path: Path) -> bytes:
        if path.name == "format" and len(missed) < times:
            missed.append(path)
            raise FileNotFoundError(path)
        return read(path)

    dump = store.put(b"more")
    monkeypatch.setattr(Path, "read_bytes", late)
    accept(store, "three", dump)
    assert len(missed) == times
    assert store.names("baseline") == ["one", "three", "two"]
    assert store.verify()


def test_a_place_where_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before a run, and nothing is made."""
    sample_store(tmp_path / "store").require_writable()
    Store(tmp_path / "new").require_writable()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name in ("no/such/store", "dangling"):
        with pytest.raises(InputError, match=f"{name}: cannot be written: .*: no such folder"):
            Store(tmp_path / name).require_writable()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(InputError, match=r"store: cannot be written: .*: not writable"):
        Store(tmp_path / "store").require_writable()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "store"]


def test_leftovers_of_a_killed_writer_are_swept(tmp_path: Path) -> None:
    store = sample_store(tmp_path / "store")
    (store.path / "0123.tmp").write_text("half")
    assert store.verify()
    store.put(b"more")
    assert not list(store.path.glob("*.tmp"))


# --- the head -------------------------------------------------------------------------------------


def test_a_head_one_entry_behind_is_whole_and_moved_on(tmp_path: Path) -> None:
    """A writer killed between the entry and the head."""
    store = sample_store(tmp_path / "store")
    behind = (store.path / "head.json").read_bytes()
    accept(store, "three", store.put(b"more"))
    newest = (store.path / "head.json").read_bytes()
    put_back(store.path, "head.json", behind)
    assert store.latest("baseline", "three").seq == 1
    assert store.verify()
    assert (store.path / "head.json").read_bytes() == behind  # reading mends nothing
    with pytest.raises(InputError, match="exists already"):
        accept(store, "three", store.put(b"more"))
    assert (store.path / "head.json").read_bytes() == newest


def test_a_head_two_entries_behind_is_an_older_one(tmp_path: Path) -> None:
    store = sample_store(tmp_path / "store")
    behind = (store.path / "head.json").read_bytes()
    for name in ("three", "four"):
        accept(store, name, store.put(b"more"))
    put_back(store.path, "head.json", behind)
    writes = (store.verify, lambda: accept(store, "five", store.put(b"more")))
    for ask in writes:
        with pytest.raises(InputError, match=r"head\.json: altered: it is older than the entries"):
            ask()


def test_an_older_store_under_the_newest_head(tmp_path: Path) -> None:
    """The entries of an older copy: the baseline on hand is not the one last accepted."""
    store = sample_store(tmp_path / "store")
    shutil.copytree(store.path / "names", tmp_path / "older")
    accept(store, "one", store.put(b"newer"), after=store.latest("baseline", "one"))
    shutil.rmtree(store.path / "names")
    shutil.copytree(tmp_path / "older", store.path / "names")
    for ask in (store.verify, lambda: store.latest("baseline", "one")):
        with pytest.raises(InputError, match=r"one/000003\.json: missing"):
            ask()
    assert store.latest("baseline", "two").seq == 1


def test_an_entry_of_another_store(tmp_path: Path) -> None:
    """A whole and well-formed last entry, but not the one that was accepted here."""
    store, other = (sample_store(tmp_path / name) for name in ("store", "other"))
    first = other.history("baseline", "one")[0]
    shutil.rmtree(other.path / "names" / "baseline" / "one")
    record = {"objects": {}, "keys": 2}
    text = _entry_text(other, first, record)
    put_back(store.path, "names/baseline/one/000002.json", text)
    with pytest.raises(InputError, match=r"000002\.json: altered: it is not the entry that was"):
        store.latest("baseline", "one")


def test_an_entry_that_another_one_does_not_follow(tmp_path: Path) -> None:
    """A whole and well-formed first entry, and a last one that is the accepted one."""
    store, other = (sample_store(tmp_path / name) for name in ("store", "other"))
    shutil.rmtree(other.path / "names" / "baseline" / "one")
    shutil.rmtree(other.path / "names" / "baseline" / "two")
    shutil.rmtree(other.path / "names" / "gate")
    put_back(other.path, "head.json", head_text({}))
    name = "names/baseline/one/000001.json"
    accept(other, "one", store.history("baseline", "one")[1].record["objects"]["dump"])
    put_back(store.path, name, (other.path / name).read_bytes())
    with pytest.raises(InputError, match=r"000002\.json: altered: it does not follow the entry"):
        store.latest("baseline", "one")


def test_a_file_is_made_once(tmp_path: Path) -> None:
    """Where a lock does nothing (some network disks), a link still tells who came first."""
    files.create(tmp_path, tmp_path / "entry", b"first")
    with pytest.raises(FileExistsError):
        files.create(tmp_path, tmp_path / "entry", b"second")
    assert (tmp_path / "entry").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


def _entry_text(store: Store, first: Entry, record: dict[str, object]) -> bytes:
    """The text of an entry 2 after ``first`` with another record."""
    address = store.put(canonical(record))
    return entry_text(
        replace(first, seq=2, action="promote", address=address, previous=first.digest)
    )


def test_a_store_on_a_disk_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    store = sample_store(tmp_path / "store")
    assert store.verify() == 10
    with pytest.raises(InputError, match="exists already"):
        accept(store, "one", store.put(b"more"))


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sample_store(tmp_path / "store")
    before = content(store.path)

    def full(handle: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        store.put(b"more")
    monkeypatch.undo()
    assert content(store.path) == before
