"""The sum of squares of an L2 norm (contract 3.2), seen through its inverse root alone.

Its eps is fixed, so unlike other norms it cannot be made to cancel the sum: what comes out is
``x * r`` with ``r = 1 / sqrt(ss + eps)``, in which about every second last place of ss shows. For
noise that will do: the twin's sum is taken through the same root. Where three terms are asked which
two meet first, the large one is a number whose square and the next number above it have two roots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.errors import ParityBug
from parity.order.adapters.called import CalledOp, Floats
from parity.order.own.asked import Array, Asked, Launch, unwritten

EPS = np.float32(1e-6)  # the op's own
LARGE = np.float32(2899.0)  # LARGE * r is another for LARGE^2 and for the next f32 above it
# A term of less than half the last place of LARGE^2, which is 1; two of them are more.
SMALL = np.float32(0.7)
LEAST = 8  # outputs of a row, of which one r alone gives all
NEAR = 2  # units in which x * r / x may miss r


@dataclass
class RootOp(CalledOp):
    """``r`` of each row, ``call(None, x)`` being the normed rows; ``Finishing``, ``Exceeding`` and
    ``Blurring`` of ``parity.order.op``."""

    blurs: bool = True

    def run(self, x: Floats | None, w: Floats) -> Array:
        """float32[rows]: r, the only number that gives every output of a row."""
        return _roots(w, self.called(None, w))

    def finish(self, sums: Floats) -> Floats:
        """r of these sums of squares, each step rounded."""
        root: Floats = np.sqrt(sums.astype(np.float32) + EPS)
        made: Floats = np.float32(1.0) / root
        return made

    def exceeds(self, w: Floats, big: float) -> npt.NDArray[np.bool_]:
        """Whether the sum of squares of each row of w, one of which is ``big``, is larger: asked of
        LARGE and terms below half of its square's last place, SMALL or in proportion."""
        sizes, every = np.abs(w), np.arange(len(w))
        top = np.argmax(sizes, axis=1)
        largest = sizes[every, top].astype(np.float64)
        if (largest**2 != big).any():
            raise ParityBug(f"{self.name}: {big} is not the largest term")
        asked = np.where(sizes > 0, SMALL, np.float32(0))
        asked[every, top] = LARGE
        alone = LARGE * self.finish(np.array([LARGE * LARGE]))[0]
        below: npt.NDArray[np.bool_] = self.called(None, asked)[every, top] < alone
        return below


def l2norm(asked: Asked, launch: Launch) -> RootOp:
    """Contract 3.2: N heads of each batch row, a probe each."""
    asked.require(asked.K >= LEAST, f"fewer than {LEAST} outputs do not tell their factor")

    def call(_: None, x: Floats) -> Array:
        shape = (asked.M, asked.N, asked.K)
        given: dict[str, Any] = {"out": unwritten(*shape), "x": x.reshape(shape)}
        given |= {"scale": np.float32(1.0), "stride": asked.N * asked.K}
        return launch("l2norm", given)["out"].reshape(x.shape)

    key, rows = asked.told(asked.all_rows), asked.M * asked.N
    return RootOp(asked.name, asked.K, rows, "squares", "f32", "f32", call, key)


def _roots(x: Floats, out: Array) -> Floats:
    """float32[rows]: the r nearest to out / x at the largest x that gives all of ``out``; NaN where
    none does, which is no twin's. Rows of zeros give the root of eps."""
    every, top = np.arange(len(x)), np.argmax(np.abs(x), axis=1)
    with np.errstate(all="ignore"):
        about = (out[every, top].astype(np.float64) / x[every, top]).astype(np.float32)
    found = np.full(len(x), np.nan, np.float32)
    for units in sorted(range(-NEAR, NEAR + 1), key=abs)[::-1]:  # the nearest is written last
        r: Floats = (about.view(np.int32) + np.int32(units)).view(np.float32)
        with np.errstate(all="ignore"):
            right = ((x * r[:, None]).view(np.int32) == out.view(np.int32)).all(axis=1)
        found[right] = r[right]
    found[~x.any(axis=1)] = np.float32(1.0) / np.sqrt(EPS)
    return found
