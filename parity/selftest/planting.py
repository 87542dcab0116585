"""``parity selftest``: plant every fault of the table and see each caught at exactly its key.

The key is known before anything is compared: it is where the fault was planted
(parity.selftest.levels).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from parity.comparison.compare import exit_status
from parity.errors import InputError
from parity.selftest.faults import FAULTS, Fault, Want
from parity.status import ExitStatus, Verdict
from parity.tree import Tree

FORMAT, VERSION = "parity-selftest", 2
NOT_FINITE = "not finite with the same bytes"  # how the reason of such a run begins


@dataclass(frozen=True)
class Trial:
    """One fault at one level. ``key``: where it must be found; ``found``: where it was; ``said``:
    the verdict, or ``refused``; ``differ``: keys that are not the same; ``problem``: what is wrong
    though the verdict may be right."""

    fault: str
    level: str
    key: str
    want: Want
    caught: bool = False
    found: str | None = None
    said: str = ""
    status: int = 0
    differ: int = 0
    problem: str = ""


@dataclass
class Selftest:
    """All trials. ``not_run``: levels that could not be tried, and why; ``seed``: of the keys;
    ``reproduce``: the command that makes them again (since version 2)."""

    seed: int
    trials: list[Trial] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    reproduce: str = ""

    @property
    def missed(self) -> list[Trial]:
        """Faults that were not caught, and false alarms."""
        return [trial for trial in self.trials if not trial.caught]

    @property
    def levels(self) -> list[str]:
        """Names of the levels that were tried, in order."""
        return [*dict.fromkeys(trial.level for trial in self.trials)]

    @property
    def passed(self) -> bool:
        """Whether every fault of the table was caught at every level that was tried."""
        whole = len(self.trials) == len(self.levels) * len(FAULTS)
        return bool(self.trials) and whole and not self.missed


@dataclass(frozen=True)
class Compared:
    """What a level made of a fault. ``problem``: why that is worth nothing, if anything."""

    tree: Tree
    problem: str = ""


class Level(Protocol):
    """Where faults are planted."""

    name: str

    def key_of(self, fault: Fault) -> str:
        """Tag of the key at which ``fault`` must be found."""
        ...

    def compare(self, fault: Fault) -> Compared:
        """Plant ``fault`` in the dut and compare; InputError where it is refused."""
        ...


def try_level(level: Level, told: Callable[[str, int], None]) -> Iterator[Trial]:
    """Every fault at one level; ``told`` hears the name and the number of each."""
    for number, fault in enumerate(FAULTS):
        told(fault.name, number)
        yield _tried(level, fault)


def _tried(level: Level, fault: Fault) -> Trial:
    trial = Trial(fault.name, level.name, level.key_of(fault), fault.want)
    try:
        compared = level.compare(fault)
    except InputError as error:
        named = f"key {trial.key} " in error.message or f": {trial.key} " in error.message
        caught = named and fault.want is Want.REFUSED and error.exit_status is ExitStatus.USAGE
        found = trial.key if named else None
        status = int(error.exit_status)
        return replace(trial, caught=caught, found=found, said="refused", status=status)
    tree, counts = compared.tree, compared.tree.counts
    return replace(
        trial,
        caught=not compared.problem and _caught(fault, trial.key, tree),
        found=tree.first,
        said=tree.verdict.replace("_", " "),
        status=int(exit_status(tree)),
        differ=counts.differ + counts.missing + counts.extra,
        problem=compared.problem,
    )


def _caught(fault: Fault, key: str, tree: Tree) -> bool:
    status = exit_status(tree)
    if fault.want is Want.CAUGHT:
        diverged = tree.verdict is Verdict.DIVERGED and status is ExitStatus.DIVERGED
        return diverged and tree.first == key
    if fault.want is Want.REFUSED:
        return False  # nothing may come of it
    noted = any(note.startswith("line order differs") for note in tree.notes)
    if tree.first is not None or noted != (fault.want is Want.NOTED):
        return False
    if tree.verdict is Verdict.NOT_RUN:
        # Contract 1.10: what an engine reports as not finite is not compared any further.
        return fault.want is Want.QUIET and tree.reason.startswith(f"{NOT_FINITE}: {key} ")
    return tree.verdict is Verdict.SAME and status is ExitStatus.SAME
