"""Rollback: having tried M tokens and gone back leaves no trace.

A: single steps from a state. B: from the same state, mark, a draft of M rows, rollback, then the
first n of the tokens again and on from there, for every n of 0..M. The draft holds n right tokens
and M - n wrong ones. State right after the rollback, logits, keys, state and further steps must be
equal byte by byte, and the rules of contract 6 must hold: one-shot, a second mark replaces the
first, reset drops it, position 0 is allowed, without a mark nothing changes. It would break where
a part of the state is not restored. Controls with a part left out must be red, and a fault planted
in what was restored must be found at exactly its key, its part and its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity.comparison.states import compare_states
from parity.errors import ParityError
from parity.model.model import Model
from parity.protocol import Injection, Step
from parity.runs.probe import Ask, Draft, Found, Grid, OpenSide, Planted, Rule
from parity.runs.run import State
from parity.status import Verdict
from parity.tree import StateDiff
from parity_probes.blocks import (
    ROWS,
    Fired,
    Judged,
    Outcome,
    Singles,
    compare_steps,
    control,
    differing_logits,
    group_of,
    judge,
    listed,
    part_of,
    plan_for,
    read_state,
    run_singles,
    seed_of,
    state_control,
    write_over,
)

RULE = 0  # in place of M where a rule is broken whatever M
SHORT = 2  # further steps after accepting some, not all and not none, of a draft
CHAINED = (1, 0)  # what a chain of drafts accepts after accepting all of the first
COLUMNS = ("logits", "keys", "KV rows", "scales", "S", "lengths", "hist")


@dataclass(frozen=True)
class _Problem:
    """What differs, for which M; ``first``: tag of the first differing key, if one does."""

    size: int
    what: str
    first: str | None = None


@dataclass
class _Tally:
    """What all sizes together gave. ``table``: M to the columns that differ. ``controls``: name
    to whether it was red every time."""

    checks: int = 0
    rules: int = 0
    keys: int = 0
    problems: list[_Problem] = field(default_factory=list)
    table: dict[int, dict[str, str]] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)
    controls: dict[str, bool] = field(default_factory=dict)
    fired: list[Fired] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    held: list[Rule] = field(default_factory=list)
    seed: int = 0


class Rollback:
    """Probe ``rollback``."""

    name = "rollback"
    claim = "mark, M rows, rollback leaves every bit as if they had never been tried"
    needs: Sequence[str] = ("rows", "rollback", "state")

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every M at the first start and every seed; no further seed after a problem."""
        tally = _Tally()
        for model in ask.models:
            tally.seed = seed_of(model)
            _run_model(open_side, model, ask, tally)
            if tally.problems:
                break
        return _found(self.name, ask, tally)


def _run_model(open_side: OpenSide, model: Model, ask: Ask, tally: _Tally) -> None:
    """One seed. A function of its own: its model is let go before the next one is loaded."""
    case = _Case(open_side, model, ask, tally)
    for size in sorted(ask.sizes):
        tried = case.accept(size, 0)
        for accept in range(1, size + 1):
            case.accept(size, accept)
        case.controls(size, tried)
    if not tally.problems:  # they rest on what was just found to hold
        case.chain(max(ask.sizes))
        case.unused_rows(max(ask.sizes))
        case.rules()
    if not tally.problems:
        tally.fired += case.planted(max(ask.sizes))


class _Case:
    """One seed's model: its single steps, and drafts tried and taken back."""

    def __init__(self, open_side: OpenSide, model: Model, ask: Ask, tally: _Tally) -> None:
        self.ask, self.tally = ask, tally
        self.start, largest = ask.starts[0], max(ask.sizes)
        self.room = self.start + 2 * largest + sum(CHAINED)
        self.room = max(self.room, self.start + largest + ask.more)
        self.side = open_side(model, self.room)
        self.engine: Any = self.side.engine
        self.plan, self.ids = plan_for(model.config), model.config.ids
        self.tokens = ask.tokens(model, self.room)
        needed = self.start + largest + max(ask.more, sum(CHAINED))
        keep = {0, *range(self.start, self.start + largest + 1)}
        self.singles = Singles(self.side, self.tokens[:needed], keep, self.plan)

    def draft(self, start: int, size: int, right: int) -> list[int]:
        """``right`` tokens of the sequence, then wrong ones."""
        tokens = self.tokens[start : start + size]
        wrong = [(token + 1) % self.ids for token in tokens[right:]]
        return [*tokens[:right], *wrong]

    def accept(self, size: int, accept: int) -> State:
        """Try a draft, go back, take ``accept`` again and go on; the state the draft left."""
        start, tokens = self.start, self.tokens
        more = self.ask.more if accept in (0, size) else min(SHORT, self.ask.more)
        self.side.progress(f"M {size} accept {accept}", self.tally.keys, self._expected())
        write_over(self.side, self.singles.state(start), self.room)
        self.engine.mark()
        self.engine.step_rows(self.draft(start, size, accept))
        tried = read_state(self.side) if accept == 0 else {}
        self.engine.rollback()
        back = compare_states("end", self.singles.state(start), read_state(self.side))
        if any(part.name == "lengths" and part.differ for part in back.parts):
            nothing = Outcome([], self.singles.state(start))
            self._check(size, f"accept {accept}", nothing, nothing, back)
            return tried  # single steps would stand at other positions
        steps = run_singles(self.side, tokens[start : start + accept], self.plan)
        state = read_state(self.side)
        end = start + accept
        dut = Outcome(steps, state, run_singles(self.side, tokens[end : end + more], self.plan))
        self._check(size, f"accept {accept}", self.singles.outcome(start, accept, more), dut, back)
        return tried

    def _expected(self) -> int:
        """Keys that all drafts compare, or nearly."""
        more = 2 * self.ask.more
        steps = sum(more + (m - 1) * SHORT + m * (m + 1) // 2 for m in self.ask.sizes)
        return steps * len(self.singles.steps[0].entries) * len(self.ask.models)

    def _check(
        self, size: int, what: str, ref: Outcome, dut: Outcome, back: StateDiff | None = None
    ) -> None:
        tally, judged = self.tally, judge(ref, dut)
        tally.checks += 1
        tally.keys += judged.compared
        cells = _cells(judged, back, ref, dut)
        tally.columns |= cells.keys()
        row = tally.table.setdefault(size, {})
        row.update({name: text for name, text in cells.items() if text or name not in row})
        wrong, first = _wrong(judged, back)
        tally.drafts.append(Draft(tally.seed, size, what, cells, wrong))
        if wrong:
            tally.problems.append(_Problem(size, f"{what}: {wrong}", first))

    def controls(self, size: int, tried: State) -> None:
        """Single steps from what faulty rollbacks would leave: they must differ."""
        start = self.start
        ref = self.singles.steps[start : start + size]
        for name, spoiled in _spoiled(self.singles.state(start), tried):
            write_over(self.side, spoiled, self.room)
            tokens = self.tokens[start : start + size]
            tree = compare_steps(ref, run_singles(self.side, tokens, self.plan))
            red = tree.verdict is not Verdict.SAME
            self.tally.controls[name] = self.tally.controls.get(name, True) and red

    def planted(self, size: int) -> Iterator[Fired]:
        """The control of this run: one element moved in a step after a draft was taken back, then
        one in the state that came back."""
        start, seed = self.start, self.tally.seed
        tokens, ref = self.tokens[start : start + size], self.singles.steps[start : start + size]

        def again(fault: Injection | None) -> Sequence[Step]:
            self._take_back(size)
            return [self.engine.step(token, replace(self.plan, inject=fault)) for token in tokens]

        yield control(self.side, ref, seed, again)
        self._take_back(size)
        if not any(array.size for name, array in self.singles.state(start).items() if "_" in name):
            run_singles(self.side, tokens, self.plan)  # nothing stands before position 0
            start += size
        yield state_control(self.side, self.singles.state(start), seed)

    def _take_back(self, size: int) -> None:
        """A draft of wrong tokens, tried and taken back."""
        write_over(self.side, self.singles.state(self.start), self.room)
        self.engine.mark()
        self.engine.step_rows(self.draft(self.start, size, 0))
        self.engine.rollback()

    def chain(self, size: int) -> None:
        """Drafts one after the other, each with a mark of its own, as a decoder would."""
        at, steps = self.start, []
        write_over(self.side, self.singles.state(at), self.room)
        for accept in (size, *CHAINED):
            self.engine.mark()
            self.engine.step_rows(self.draft(at, size, accept))
            self.engine.rollback()
            steps += run_singles(self.side, self.tokens[at : at + accept], self.plan)
            at += accept
        dut = Outcome(steps, read_state(self.side))
        ref = self.singles.outcome(self.start, at - self.start, 0)
        self._check(size, "three drafts in a row", ref, dut)

    def unused_rows(self, size: int) -> None:
        """Every other check stands over NaN; the same over zeros."""
        start = self.start
        write_over(self.side, self.singles.state(start), self.room, np.zeros_like)
        tokens = self.tokens[start : start + size]
        dut = Outcome(run_singles(self.side, tokens, self.plan), read_state(self.side))
        self._check(size, "unused rows zero", self.singles.outcome(start, size, 0), dut)

    def rules(self) -> None:
        """What contract 6 says of mark and rollback, whatever M."""
        size, state = min(self.ask.sizes), self.singles.state(self.start)
        write_over(self.side, state, self.room)
        self._refused("rollback without a mark", state)
        self._refused("the same after a draft", self._drafted(size, back=False))
        self._refused("a second rollback", self._drafted(size, back=True))
        self._second_mark(size)
        self.engine.mark()
        self.engine.reset()
        self._refused("rollback after a reset", self.singles.state(0))
        self._from_zero(size)

    def _drafted(self, size: int, *, back: bool) -> State:
        """The state after a draft, or after it was taken back; the mark is used up."""
        self.engine.reset()
        write_over(self.side, self.singles.state(self.start), self.room)
        if back:
            self.engine.mark()
        self.engine.step_rows(self.draft(self.start, size, 0))
        if back:
            self.engine.rollback()
        return read_state(self.side)

    def _refused(self, what: str, state: State) -> None:
        """A rollback that has no mark must raise ParityError and leave ``state`` as it is."""
        refused = False
        try:
            self.engine.rollback()
        except ParityError:
            refused = True
        after = compare_states("end", state, read_state(self.side))
        self._rule(what, "was not refused" if not refused else "", after)

    def _second_mark(self, size: int) -> None:
        start = self.start
        write_over(self.side, self.singles.state(start), self.room)
        self.engine.mark()
        self.engine.step(self.tokens[start])
        self.engine.mark()
        self.engine.step_rows(self.draft(start + 1, size, 0))
        self.engine.rollback()
        back = compare_states("end", self.singles.state(start + 1), read_state(self.side))
        self._rule("a second mark replaces the first", "", back)

    def _from_zero(self, size: int) -> None:
        self.engine.reset()
        try:
            self.engine.mark()
        except ParityError as refusal:
            nothing = compare_states("end", {}, {})
            self._rule("a mark at position 0", f"was refused: {refusal.message}", nothing)
            return
        self.engine.step_rows(self.draft(0, size, 0))
        self.engine.rollback()
        back = compare_states("end", self.singles.state(0), read_state(self.side))
        self._rule("a mark at position 0", "", back)
        steps = run_singles(self.side, self.tokens[:size], self.plan)
        dut = Outcome(steps, read_state(self.side))
        self._check(size, "from position 0", self.singles.outcome(0, size, 0), dut)

    def _rule(self, what: str, wrong: str, state: StateDiff) -> None:
        self.tally.rules += 1
        if not wrong and not state.equal:
            wrong = f"state differs, first at {state.first}"
        self.tally.held.append(Rule(self.tally.seed, what, wrong))
        if wrong:
            self.tally.problems.append(_Problem(RULE, f"{what}: {wrong}"))


def _wrong(judged: Judged, back: StateDiff | None) -> tuple[str, str | None]:
    """What is wrong with one check and the first key; "" where nothing is."""
    if back is not None and not back.equal:
        return _not_restored(back), _first_of(judged)
    if judged.keys is not None and judged.keys.verdict is not Verdict.SAME:
        return f"first key {judged.keys.first}", judged.keys.first
    if not judged.state.equal:
        return f"state differs, first at {judged.state.first}", None
    if judged.further is not None and judged.further.verdict is not Verdict.SAME:
        return f"a further step differs, first key {judged.further.first}", judged.further.first
    return "", None


def _first_of(judged: Judged) -> str | None:
    firsts = [tree.first for tree in (judged.keys, judged.further) if tree is not None]
    return next((first for first in firsts if first is not None), None)


def _not_restored(back: StateDiff) -> str:
    """``hist of layer 62 was not restored``, with the count of further parts."""
    wrong = [part.name for part in back.parts if part.differ]
    layer, _, part = wrong[0].partition("_")
    what = f"{part} of layer {layer.removeprefix('l')}" if part else wrong[0]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{what}{more} was not restored"


def _cells(judged: Judged, back: StateDiff | None, ref: Outcome, dut: Outcome) -> dict[str, str]:
    """Columns of the table to "" where equal, else what they show."""
    cells: dict[str, str] = {}
    for state in (judged.state, *([back] if back is not None else [])):
        for part in state.parts:
            group = group_of(part.name)
            cells[group] = cells.get(group, "") or ("DIFF" if part.differ else "")
    pairs = [*zip(ref.steps, dut.steps, strict=False), *zip(ref.further, dut.further, strict=False)]
    if pairs:
        differ = [len(differing_logits(one.logits, other.logits)) > 0 for one, other in pairs]
        cells["logits"] = "DIFF" if any(differ) else ""
        same = all(t is None or t.verdict is Verdict.SAME for t in (judged.keys, judged.further))
        cells["keys"] = "" if same else "DIFF"
    if ref.further:
        cells["further"] = _further_cell(ref, dut)
    return cells


def _further_cell(ref: Outcome, dut: Outcome) -> str:
    for number, (one, other) in enumerate(zip(ref.further, dut.further, strict=False), 1):
        if compare_steps([one], [other]).verdict is not Verdict.SAME:
            return f"DIFF at step {number}"
    return ""


def _spoiled(start: State, tried: State) -> Iterator[tuple[str, State]]:
    """States as faulty rollbacks would leave them, by the name of the fault."""
    whole = [name for name in start if part_of(name) not in (*ROWS, "lengths")]
    for part in dict.fromkeys(part_of(name) for name in whole):
        left = {name: tried[name] for name in whole if part_of(name) == part}
        yield f"no {group_of(f'l0_{part}')}", {**start, **left}
    yield "length kept", {**tried, **{name: start[name] for name in whole}}
    if whole:
        layer = whole[-1].partition("_")[0]
        left = {name: tried[name] for name in whole if name.partition("_")[0] == layer}
        yield "one layer too few", {**start, **left}


def _found(name: str, ask: Ask, tally: _Tally) -> Found:
    sizes = listed(ask.sizes)
    green = [control for control, red in tally.controls.items() if not red]
    controls = f"{len(tally.controls) - len(green)} of {len(tally.controls)} red"
    checks = tally.checks + tally.rules
    headline = f"M = {sizes}: {checks:,} of {checks:,} checks, {tally.keys:,} keys"
    rest = f", three drafts in a row, unused rows, {tally.rules} rules" if tally.rules else ""
    facts = [
        ("checks", f"accept 0..M of M{rest}"),
        ("controls", f"{controls}: {', '.join(tally.controls)}"),
    ]
    if tally.fired:
        facts.append(("control", "; ".join(one.text for one in tally.fired)))
    grid = _grid(ask, tally)
    found = Found(name, Verdict.SAME, headline, facts, compared=tally.keys, table=_table(grid))
    found.grid, found.drafts, found.rules = grid, tally.drafts, tally.held
    found.controls = [
        Planted(what, red, "a faulty rollback, seen") if red else Planted(what, red, "not seen")
        for what, red in tally.controls.items()
    ]
    found.controls += [Planted("a planted fault", one.fired, one.text) for one in tally.fired]
    found.brief = f"M {sizes}, {checks:,} of {checks:,} checks, controls {controls}, control fired"
    dead = [one for one in tally.fired if not one.fired]
    if tally.problems:
        _fail(found, tally)
    elif green:
        found.verdict = Verdict.NOT_RUN
        found.headline = found.brief = (
            f"control {green[0]!r} was not red: a faulty rollback would not be seen"
        )
    elif dead or not tally.fired:
        found.verdict = Verdict.NOT_RUN
        found.headline = found.brief = f"the control {dead[0].text if dead else 'was not planted'}"
    return found


def _fail(found: Found, tally: _Tally) -> None:
    """The problem of the smallest M; a broken rule, which has none, comes last."""
    problem = min(tally.problems, key=lambda one: (one.size == RULE, one.size))
    found.verdict, found.first = Verdict.DIVERGED, problem.first
    found.headline = problem.what
    if problem.size != RULE:
        found.headline = f"M = {problem.size}, {problem.what}"
        found.failing = f"--m {problem.size} --seed {tally.seed}"
    found.brief = found.headline
    total = tally.checks + tally.rules
    found.facts.insert(0, ("differ", f"{len(tally.problems):,} of {total:,} checks"))


def _grid(ask: Ask, tally: _Tally) -> Grid:
    """One row an M: what is equal and what is not."""
    names = [name for name in COLUMNS if name in tally.columns]
    names += sorted(tally.columns - {*COLUMNS, "further"})
    heads = ["M", *names, f"{ask.more} further steps"]
    rows = [
        [str(size), *(_cell(row, name) for name in (*names, "further"))]
        for size, row in sorted(tally.table.items())
    ]
    return Grid(heads, rows)


def _table(grid: Grid) -> list[str]:
    lines = (grid.heads, *grid.rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _cell(row: dict[str, str], name: str) -> str:
    return row[name] or "equal" if name in row else "not run"
