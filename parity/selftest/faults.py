"""The faults that common checks miss, as changes of one value or of a list of keys.

Each was missed by at least one of torch.equal, allclose, NMSE, a checksum of the values, or a walk
over the keys that both sides have. ``parity selftest`` plants all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

import numpy as np

from parity.inject import move_element
from parity.model.generator import words

Item = TypeVar("Item")


class Want(StrEnum):
    """What a comparison must make of a fault, in the words of the table."""

    CAUGHT = "caught"  # diverged, exit 1, first at exactly that key
    REFUSED = "exit 2"  # bad input, naming the key
    NOTED = "noted"  # same, exit 0, and a note
    QUIET = "quiet"  # no difference


@dataclass(frozen=True)
class Spots:
    """Where in a value a fault is planted: flat indices, and two rows."""

    one: int
    other: int
    zero: int
    nan: int
    rows: tuple[int, int]


Change = Callable[[np.ndarray, Spots], np.ndarray]


@dataclass(frozen=True)
class Fault:
    """``base``: what both sides hold in place of the value, ``change``: what the dut makes of
    that, both float32[rows, columns]; ``edit``: what becomes of the dut's list of keys."""

    name: str
    want: Want = Want.CAUGHT
    change: Change | None = None
    base: Change | None = None
    edit: str = ""

    @property
    def retypes(self) -> bool:
        """Whether dtype or shape are other ones: no op can read that, only a report tells it."""
        return self.name in (WIDER, RESHAPED)


WIDER, RESHAPED = "f32 to f64", "same bytes, new shape"
MISSING, EXTRA, TWICE, TURNED = "missing", "extra", "twice", "turned"


def spots_of(x: np.ndarray, seed: int) -> Spots | None:
    """Places in ``x`` float32[rows, columns], drawn from ``seed``, at which every fault changes a
    byte; None where it has none."""
    bits = x.view(np.uint32).reshape(-1)
    order = np.argsort(words(seed, "selftest spots", 0, bits.size)).tolist()
    nan, zero, one = order[:3]
    other = next((at for at in order[3:] if bits[at] != bits[one]), None)
    rows = np.argsort(words(seed, "selftest rows", 0, len(x))).tolist()
    unlike = next((p for p in pairwise(rows) if x[p[0]].tobytes() != x[p[1]].tobytes()), None)
    if other is None or unlike is None:
        return None
    return Spots(one, other, zero, nan, unlike)


def edited(items: Sequence[Item], at: int, edit: str, new: Item) -> list[Item]:
    """A list of keys after ``edit`` at place ``at``; ``new`` is the extra key."""
    found = list(items)
    if edit == MISSING:
        del found[at]
    elif edit == EXTRA:
        found.insert(at + 1, new)
    elif edit == TWICE:
        found.append(found[at])
    elif edit == TURNED:
        found.reverse()
    return found


def _with(index: Callable[[Spots], int], pattern: int) -> Change:
    """One element replaced by the float32 of a bit pattern."""

    def change(x: np.ndarray, at: Spots) -> np.ndarray:
        found = x.copy()
        found.view(np.uint32).reshape(-1)[index(at)] = pattern
        return found

    return change


def _one_ulp(x: np.ndarray, at: Spots) -> np.ndarray:
    found = x.copy()
    move_element(found, at.one)
    return found


def _rows_swapped(x: np.ndarray, at: Spots) -> np.ndarray:
    found = x.copy()
    found[[*at.rows]] = x[[*reversed(at.rows)]]
    return found


def _elements_swapped(x: np.ndarray, at: Spots) -> np.ndarray:
    found = x.copy()
    found.reshape(-1)[[at.one, at.other]] = x.reshape(-1)[[at.other, at.one]]
    return found


def _signs_flipped(x: np.ndarray, at: Spots) -> np.ndarray:
    return (x.view(np.uint32) ^ np.uint32(0x80000000)).view(np.float32)


def _transposed(x: np.ndarray, at: Spots) -> np.ndarray:
    """Laid out by columns, and told with the shape it had."""
    return np.ascontiguousarray(x.T).reshape(x.shape)


def _stale(x: np.ndarray, at: Spots) -> np.ndarray:
    found = x.copy()
    found[at.rows[1]] = x[at.rows[0]]
    return found


_zero, _minus_zero = (_with(lambda at: at.zero, bits) for bits in (0x00000000, 0x80000000))
_nan, _other_nan = (_with(lambda at: at.nan, bits) for bits in (0x7FC00000, 0x7FC00001))

FAULTS = (
    Fault("1 ULP in one element", change=_one_ulp),
    Fault("two rows swapped", change=_rows_swapped),
    Fault("two elements swapped", change=_elements_swapped),
    Fault("every sign flipped", change=_signs_flipped),
    Fault("transposed, same shape", change=_transposed),
    Fault("+0 to -0", base=_zero, change=_minus_zero),
    Fault("NaN payload", base=_nan, change=_other_nan),
    Fault(WIDER, change=lambda x, at: x.astype(np.float64)),
    Fault(RESHAPED, change=lambda x, at: x.reshape(-1)),
    Fault("stale copy of a row", change=_stale),
    Fault("missing key", edit=MISSING),
    Fault("extra key", edit=EXTRA),
    Fault("key twice", Want.REFUSED, edit=TWICE),
    Fault("other line order", Want.NOTED, edit=TURNED),
    Fault("same bytes", Want.QUIET),
    Fault("same bytes with a NaN", Want.QUIET, base=_nan),
)
