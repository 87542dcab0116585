"""Equality of one seed: the candidate's single steps and rows against the base's single steps.

Single steps are compared by ``parity diff`` itself, prompt, states, weights and control included.
Then every M is passed twice over the same tokens with a tap, and once with a planted fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.errors import NotRunError
from parity.gate.passes import Course, Difference, Pass, difference, op_text, read_state, run_pass
from parity.gate.settings import seed_of
from parity.model.generator import words
from parity.protocol import Injection
from parity.runs.control import INTEGERS, dump_control
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.run import Run, Side
from parity.status import Verdict
from parity.tree import Control, Tree

PASSES = 2  # of every M: the candidate must also equal itself
SINGLE = 1  # M of single steps


@dataclass(frozen=True)
class Problem:
    """Why the candidate is refused.

    ``size``: M. ``first``: tag of the first differing key, or a part of the state; "" where
    another thing differs. ``cause``: the op behind that key. ``singly``: single steps showed it,
    which parity diff shows too.
    """

    seed: int
    size: int
    what: str
    first: str
    cause: str = ""
    singly: bool = False

    @property
    def text(self) -> str:
        """One line."""
        first = f", first {self.first}" if self.first else ""
        return f"seed {self.seed}, M = {self.size}: {self.what}{first}"


@dataclass(frozen=True)
class SizeResult:
    """What was compared of one M: keys and rows of logits of every pass, and the control."""

    seed: int
    size: int
    keys: int
    rows: int
    parts: int
    passes: int
    control: Control | None


@dataclass(frozen=True)
class Ground:
    """What the passes of one seed are held against: ``ref``, the base's single steps."""

    seed: int
    course: Course
    ref: Pass


@dataclass
class Seed:
    """One seed: what was compared, and the problem if there is one. ``tree``: single steps.
    ``ground``: None where those were refused, and once all has run. ``outputs``: SHA-256 of the
    logits and the end state that every pass with a tap must give."""

    seed: int
    tree: Tree
    sizes: list[SizeResult] = field(default_factory=list)
    problem: Problem | None = None
    ground: Ground | None = None
    outputs: str | None = None


def check_seed(base: Side, candidate: Side, run: Run, sizes: tuple[int, ...]) -> Seed:
    """Compare everything of one seed; stops at the first difference.

    NotRunError where nothing can be said of the candidate: the base does not equal itself, values
    are not finite, or a control did not fire.
    """
    seed = seed_of(run.model)
    tree = diff_engines(base, candidate, run, Ask(seed=seed))
    found = Seed(seed, tree, problem=_singles_problem(tree, seed, base))
    if found.problem is not None:
        return found
    ground = found.ground = _ground(base, tree, run)
    found.outputs = ground.ref.sha256()
    for size in sizes:
        outcome = _check_size(ground, base, candidate, size)
        if isinstance(outcome, Problem):
            found.problem = outcome
            return found
        found.sizes.append(outcome)
    return found


def _singles_problem(tree: Tree, seed: int, base: Side) -> Problem | None:
    if tree.verdict is Verdict.SAME:
        return None
    if tree.verdict is Verdict.NOT_RUN:
        reason, _, next_step = tree.reason.partition("\n")
        raise NotRunError(f"seed {seed}: {reason}", next_step)
    if tree.stability is not None and tree.stability.side == base.role:
        raise _unstable(base.spec, seed, tree.stability.key)
    if tree.verdict is Verdict.UNSTABLE:
        first = tree.stability.key if tree.stability is not None else tree.first or ""
        return Problem(seed, SINGLE, "the candidate differs from itself", first, singly=True)
    if tree.first is not None:
        born = next((row.cause for row in tree.keys if row.key == tree.first and row.cause), "")
        cause = ", ".join(filter(None, [op_text(tree.first), born]))
        return Problem(seed, SINGLE, "a key differs", tree.first, cause, singly=True)
    part = next((state.first for state in tree.states if state.first), None)
    what = tree.reason if part is None else tree.reason.partition(", first")[0]
    return Problem(seed, SINGLE, what, part or "", singly=True)


def _unstable(base: str, seed: int, first: str) -> NotRunError:
    return NotRunError(
        f"seed {seed}: the base {base} differs from itself, first at {first}",
        f"parity stable --engine {base}",
    )


def _ground(base: Side, tree: Tree, run: Run) -> Ground:
    base.engine.reset()
    base.engine.prefill(run.prompt)
    fed = tuple(int(token) for token in tree.run["fed"].split(","))
    course = Course(run, fed, read_state(base))
    return Ground(seed_of(run.model), course, run_pass(base, course, SINGLE, run.plan()))


def _check_size(ground: Ground, base: Side, candidate: Side, size: int) -> SizeResult | Problem:
    """Pass ``size`` twice, then plant a fault."""
    told = [_against(ground, candidate, size) for _ in range(PASSES)]
    first = next(filter(None, told), None)
    if first is not None:
        _require_base(ground, base)
        again = "" if told[0] == told[1] else ", and another run of it is not the same"
        return Problem(ground.seed, size, first.what + again, first.first, first.cause)
    control = plant(ground, candidate, size)
    if not control.fired:
        raise NotRunError(
            f"seed {ground.seed}, M = {size}: the control did not fire: a fault planted at "
            f"{control.key} was found at {control.found or 'nothing'}",
            f"the tap of {candidate.spec} does not show what it computes: parity doctor",
        )
    ref = ground.ref
    counts = (ref.dump.size, len(ref.steps), len(ref.state))
    return SizeResult(ground.seed, size, *counts, PASSES, control)


def _against(ground: Ground, candidate: Side, size: int) -> Difference | None:
    run = ground.course.run
    dut = run_pass(candidate, ground.course, size, run.plan())
    return difference(ground.ref, dut, run.start, tapped=True)


def _require_base(ground: Ground, base: Side) -> None:
    """NotRunError unless the base's single steps still are what everything is held against."""
    run = ground.course.run
    again = run_pass(base, ground.course, SINGLE, run.plan())
    found = difference(ground.ref, again, run.start, tapped=True)
    if found is not None:
        raise _unstable(base.spec, ground.seed, found.first)


def plant(ground: Ground, candidate: Side, size: int) -> Control:
    """Pass ``size`` again with one element behind a key drawn from the seed moved; the comparison
    must name exactly that key. At dump level where the candidate cannot inject."""
    course, ref = ground.course, ground.ref
    if not candidate.has("inject"):
        dut = run_pass(candidate, course, size, course.run.plan())
        return dump_control(ref.dump, dut.dump, ground.seed + size)
    entries = ref.dump.entries
    draw, place = (int(word) for word in words(ground.seed, f"gate control {size}", 0, 2))
    entry = entries[draw % len(entries)]
    elements = int(np.prod(entry.type.shape)) if entry.type else 1
    fault = Injection(entry.key, place % max(1, elements))
    dut = run_pass(candidate, course, size, course.run.plan(inject=fault))
    first = compare_dumps(ref.dump, dut.dump).first
    unit = "step" if entry.type is not None and entry.type.dtype in INTEGERS else "ULP"
    return Control("inject", first == entry.key.tag, entry.key.tag, first, fault.index, unit)
