"""Short ``parity baseline`` runs, and the store they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parity.tree import Tree
from tests.cli.running import SHORT
from tests.cli_runner import Result, run_cli


def save(store: Path, name: str, side: str, *words: str) -> Result:
    """``parity baseline save`` of the short run."""
    run = () if side.endswith(".dump") else SHORT
    return run_cli("baseline", "save", name, side, *run, "--store", str(store), *words)


def saved(store: Path, name: str = "x", side: str = "cpu", *words: str) -> Path:
    """A store with one baseline."""
    result = save(store, name, side, *words)
    assert result.status == 0, result.stderr
    return store


def check(store: Path, name: str = "x", *words: str) -> Result:
    """``parity baseline check``."""
    return run_cli("baseline", "check", name, "--store", str(store), *words)


def checked(store: Path, folder: Path, *words: str) -> tuple[int, Tree]:
    """Status and tree of a check."""
    path = folder / "check.json"
    result = check(store, "x", *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def promote(store: Path, name: str = "x", *words: str) -> Result:
    """``parity baseline promote``."""
    return run_cli("baseline", "promote", name, "--store", str(store), *words)


def shown(store: Path, folder: Path, name: str = "x") -> dict[str, Any]:
    """What ``show --json`` writes."""
    path = folder / "show.json"
    result = run_cli("baseline", "show", name, "--store", str(store), "--json", str(path))
    assert result.status == 0, result.stderr
    body: dict[str, Any] = json.loads(path.read_text())
    return body


def footprint(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Size, time of change and bytes of everything below ``folder``, folders too."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        found[path.relative_to(folder).as_posix()] = (facts.st_size, facts.st_mtime_ns, data)
    return found
