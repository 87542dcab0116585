"""The denominator l of attention (contract 1.8): a sum over the keys of exponentials that it makes.

V is 1 at one key and 0 at the others, so the output there is that key's weight by l. Which two of
three keys meet first is asked as of any softmax (``denominators``), wherever the largest stands: an
online softmax takes what it has so far times a factor, and a term of less than half a last place is
lost beside the 1 either way. For noise the first key has the largest score, so that every factor is
1, and the terms are ordinary exponentials. What they are is read from the op itself: V is -p at the
first key for a p near the term and 1 at the term's key, and the output tells their difference,
which is a few units, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import CalledOp, Floats
from parity.order.own.asked import Array, Asked, Launch, unwritten
from parity.order.own.denominators import in_proportion, weights_as_levels

LEVELS = 16  # scores of noise, from -1/8 downward: terms from 0.88 to 0.13
SCORES = -(np.arange(1, LEVELS + 1) / 8).astype(np.float32)
GONE = np.float32(-1000)  # a score whose exponential is 0 beside any other that is asked


@dataclass
class DenominatorOp(CalledOp):
    """1 / l of rows whose scores noise chooses; ``Telling``, ``Finishing``, ``Exceeding`` of
    ``parity.order.op``. ``call``: (V's factors, scores) to outputs."""

    def run(self, x: Floats | None, w: Floats) -> Array:
        """1 / l of each row of w, (any number, n), whose first key has the largest score."""
        return self._attended(self._scores(w), np.zeros(len(w), np.intp))

    def finish(self, sums: Floats) -> Floats:
        """The output at a key whose weight is 1."""
        made: Floats = np.float32(1.0) / sums.astype(np.float32)
        return made

    def exceeds(self, w: Floats, big: float) -> npt.NDArray[np.bool_]:
        """Whether the sum of squares of each row of w, one of which is ``big``, is larger: asked of
        exponentials in the same proportion."""
        sizes = np.abs(w)
        if (sizes.max(axis=1, initial=0).astype(np.float64) ** 2 != big).any():
            raise ParityBug(f"{self.name}: {big} is not the largest term")
        scores = np.maximum(in_proportion(w), GONE)
        below: npt.NDArray[np.bool_] = self._attended(scores, np.argmax(sizes, axis=1)) < 1
        return below

    def terms_of(self, w: Floats) -> Floats:
        """What ``run`` adds for the weights w, (rows, n)."""
        terms: Floats = self.table[weights_as_levels(w, LEVELS), np.arange(self.n)]
        terms[w == 0] = 0
        terms[:, 0] = 1
        return terms

    @cached_property
    def table(self) -> Floats:
        """float32[LEVELS, n]: the term of each score at each key but the first."""
        found = np.ones((LEVELS, self.n), np.float32)
        keys = np.arange(1, self.n)
        for level in range(LEVELS if self.n > 1 else 0):
            scores = np.full((self.n - 1, self.n), GONE, np.float32)
            scores[:, 0] = 0
            scores[np.arange(self.n - 1), keys] = SCORES[level]
            near = np.float32(np.exp(np.float64(SCORES[level])))
            factors = np.zeros_like(scores)
            factors[:, 0], factors[np.arange(self.n - 1), keys] = -near, 1
            left = self._called(scores, factors).astype(np.float64) * (1 + float(near))
            units = np.rint(left / np.spacing(near))
            found[level, 1:] = near + units.astype(np.float32) * np.spacing(near)
        return found

    def _scores(self, w: Floats) -> Floats:
        scores = SCORES[weights_as_levels(w, LEVELS)]
        scores[w == 0] = GONE
        scores[:, 0] = 0
        return scores

    def _attended(self, scores: Floats, keys: npt.NDArray[np.intp]) -> Array:
        """The weight of one key of each row."""
        factors = np.zeros_like(scores)
        factors[np.arange(len(scores)), keys] = 1
        return self._called(scores, factors)

    def _called(self, scores: Floats, factors: Floats) -> Array:
        """In calls of ``rows`` rows; the last one is filled up with its first row."""
        found = []
        for at in range(0, len(scores), self.rows):
            part = np.resize(np.arange(at, min(at + self.rows, len(scores))), self.rows)
            found.append(self.call(factors[part], scores[part])[: len(scores) - at])
        return np.concatenate(found) if found else np.zeros(0, np.float32)


def attention_f32_l(asked: Asked, launch: Launch) -> DenominatorOp:
    """Contract 1.8, f32: N query heads a probe each, two to a KV head where N is even."""
    heads, row, batch = _heads(asked)
    group = asked.N // heads
    width = 4  # two query heads of one KV head read its key at two places

    def call(factors: Floats, scores: Floats) -> Array:
        k, v = np.zeros((2, asked.K, heads, width), np.float32)
        q = np.zeros((asked.M, asked.N, width), np.float32)
        for head in range(asked.N):
            k[:, head // group, head % group] = scores[head]
            v[:, head // group, head % group] = factors[head]
            q[:, head, head % group] = 1
        given = {"out": unwritten(*q.shape), "q": q, "k": k, "v": v}
        out = launch("attention_f32", {**given, **_last(asked)})["out"][row]
        found: Array = out[np.arange(asked.N), np.arange(asked.N) % group]
        return found

    return _op(asked, call, asked.N, batch)


def attention_int8_l(asked: Asked, launch: Launch) -> DenominatorOp:
    """Contract 1.8, int8: N KV heads a probe each, whose scales carry scores and factors; each is
    read at the second of its two query heads."""
    _, row, batch = _heads(asked)
    width = 4

    def call(factors: Floats, scores: Floats) -> Array:
        queries, stored = (asked.M, 2 * asked.N), (asked.K, asked.N, width)
        k, v = np.zeros((2, *stored), np.int8)
        k[..., 0] = np.sign(scores.T)
        v[..., 0] = np.sign(factors.T)
        q = np.zeros((*queries, width), np.int8)
        q[..., 0] = 1
        given = {"out": unwritten(*queries, width), "q": q, "k": k, "v": v}
        given |= {"q_scale": np.ones(queries, np.float32)}
        given |= {"k_scale": np.abs(scores.T).copy(), "v_scale": np.abs(factors.T).copy()}
        found: Array = launch("attention_int8", {**given, **_last(asked)})["out"][row, 1::2, 0]
        return found

    return _op(asked, call, asked.N, batch)


def _last(asked: Asked) -> dict[str, object]:
    last = {"sm_scale": np.float32(1.0), "pos": asked.K - asked.M}
    return {**last, "variants": asked.mask}


def _heads(asked: Asked) -> tuple[int, int, str]:
    """KV heads, the row of M that sees K keys, and what the key of the order says of the batch."""
    asked.require(asked.K >= asked.M, "the last of M rows sees K keys: K is M or more")
    row = asked.M - 1
    batch = "1" if asked.M == 1 else f"{asked.M}, row {row}, the only one that sees K keys"
    return asked.N // 2 if asked.N % 2 == 0 else asked.N, row, batch


def _op(
    asked: Asked, call: Callable[[Floats, Floats], Array], rows: int, batch: str
) -> DenominatorOp:
    key = asked.told(batch)
    return DenominatorOp(asked.name, asked.K, rows, "values", "f32", "f32", call, key)
