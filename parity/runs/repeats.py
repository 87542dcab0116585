"""``parity stable``: one engine against itself, run after run.

Every run is whole: reset, prefill, decode steps, every key and the states. All but the last are
made by one engine; the last by one opened anew, since what a load leaves can change bits too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from parity.comparison.compare import compare_dumps
from parity.comparison.states import compare_states, differing_weights
from parity.explain.drill import Start
from parity.keys import Key, KeyOrder
from parity.runs.engine_diff import check_control, run_facts
from parity.runs.run import Run, Side, SideRun, run_side
from parity.runs.stability import unlike_entries, unlike_state
from parity.status import Level, Verdict
from parity.tree import Stability, Tree

Told = Callable[[str, str, int, int], None]  # label, where, keys done, keys in all
_WEIGHTS, _START, _KEY, _END = range(4)  # what is looked at first


@dataclass(frozen=True)
class Unlike:
    """Where a run is not run 1: ``place`` as people read it, a key's tag where it is a key.
    ``rank``: places by how early they are."""

    rank: tuple[Any, ...]
    place: str


@dataclass(frozen=True)
class Worst:
    """The run that differs earliest."""

    number: int
    unlike: Unlike
    again: SideRun


class Runs:
    """Run 1 and what became of the others: where each differs, and which one the earliest."""

    def __init__(self, first: SideRun) -> None:
        self.first = self.latest = first
        self.count = 1
        self.places: list[str] = []  # of each further run, "" for one that is run 1
        self.worst: Worst | None = None
        self._order = KeyOrder(entry.key for entry in first.dump.entries)

    def add(self, again: SideRun, other_weights: Sequence[str] = ()) -> None:
        """Compare the next run with run 1. ``other_weights``: tensors that are not run 1's."""
        self.count += 1
        self.latest = again
        found = self._unlike(again, other_weights)
        self.places.append("" if found is None else found.place)
        if found is None:
            return
        if self.worst is None or found.rank < self.worst.unlike.rank:
            self.worst = Worst(self.count, found, again)

    def _unlike(self, again: SideRun, other_weights: Sequence[str]) -> Unlike | None:
        if other_weights:
            return Unlike((_WEIGHTS,), f"weight {other_weights[0]}")
        start = unlike_state(self.first.start, again.start)
        if start:
            return Unlike((_START,), start)
        key = self._unlike_key(again)
        if key is not None:
            return Unlike((_KEY, self._order(key)), key.tag)
        end = unlike_state(self.first.end, again.end)
        return Unlike((_END,), end) if end else None

    def _unlike_key(self, again: SideRun) -> Key | None:
        """The first key that was told in another way, or the logits that led to another choice."""
        key = unlike_entries(self.first.dump.entries, again.dump.entries)
        if key is not None or self.first.choices == again.choices:
            return key
        pairs = self.first.choices.items() ^ again.choices.items()
        return Key(min(pos for pos, _ in pairs), None, "logits")


def repeat_runs(
    opened: Callable[[], Side], run: Run, runs: int, *, seed: int = 0, told: Told | None = None
) -> Tree:
    """Run an engine ``runs`` times (2 or more): SAME where every run is run 1, else UNSTABLE.

    ``opened`` gives the engine with the model loaded, a new one each time; ``seed``: of the
    control.
    """
    began = time.monotonic()
    side = opened()
    done = Runs(_run(side, run, None, 1, runs, told))
    fed = done.first.fed
    for number in range(2, runs):
        done.add(_run(side, run, fed, number, runs, told))
    weights = side.weights
    del side  # there may be no room for two
    fresh = opened()
    last = _run(fresh, run, fed, runs, runs, told)
    done.add(last, differing_weights(weights, fresh.weights))
    tree = _tree(done, fresh.role)
    tree.run = run_facts(run, fed)
    if tree.verdict is Verdict.SAME:
        start = Start(fresh, run, fed, last.start)
        check_control(tree, start, done.first.dump, last.dump, seed)
    tree.seconds = time.monotonic() - began
    return tree


def _run(
    side: Side, run: Run, fed: Sequence[int] | None, number: int, runs: int, told: Told | None
) -> SideRun:
    if told is not None:
        side.progress = partial(told, f"run {number} of {runs}")
    return run_side(side, run, fed=fed)


def _tree(done: Runs, role: str) -> Tree:
    """Run 1 against the run that differs earliest, or against the last one."""
    first, worst = done.first, done.worst
    again = done.latest if worst is None else worst.again
    tree = compare_dumps(first.dump, again.dump)
    for when, one, other in (("start", first.start, again.start), ("end", first.end, again.end)):
        if one is not None and other is not None:
            tree.states.append(compare_states(when, one, other))
    if not tree.states:
        tree.notes.append("states not compared: the engine lacks the capability 'state'")
    if worst is None:
        tree.stability = Stability(done.count, places=done.places)
    else:
        _call_unstable(tree, done, worst, role)
    former = "run 1" if done.count == 2 else f"runs 1 to {done.count - 1}, with a reset between,"
    tree.notes.append(f"{former} by one engine; run {done.count} by one opened anew")
    return tree


def _call_unstable(tree: Tree, done: Runs, worst: Worst, role: str) -> None:
    place, number = worst.unlike.place, worst.number
    of_runs = compare_dumps(done.first.dump, worst.again.dump)
    tree.stability = Stability(done.count, role, place, number, of_runs, done.places)
    tree.verdict, tree.level = Verdict.UNSTABLE, Level.NONE
    tree.first = place if worst.unlike.rank[0] == _KEY else None
    what = {_WEIGHTS: "", _START: "start state ", _KEY: "", _END: "end state "}
    tree.reason = f"not repeatable, first at {what[worst.unlike.rank[0]]}{place} in run {number}"
    differ = sum(bool(where) for where in done.places)
    tree.notes.append(f"{differ:,} of {done.count - 1:,} repeats are not run 1")
