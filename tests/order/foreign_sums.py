"""Functions of a user's own, good and bad, for the tests of ``parity order``."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
from numba import njit

_CALLS = itertools.count()


@njit
def ascending(x, w):  # type: ignore[no-untyped-def]
    """One row: x[0] w[0] first, then one term after the other."""
    s = np.float32(0)
    for i in range(len(x)):
        s = s + x[i] * w[i]
    return s


@njit
def four_partials(x, w):  # type: ignore[no-untyped-def]
    """One row: terms dealt to four sums."""
    p = np.zeros(4, np.float32)
    for i in range(len(x)):
        p[i & 3] = p[i & 3] + x[i] * w[i]
    return ((p[0] + p[1]) + p[2]) + p[3]


def rows_at_once(x: Any, w: Any) -> Any:
    """All rows: ascending; with a batch of x, every row of it."""
    if x.ndim == 2:
        return np.stack([rows_at_once(row, w) for row in x])
    total = x[0] * w[:, 0]
    for i in range(1, len(x)):
        total = total + x[i] * w[:, i]
    return total


def by_batch(x: Any, w: Any) -> Any:
    """Ascending alone; in a batch, two halves."""
    if x.ndim == 1:
        return rows_at_once(x, w)
    half = w.shape[1] // 2
    return rows_at_once(x[:, :half], w[:, :half]) + rows_at_once(x[:, half:], w[:, half:])


def last_row_apart(x: Any, w: Any) -> Any:
    """As ``rows_at_once``, the last row of a batch in two halves."""
    found = rows_at_once(x, w)
    found[-1] = by_batch(x, w)[-1]
    return found


LATER = {"otherwise": False}  # a test sets it after the order was revealed


def changed_later(w: Any) -> Any:
    """One term after the other; once LATER says so, the last term first."""
    return ascending_values(w[:, ::-1] if LATER["otherwise"] else w)


def by_alignment(w: Any) -> Any:
    """One term after the other; the last first where w does not start at a cache line."""
    return ascending_values(w[:, ::-1] if w.ctypes.data % 64 else w)


@njit
def in_place(x, w):  # type: ignore[no-untyped-def]
    """One row: products stand in x afterwards, their sums in w."""
    for i in range(len(x)):
        x[i] = x[i] * w[i]
    w[0] = x[0]
    for i in range(1, len(x)):
        w[i] = w[i - 1] + x[i]
    return w[-1]


def ascending_values(w: Any) -> Any:
    """All rows of values, one term after the other."""
    return rows_at_once(np.ones(w.shape[1], np.float32), w)


def squares(w: Any) -> Any:
    """All rows: squares, one term after the other."""
    total = w[:, 0] * w[:, 0]
    for i in range(1, w.shape[1]):
        total = total + w[:, i] * w[:, i]
    return total


def sorted_first(w: Any) -> Any:
    """An order that depends on the data: the smallest first."""
    places = np.argsort(np.abs(w), axis=1, kind="stable")
    return ascending_values(np.take_along_axis(w, places, axis=1))


def small_first_if_even(w: Any) -> Any:
    """Ascending for masks, which have few sizes; otherwise the smallest first."""
    sizes = [len(np.unique(np.abs(row))) for row in w]
    return np.where(np.array(sizes) > 4, sorted_first(w), ascending_values(w))


def turning(w: Any) -> Any:
    """Another order at every call."""
    return ascending_values(np.roll(w, next(_CALLS), axis=1))


def kahan(w: Any) -> Any:
    """Compensated: no tree of plain additions."""
    total, lost = np.zeros(len(w), np.float32), np.zeros(len(w), np.float32)
    for i in range(w.shape[1]):
        term = w[:, i] - lost
        grown = total + term
        total, lost = grown, (grown - total) - term
    return total


def wide(w: Any) -> Any:
    """Returns float64."""
    return w.astype(np.float64).sum(axis=1)


def wrong_shape(w: Any) -> Any:
    """Returns one number for all rows."""
    return np.float32(w.sum())[None][None]


def raises(w: Any) -> Any:
    """Fails."""
    raise RuntimeError("no\nreason")


def slow(w: Any) -> Any:
    """Sleeps at every call."""
    time.sleep(0.01)
    return ascending_values(w)


NOT_A_FUNCTION = 3
