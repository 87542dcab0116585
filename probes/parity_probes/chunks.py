"""Chunks: a prompt prefilled in pieces has the bits of single steps, whatever the pieces.

Compared: every key of the prompt, the state afterwards, and further steps, for chunks fed through
``prefill`` and, where the engine has rows, as the rows of one forward each. It would break where a
chunk's border changes a prefix or an order. It says nothing about M rows in decoding: ``isodiff``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parity.errors import InputError
from parity.model.model import Model
from parity.protocol import Injection, Plan, Step
from parity.runs.probe import Ask, Fed, Found, OpenSide, Planted
from parity.runs.run import Side
from parity.status import Verdict
from parity_probes.blocks import (
    Judged,
    Outcome,
    Singles,
    cause_of,
    control,
    judge,
    listed,
    plan_for,
    read_state,
    run_singles,
    seed_of,
    write_over,
)

PROMPT = 65  # one more than a power of two: chunks of 64, 32 and 16 leave one token over
Feed = Callable[[list[int], Plan], Sequence[Step]]


@dataclass(frozen=True)
class _Problem:
    size: int
    way: str
    what: str
    first: str | None
    verdict: Verdict
    cause: str = ""


@dataclass
class _Tally:
    """What all sizes together gave. ``calls``: way to calls for the prompt in the last size.
    ``ran``: sizes that one way at least did not refuse."""

    keys: int = 0
    equal: int = 0
    problems: list[_Problem] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    ways: tuple[str, ...] = ()
    refused: list[str] = field(default_factory=list)
    ran: set[int] = field(default_factory=set)
    control: str = ""
    fed: list[Fed] = field(default_factory=list)
    seed: int = 0


class Chunks:
    """Probe ``chunks``."""

    name = "chunks"
    claim = "a prompt prefilled in pieces has the bits of single steps"
    needs: Sequence[str] = ("state",)

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every chunk size, way and seed; no further seed after a problem."""
        tally = _Tally()
        for model in ask.models:
            tally.seed = seed_of(model)
            _run_model(open_side, model, ask, tally)
            if tally.problems:
                break
        found = _found(self.name, ask, tally)
        found.fed = tally.fed
        if tally.control:
            told = Planted("a planted fault", tally.control.startswith("fired"), tally.control)
            found.controls = [told]
        return found


def _run_model(open_side: OpenSide, model: Model, ask: Ask, tally: _Tally) -> None:
    """One seed. A function of its own: its model is let go before the next one is loaded."""
    case = _Case(open_side, model, ask)
    tally.ways = tuple(case.ways)
    ref = case.singles.outcome(0, PROMPT, ask.more)
    last: tuple[str, int] | None = None  # way and size of the last run
    for size in ask.chunks:
        for way in case.ways:
            case.side.progress(f"chunks of {size}, {way}", tally.keys, case.expected)
            try:
                judged = judge(ref, case.run(way, size, case.plan))
            except InputError as refusal:  # more rows than one forward can have
                tally.refused.append(f"{size} by {way}: {refusal.message}")
                tally.fed.append(Fed(tally.seed, size, way, refused=refusal.message))
                continue
            tally.calls[way], last = case.calls, (way, size)
            tally.ran.add(size)
            equal = sum(t.counts.same for t in (judged.keys, judged.further) if t)
            tally.keys += judged.compared
            tally.equal += equal
            problem = _note(case.side, tally, size, way, judged)
            tally.fed.append(Fed(tally.seed, size, way, judged.compared, equal, problem))
    if last is not None and not tally.problems and not tally.control:
        tally.control = case.control(ref, *last)


class _Case:
    """One seed's model: its single steps, and the ways to feed a chunk."""

    def __init__(self, open_side: OpenSide, model: Model, ask: Ask) -> None:
        self.ask, self.model = ask, model
        self.calls: int  # for the prompt in the last run
        self.side = open_side(model, PROMPT + ask.more)
        self.engine: Any = self.side.engine
        self.plan = plan_for(model.config)
        tokens = ask.tokens(model, PROMPT + ask.more)
        self.singles = Singles(self.side, tokens, {0, PROMPT}, self.plan)
        self.ways: dict[str, Feed] = {"prefill": self.engine.prefill}
        if self.side.has("rows"):
            self.ways["rows"] = self._rows

    @property
    def expected(self) -> int:
        """Keys that all runs compare."""
        runs = len(self.ask.chunks) * len(self.ways) * len(self.ask.models)
        return runs * sum(len(step.entries) for step in self.singles.steps)

    def count(self) -> int:
        """Calls so far, 0 where the engine does not count."""
        return sum(self.engine.counters().values()) if self.side.has("counters") else 0

    def run(self, way: str, size: int, plan: Plan) -> Outcome:
        """The prompt in chunks of ``size``, over garbage, then further single steps."""
        write_over(self.side, self.singles.state(0), PROMPT + self.ask.more)
        self.engine.reset()
        tokens, before = self.singles.tokens, self.count()
        steps: list[Step] = []
        for at in range(0, PROMPT, size):
            steps += self.ways[way](tokens[at : min(at + size, PROMPT)], plan)
        self.calls = self.count() - before
        state = read_state(self.side)
        return Outcome(steps, state, run_singles(self.side, tokens[PROMPT:], self.plan))

    def control(self, ref: Outcome, way: str, size: int) -> str:
        """Move one element somewhere in the prompt, fed in this way."""

        def again(fault: Injection | None) -> Sequence[Step]:
            return self.run(way, size, plan_for(self.model.config, inject=fault)).steps

        return control(self.side, ref.steps, seed_of(self.model), again).text

    def _rows(self, chunk: list[int], plan: Plan) -> Sequence[Step]:
        """A chunk of one token is a single step."""
        if len(chunk) == 1:
            return [self.engine.step(chunk[0], plan)]
        steps: Sequence[Step] = self.engine.step_rows(chunk, plan)
        return steps


def _note(side: Side, tally: _Tally, size: int, way: str, judged: Judged) -> str:
    """What is wrong with a run, "" for nothing."""
    for tree, where in ((judged.keys, ""), (judged.further, "a further step differs, ")):
        if tree is not None and tree.verdict is not Verdict.SAME:
            what = f"{where}first key {tree.first}" if tree.first else tree.reason
            cause = cause_of(side, judged, 0, PROMPT) if tree.first else ""
            tally.problems.append(_Problem(size, way, what, tree.first, tree.verdict, cause))
            return what
    if judged.state.equal:
        return ""
    what = f"state differs, first at {judged.state.first}"
    tally.problems.append(_Problem(size, way, what, None, Verdict.DIVERGED))
    return what


def _found(name: str, ask: Ask, tally: _Tally) -> Found:
    sizes = listed(ask.chunks)
    verdict, headline = Verdict.SAME, f"chunks of {sizes}: {tally.equal:,} of {tally.keys:,} keys"
    calls = ", ".join(f"{way} {count:,}" for way, count in tally.calls.items() if count)
    facts = [
        ("prompt", f"{PROMPT} tokens, {len(ask.models)} seeds, {ask.more} further steps"),
        ("path", f"fed by {' and by '.join(tally.ways)}"),
    ]
    if calls:
        facts.append(("calls", f"for the prompt at the last size: {calls}"))
    facts += [("refused", text) for text in tally.refused]
    if tally.problems:
        return _failed(name, tally, facts)
    if idle := [size for size in ask.chunks if size not in tally.ran]:
        headline = f"chunks of {listed(idle)}: not run, refused in every way"
        return Found(name, Verdict.NOT_RUN, headline, facts, compared=tally.keys, brief=headline)
    if not tally.control.startswith("fired"):
        verdict, headline = Verdict.NOT_RUN, f"the control {tally.control}"
    else:
        headline += ", state equal"
    facts.append(("control", tally.control))
    return Found(name, verdict, headline, facts, compared=tally.keys, brief=headline)


def _failed(name: str, tally: _Tally, facts: list[tuple[str, str]]) -> Found:
    """The smallest chunk that differs; a difference comes before what could not be compared."""
    problem = min(tally.problems, key=lambda one: (one.verdict is not Verdict.DIVERGED, one.size))
    headline = f"chunks of {problem.size}, fed by {problem.way}: {problem.what}"
    if problem.first is not None:
        facts = [("cause", problem.cause), *facts]
    return Found(
        *(name, problem.verdict, headline, facts),
        first=problem.first,
        failing=f"--chunks {problem.size} --seed {tally.seed}",
        compared=tally.keys,
        brief=headline,
    )
