"""Sums of squares inside a norm, read back exactly from what the norm computes.

A norm gives ``x * r`` with ``r = 1 / sqrt(ss / d + eps)``, and r has half of the digits of its
argument. But eps is an argument of the op: with ``eps = -v0`` for a v0 a little below
``v = ss / d`` the difference ``v - v0`` is exact, a few units in v's last place, and r tells it
exactly. So two calls read v to the bit. Whether ss exceeds a number takes one: at ``eps = -v`` of
that number the norm is finite where ss is larger, infinite or NaN where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import CalledOp, Floats
from parity.order.own.asked import Array, Asked, Launch, unwritten

BELOW = 64  # units in the last place from v0 to the estimate of v, which errs by 12 at most
NEAR = 1 << 14  # units that rows of one call may lie apart: r tells a difference of 2^20
# x (rows, d) and eps: x * r, each row the norm's.
Norm = Callable[[Floats, np.float32], Array]


@dataclass
class NormOp(CalledOp):
    """The mean of the squares of a norm: ``parity.order.op.Finishing`` and ``Exceeding``."""

    norm: Norm = field(kw_only=True, repr=False)

    def finish(self, sums: Floats) -> Floats:
        """The mean, as the norm takes it of a sum."""
        mean: Floats = sums.astype(np.float32) / np.float32(self.n)
        return mean

    def exceeds(self, w: Floats, big: float) -> npt.NDArray[np.bool_]:
        """Whether the sum of squares of each row, as the norm rounds it, is larger than ``big``."""
        mean = np.float32(big) / np.float32(self.n)

        def finite(_: Floats | None, x: Floats) -> Array:
            with np.errstate(all="ignore"):
                out = self.norm(x, -mean)[np.arange(len(x)), np.argmax(np.abs(x), axis=1)]
            is_finite: Array = np.isfinite(out)
            return is_finite

        found: npt.NDArray[np.bool_] = replace(self, call=finite).run(None, w)
        return found


def rmsnorm(asked: Asked, launch: Launch) -> NormOp:
    """Contract 1.1: a batch row a probe."""
    return _norm_rows(asked, launch, "rmsnorm")


def norm_tree(asked: Asked, launch: Launch) -> NormOp:
    """Contract 5: the norms' squares by tree."""
    return _norm_rows(asked, launch, "norm_tree")


def headnorm(asked: Asked, launch: Launch) -> NormOp:
    """Contract 1.2: N heads of each batch row, a probe each."""

    def norm(x: Floats, eps: np.float32) -> Array:
        shape = (asked.M, asked.N, asked.K)
        given = {"out": unwritten(*shape), "x": x.reshape(shape), **_last(asked, eps)}
        return launch("headnorm", given)["out"].reshape(x.shape)

    return _squares(asked, asked.M * asked.N, norm)


def _norm_rows(asked: Asked, launch: Launch, op: str) -> NormOp:
    def norm(x: Floats, eps: np.float32) -> Array:
        return launch(op, {"out": unwritten(*x.shape), "x": x, **_last(asked, eps)})["out"]

    return _squares(asked, asked.M, norm)


def _last(asked: Asked, eps: np.float32) -> dict[str, object]:
    return {"w": np.ones(asked.K, np.float32), "eps": eps, "variants": asked.mask}


def _squares(asked: Asked, rows: int, norm: Norm) -> NormOp:
    def call(_: Floats | None, w: Floats) -> Array:
        return mean_squares(w, norm)

    key = asked.told(asked.all_rows)
    return NormOp(asked.name, asked.K, rows, "squares", "f32", "f32", call, key, norm=norm)


def mean_squares(x: Floats, norm: Norm) -> Array:
    """``ss / d`` of each row of x, (rows, d) float32, as the norm has it: float32. A row of zeros
    gives 0; ParityBug where the norm does not add eps after the division."""
    largest = np.argmax(np.abs(x), axis=1)
    rows = np.arange(len(x))
    size = np.abs(x[rows, largest]).astype(np.float64)
    there = size > 0
    with np.errstate(all="ignore"):
        first = np.abs(norm(x, np.float32(0.0))[rows, largest].astype(np.float64))
        about = np.where(there, np.square(size / first), 1.0).astype(np.float32)
    found = np.zeros(len(x), np.float32)
    for group, start in _alike(about, np.flatnonzero(there)):
        with np.errstate(all="ignore"):
            out = norm(x, -start)[group, largest[group]].astype(np.float64)
            unit = np.float64(np.spacing(start))
            steps = np.square(size[group] / out) / unit
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
