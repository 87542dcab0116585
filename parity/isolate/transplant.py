"""Transplant: the ref's tensor in place of what the dut made at a key, and the run goes on."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.comparison.states import compare_states
from parity.dump import MAIN, Dump, Entry
from parity.errors import InputError, NotRunError
from parity.explain.drill import Start
from parity.families import every_field, layer_fields
from parity.isolate.trials import first_place, key_of
from parity.keys import FINAL_FIELDS, Key, KeyOrder
from parity.protocol import Plan, Replace
from parity.runs.run import Run, Side, SideRun, run_side, tokens_for_dut
from parity.tree import Transplant

RUNGS = 8  # keys that a ladder transplants at most, one after the other


@dataclass(frozen=True)
class GivenRun(Run):
    """A run whose dumped steps read what ``given`` answers (see ``Replace``)."""

    given: Replace | None = None

    def plan(self, **changes: Any) -> Plan:
        """The plan of the run, with what is given."""
        return super().plan(**{"replace": self.given, **changes})


@dataclass
class Surgery:
    """The dut's run, made again with the ref's tensors at some keys.

    ``start``: where the ref's run begins; ``ref``: what it gave, the decoded part where the dut
    takes over its state. Raises NotRunError naming a capability that a side lacks.
    """

    start: Start
    dut: Side
    run: Run
    ref: SideRun
    dump: Dump
    runs: int = 0
    _tensors: dict[Key, np.ndarray] = field(default_factory=dict)

    def transplant(self, keys: Sequence[Key]) -> Transplant:
        """Run the dut with the ref's tensors at ``keys``; they count as same, for they are."""
        self._fetch(keys)
        left = set(keys)

        def given(key: Key, read: Callable[[], np.ndarray]) -> np.ndarray | None:
            if key not in left:
                return None
            left.discard(key)
            self._check_alike(key, read())
            return self._tensors[key]

        values = {item.name: getattr(self.run, item.name) for item in fields(Run)}
        handed = self.ref.start if self.run.prefill == "ref" else None
        fed = tokens_for_dut(self.run, self.ref.fed)
        self.runs += 1
        done = run_side(self.dut, GivenRun(**values, given=given), fed=fed, start=handed)
        never = next((key for key in keys if key in left), None)
        if never is not None:
            raise NotRunError(
                f"{self.dut.spec} never makes {never}: nothing to put another in place of",
                "transplant a key before it",
            )
        return self._judged(keys, done)

    def _judged(self, keys: Sequence[Key], done: SideRun) -> Transplant:
        stands = {entry.key: entry for entry in self.dump.entries if entry.key in set(keys)}
        entries: list[Entry] = [stands.get(entry.key, entry) for entry in done.dump.entries]
        tree = compare_dumps(self.dump, replace(done.dump, segments={MAIN: entries}))
        if self.ref.end is not None and done.end is not None:
            tree.states.append(compare_states("end", self.ref.end, done.end))
        differ = tree.counts.total - tree.counts.same
        first = first_place(tree, self.run)
        return Transplant([key.tag for key in keys], first, differ, tree.counts.total)

    def _fetch(self, keys: Iterable[Key]) -> None:
        """Get the ref's tensors of ``keys``, one rerun of it for each position."""
        missing: dict[int, set[Key]] = {}
        for key in keys:
            if key not in self._tensors:
                missing.setdefault(key.pos, set()).add(key)
        for step in self.start.walk(missing, fields=()):
            self._tensors |= step.tensors

    def _check_alike(self, key: Key, made: np.ndarray) -> None:
        kept = self._tensors[key]
        if (made.dtype, made.shape) != (kept.dtype, kept.shape):
            kinds = [f"{array.dtype}{list(array.shape)}" for array in (kept, made)]
            raise NotRunError(
                f"{key} is {kinds[0]} in the ref and {kinds[1]} in the dut: nothing to transplant",
                "both must give a field the type of contract 2",
            )


def ladder(surgery: Surgery, first: str | None) -> list[Transplant]:
    """Transplant the first differing key, then the one that is first after that, and so on.

    Ends when nothing differs any more, when what differs is no key, or after RUNGS rungs.
    """
    made: list[Transplant] = []
    keys: list[Key] = []
    while len(made) < RUNGS and (key := key_of(first)) is not None:
        keys.append(key)
        made.append(surgery.transplant(keys))
        first = made[-1].first
    return made


def step_by_step(surgery: Surgery, keys: Sequence[Key]) -> list[Transplant]:
    """Transplant the first of ``keys``, then the first two, and so on."""
    return [surgery.transplant(keys[: count + 1]) for count in range(len(keys))]


def parse_keys(texts: Iterable[str], run: Run) -> list[Key]:
    """Keys as typed; raises InputError with the nearest one for a key the run does not make."""
    known = {key.tag: key for key in made_keys(run)}
    for text in texts:
        if text not in known:
            near = difflib.get_close_matches(text, known, 1)
            hint = f"did you mean {near[0]}?" if near else "keys are t<pos>_l<layer>_<field>"
            raise InputError(f"--transplant {text}: the run makes no such key", hint)
    return sorted({known[text] for text in texts}, key=KeyOrder())


def made_keys(run: Run) -> list[Key]:
    """Every value that the dumped steps make, dumped or not."""
    config = run.model.config
    first = 0 if run.dump_prefill else run.start
    inner = [name for name in every_field(config) if name not in FINAL_FIELDS]
    found = []
    for pos in range(first, run.positions):
        for layer in range(config.layers):
            found += [Key(pos, layer, name) for name in layer_fields(config, layer, inner)]
        found += [Key(pos, None, name) for name in FINAL_FIELDS]
    return found
