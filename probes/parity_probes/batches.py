"""Batches: a sequence in a batch of B has the bits of the sequence alone, whoever stands beside it.

Compared with B = 1: every key and the logits of every sequence, with neighbours that are copies,
other prompts and longer ones, the sequence first and last; and with itself in a batch whose
neighbours hold other tokens. It would break where a kernel's order depends on B, where the padding
before a short sequence is read or changes an order, and where a sequence reads its neighbour. It
does not show that either is right: that is what ``diff`` against the reference is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import Injection, Plan, Step
from parity.runs.probe import Ask, Batch, Cost, Found, Mate, Moved, OpenSide, Size, worst
from parity.status import Verdict
from parity.tree import Tree
from parity_probes.batch_cases import COPIES, DECODE, KINDS, RAGGED, Case, Cases
from parity_probes.batch_words import found_of
from parity_probes.blocks import Fired, compare_steps, control, op_of, plan_for, seed_of
from parity_probes.costs import Timed, cost_of, timed
from parity_probes.moves import Moves, calls_text, key_size, telling_plan


@dataclass(frozen=True)
class Problem:
    """A batch that is not equal: sequence ``at`` of it. ``first``: tag of its first differing
    key, if one does; ``what`` differs. ``leak``: it is not held against itself alone but against
    itself beside other contents."""

    case: Case
    at: int
    what: str
    first: str | None = None
    verdict: Verdict = Verdict.DIVERGED
    leak: bool = False

    @property
    def length(self) -> int:
        """Tokens of the sequence."""
        return len(self.case.sequences[self.at])


@dataclass
class Tally:
    """What all batches together gave. ``at_last``: whether the sequence has the same bits first
    and last, by (B, neighbours)."""

    keys: int = 0
    equal: int = 0
    sequences: int = 0
    equal_sequences: int = 0
    problems: list[Problem] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    places: dict[tuple[int, str], bool] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    costs: dict[int, Cost] = field(default_factory=dict)
    controls: list[Fired] = field(default_factory=list)
    moves: Moves = field(default_factory=Moves)
    moved: Moved | None = None
    untapped: str = ""
    unstable: str = ""
    cause: str = ""
    calls: str = ""
    lengths: tuple[int, int] = (0, 0)
    seed: int = 0

    @property
    def worst(self) -> Problem | None:
        """What to report: a difference before what could not be compared, then the smallest B and
        the plainest neighbours, then the sequence that every batch has."""
        return min(
            self.problems,
            key=lambda one: (
                one.verdict is not Verdict.DIVERGED,
                one.case.b,
                KINDS.index(one.case.neighbours),
                one.case.place,
                one.at != one.case.place,
                one.at,
            ),
            default=None,
        )


class Batches:
    """Probe ``batch``."""

    name = "batch"
    claim = "a sequence in a batch of B has the bits of the sequence alone"
    needs: Sequence[str] = ("batch",)

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every B with every kind of neighbours, then the control; no further seed after a
        problem."""
        tally = Tally()
        for model in ask.models:
            tally.seed = seed_of(model)
            _run_model(open_side, model, ask, tally)
            if tally.problems or tally.untapped:
                break
        return found_of(self.name, ask, tally)


def _run_model(open_side: OpenSide, model: Model, ask: Ask, tally: Tally) -> None:
    """One seed. A function of its own: its model is let go before the next one is loaded."""
    case = _Runs(open_side, model, ask, tally)
    sizes = [b for b in ask.sizes if b > 1]
    for b in sizes:
        case.size(b)
    if not sizes:
        return
    problem = tally.worst
    if problem is None:
        tally.controls += [case.control(max(sizes), kind) for kind in (COPIES, RAGGED)]
    elif problem.verdict is Verdict.DIVERGED:
        case.search_smaller(problem)
        problem = case.exact(tally.worst or problem)
        tally.unstable = case.unstable(problem)
        case.tell(problem)


class _Runs:
    """One seed's model: its sequences alone, and batches of them held against these."""

    def __init__(self, open_side: OpenSide, model: Model, ask: Ask, tally: Tally) -> None:
        self.model, self.ask, self.tally = model, ask, tally
        tally.moves.real_ids = model.config.real_ids
        self.cases = Cases(model, ask)
        tally.lengths = self.cases.length, self.cases.long
        self.side = open_side(model, self.cases.long)
        self.engine: Any = self.side.engine
        self._alone: dict[tuple[int, ...], list[Step]] = {}

    def plan(self, sequences: Sequence[Sequence[int]], **changes: Any) -> Plan:
        """Every dumped field at the positions that are compared."""
        positions = self.cases.positions(sequences)
        layers = (*range(self.model.config.layers), None)
        places = frozenset((pos, layer) for pos in positions for layer in layers)
        return plan_for(self.model.config, **{"places": places, **changes})

    def alone(self, sequence: tuple[int, ...]) -> list[Step]:
        """The sequence in a batch of one, run once."""
        if sequence not in self._alone:
            self._alone[sequence] = self._run((sequence,), self.plan((sequence,)))[0]
        return self._alone[sequence]

    def _run(self, sequences: Sequence[Sequence[int]], plan: Plan | None) -> list[list[Step]]:
        steps: list[list[Step]] = self.engine.step_batch(sequences, plan, DECODE)
        return steps

    def together(self, case: Case, **changes: Any) -> list[list[Step]]:
        """A batch under its plan, a list of steps for each of its sequences."""
        steps = self._run(case.sequences, self.plan(case.sequences, **changes))
        return [*steps, *([] for _ in range(case.b - len(steps)))]

    def size(self, b: int) -> None:
        """Every batch of ``b`` sequences that was asked for."""
        ones: dict[str, list[Step]] = {}
        for case in self.cases.of(b):
            self.side.progress(f"B {b}, {case.neighbours}", self.tally.sequences, 0)
            steps = self.batch(case)
            first = ones.setdefault(case.neighbours, steps[case.place])
            if case.place:
                alike = _alike(first, steps[case.place])
                self.tally.places[b, case.neighbours] = alike
        self.measure(b)

    def batch(self, case: Case, asked: bool = True) -> list[list[Step]]:
        """Run one batch, hold each sequence against itself alone, and note what was found."""
        steps = self.together(case)
        self.tally.tried.add(case.b)
        mates, verdicts = [], []
        for at, dut in enumerate(steps):
            mate, verdict = self._mate(case, at, self.alone(case.sequences[at]), dut)
            mates.append(mate)
            verdicts.append(verdict)
        contents = self._contents(case, steps[case.place])
        verdict = Verdict.DIVERGED if contents else worst(verdicts)
        head = (self.tally.seed, case.b, case.neighbours, case.place)
        self.tally.batches.append(Batch(*head, verdict, mates, contents, asked))
        return steps

    def _mate(self, case: Case, at: int, ref: list[Step], dut: list[Step]) -> tuple[Mate, Verdict]:
        tree, tally = compare_steps(ref, dut), self.tally
        logits = sum(_logits_differ(*pair) for pair in zip(ref, dut, strict=False))
        counts = tree.counts
        mate = Mate(
            *(at, len(case.sequences[at]), case.padding(at), logits),
            *(counts.differ + counts.missing + counts.extra, counts.total, tree.first),
        )
        what, verdict = _wrong(tree, logits)
        if not dut:  # nothing to compare, and nothing that may be missing
            mate = replace(mate, first=next((one.key.tag for one in ref[0].entries), None))
            what, verdict = f"first key {mate.first}, missing in the batch", Verdict.DIVERGED
        tally.keys, tally.equal = tally.keys + counts.total, tally.equal + counts.same
        tally.sequences += 1
        tally.equal_sequences += not what
        for pos, pair in enumerate(zip(ref, dut, strict=False)):
            if pair[0].logits.size == pair[1].logits.size > 0:
                tally.moves.add(f"B = {case.b}, {case.neighbours}, sequence {at}, t{pos}", *pair)
        if what:
            what += self._whose(case, at, dut)
            tally.problems.append(Problem(case, at, what, mate.first, verdict))
        return mate, verdict

    def _whose(self, case: Case, at: int, dut: list[Step]) -> str:
        """Whether these are the bits of another sequence of the batch."""
        for other, sequence in enumerate(case.sequences):
            ref = self.alone(sequence)
            if sequence != case.sequences[at] and len(ref) == len(dut) and _alike(ref, dut):
                return f"; it has the bits of sequence {other}"
        return ""

    def _contents(self, case: Case, steps: list[Step]) -> str | None:
        """The first key of the sequence that changes with its neighbours' tokens, "" for none; None
        for copies and for a sequence that stands last, of which that is not asked."""
        if case.neighbours == COPIES or case.place:
            return None
        again = self.together(self.cases.changed(case))[case.place]
        tree = compare_steps(steps, again)
        if tree.verdict is Verdict.DIVERGED or not _alike(steps, again):
            found = tree.first or "the logits alone"
            what = f"first key {found} changes with the neighbours' tokens: one reads another"
            self.tally.problems.append(Problem(case, case.place, what, tree.first, leak=True))
            return found
        return ""

    def measure(self, b: int) -> None:
        """Calls and time without a tap of ``b`` copies together and one by one; the tap must not
        change the logits."""
        one, many = [self.cases.sequence], [self.cases.sequence] * b
        together = timed(self.engine, lambda: self._flat(many))
        singles = timed(self.engine, lambda: [step for _ in many for step in self._flat(one)])
        if self.side.has("counters"):
            self.tally.costs.setdefault(b, cost_of(b, together, singles))
        self._untapped(b, together, singles)

    def _flat(self, sequences: Sequence[Sequence[int]]) -> list[Step]:
        return [step for steps in self._run(sequences, None) for step in steps]

    def _untapped(self, b: int, together: Timed, singles: Timed) -> None:
        case = self.cases.case(b, COPIES, 0)
        tapped = [step for steps in self.together(case) for step in steps]
        alone = [step for _ in range(b) for step in self.alone(self.cases.sequence)]
        pairs = (("a batch", tapped, together), ("a sequence alone", alone, singles))
        for what, ref, dut in pairs:
            if not self.tally.untapped and not _same_logits(ref, dut.steps):
                text = f"B = {b}: the logits of {what} without a tap differ from those with one"
                self.tally.untapped = text

    def control(self, b: int, kind: str) -> Fired:
        """Move one element in the sequence at the last index of the largest batch."""
        case = self.cases.case(b, kind, b - 1)

        def again(fault: Injection | None) -> Sequence[Step]:
            return self.together(case, inject=fault)[case.place]

        ref = self.alone(self.cases.sequence)
        fired = control(self.side, ref, self.tally.seed, again)
        return replace(fired, text=f"{fired.text}, in {kind}")

    def search_smaller(self, failed: Problem) -> None:
        """Try every smaller B that was not asked for, with the same neighbours."""
        for b in range(2, failed.case.b):
            if b not in self.tally.tried:
                place = 0 if failed.case.place == 0 else b - 1
                self.batch(self.cases.case(b, failed.case.neighbours, place), asked=False)
            if any(problem.case.b == b for problem in self.tally.problems):
                return

    def exact(self, found: Problem) -> Problem:
        """The same with the true first key of a long sequence, of which not every position was
        compared."""
        if found.length <= self.cases.length or found.leak or found.first is None:
            return found
        sequence = found.case.sequences[found.at]
        plan = plan_for(self.model.config)
        ref, dut = self._run((sequence,), plan)[0], self._run(found.case.sequences, plan)
        first = compare_steps(ref, dut[found.at]).first if found.at < len(dut) else found.first
        told = replace(found, first=first, what=found.what.replace(str(found.first), str(first)))
        self.tally.problems.insert(0, told)
        return told

    def unstable(self, found: Problem) -> str:
        """What differs from itself in a second run: the batch, or the sequence alone."""
        case, where = found.case, f"B = {found.case.b}, {found.case.neighbours}"
        first, second = (self.together(case) for _ in range(2))
        for at, pair in enumerate(zip(first, second, strict=True)):
            if not _alike(*pair):
                return f"{where}: sequence {at} differs between two runs of the batch"
        sequence = case.sequences[found.at]
        again = self._run((sequence,), self.plan((sequence,)))[0]
        if not _alike(self.alone(sequence), again):
            return f"a sequence of {len(sequence)} tokens alone differs between two runs"
        same = _alike(self.alone(sequence), first[found.at])
        if same and not found.leak:
            return f"{where}: what differed did not come back in a second run"
        return ""

    def tell(self, found: Problem) -> None:
        """How far what differs moved, and the op behind the first key of a stable difference."""
        size: Size | None = None
        if found.first is not None and not self.tally.unstable:
            size = self._first_size(found, found.first)
        self.tally.moved = self.tally.moves.told(size)

    def _first_size(self, found: Problem, tag: str) -> Size | None:
        """Both once more, keeping the first key's values."""
        case, sequence = found.case, found.case.sequences[found.at]
        self.tally.cause = op_of(self.side, Key.parse(tag))
        plan = telling_plan(self.plan(case.sequences), tag, self.side)
        dut = self._run(case.sequences, plan)
        ref = self._run((sequence,), plan)[0]
        mine = dut[found.at] if found.at < len(dut) else []
        self.tally.calls = calls_text(tag, ref, mine)
        return key_size(tag, ref, mine)


def _wrong(tree: Tree, logits: int) -> tuple[str, Verdict]:
    """What is wrong with one sequence, and the verdict; "" where nothing is."""
    if tree.verdict is Verdict.NOT_RUN:
        return tree.reason, tree.verdict
    if tree.verdict is not Verdict.SAME:
        return f"first key {tree.first}", Verdict.DIVERGED
    if logits:
        return "the keys are equal, the logits returned are not", Verdict.DIVERGED
    return "", Verdict.SAME


def _logits_differ(ref: Step, dut: Step) -> int:
    """Logits that differ as uint32; all of them where there are more or fewer."""
    if ref.logits.shape != dut.logits.shape:
        return max(ref.logits.size, dut.logits.size)
    return int(np.count_nonzero(ref.logits.view(np.uint32) != dut.logits.view(np.uint32)))


def _same_logits(ref: Sequence[Step], dut: Sequence[Step]) -> bool:
    return len(ref) == len(dut) and not any(map(_logits_differ, ref, dut))


def _alike(ref: Sequence[Step], dut: Sequence[Step]) -> bool:
    """Whether two runs of a sequence gave the same keys and logits, bit for bit."""
    if not _same_logits(ref, dut):
        return False
    pairs = zip(ref, dut, strict=True)
    return all(one.entries == other.entries for one, other in pairs)
