"""Kill ``parity baseline save`` and ``promote`` at every call (tests/cli/test_baseline_killed.py).

The sides are dump files, so that no engine's threads are there when the process forks.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.writer import write_dump
from parity.keys import Key
from parity.store import Store
from tests.cli.baselines import check, promote, save
from tests.cli_runner import Result
from tests.core import killing
from tests.core.store_samples import content

HEADER = {
    **{"hash": "fnv1a64", "version": "2", "tier": "exact", "variants": "none"},
    **{"model": "moe-tiny seed 7", "weights": "ab" * 8, "tokens": "1,2,3,4", "prefill": "3 own"},
}
TAGS = ("t3_l0_nrm", "t3_l0_attn", "t3_logits")
USAGE = 2


def write(folder: Path, name: str, first: int) -> str:
    """A dump of the engine ``name`` whose digests count up from ``first``."""
    kind = TensorType("f32", (4,))
    entries = [Entry(Key.parse(tag), first + at, kind) for at, tag in enumerate(TAGS)]
    path = folder / f"{name}-{first}.dump"
    write_dump(Dump({**HEADER, "engine": name}, {MAIN: entries}), path, force=True)
    return str(path)


class Case:
    """One command on ``x``, and how many entries x has before and after it."""

    def __init__(self, command: Callable[[Path], Result], before: int, old: dict[str, bytes]):
        self.command, self.before, self.old = command, before, old

    def work(self, store: Path) -> int:
        return self.command(store).status

    def look(self, store: Path, at: int) -> None:
        """What must hold of a store that a killed command left."""
        kept = Store(store)
        kept.verify()
        now = content(store)
        lost = [n for n, data in self.old.items() if n != "head.json" and now.get(n) != data]
        assert not lost, f"call {at}: {lost}"
        done = self.entries(kept) > self.before
        again = self.command(store)
        assert again.status == (USAGE if done else 0), f"call {at}: {again}"
        assert self.entries(kept) == self.before + 1
        kept.verify()
        assert done or not list(store.glob("*.tmp"))  # a refused command sweeps nothing

    def entries(self, store: Store) -> int:
        known = "x" in store.names("baseline")
        return len(store.history("baseline", "x")) if known else 0


def main(folder: Path) -> None:
    mine, ref = write(folder, "mine", 1), write(folder, "ref", 1)
    newer, newer_ref = write(folder, "mine", 9), write(folder, "ref", 9)

    def saving(store: Path) -> Result:
        return save(store, "x", mine, "--ref", ref)

    def promoting(store: Path) -> Result:
        return promote(store, "x", "--engine", newer, "--ref", newer_ref)

    base = folder / "store"
    for command in (saving, promoting):  # once before, so that everything is imported
        result = command(base)
        assert result.status == 0, result
    shutil.rmtree(base)
    first = Case(saving, 0, {})
    print("first save", killing.at_every_call(base, first.work, first.look))
    assert save(base, "old", mine).status == 0
    case = Case(saving, 0, content(base))
    print("save", killing.at_every_call(base, case.work, case.look))
    assert saving(base).status == 0
    case = Case(promoting, 1, content(base))
    print("promote", killing.at_every_call(base, case.work, case.look))
    assert check(base, "x", "--engine", mine, "-q").status == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
