"""A drawn fault against the oracle and against ``parity``: what each of the two found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from parity.comparison.compare import exit_status
from parity.families import dumped_fields
from parity.model.config import ModelConfig
from parity.model.generator import prompt_tokens
from parity.model.model import SyntheticModel
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.probe import Ask as ProbeAsk
from parity.runs.probe import Found
from parity.runs.run import Run, Side
from parity.status import Verdict
from parity.tree import Tree
from parity_probes.isodiff import Isodiff
from parity_probes.rollback import Rollback
from tests.study import oracle
from tests.study.draw import Draw
from tests.study.faults import Log
from tests.study.oracle import Block, Seen
from tests.study.planted import Emulated, Fault, Planted

TAPPED, HELD, NONE = "tapped", "held", "none"  # what a fault changes, by the oracle
MORE = 2  # further steps after a block or a draft
Pairs = list[tuple[np.ndarray, ...]]


@dataclass
class Outcome:
    """One fault.

    ``effect``: TAPPED (a value that a key shows), HELD (weights, state or a choice alone) or NONE,
    as the oracle finds it; ``wanted``: its first key, with what else must be named. ``found``: what
    ``parity`` names; ``right``: whether it is that. ``digest``: whether the weights' digest caught
    it too, None where no weight was changed. ``planted``: the key at which the fault sits, if it is
    one value; ``born``: whether that key is named as a birthplace, dumped or not, None where not
    all births could be found. ``forwards``: of both sides, in all reruns.
    """

    number: int
    kind: str = ""
    what: str = ""
    model: str = ""
    effect: str = NONE
    wanted: str = ""
    changed: int = 0
    verdict: str = ""
    found: str = ""
    detected: bool = False
    right: bool = False
    digest: bool | None = None
    born: bool | None = None
    planted: str = ""
    forwards: int = 0
    seconds: float = 0.0
    pairs: Pairs = field(default_factory=list)

    @property
    def miss(self) -> bool:
        """Whether ``parity`` is wrong about this fault."""
        if self.effect == NONE:
            return self.verdict != Verdict.SAME
        return not (self.detected and self.right) or self.digest is False or self.born is False


class Case(Protocol):
    """A fault that was drawn."""

    number: int
    what: str

    def judge(self) -> Outcome:
        """Ask the oracle, then ``parity``."""
        ...


# --- what a run gives without any fault -----------------------------------------------------------


class _Last:
    """The clean values of the run asked for last: a fault is drawn and judged with them."""

    run: Run | None = None
    seen: Seen | None = None


def clean(run: Run) -> Seen:
    """What the ref makes of ``run``."""
    if _Last.run is not run or _Last.seen is None:
        _Last.run, _Last.seen = run, oracle.watch(loaded(Fault(), run), run)
    return _Last.seen


def log_of(run: Run) -> list[tuple[int, str, int, bool]]:
    """Every op call of ``run`` on ``cpu``: position, op, number in its step, subnormal output."""
    log = Log()
    oracle.watch(loaded(log, run), run)
    return log.calls


def loaded(fault: Fault, run: Run) -> Planted:
    """``cpu`` with a fault and the run's model."""
    engine = Planted(fault)
    engine.load(run.model, run.positions)
    return engine


# --- two engines ----------------------------------------------------------------------------------


@dataclass
class DiffCase:
    """``parity diff`` of ``cpu`` against an engine with a fault. ``held``: weights that it changes;
    ``planted``: the key at which it sits, where that is one."""

    number: int
    run: Run
    fault: Callable[[], Fault]
    what: str
    planted: Any = None
    held: Sequence[str] = ()
    emulated: bool = False

    def engine(self) -> Any:
        """A new engine with the fault, the model loaded."""
        if not self.emulated:
            return loaded(self.fault(), self.run)
        engine = Emulated(self.fault())
        engine.load(self.run.model, self.run.positions)
        return engine

    @property
    def swapped(self) -> bool:
        """Whether the ref has the fault: once in four."""
        return Draw(self.number, "side").once_in(4)

    def judge(self) -> Outcome:
        """Ask the oracle, then ``parity``."""
        ref = oracle.watch(self.engine(), self.run) if self.swapped else clean(self.run)
        dut = self._watch_dut(ref)
        outcome = Outcome(self.number, what=self.what, model=self.run.model.label)
        outcome.planted = self.planted.tag if self.planted is not None else ""
        sides = [oracle.only(seen.tensors, self.run.fields) for seen in (ref, dut)]
        keys = oracle.changed(*sides)
        outcome.changed, outcome.pairs = len(keys), list(oracle.pairs_of(keys, *sides))
        if keys:
            assert self.planted not in sides[0] or keys[0] == self.planted, "the oracle is wrong"
            outcome.effect, outcome.wanted = TAPPED, keys[0].tag
        elif self._holds(ref, dut):
            outcome.effect, outcome.wanted = HELD, self._holds(ref, dut)
        self._compare(outcome)
        return outcome

    def _watch_dut(self, ref: Seen) -> Seen:
        engine = loaded(Fault(), self.run) if self.swapped else self.engine()
        handed = ref.start if self.run.prefill == "ref" else None
        return oracle.watch(engine, self.run, fed(self.run, ref), handed)

    def _holds(self, ref: Seen, dut: Seen) -> str:
        """What differs where no key does: a state, a choice, the weights; or nothing."""
        for when in ("start", "end"):
            parts = oracle.parts_changed(getattr(ref, when), getattr(dut, when))
            if parts:
                return f"{when} state: {parts[0]}"
        both = sorted(ref.choices.keys() & dut.choices.keys())
        parted = [pos for pos in both if ref.choices[pos] != dut.choices[pos]]
        if parted:
            return f"choice at t{parted[0]}"
        return f"weights: {self.held[0]}" if self.held else ""

    def _compare(self, outcome: Outcome) -> None:
        engines = [loaded(Fault(), self.run), self.engine()]
        ref, dut = reversed(engines) if self.swapped else engines
        sides = Side("ref", "ref", ref), Side("dut", "dut", dut)
        began = time.perf_counter()
        try:
            tree = diff_engines(*sides, self.run, Ask(seed=self.number))
        except Exception as error:  # an internal error is no verdict
            outcome.verdict = f"error: {type(error).__name__}: {error}"
            return
        outcome.seconds = time.perf_counter() - began
        outcome.forwards = ref.forwards + dut.forwards
        self._read(outcome, tree)

    def _read(self, outcome: Outcome, tree: Tree) -> None:
        outcome.verdict = str(tree.verdict)
        outcome.detected = tree.verdict is Verdict.DIVERGED and int(exit_status(tree)) == 1
        outcome.found = tree.first or tree.reason
        outcome.right = tree.first == outcome.wanted
        if outcome.effect == HELD:
            outcome.right = _names(tree, outcome.wanted)
        if self.held:
            plural = "" if len(self.held) == 1 else "s"
            text = f"weights differ in {len(self.held):,} tensor{plural}, first "
            noted = [note for note in tree.notes if note.startswith(text)]
            outcome.digest = any(note.removeprefix(text) in self.held for note in noted)
        births = tree.births
        if births is not None and births.complete and outcome.planted:
            outcome.born = any(birth.key == outcome.planted for birth in births.found)


def fed(run: Run, ref: Seen) -> Sequence[int]:
    """The ref's tokens; where each side follows itself none, or the first with a state handed
    over."""
    if run.tokens_from == "ref":
        return ref.fed
    return ref.fed[:1] if run.prefill == "ref" else ()


def _names(tree: Tree, held: str) -> bool:
    """Whether the tree says what the oracle found beside the keys."""
    what, _, name = held.partition(": ")
    if what.endswith(" state"):
        when = what.removesuffix(" state")
        return any(
            state.when == when and any(part.name == name and part.differ for part in state.parts)
            for state in tree.states
        )
    if what == "weights":
        return any(name in note for note in tree.notes if note.startswith("weights differ"))
    at = int(what.removeprefix("choice at t"))
    return any(pos == at and ref != dut for pos, ref, dut in tree.greedy)


# --- M rows and rollback --------------------------------------------------------------------------


@dataclass
class RowsCase:
    """``parity isodiff`` of an engine whose forwards of M rows have a fault."""

    number: int
    model: SyntheticModel
    tokens: Sequence[int]
    start: int
    size: int
    fault: Callable[[], Fault]
    what: str

    def judge(self) -> Outcome:
        """Ask the oracle, then ``parity``."""
        outcome = Outcome(self.number, what=self.what, model=self.model.label)
        config = self.model.config
        block = Block(self.tokens, self.start, MORE, tapped(config))
        engine = self.engine(self.model, self.start + self.size + MORE)
        ref = oracle.single_steps(engine, config, block, self.size + MORE)
        if self._differs(outcome, engine, block, self.size, ref):
            for size in range(2, self.size + 1):  # the smallest M that fails is what is told
                if self._differs(outcome, engine, block, size, ref):
                    break
        self._compare(outcome)
        return outcome

    def engine(self, model: Any, positions: int) -> Planted:
        """A new engine with the fault."""
        engine = Planted(self.fault())
        engine.load(model, positions)
        return engine

    def _differs(self, outcome: Outcome, engine: Any, block: Block, size: int, ref: Seen) -> bool:
        dut = oracle.rows(engine, self.model.config, block, size)
        ends = self.start + size + MORE
        wanted = {key: value for key, value in ref.tensors.items() if key.pos < ends}
        keys = oracle.changed(wanted, dut.tensors)
        if keys:
            rows = [key.pos - self.start for key in keys if key.field == "logits"]
            column = [row for row in rows if row < size]
            where = f", col {column[0]}" if column else ""
            outcome.effect, outcome.changed = TAPPED, len(keys)
            outcome.wanted = f"M = {size}, pos {self.start}{where}; first key {keys[0]}"
            outcome.pairs = list(oracle.pairs_of(keys, wanted, dut.tensors))
        return bool(keys)

    def _compare(self, outcome: Outcome) -> None:
        ask = ProbeAsk((self.size,), (self.start,), (self.model,), MORE)  # type: ignore[arg-type]
        found = _probe(outcome, Isodiff(), self.engine, ask)
        if found is not None:
            outcome.found = found.headline
            said = outcome.wanted.split("first key ")
            outcome.right = found.headline.startswith(said[0]) and found.first == said[-1]


@dataclass
class BackCase:
    """``parity rollback`` of an engine that does not go back all the way."""

    number: int
    model: SyntheticModel
    start: int
    size: int
    fault: Callable[[], Fault]
    what: str

    def judge(self) -> Outcome:
        """Ask the oracle, then ``parity``."""
        outcome = Outcome(self.number, what=self.what, model=self.model.label)
        config = self.model.config
        room = self.start + 2 * self.size + MORE
        tokens = prompt_tokens(self.model.seed, room, config.vocab)
        block = Block(tokens, self.start, MORE, tapped(config))
        good, bad = Planted(Fault()), self.engine(self.model, room)
        good.load(self.model, room)
        for right in range(self.size + 1):
            ref = oracle.single_steps(good, config, block, right + MORE)
            dut = oracle.taken_back(bad, config, block, self.size, right)
            left = oracle.parts_changed(ref.start, dut.start)
            keys = oracle.changed(ref.tensors, dut.tensors)
            if left:
                part = _told(left)
                first = "" if left[0] == "lengths" else (keys[0].tag if keys else "")
                outcome.effect = TAPPED if keys else HELD
                outcome.wanted = f"M = {self.size}, accept {right}: {part} was not restored|{first}"
                outcome.changed = len(keys)
                outcome.pairs = list(oracle.pairs_of(keys, ref.tensors, dut.tensors))
                break
        self._compare(outcome)
        return outcome

    def engine(self, model: Any, positions: int) -> Planted:
        """A new engine with the fault."""
        engine = Planted(self.fault())
        engine.load(model, positions)
        return engine

    def _compare(self, outcome: Outcome) -> None:
        ask = ProbeAsk((self.size,), (self.start,), (self.model,), MORE)  # type: ignore[arg-type]
        found = _probe(outcome, Rollback(), self.engine, ask)
        if found is not None:
            outcome.found = f"{found.headline}|{found.first or ''}"
            outcome.right = outcome.found == outcome.wanted


def _told(left: Sequence[str]) -> str:
    """How the parts that were left behind are named: the first, and how many more."""
    layer, _, part = left[0].partition("_")
    what = f"{part} of layer {layer[1:]}" if part else left[0]
    return what + (f" (and {len(left) - 1} more)" if len(left) > 1 else "")


def tapped(config: ModelConfig) -> frozenset[str]:
    """The fields that the probes dump."""
    return frozenset(dumped_fields(config))


def _probe(
    outcome: Outcome, probe: Any, engine: Callable[[Any, int], Planted], ask: ProbeAsk
) -> Found | None:
    """Run a probe; None after an internal error."""
    opened: list[Planted] = []

    def open_side(model: Any, positions: int) -> Side:
        opened.append(engine(model, positions))
        return Side("dut", "faulty", opened[-1])

    began = time.perf_counter()
    try:
        found: Found = probe.run(open_side, ask)
    except Exception as error:  # an internal error is no verdict
        outcome.verdict = f"error: {type(error).__name__}: {error}"
        return None
    outcome.seconds = time.perf_counter() - began
    outcome.forwards = sum(one.forwards for one in opened)
    outcome.verdict = str(found.verdict)
    outcome.detected = found.verdict is Verdict.DIVERGED
    return found
