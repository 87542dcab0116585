"""What the study of an order asks of an op: many sums at once, of inputs that we choose."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


class SummingOp(Protocol):
    """An op whose outputs are sums of n terms, at one true shape; its members may be fields."""

    @property
    def name(self) -> str:
        """As it is typed or told."""
        ...

    @property
    def n(self) -> int:
        """Terms of one sum."""
        ...

    @property
    def rows(self) -> int:
        """Sums that one call gives: each is one probe."""
        ...

    @property
    def terms(self) -> str:
        """``products``, ``values`` or ``squares``."""
        ...

    @property
    def dtype(self) -> str:
        """Of the inputs: f32, bf16 or f16."""
        ...

    @property
    def out(self) -> str:
        """Of the sums, before they are widened: f32, bf16 or f16."""
        ...

    @property
    def key(self) -> dict[str, str]:
        """What the answer holds for: device, versions, dtype, shape, layout, batch M, flags."""
        ...

    def run(self, x: Floats | None, w: Floats) -> Numbers:
        """The op's sums: row r is the sum over j of x[j]*w[r][j], w[r][j] or w[r][j]^2.

        x: float32[n] for products, else None. w: float32[rows, n]. All values are exact in
        ``dtype``. Returns float32 or float64 [rows], widened exactly; or [rows, M] where the op
        makes every sum M times (the rows of a batch of M equal x): all M must be the same bits.
        """
        ...


@runtime_checkable
class Repeating(Protocol):
    """An op whose ``run`` takes the rows of several calls, and makes them one after the other."""

    @property
    def calls(self) -> int:
        """At most so many at once."""
        ...


@runtime_checkable
class Multiplying(Protocol):
    """An op of products that compares cheaply: many x with one w."""

    @property
    def batch(self) -> int:
        """How many different x one call takes."""
        ...

    def products(self, xs: Floats, w: Floats) -> Floats:
        """float32[rows, count]: the sum of each row of w, (any number, n), with each of xs,
        (count, n), in calls of the op's true shape; ``batch`` x a call, those left over repeat."""
        ...


@runtime_checkable
class Finishing(Protocol):
    """An op that does more with its sum (mean, eps, root): ``run`` gives what comes of it."""

    def finish(self, sums: Floats) -> Floats:
        """What ``run`` would give for these sums, float32[rows], by the op's own functions."""
        ...


@runtime_checkable
class Levelled(Protocol):
    """An op of products whose weights hold few values beside those that masks need (quantised)."""

    @property
    def levels(self) -> tuple[int, ...]:
        """Small integers that it holds, -1 and 1 among them."""
        ...


@runtime_checkable
class Carrying(Protocol):
    """An op whose probes stand in x, as its weights hold too few values: those whose x do not
    contradict each other share one, and a call."""

    @property
    def carriers(self) -> int:
        """How many different x one call takes."""
        ...


@runtime_checkable
class Blurring(Protocol):
    """An op of squares that shows less than its sum: ``exceeds`` tells terms in proportion, and not
    how a product enters."""

    @property
    def blurs(self) -> bool:
        """True."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A sum of values that the op makes itself, none of them negative (exponentials). Like squares
    it is asked three terms at a time, by ``exceeds`` of their roots."""

    def terms_of(self, w: Floats) -> Floats:
        """float32[rows, n]: the values that ``run`` adds where it is given w."""
        ...


def by_threes(op: SummingOp) -> bool:
    """Whether the terms of an op have no negative, so that three at a time are asked."""
    return op.terms == "squares" or isinstance(op, Telling)


@runtime_checkable
class Exceeding(Protocol):
    """A sum of squares that can only be compared: rms_norm with eps = -big/n is finite or not."""

    def exceeds(self, w: Floats, big: float) -> Flags:
        """bool[rows]: is the sum of w[r][j]^2, as the op rounds it, larger than ``big``?"""
        ...
