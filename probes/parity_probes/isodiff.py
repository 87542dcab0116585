"""ISODIFF: row m of a forward of M rows has the bits of M single steps.

Compared: full logits as uint32, every key, the state afterwards (KV rows, scales, S, hist,
lengths), further steps from either state, and the logits without a tap. It would break where a
kernel's order depends on M, where a row sees the wrong prefix, or where rows share what they must
not. It does not show that either is right: that is what ``diff`` against the reference is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parity.comparison.elements import compare_tensors
from parity.explain.orders import rows_facts
from parity.keys import Key
from parity.model.model import Model
from parity.protocol import Injection, Plan, Step
from parity.runs.probe import Ask, Block, Cost, Found, Moved, OpenSide, Planted, Size
from parity.runs.run import greedy
from parity.status import Verdict
from parity.tree import KeyState, Tree
from parity_probes.blocks import (
    Fired,
    Judged,
    Outcome,
    Singles,
    cause_of,
    compare_steps,
    control,
    differing_logits,
    judge,
    listed,
    plan_for,
    run_rows,
    run_singles,
    seed_of,
    state_text,
    write_over,
)
from parity_probes.costs import cost_of, measure, path_text, speed_text
from parity_probes.moves import Moves, calls_text, key_size, move_facts, telling_plan

ROWS = "rows"  # how a block is run: as rows of one forward


@dataclass(frozen=True)
class Problem:
    """A block that is not equal.

    ``what`` differs in it; ``first``: tag of the first differing key, if one does. ``differ``:
    columns whose logits differ. ``judged``: None where the logits differ without a tap alone.
    """

    size: int
    start: int
    what: str
    first: str | None = None
    verdict: Verdict = Verdict.DIVERGED
    differ: tuple[int, ...] = ()
    judged: Judged | None = None

    @property
    def where(self) -> str:
        """``pos 36, col 3``."""
        column = f", col {self.differ[0]}" if self.differ else ""
        return f"pos {self.start}{column}"


@dataclass
class _Tally:
    """What all blocks together gave. ``tried``: sizes that were run, asked for or not."""

    lines: list[str] = field(default_factory=list)
    columns: int = 0
    equal_columns: int = 0
    keys: int = 0
    equal_keys: int = 0
    logits: int = 0
    differing: int = 0
    problems: list[Problem] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)
    costs: dict[int, Cost] = field(default_factory=dict)
    parts: str = ""
    controls: list[Fired] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    unstable: str = ""
    seed: int = 0
    moves: Moves = field(default_factory=Moves)
    moved: Moved | None = None
    cause: str = ""
    calls: str = ""
    orders: list[tuple[str, str]] = field(default_factory=list)

    @property
    def worst(self) -> Problem | None:
        """What to report: a difference before what could not be compared, then the smallest M."""
        return min(
            self.problems,
            key=lambda one: (one.verdict is not Verdict.DIVERGED, one.size, one.start),
            default=None,
        )


class Isodiff:
    """Probe ``isodiff``."""

    name = "isodiff"
    claim = "row m of a forward of M rows has the bits of M single steps"
    needs: Sequence[str] = ("rows", "state", "counters")

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every M at every start, then the control, seed by seed; none after a problem."""
        tally = _Tally()
        for model in ask.models:
            _run_model(open_side, model, ask, tally)
            if tally.problems:
                break
        return _found(self.name, ask, tally)


def _run_model(open_side: OpenSide, model: Model, ask: Ask, tally: _Tally) -> None:
    """One seed. A function of its own: its model is let go before the next one is loaded."""
    case = _Case(open_side, model, ask, tally)
    for size in ask.sizes:
        for start in ask.starts:
            case.block(size, start)
        case.measure(size, ask.starts[0])
    problem, tally.seed = tally.worst, seed_of(model)
    if problem is None:
        tally.controls.append(case.control())
        fired = tally.controls[-1]
        tally.planted.append(
            Planted(f"a planted fault, seed {tally.seed}", fired.fired, fired.text)
        )
    elif problem.verdict is Verdict.DIVERGED:
        case.search_smaller(problem)
        problem = tally.worst or problem
        tally.unstable = case.unstable(problem)
        case.tell(problem)


class _Case:
    """One seed's model: its single steps, and blocks of rows held against them."""

    def __init__(self, open_side: OpenSide, model: Model, ask: Ask, tally: _Tally) -> None:
        self.model, self.ask, self.tally = model, ask, tally
        tally.moves.real_ids = model.config.real_ids
        self.room = max(ask.starts) + max(ask.sizes) + ask.more
        self.side = open_side(model, self.room)
        self.plan = plan_for(model.config)
        tokens = ask.tokens(model, self.room)
        keep = {start + count for start in ask.starts for count in (0, *ask.sizes)}
        self.singles = Singles(self.side, tokens, keep, self.plan)

    def rows(self, size: int, start: int, more: int, plan: Plan) -> Outcome:
        """A block as rows of one forward, then ``more`` single steps."""
        end, tokens = start + size, self.singles.tokens
        state = self.singles.state(start)
        block, further = tokens[start:end], tokens[end : end + more]
        return run_rows(self.side, state, block, further, plan, self.room)

    def block(self, size: int, start: int) -> None:
        """Run one block that was asked for; count it and publish its columns."""
        tally = self.tally
        total = sum(self.ask.sizes) * len(self.ask.starts) * len(self.ask.models)
        keys = len(self.singles.steps[0].entries)
        self.side.progress(f"M {size} pos {start}", tally.keys, total * keys)
        ref = self.singles.outcome(start, size, self.ask.more)
        dut = self.rows(size, start, self.ask.more, self.plan)
        judged = self._judge(size, start, ref, dut, asked=True)
        _publish(ref, dut, start, tally, self.model.config.real_ids)
        tally.parts = tally.parts or state_text(judged.state)
        if judged.keys is not None:
            tally.keys += judged.keys.counts.total
            tally.equal_keys += judged.keys.counts.same

    def _judge(
        self, size: int, start: int, ref: Outcome, dut: Outcome, *, asked: bool = False
    ) -> Judged:
        judged, differ = judge(ref, dut), differing_columns(ref.steps, dut.steps)
        what, first, verdict = _wrong(judged, differ)
        self.tally.tried.add(size)
        self.tally.blocks.append(
            Block(
                seed=seed_of(self.model),
                m=size,
                pos=start,
                how=ROWS,
                verdict=verdict,
                logits=_differing_counts(ref.steps, dut.steps),
                keys=_keys_by_row(judged.keys, start, size),
                state=judged.state.first or "",
                further="" if judged.further is None else judged.further.first or "",
                first=first,
                asked=asked,
            )
        )
        if what:
            problem = Problem(size, start, what, first, verdict, tuple(differ), judged)
            self.tally.problems.append(problem)
        return judged

    def measure(self, size: int, start: int) -> None:
        """Calls and time without a tap; the tap must not change the logits."""
        block = self.singles.tokens[start : start + size]
        rows, singles = measure(self.side, self.singles.state(start), block, self.room)
        self.tally.costs.setdefault(size, cost_of(size, rows, singles))
        tapped = self.singles.steps[start : start + size]
        for what, timed in ((ROWS, rows), ("single steps", singles)):
            differ = differing_columns(tapped, timed.steps)
            self.tally.blocks.append(
                Block(
                    seed=seed_of(self.model),
                    m=size,
                    pos=start,
                    how=f"{what} without a tap",
                    verdict=Verdict.DIVERGED if differ else Verdict.SAME,
                    logits=_differing_counts(tapped, timed.steps),
                )
            )
            if differ:
                text = f"the logits of {what} without a tap differ from single steps with one"
                self.tally.problems.append(Problem(size, start, text, differ=tuple(differ)))

    def control(self) -> Fired:
        """Move one element of a random row of the largest block."""
        size, start = max(self.ask.sizes), self.ask.starts[0]
        ref = self.singles.outcome(start, size, 0)

        def again(fault: Injection | None) -> Sequence[Step]:
            return self.rows(size, start, 0, plan_for(self.model.config, inject=fault)).steps

        return control(self.side, ref.steps, seed_of(self.model), again)

    def search_smaller(self, failed: Problem) -> None:
        """Try every smaller M that was not asked for, at the same start, until one fails too."""
        start, more = failed.start, self.ask.more
        for size in range(2, failed.size):
            if size not in self.tally.tried:
                ref = self.singles.outcome(start, size, more)
                self._judge(size, start, ref, self.rows(size, start, more, self.plan))
                if failed.judged is None:
                    self.measure(size, start)
            if any(problem.size == size for problem in self.tally.problems):
                return

    def unstable(self, found: Problem) -> str:
        """What differs from itself in a second run: rows, or single steps; or nothing."""
        size, start, more = found.size, found.start, self.ask.more
        first, second = (self.rows(size, start, more, self.plan) for _ in range(2))
        if _wrong(judge(first, second), [])[2] is Verdict.DIVERGED:
            return f"{size} rows at pos {start} differ between two runs"
        ref = self.singles.outcome(start, size, more)
        again = _wrong(judge(ref, first), differing_columns(ref.steps, first.steps))[0]
        if found.judged is not None and again != found.what:
            return f"{size} rows at pos {start}: what differed did not come back in a second run"
        write_over(self.side, self.singles.state(start), self.room)
        steps = run_singles(self.side, self.singles.tokens[start : start + size], self.plan)
        tree = compare_steps(ref.steps, steps)
        if tree.verdict is Verdict.DIVERGED:
            return f"single steps differ between two runs, first at {tree.first}"
        return ""

    def tell(self, found: Problem) -> None:
        """How far what differs moved, and the op behind the first key of a stable difference."""
        first: Size | None = None
        if not self.tally.unstable and found.first is not None and found.judged is not None:
            self.tally.cause = cause_of(self.side, found.judged, found.start, found.size)
            first = self._first_size(found, found.first)
            self.tally.orders = rows_facts(self.side.engine, found.first, found.size)
        self.tally.moved = self.tally.moves.told(first)

    def _first_size(self, found: Problem, tag: str) -> Size | None:
        """The block once more, keeping the first key's values."""
        size, start, more = found.size, found.start, self.ask.more
        plan = telling_plan(self.plan, tag, self.side)
        dut = self.rows(size, start, 0, plan)
        dut.steps.extend(run_singles(self.side, self.singles.tokens[start + size :][:more], plan))
        write_over(self.side, self.singles.state(start), self.room)
        ref = run_singles(self.side, self.singles.tokens[start : start + size + more], plan)
        self.tally.calls = calls_text(tag, ref, dut.steps)
        return key_size(tag, ref, dut.steps)


def differing_columns(ref: Sequence[Step], dut: Sequence[Step]) -> list[int]:
    """Columns whose logits differ as uint32, or that the dut lacks."""
    return [
        col
        for col, single in enumerate(ref)
        if col >= len(dut) or len(differing_logits(single.logits, dut[col].logits))
    ]


def _differing_counts(ref: Sequence[Step], dut: Sequence[Step]) -> list[int | None]:
    """Logits that differ as uint32 in each column; None for one that the dut lacks."""
    return [
        len(differing_logits(single.logits, dut[col].logits)) if col < len(dut) else None
        for col, single in enumerate(ref)
    ]


def _keys_by_row(keys: Tree | None, start: int, size: int) -> list[int]:
    """Keys that are not the same, row by row of a block."""
    counts = [0] * size
    for row in keys.keys if keys is not None else ():
        at = Key.parse(row.key).pos - start
        if row.state != KeyState.SAME and 0 <= at < size:
            counts[at] += 1
    return counts


def _wrong(judged: Judged, differ: Sequence[int]) -> tuple[str, str | None, Verdict]:
    """What is wrong with one block, the first key, and the verdict; "" where nothing is."""
    keys, further = judged.keys, judged.further
    if keys is None or keys.verdict is Verdict.NOT_RUN:
        return keys.reason if keys is not None else "no steps", None, Verdict.NOT_RUN
    if keys.verdict is not Verdict.SAME:
        return f"first key {keys.first}, {_how(keys)}", keys.first, Verdict.DIVERGED
    if differ:
        return "the keys are equal, the logits returned are not", None, Verdict.DIVERGED
    if not judged.state.equal:
        return f"state differs, first at {judged.state.first}", None, Verdict.DIVERGED
    if further is not None and further.verdict is Verdict.DIVERGED:
        return f"a further step differs, first key {further.first}", further.first, further.verdict
    return "", None, Verdict.SAME


def _how(keys: Tree) -> str:
    """Every key before the first is equal and so is the start: a value is born where it differs."""
    state = next(row.state for row in keys.keys if row.state != KeyState.SAME)
    return "born here" if state == KeyState.DIFFERS else f"{state} in the rows"


def _publish(ref: Outcome, dut: Outcome, start: int, tally: _Tally, real_ids: int) -> None:
    """The line of each column."""
    for col, (single, row) in enumerate(zip(ref.steps, dut.steps, strict=False)):
        where = differing_logits(single.logits, row.logits)
        line = (
            f"[SPECTOP1] pos={start} col={col} top1={greedy(row.logits, real_ids)} "
            f"[ISOTOP1] col={col} {greedy(single.logits, real_ids)} "
            f"[ISODIFF] col={col} ndiff={len(where)}"
        )
        if len(where):
            line += _first_difference(single.logits, row.logits, int(where[0]))
        tally.lines.append(line)
        tally.differing += len(where)
        tally.moves.add(f"t{start + col}, row {col} of {len(ref.steps)}", single, row)
    tally.columns += len(ref.steps)
    tally.equal_columns += len(ref.steps) - len(differing_columns(ref.steps, dut.steps))
    tally.logits += sum(step.logits.size for step in ref.steps)


def _first_difference(ref: np.ndarray, dut: np.ndarray, at: int) -> str:
    element = compare_tensors("logits", ref[at : at + 1], dut[at : at + 1]).rows[0]
    ulp = "none" if element.ulp is None else str(abs(element.ulp))
    return f" first={at} ref={element.ref_hex} dut={element.dut_hex} ulp={ulp}"


def _found(name: str, ask: Ask, tally: _Tally) -> Found:
    problem = tally.worst
    found = _passed(name, ask, tally) if problem is None else _failed(name, tally, problem)
    found.lines, found.compared = tally.lines, tally.keys
    found.blocks, found.controls = _blocks(tally, problem), tally.planted
    found.costs = list(tally.costs.values())
    return found


def _blocks(tally: _Tally, problem: Problem | None) -> list[Block]:
    """All blocks; the one that the verdict tells of is marked."""
    if problem is None:
        return tally.blocks
    tapped = problem.judged is not None
    telling = next(
        block
        for block in tally.blocks
        if (block.m, block.pos, block.verdict) == (problem.size, problem.start, problem.verdict)
        and (block.how == ROWS) == tapped
    )
    return [replace(one, telling=True) if one is telling else one for one in tally.blocks]


def _passed(name: str, ask: Ask, tally: _Tally) -> Found:
    """Every column equal: the same, if rows were batched and the control fired."""
    sizes = listed(ask.sizes)
    columns = f"{tally.equal_columns:,} of {tally.columns:,} columns"
    keys = f"{tally.equal_keys:,} of {tally.keys:,} keys"
    verdict, headline = Verdict.SAME, f"M = {sizes}: {columns}, {keys}"
    brief = f"M {sizes}, {columns}, state equal, control fired"
    looped = [m for m, cost in tally.costs.items() if m > 1 and not cost.batched]
    if looped or max(ask.sizes) == 1:
        what = f"M = {listed(looped or ask.sizes)}"
        verdict = Verdict.NOT_RUN
        headline = brief = f"{what}: as many calls as single steps: nothing was batched"
    elif dead := [control for control in tally.controls if not control.fired]:
        verdict = Verdict.NOT_RUN
        headline = brief = f"the control {dead[0].text}"
    return Found(name, verdict, headline, _facts(ask, tally), brief=brief)


def _failed(name: str, tally: _Tally, problem: Problem) -> Found:
    """A problem: the smallest M, the first key, and the op behind it."""
    headline = f"M = {problem.size}, {problem.where}; {problem.what}"
    brief = f"M {problem.size}, {problem.where}, {problem.what.removeprefix('first key ')}"
    verdict, facts = problem.verdict, []
    if tally.unstable:
        verdict, headline = Verdict.UNSTABLE, f"{tally.unstable}; at first {headline}"
        brief = tally.unstable
    facts += [("cause", tally.cause)] if tally.cause else []
    facts += [("calls", tally.calls)] if tally.calls else []
    facts += tally.orders
    facts += _failed_facts(tally, problem)
    failing = f"--m {problem.size} --pos {problem.start}:{problem.start} --seed {tally.seed}"
    found = Found(name, verdict, headline, facts, first=problem.first, failing=failing, brief=brief)
    found.smallest, found.moved = problem.size, tally.moved
    return found


def _failed_facts(tally: _Tally, problem: Problem) -> list[tuple[str, str]]:
    failing = {one.size for one in tally.problems}
    equal = [m for m in sorted(tally.tried) if m not in failing]
    note = f" ({listed(equal)} equal)" if equal else ""
    columns = f"{len(problem.differ)} of {problem.size} differ; smallest failing M: {problem.size}"
    facts = [("columns", f"{columns}{note}"), *move_facts(tally.moved)]
    if problem.judged is not None:
        facts.append(("state", state_text(problem.judged.state)))
    cost = tally.costs.get(problem.size) or tally.costs[max(tally.costs)]
    facts.append(("path", path_text(cost)))
    if problem.verdict is Verdict.DIVERGED:
        facts.append(("control", "not needed: the run is red by itself"))
    return facts


def _facts(ask: Ask, tally: _Tally) -> list[tuple[str, str]]:
    facts = [
        ("logits", f"{tally.differing:,} of {tally.logits:,} differ, as uint32"),
        ("state", f"{tally.parts}; {ask.more} further steps equal"),
        ("path", path_text(tally.costs[max(tally.costs)])),
        ("speed", speed_text(list(tally.costs.values()))),
        ("control", "; ".join(control.text for control in tally.controls)),
    ]
    last = max(ask.starts)
    rows = sorted({last - start for start in ask.starts if last - start < max(ask.sizes)})
    if len(rows) > 1:
        facts.insert(1, ("places", f"position {last} stood in rows {listed(rows)} of a block"))
    return facts
