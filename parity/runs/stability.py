"""A side against itself: the same run again must give the same keys and states.

Only a run that repeats can be called diverged; one that does not is unstable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parity.comparison.compare import compare_dumps
from parity.comparison.matching import dump_order
from parity.comparison.states import compare_states
from parity.dump import MAIN, Dump, Entry
from parity.dumps.table import Table
from parity.keys import Key, KeyOrder
from parity.runs.run import Run, Side, SideRun, State, run_side
from parity.status import Level, Verdict
from parity.tree import Stability, Tree

RUNS = 2  # of each side, before a red run is called diverged: the one compared and its rerun


def confirm(tree: Tree, side: Side, run: Run, first: SideRun) -> None:
    """Run the only engine of a red comparison again, fed what it was fed; one that differs from
    itself makes it unstable."""
    again = run_side(side, run, fed=first.fed)
    found = unlike_run(first, again)
    if found:
        whole = compare_dumps(first.dump, again.dump)
        call_unstable(tree, Stability(RUNS, side.role, found, RUNS, whole))


def unlike_run(first: SideRun, again: SideRun) -> str:
    """Where a second run differs from the first: a state it started from, its first differing key,
    the state it left; "" where it is the same."""
    found = unlike_state(first.start, again.start)
    key = unlike_entries(first.dump.entries, again.dump.entries)
    return found or (key.tag if key else "") or unlike_state(first.end, again.end)


def unlike_entries(first: Iterable[Entry], again: Iterable[Entry]) -> Key | None:
    """The first key, in dataflow order, that two runs of one side do not tell alike."""
    if isinstance(first, Table) and isinstance(again, Table):
        rows = first.unlike_rows(again)
        if rows is not None:
            dumps = (Dump({}, {MAIN: side}) for side in (first, again))
            return min(map(first.key, rows), key=dump_order(*dumps)) if rows else None
    before, after = ({entry.key: entry for entry in side} for side in (first, again))
    if before == after:
        return None
    keys = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    return min(keys, key=KeyOrder(before, after))


def unlike_state(first: State | None, again: State | None) -> str:
    """The first part of two states that differs, or "" (a side without states has none)."""
    if first is None or again is None:
        return ""
    return compare_states("", first, again).first or ""


def call_unstable(tree: Tree, found: Stability) -> None:
    """A side that differs from itself: nothing else can be said of the run."""
    tree.verdict, tree.level, tree.stability = Verdict.UNSTABLE, Level.NONE, found
    is_key = Key.of_name(found.key).pos >= 0
    tree.first = found.key if is_key else None
    what = "digest" if is_key else "state"
    tree.reason = f"{found.side} differs from itself at {found.key}: a rerun gave another {what}"


def entries_tree(first: Dump, again: Sequence[Entry], begin: int) -> Tree:
    """Run 1 of one side, from position ``begin`` on, against what its rerun told."""
    told = Table.of(first.entries)
    sides = told.select(told.pos >= begin), again
    return compare_dumps(
        *(Dump(dict(first.header), {MAIN: entries}, first.source) for entries in sides)
    )
