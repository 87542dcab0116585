"""The second run of one side, step by step, and what both sides' reruns show at one position."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from parity.dump import Dump, Entry
from parity.dumps.table import Builder, Kinds, Places, Table, joined
from parity.explain.drill import Entries, Start
from parity.keys import Key, KeyOrder
from parity.protocol import Step
from parity.runs.run import SideRun, State, run_side
from parity.runs.stability import RUNS, entries_tree, unlike_entries, unlike_run, unlike_state
from parity.tree import Stability


@dataclass(frozen=True)
class Visit:
    """One position of both reruns. ``fields``: those that were hashed, all there are.

    ``rows``: rows in which each state part differed before the step, None where a side cannot tell;
    ``tokens``: those fed; ``forced``: what the dut's ops make of the ref's inputs, None where that
    was not asked; ``given``: the keys whose value the dut was given then.
    """

    pos: int
    fields: tuple[str, ...]
    ref: Entries
    dut: Entries
    rows: Mapping[str, Collection[int]] | None
    tokens: tuple[int | None, int | None]
    forced: Entries | None = None
    given: Collection[Key] = ()

    @property
    def keys(self) -> list[Key]:
        """All keys of the position, in dataflow order."""
        return sorted({**self.ref, **self.dut}, key=KeyOrder(self.ref, self.dut))

    @property
    def equal(self) -> bool:
        """Whether no key of both sides differs."""
        return not any(map(self.differs, self.ref))

    def differs(self, key: Key) -> bool:
        """Whether both sides have ``key``, with other bytes."""
        return unlike(self.ref.get(key), self.dut.get(key))

    def departs(self, key: Key) -> bool:
        """Whether the dut's op gives other bytes than the ref's on the ref's inputs."""
        return self.forced is not None and unlike(self.ref.get(key), self.forced.get(key))


def unlike(ref: Entry | None, dut: Entry | None) -> bool:
    """Whether both sides told a value, with another type or digest."""
    if ref is None or dut is None:
        return False
    return (ref.type, ref.digest) != (dut.type, dut.digest)


def step_entries(step: Step | None) -> dict[Key, Entry]:
    """What a step told, by key; nothing for a step that was not made."""
    return {} if step is None else {entry.key: entry for entry in step.entries}


class Walker:
    """One side on its way through its second run. ``first``: the dump of its first run."""

    def __init__(self, start: Start, first: Dump) -> None:
        self.start, self.side, self.run = start, start.side, start.run
        self.tokens = start.tokens
        self._first, self._begin = first, 0
        self._again = Builder(Places(), Kinds())
        self._latest = self._nothing = Table.of([])
        self._by_pos = Table.of(first.entries).by_position()

    def go_to(self, pos: int, *, anew: bool = False) -> None:
        """Stand before ``pos``, with nothing told."""
        self._begin, self._again = pos, Builder(Places(), Kinds())
        self.start.go_to(pos, anew=anew)

    def token(self, pos: int) -> int | None:
        """What the side was fed at ``pos``; None after its end."""
        return self.tokens[pos] if pos < len(self.tokens) else None

    def step(self, pos: int, **plan: object) -> Step | None:
        """The step at ``pos``, or None after the side's end."""
        self._latest = self._nothing
        token = self.token(pos)
        if token is None:
            return None
        step = self.start.feed(pos, token, self.run.plan(**plan))
        self._latest = self._told(step)
        self._again.add(self._latest)
        self.side.progress(f"t{pos} again", self._again.rows, self.run.expected_keys)
        return step

    def unlike(self, pos: int) -> Key | None:
        """The first key of ``pos`` that the latest step does not tell as the first run did; None
        also in a prompt of which nothing was told."""
        if pos < self.run.start and not self.run.dump_prefill:
            return None
        return unlike_entries(self._by_pos.get(pos, self._nothing), self._latest)

    def run_again(self) -> Stability | None:
        """The whole run once more, as it was made: what becomes of a side that differs then."""
        start, handed = self.start, self.run.prefill == "ref" and self.side.role == "dut"
        first = SideRun(self._first, [*start.fed], {}, start.state, start.end)
        again = run_side(self.side, self.run, fed=start.fed, start=start.state if handed else None)
        place = unlike_run(first, again)
        tree = entries_tree(self._first, again.dump.entries, 0)
        return Stability(RUNS, self.side.role, place, RUNS, tree) if place else None

    def unlike_prefill(self) -> Key | None:
        """The first key of the prompt that another prefill in one piece tells in another way."""
        self.side.engine.reset()
        steps = self.side.engine.prefill(self.run.prompt, self.run.plan())
        first = (self._by_pos.get(pos, self._nothing) for pos in range(self.run.start))
        return unlike_entries(joined(first), joined(map(self._told, steps)))

    def unstable_key(self, key: Key) -> Stability:
        """The side is not repeatable, first at ``key``: run on to the end, and compare all that was
        told."""
        for pos in range(key.pos + 1, len(self.tokens)):
            self.step(pos)
        tree = entries_tree(self._first, self._again.table(), self._begin)
        return Stability(RUNS, self.side.role, key.tag, RUNS, tree)

    def unstable_state(self, first: State | None) -> Stability | None:
        """What becomes of the side where it stands in another state than ``first``; else None."""
        place = unlike_state(first, self.side.read_state())
        return Stability(RUNS, self.side.role, place, RUNS) if place else None

    def _told(self, step: Step) -> Table:
        return Table.of(step.entries).of_fields(self.run.fields)
