"""The denominator of a softmax: a sum of exponentials that the op makes itself.

The largest score of a row is subtracted, so the terms are 1 and what is below it, and the output at
the largest score is 1 / S. Which two of three terms meet first is seen by scores near -24 ln 2: one
such term is lost beside the 1, two that have met before are not. For noise the terms must be known
to the bit, and the op's own exp is not torch.exp. But one term below 2^-25 leaves S at 1, and then
the output is that term: so all scores of noise lie there, and a table tells their terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import CalledOp, Floats
from parity.order.own.asked import Asked, Launch, unwritten

LEVELS = 16  # different scores of noise, from exp(-17.5) = 0.84 * 2^-25 downward
SCORES = -(17.5 + np.arange(LEVELS) / 8).astype(np.float32)
LESS = 2.0**-10  # by which a term is less than asked: two to the -24 is a tie


@dataclass
class SoftmaxOp(CalledOp):
    """1 / S of rows whose scores noise chooses; ``Telling``, ``Finishing``, ``Exceeding`` of
    ``parity.order.op``. ``call``: the softmax of scores, at the op's true shape, all rows."""

    def run(self, x: Floats | None, w: Floats) -> Floats:
        """1 / S of each row of w, (any number, n): the output at its largest score."""
        return at_largest(self.called(None, noise_scores(w)), w)

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
        below: npt.NDArray[np.bool_] = at_largest(self.called(None, in_proportion(w)), w) < 1
        return below

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
            found[level] = self.called(None, scores)[places, places]
        return found


def router_softmax(asked: Asked, launch: Launch) -> SoftmaxOp:
    """Contract 2: the sum over all K experts, every one of which is chosen."""

    def softmax(_: None, scores: Floats) -> Floats:
        shape = (asked.M, asked.K)
        given = {
            "ids": np.full(shape, -1, np.int32),
            "probs": unwritten(*shape),
            **{"logits": scores, "norm": False, "variants": asked.mask},
        }
        found, weights = launch("router_topk", given), unwritten(*shape)
        np.put_along_axis(weights, found["ids"].astype(np.intp), found["probs"], axis=1)
        return weights

    key = asked.told(asked.all_rows)
    return SoftmaxOp(asked.name, asked.K, asked.M, "values", "f32", "f32", softmax, key)


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
    return weights_as_levels(w, LEVELS), np.argmax(np.abs(w), axis=1)


def weights_as_levels(w: Floats, count: int) -> npt.NDArray[np.intp]:
    """0 to ``count`` - 1 by the first digits of each weight."""
    mantissa = np.frexp(np.abs(w))[0]
    levels: npt.NDArray[np.intp] = np.clip((mantissa - 0.5) * (2 * count), 0, count - 1).astype(
        np.intp
    )
    return levels


def in_proportion(w: Floats) -> Floats:
    """Scores whose exponentials are as the squares of w, the largest 1; -inf for 0."""
    sizes = np.abs(w).astype(np.float64)
    top = np.argmax(sizes, axis=1)
    rows = np.arange(len(w))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = 2 * np.log(sizes / sizes[rows, top][:, None]) - LESS
    scores[rows, top] = 0
    found: Floats = np.nan_to_num(scores, nan=-np.inf, neginf=-np.inf).astype(np.float32)
    return found
