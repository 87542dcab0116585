"""The denominator of ``torch.softmax``: a sum of exponentials that the op makes itself.

The largest score of a row is subtracted, so the terms are 1 and what is below it, and the output at
the largest score is 1 / S. Which two of three terms meet first is seen by scores near -24 ln 2: one
such term is lost beside the 1, two that have met before are not. For noise the terms must be known
to the bit, and the op's own exp is not torch.exp. But one term below 2^-25 leaves S at 1, and then
the output is that term: so all scores of noise lie there, and a table tells their terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import CalledOp, Floats

LEVELS = 16  # different scores of noise, from exp(-17.5) = 0.84 * 2^-25 downward
SCORES = -(17.5 + np.arange(LEVELS) / 8).astype(np.float32)
LESS = 2.0**-10  # by which a term is less than asked: two to the -24 is a tie
Softmax = Callable[[Floats], Floats]  # scores (rows, n) to weights


@dataclass
class SoftmaxOp(CalledOp):
    """``run``: 1 / S of rows whose scores noise chooses; ``Telling``, ``Finishing``, ``Exceeding``
    of ``parity.order.op``. ``softmax``: at the op's true shape, all rows."""

    softmax: Softmax = field(kw_only=True, repr=False)

    def finish(self, sums: Floats) -> Floats:
        """The output at the largest score."""
        made: Floats = np.float32(1.0) / sums.astype(np.float32)
        return made

    def exceeds(self, w: Floats, big: float) -> npt.NDArray[np.bool_]:
        """Whether the sum of squares of each row of w, one of which is ``big``, is larger: asked of
        exponentials in the same proportion."""
        largest = np.abs(w).max(axis=1, initial=0).astype(np.float64)
        if (largest**2 != big).any():
            raise ParityBug(f"{self.name}: {big} is not the largest term")

        def below_one(_: Floats | None, part: Floats) -> npt.NDArray[np.bool_]:
            return at_largest(self.softmax(_in_proportion(part)), part) < 1

        return replace(self, call=below_one).run(None, w)

    def terms_of(self, w: Floats) -> Floats:
        """What ``run`` adds for the weights w, (rows, n)."""
        levels, top = _levels(w)
        terms: Floats = self.table[levels, np.arange(self.n)]
        terms[w == 0] = 0
        terms[np.arange(len(w)), top] = 1
        return terms

    @cached_property
    def table(self) -> Floats:
        """float32[LEVELS, n]: the term of each score at each place; beside it a 1 stands alone."""
        found = np.ones((LEVELS, self.n), np.float32)
        places = np.arange(self.n)
        for level in range(LEVELS if self.n > 1 else 0):
            scores = np.full((self.n, self.n), -np.inf, np.float32)
            scores[places, places] = SCORES[level]
            scores[places, (places + 1) % self.n] = 0
            made = replace(self, call=lambda _, part: self.softmax(part)).run(None, scores)
            found[level] = made[places, places]
        return found


def noise_scores(w: Floats) -> Floats:
    """The scores that weights of noise stand for: 0 for the largest, one of SCORES for others."""
    levels, top = _levels(w)
    scores: Floats = np.where(w == 0, np.float32(-np.inf), SCORES[levels])
    scores[np.arange(len(w)), top] = 0
    return scores


def at_largest(weights: Floats, w: Floats) -> Floats:
    """(rows,): of each row the output at its largest weight."""
    found: Floats = weights[np.arange(len(w)), np.argmax(np.abs(w), axis=1)]
    return found


def _levels(w: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """By the first digits of each weight, and the place of the largest."""
    mantissa = np.frexp(np.abs(w))[0]
    levels = np.clip((mantissa - 0.5) * (2 * LEVELS), 0, LEVELS - 1).astype(np.intp)
    return levels, np.argmax(np.abs(w), axis=1)


def _in_proportion(w: Floats) -> Floats:
    sizes = np.abs(w).astype(np.float64)
    top = np.argmax(sizes, axis=1)
    rows = np.arange(len(w))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = 2 * np.log(sizes / sizes[rows, top][:, None]) - LESS
    scores[rows, top] = 0
    found: Floats = np.nan_to_num(scores, nan=-np.inf, neginf=-np.inf).astype(np.float32)
    return found
