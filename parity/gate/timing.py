"""Paired times of base and candidate, in turns, with the bits checked in every timed pass.

A round is one pass of each side at every M, one straight after the other; which goes first is
drawn from the seed, and of two rounds of a seed each side goes first in one. No tap: nothing but
the forwards is timed, and what they gave is compared when the clock has stopped. Every timed round
has tokens of its own, so that a side that remembers what it gave before gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from parity.errors import NotRunError
from parity.gate.equality import SINGLE, Ground, Problem
from parity.gate.passes import Course, Difference, Pass, difference, run_pass
from parity.model.generator import words
from parity.runs.run import Side

WARM_UP = 2  # rounds of each seed that are checked and not timed
Told = Callable[[int], None]
Sides = tuple[Side, Side]  # base and candidate


@dataclass(frozen=True)
class Pair:
    """Nanoseconds of both sides at one M in one round. ``round``: from 1, over all seeds."""

    seed: int
    round: int
    size: int
    candidate_first: bool
    base: int
    candidate: int


class _Unequal(Exception):
    """A pass of the candidate gave other bits."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True)
class Round:
    """The tokens of a timed round, and SHA-256 of the outputs that every pass of it must give."""

    seed: int
    round: int
    tokens: tuple[int, ...]
    outputs: str


@dataclass
class Timed:
    """All that was timed so far: ``problem`` ends it."""

    pairs: list[Pair] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    problem: Problem | None = None


def time_seed(
    ground: Ground,
    sides: Sides,
    sizes: tuple[int, ...],
    rounds: range,
    told: Told = lambda _round: None,
) -> Timed:
    """Times of both sides in each of ``rounds``, after the warm-up, up to the first pass of the
    candidate with other bits.

    Raises NotRunError where the base gives others, or the clock stands still.
    """
    timed = Timed()
    try:
        _warm_up(ground, sides, sizes)
        for at, number in enumerate(rounds):
            told(number)
            _round(timed, ground, sides, sizes, at, number)
    except _Unequal as unequal:
        timed.problem = unequal.problem
    return timed


def _warm_up(ground: Ground, sides: Sides, sizes: tuple[int, ...]) -> None:
    for number in range(1, WARM_UP + 1):
        for size in sizes:
            made = _turns(ground.course, sides, size, number % 2 == 0)
            _check(ground, sides, size, f"warm-up round {number}", made)


def _round(
    timed: Timed, ground: Ground, sides: Sides, sizes: tuple[int, ...], at: int, number: int
) -> None:
    """Every pass of a round, and only then what the base's single steps give for its tokens: else
    the base would have seen them first."""
    seed, course = ground.seed, replace(ground.course, tokens=fresh_tokens(ground, number))
    firsts = {size: candidate_first(seed, at, size) for size in sizes}
    made = {size: _turns(course, sides, size, first) for size, first in firsts.items()}
    fresh = Ground(seed, course, run_pass(sides[0], course, SINGLE))
    timed.rounds.append(Round(seed, number, course.tokens, fresh.ref.sha256()))
    for size, (base, candidate) in made.items():
        _check(fresh, sides, size, f"timed round {number}", (base, candidate))
        took = (_took(base), _took(candidate))
        timed.pairs.append(Pair(seed, number, size, firsts[size], *took))


def fresh_tokens(ground: Ground, number: int) -> tuple[int, ...]:
    """As many as were compared before, drawn from the seed and the round."""
    ids = ground.course.run.model.config.ids
    drawn = words(ground.seed, f"gate round {number}", 0, len(ground.course.tokens))
    return tuple(int(word) % ids for word in drawn)


def candidate_first(seed: int, at: int, size: int) -> bool:
    """Whether the candidate goes first in round ``at`` (from 0) of a seed: in one of each two
    rounds, which one is drawn."""
    draw = int(words(seed, f"gate order {size}", at // 2, 1)[0])
    return (draw + at) % 2 == 1


def _turns(course: Course, sides: Sides, size: int, candidate_first: bool) -> tuple[Pass, Pass]:
    """A pass of each side, base and candidate, one straight after the other."""
    order = (1, 0) if candidate_first else (0, 1)
    made = {at: run_pass(sides[at], course, size) for at in order}
    return made[0], made[1]


def _check(ground: Ground, sides: Sides, size: int, where: str, made: tuple[Pass, Pass]) -> None:
    """Raises _Unequal for other bits of the candidate, NotRunError for other bits of the base."""
    _check_base(ground, sides[0], made[0], size, where)
    found = _unlike(ground, made[1])
    if found is not None:
        what = f"{found.what} in {where}, without a tap"
        raise _Unequal(Problem(ground.seed, size, what, found.first))


def _unlike(ground: Ground, made: Pass) -> Difference | None:
    return difference(ground.ref, made, ground.course.run.start, tapped=False)


def _check_base(ground: Ground, base: Side, made: Pass, size: int, where: str) -> None:
    found = _unlike(ground, made)
    if found is not None:
        raise NotRunError(
            f"seed {ground.seed}, M = {size}: {where}: the base {base.spec} does not equal its own "
            f"single steps, first {found.first}",
            f"parity isodiff --engine {base.spec} --m {size}",
        )


def _took(made: Pass) -> int:
    if made.took <= 0:
        raise NotRunError("a timed pass took no time by the clock", "give a larger --n")
    return made.took
