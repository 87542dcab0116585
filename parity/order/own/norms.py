"""Sums of squares inside a norm, read back exactly from what the norm computes.

A norm gives ``x * r`` with ``r = 1 / sqrt(ss / d + eps)``, and r has half of the digits of its
argument. But eps is an argument of the op: with ``eps = -v0`` for a v0 a little below
``v = ss / d`` the difference ``v - v0`` is exact, a few units in v's last place, and r tells it
exactly. So two calls read v to the bit. Whether ss exceeds a number takes one: at ``eps = -v`` of
that number the norm is finite where ss is larger, infinite or NaN where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import MANY, NUMPY, CalledOp, Floats, Library
from parity.order.own.asked import Array, Asked, Launch, unwritten

BELOW = 64  # units in the last place from v0 to the estimate of v, which errs by 12 at most
NEAR = 1 << 14  # units that rows of one call may lie apart: r tells a difference of 2^20
Ask = tuple[int, np.float32]  # the number of a call's rows, and eps
# eps and x, (rows, d) as the op's library has it: x * r, each row the norm's.
Norm = Callable[[np.float32, Any], Any]


@dataclass
class NormOp(CalledOp):
    """The mean of the squares of a norm, ``call``: ``parity.order.op.Finishing`` and
    ``Exceeding``."""

    def run(self, x: Floats | None, w: Floats) -> Array:
        """The mean of the squares of each row of w, (any number, n)."""
        return mean_squares(w, self.rows, partial(self._normed, w))

    def _normed(self, w: Floats, asks: Sequence[Ask]) -> Iterator[Array]:
        """(rows, n) for each: many calls at once, as small ones wait for each other."""
        parts, room = self.parts(w), max(1, MANY // (self.rows * self.n))
        for at in range(0, len(asks), room):
            some = asks[at : at + room]
            with self.arrays.within(), np.errstate(all="ignore"):
                found = self.arrays.fetch([self.call(eps, parts[number]) for number, eps in some])
            yield from found.reshape(len(some), self.rows, self.n)

    def finish(self, sums: Floats) -> Floats:
        """The mean, as the norm takes it of a sum."""
        mean: Floats = sums.astype(np.float32) / np.float32(self.n)
        return mean

    def exceeds(self, w: Floats, big: float) -> npt.NDArray[np.bool_]:
        """Whether the sum of squares of each row, as the norm rounds it, is larger than ``big``."""
        mean = np.float32(big) / np.float32(self.n)
        out = self.called(-mean, w)[np.arange(len(w)), np.argmax(np.abs(w), axis=1)]
        finite: npt.NDArray[np.bool_] = np.isfinite(out)
        return finite


def rmsnorm(asked: Asked, launch: Launch) -> NormOp:
    """Contract 1.1: a batch row a probe."""
    return _norm_rows(asked, launch, "rmsnorm")


def norm_tree(asked: Asked, launch: Launch) -> NormOp:
    """Contract 5: the norms' squares by tree."""
    return _norm_rows(asked, launch, "norm_tree")


def headnorm(asked: Asked, launch: Launch) -> NormOp:
    """Contract 1.2: N heads of each batch row, a probe each."""

    def norm(eps: np.float32, x: Floats) -> Array:
        shape = (asked.M, asked.N, asked.K)
        given = {"out": unwritten(*shape), "x": x.reshape(shape), **_last(asked, eps)}
        return launch("headnorm", given)["out"].reshape(x.shape)

    return _squares(asked, asked.M * asked.N, norm)


def _norm_rows(asked: Asked, launch: Launch, op: str) -> NormOp:
    def norm(eps: np.float32, x: Floats) -> Array:
        return launch(op, {"out": unwritten(*x.shape), "x": x, **_last(asked, eps)})["out"]

    return _squares(asked, asked.M, norm)


def _last(asked: Asked, eps: np.float32) -> dict[str, object]:
    return {"w": np.ones(asked.K, np.float32), "eps": eps, "variants": asked.mask}


def _squares(asked: Asked, rows: int, norm: Norm) -> NormOp:
    return norm_op(asked.name, asked.K, rows, norm, asked.told(asked.all_rows))


def norm_op(
    name: str, n: int, rows: int, norm: Norm, key: dict[str, str], arrays: Library = NUMPY
) -> NormOp:
    """The sums of squares of ``norm``, which is given ``rows`` rows a call."""
    return NormOp(name, n, rows, "squares", "f32", "f32", norm, key, arrays=arrays)


def mean_squares(x: Floats, rows: int, normed: Callable[[Sequence[Ask]], Iterator[Array]]) -> Array:
    """``ss / d`` of each row of x, (any number, d) float32, as the norm has it: float32. A row of
    zeros gives 0; ParityBug where the norm does not add eps after the division. ``normed``: what
    the norm, given ``rows`` rows a call, makes of them."""
    largest, every = np.argmax(np.abs(x), axis=1), np.arange(len(x))
    calls = range(-(-len(x) // rows))
    size = np.abs(x[every, largest]).astype(np.float64)
    there = size > 0
    plain = np.concatenate(list(normed([(number, np.float32(0.0)) for number in calls])))
    with np.errstate(all="ignore"):
        first = np.abs(plain[every, largest].astype(np.float64))
        about = np.where(there, np.square(size / first), 1.0).astype(np.float32)
    groups = [
        (number, *found)
        for number in calls
        for found in _alike(about, np.flatnonzero(there[number * rows :][:rows]) + number * rows)
    ]
    found = np.zeros(len(x), np.float32)
    outs = normed([(number, -start) for number, _, start in groups])
    for (number, group, start), out in zip(groups, outs, strict=True):
        seen = out[group - number * rows, largest[group]].astype(np.float64)
        unit = np.float64(np.spacing(start))
        with np.errstate(all="ignore"):
            steps = np.square(size[group] / seen) / unit
        if not ((np.abs(steps - np.rint(steps)) < 0.25) & (steps < 2 * (BELOW + NEAR))).all():
            raise ParityBug("a norm's sum cannot be read back: its eps is not added to ss / d")
        found[group] = (start + np.rint(steps) * unit).astype(np.float32)
    return found


def _alike(
    about: Floats, rows: npt.NDArray[np.intp]
) -> Iterator[tuple[npt.NDArray[np.intp], np.float32]]:
    """Rows whose v lie near each other, and a v0 that is below all of them and a whole number of
    units, those of v0 itself, away from each."""
    rows = rows[np.argsort(about[rows], kind="stable")]
    bits = about.view(np.int32).astype(np.int64)
    while rows.size:
        start = bits[rows[0]] - BELOW
        taken = int(np.searchsorted(bits[rows], start + NEAR))
        yield rows[:taken], np.int32(start).view(np.float32)
        rows = rows[taken:]
