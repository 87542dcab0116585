"""Run both sides again, side by side: the second run that stability asks for, and the place where
the dut's ops are replayed on the ref's inputs. The tensors of one position are held at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parity.comparison.states import differing_rows
from parity.dump import Dump
from parity.explain.dataflow import step_keys
from parity.explain.drill import Start
from parity.explain.forcing import Forcing, Tensors
from parity.explain.margin import Choices, measure
from parity.explain.rerun import Visit, Walker, step_entries
from parity.families import every_field
from parity.keys import Key
from parity.protocol import Step
from parity.runs.run import State
from parity.runs.stability import RUNS
from parity.tree import Margin, Stability

States = tuple[State | None, State | None]


@dataclass(frozen=True)
class Wanted:
    """What to look at. ``first``: the first differing key; ``flips``: by position, the two choices
    where they differ; ``layer``: (position, layer) to which details are limited, None for all;
    ``forcing``: of an earlier retrace with the same run of the ref."""

    first: Key | None = None
    flips: Mapping[int, Choices] = field(default_factory=dict)
    layer: tuple[int, int | None] | None = None
    forcing: Forcing | None = None


@dataclass
class Found:
    """What a retrace found. ``lacking``: why births may be missing; ``margins``: by position;
    ``tensors``: by side, of the first differing key."""

    forcing: Forcing
    replays_before: int
    stability: Stability = field(default_factory=lambda: Stability(RUNS))
    visits: list[Visit] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    margins: dict[int, Margin] = field(default_factory=dict)
    tensors: tuple[Tensors, Tensors] = ({}, {})

    @property
    def replays(self) -> int:
        """Steps that this retrace forced."""
        return self.forcing.replays - self.replays_before

    def add_before(self, other: Found) -> None:
        """Put what was found at an earlier position in front."""
        if other.stability.side:
            self.stability = other.stability
        self.visits = [*other.visits, *self.visits]
        self.forcing.details.update(other.forcing.details)
        self.forcing.kernels.update(other.forcing.kernels)
        self.forcing.sources.update(other.forcing.sources)
        self.forcing.replays += other.replays

    def visit(self, pos: int) -> Visit | None:
        """What was seen at ``pos``."""
        return next((visit for visit in self.visits if visit.pos == pos), None)


class Retrace:
    """The second run of both sides. ``dumps``: of their first runs."""

    def __init__(
        self, starts: tuple[Start, Start], dumps: tuple[Dump, Dump], wanted: Wanted
    ) -> None:
        self.ref, self.dut = (Walker(*pair) for pair in zip(starts, dumps, strict=True))
        self.run, self.wanted = starts[0].run, wanted
        forcing = wanted.forcing or Forcing(starts, wanted.layer)
        self.found = Found(forcing, forcing.replays)
        self._fields = every_field(self.run.model.config)

    def whole(self, *, anew: bool) -> Found:
        """Rerun all that was dumped, and compare the states that are left then. ``anew``: rerun the
        prefill too where it was not dumped, and compare the states that it leaves."""
        begin = 0 if self.run.dump_prefill else self.run.start
        if self._misplaced():
            self.found.stability = self.ref.run_again() or self.dut.run_again() or Stability(RUNS)
            return self.found
        for walker in (self.ref, self.dut):
            walker.go_to(begin, anew=anew)
            if anew and begin and self._other_state(walker, walker.start.state):
                return self.found
        self._walk(begin)
        for walker in (self.ref, self.dut):
            if not self.found.stability.side:
                self._other_state(walker, walker.start.end)
        return self.found

    def _misplaced(self) -> bool:
        """Whether a side stood at another position after the prompt: its keys are not where they
        belong, and no step can be set against another."""
        for walker in (self.ref, self.dut):
            state = walker.start.state
            length = self.run.start if state is None else int(state["lengths"][0])
            if length != self.run.start:
                text = f"the {walker.side.role} stands at position {length} after the prompt"
                self.found.lacking.append(f"{text} of {self.run.start}: no birth is searched")
                return True
        return False

    def one(self, pos: int) -> Found:
        """Rerun position ``pos`` alone."""
        if self._misplaced():
            return self.found
        for walker in (self.ref, self.dut):
            walker.go_to(pos)
        unlike = self._visit(pos)
        if unlike is not None:
            walker, key = unlike
            self.found.stability = walker.unstable_key(key)
        return self.found

    def _walk(self, begin: int) -> None:
        for pos in range(begin, max(len(self.ref.tokens), len(self.dut.tokens))):
            unlike = self._visit(pos)
            if unlike is not None and self._repeatable(*unlike):
                self._walk(self.run.start)
            if unlike is not None or self.found.stability.side:
                return

    def _repeatable(self, walker: Walker, key: Key) -> bool:
        """Whether a side whose rerun differs at ``key`` is repeatable after all: its prefill in one
        piece gives the same again, but not token by token (against contract 7)."""
        role = walker.side.role
        if key.pos >= self.run.start:
            self.found.stability = walker.unstable_key(key)
            return False
        again = walker.unlike_prefill()
        if again is not None:
            self.found.stability = Stability(RUNS, role, again.tag, RUNS)
            return False
        text = f"the {role}'s prefill has other bits token by token, first at {key}"
        self.found.lacking.append(f"{text}: births in the prompt are not searched")
        self.found.visits.clear()
        for side in (self.ref, self.dut):
            side.go_to(self.run.start)
        return True

    def _other_state(self, walker: Walker, first: State | None) -> bool:
        """Whether the side stands in another state than in its first run."""
        found = walker.unstable_state(first)
        if found is not None:
            self.found.stability = found
        return found is not None

    def _visit(self, pos: int) -> tuple[Walker, Key] | None:
        """Make both steps, and the forced one where a key differs. A side whose rerun is not its
        first run ends it: which one, and the key."""
        before = self.ref.side.read_state(), self.dut.side.read_state()
        ref, dut = self._steps(pos)
        for walker in (self.ref, self.dut):
            key = walker.unlike(pos)
            if key is not None:
                return walker, key
        rows = _rows(*before)
        tokens = self.ref.token(pos), self.dut.token(pos)
        seen = Visit(pos, self._fields, step_entries(ref), step_entries(dut), rows, tokens)
        if ref is not None and dut is not None:
            self._keep(pos, ref, dut)
            forced = self._forced(seen, ref, before)
            if isinstance(forced, Stability):
                self.found.stability = forced
                return None
            seen = forced
        self.found.visits.append(seen)
        return None

    def _steps(self, pos: int) -> tuple[Step | None, Step | None]:
        """Both steps at ``pos``; the ref's with all tensors where steps can be forced."""
        first = self.wanted.first
        shown = frozenset({first} if first is not None and first.pos == pos else ())
        every = shown.union(step_keys(self.run.model.config, pos, self._fields))
        forcing = self.found.forcing
        wanted = (shown if forcing.lacking or forcing.knows(pos) else every, shown)
        kept = [
            keys if walker.side.has("capture") else frozenset[Key]()
            for walker, keys in zip((self.ref, self.dut), wanted, strict=True)
        ]
        return (
            self.ref.step(pos, fields=self._fields, tensors=kept[0]),
            self.dut.step(pos, fields=self._fields, tensors=kept[1]),
        )

    def _keep(self, pos: int, ref: Step, dut: Step) -> None:
        """What is wanted of these two steps: the tensors of the first key, the margin of a flip."""
        first = self.wanted.first
        if first is not None and first.pos == pos:
            kept = [{k: v for k, v in step.tensors.items() if k == first} for step in (ref, dut)]
            self.found.tensors = kept[0], kept[1]
        if pos in self.wanted.flips:
            why = self._other_input(pos)
            choices = self.wanted.flips[pos]
            self.found.margins[pos] = measure(pos, choices, ref.logits, dut.logits, why)

    def _other_input(self, pos: int) -> str:
        pairs = zip(self.ref.tokens[: pos + 1], self.dut.tokens[: pos + 1], strict=True)
        at = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
        return "" if at is None else f"other tokens were fed from t{at} on"

    def _forced(self, seen: Visit, ref: Step, before: States) -> Visit | Stability:
        forcing = self.found.forcing
        if forcing.lacking or seen.equal or before[0] is None or before[1] is None:
            return seen
        return forcing.force(seen, ref.tensors, (before[0], before[1]))


def _rows(ref: State | None, dut: State | None) -> dict[str, list[int]] | None:
    """The rows of each state part in which the sides differ; None where a side cannot tell."""
    return None if ref is None or dut is None else differing_rows(ref, dut)
