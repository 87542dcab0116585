"""The whole commands, killed at every call on the store: what is left verifies, and can go on."""

from __future__ import annotations

from pathlib import Path

from tests.core.test_store_killed import start


def test_save_and_promote_killed_at_every_call(tmp_path: Path) -> None:
    done = start("tests.cli.baseline_killed_worker", str(tmp_path))
    said, _ = done.communicate(timeout=280)
    assert done.returncode == 0, said
    counts = dict(line.rsplit(" ", 1) for line in said.splitlines() if line[-1:].isdigit())
    assert set(counts) == {"first save", "save", "promote"}, said
    assert all(int(count) > 50 for count in counts.values()), counts
