"""Writers that are killed and writers at once: the store verifies, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.store import Store

ROOT = Path(__file__).parents[2]
WRITERS, ROUNDS = 4, 12


def start(module: str, *words: str) -> subprocess.Popen[str]:
    """``python -m module words``, from the root; one thread, since it may fork."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_killed_at_every_call_of_the_file_system(tmp_path: Path) -> None:
    done = start("tests.core.store_killed_worker", str(tmp_path))
    said, _ = done.communicate(timeout=240)
    assert done.returncode == 0, said
    counts = dict(line.rsplit(" ", 1) for line in said.splitlines() if line[-1:].isdigit())
    assert set(counts) == {"first save", "save", "promote"}, said
    # A temporary file, its link and the synced folders of each of two objects and an entry, and
    # the head, and each write a second time, torn; the first save makes the store before that.
    assert all(int(count) > 50 for count in counts.values()), counts


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("create in place", "altered"),
        ("replace in place", "altered"),
        ("head first", r"000001.json: missing: an entry after it, or the head, needs it"),
    ],
    ids=["create in place", "replace in place", "head first"],
)
def test_a_store_that_writes_otherwise_is_caught(tmp_path: Path, fault: str, seen: str) -> None:
    """The test above can fail."""
    done = start("tests.core.store_killed_worker", str(tmp_path), fault)
    said, _ = done.communicate(timeout=240)
    assert done.returncode == 1
    assert seen in said.splitlines()[-1], said


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    module = "tests.core.store_writer_worker"
    writers = [start(module, str(folder), f"w{at}", str(ROUNDS)) for at in range(WRITERS)]
    for writer in writers:
        said, _ = writer.communicate(timeout=240)
        assert writer.returncode == 0, said
    store = Store(folder)
    saved = {f"w{at}-{number}" for at in range(WRITERS) for number in range(ROUNDS)}
    assert set(store.names("baseline")) == {*saved, "shared"}
    history = store.history("baseline", "shared")
    assert [entry.record["count"] for entry in history] == list(range(WRITERS * ROUNDS + 1))
    for name in saved:
        writer, _, number = name.partition("-")
        address = store.latest("baseline", name).record["objects"]["dump"]
        assert store.get(address) == f"{writer} {number}".encode()
    assert store.verify()
