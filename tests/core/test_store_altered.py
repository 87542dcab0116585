"""Nothing in a store can change unseen: every byte flipped, every file cut, gone, swapped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.errors import InputError
from parity.store import Store
from tests.core.store_samples import content, put_back, sample_store

COUNT = 10  # objects and entries of the sample


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("altered") / "store"
    sample_store(folder)
    return folder, content(folder)


def refused(folder: Path) -> str:
    """What ``verify`` says of a store that was harmed; "" where it sees nothing."""
    try:
        Store(folder).verify()
    except InputError as error:
        return error.message
    return ""


def classes(files: dict[str, bytes]) -> dict[str, list[str]]:
    """The files of the sample by what they are."""
    found: dict[str, list[str]] = {"format": [], "head": [], "entry": [], "object": []}
    for name in files:
        top = name.split("/")[0]
        kind = {"names": "entry", "objects": "object", "head.json": "head"}.get(top, top)
        found[kind].append(name)
    return found


def test_the_sample_has_every_class(sample: tuple[Path, dict[str, bytes]]) -> None:
    counts = {kind: len(names) for kind, names in classes(sample[1]).items()}
    assert counts == {"format": 1, "head": 1, "entry": 4, "object": 6}


@pytest.mark.parametrize("kind", ["format", "head", "entry", "object"])
def test_every_byte_flipped(sample: tuple[Path, dict[str, bytes]], kind: str) -> None:
    """B08 (e): one bit of each byte, another one each time."""
    folder, files = sample
    flipped = 0
    for name in classes(files)[kind]:
        for at in range(len(files[name])):
            data = bytearray(files[name])
            data[at] ^= 1 << at % 8
            put_back(folder, name, bytes(data))
            said = refused(folder)
            assert f"{folder / name}: altered" in said, (name, at, said)
            flipped += 1
        put_back(folder, name, files[name])
    assert flipped == sum(len(files[name]) for name in classes(files)[kind])
    assert Store(folder).verify() == COUNT


def harmed(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Every file cut short, longer, empty, and with the bytes of another of its class."""
    for name, data in files.items():
        for cut in sorted({0, 1, len(data) // 2, len(data) - 1}):
            yield name, data[:cut]
        yield name, data + b"\n"
        yield name, data + data
    for names in classes(files).values():
        for one, other in permutations(names, 2):
            if files[one] != files[other]:
                yield one, files[other]


def test_every_file_cut_or_swapped(sample: tuple[Path, dict[str, bytes]]) -> None:
    folder, files = sample
    tried = 0
    for name, data in harmed(files):
        put_back(folder, name, data)
        said = refused(folder)
        assert f"{folder / name}: altered" in said, (name, data, said)
        put_back(folder, name, files[name])
        tried += 1
    assert tried > 100
    assert Store(folder).verify() == COUNT


def test_every_file_deleted(sample: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    folder, files = sample
    for name in files:
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        said = refused(copy)
        # Of the last entry of a name, the head is left; of one in between, the one after it.
        assert f"{copy / name}: missing" in said, (name, said)
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    "place",
    [
        "names/baseline/one/notes.txt",
        "names/baseline/one/000003.json",
        "names/baseline/one/1.json",
        "objects/ab/notes",
        "objects/zz",
    ],
)
def test_a_foreign_file(sample: tuple[Path, dict[str, bytes]], tmp_path: Path, place: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sample[0], copy)
    (copy / place).parent.mkdir(exist_ok=True)
    (copy / place).write_bytes(b"{}")
    assert f"{copy / place}: altered" in refused(copy)


def test_a_whole_older_copy_is_seen_from_outside_alone(tmp_path: Path) -> None:
    """All of it together is consistent: only who kept the digest can tell (check --accepted)."""
    store = sample_store(tmp_path / "store")
    older = store.latest("baseline", "one").digest
    shutil.copytree(store.path, tmp_path / "copy")
    last = store.latest("baseline", "one")
    made = store.append("baseline", "one", {"v": 2}, action="promote", expected=last.digest)
    assert refused(tmp_path / "copy") == ""
    assert Store(tmp_path / "copy").latest("baseline", "one").digest == older != made.digest


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(draw=st.data())
def test_random_harm(sample: tuple[Path, dict[str, bytes]], draw: st.DataObject) -> None:
    """Whatever replaces a part of a file: it is seen, by name, unless the bytes stay the same."""
    folder, files = sample
    name = draw.draw(st.sampled_from(sorted(files)))
    data = files[name]
    begin = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(begin, len(data)))
    put_in = draw.draw(
        st.one_of(
            st.binary(max_size=8), st.sampled_from([b'"', b"}", b"null", b"1e999", b"[" * 5000])
        )
    )
    harm = data[:begin] + put_in + data[end:]
    try:
        put_back(folder, name, harm)
        said = refused(folder)
    finally:
        put_back(folder, name, data)
    assert (f"{folder / name}: altered" in said) == (harm != data), (name, harm, said)
