"""Count queries, and how they are taken apart so that many share one x.

Where an op's weights hold few values (``parity.order.op.Carrying``), the large numbers of a pair
stand in x, and there they are for every sum of the call. Pairs can share it all the same: each
counts the ones away from the large numbers of the others, and the ones there are counted beside
other pairs. The counts of all parts of a pair are added. So n pairs take near 3 * sqrt(n) different
x and not n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from parity.order.tree import Ints

FEW_PAIRS = 4  # so many have an x each, which is no more than their parts would take


@dataclass(frozen=True)
class Question:
    """Pairs (left[k], right[k]) over the same ones: ``ones`` are leaves, those of a pair among them
    hold its large numbers instead."""

    left: Ints
    right: Ints
    ones: Ints


@dataclass(frozen=True)
class Part:
    """Some pairs of question number ``question``, ``pairs`` of it, over some of its ones."""

    question: int
    pairs: Ints
    left: Ints
    right: Ints
    ones: Ints


def parts_of(questions: Sequence[Question], n: int, *, shared: bool) -> list[Part]:
    """All that ``questions`` over n leaves ask. ``shared``: in parts whose pairs can share an x,
    those that can one after the other."""
    asked = [(number, each) for number, each in enumerate(questions) if len(each.left)]
    if not shared:
        return [_part(number, each, np.arange(len(each.left))) for number, each in asked]
    found = [row for number, each in asked for row in _apart(number, each, n)]
    # Leaves of different questions do not meet, so parts of one turn share an x across questions.
    return [part for _, part in sorted(found, key=lambda row: row[0])]


def _part(number: int, whole: Question, pairs: Ints, ones: Ints | None = None) -> Part:
    left, right = whole.left[pairs], whole.right[pairs]
    return Part(number, pairs, left, right, whole.ones if ones is None else ones)


def _apart(number: int, whole: Question, n: int) -> Iterator[tuple[tuple[int, int], Part]]:
    """Parts with their turn. Pairs stand in a square: those of a row share the x of the ones away
    from all of them; of the ones that are left to a pair, those of a column; then few are left."""
    count = len(whole.left)
    width = 1 if count <= FEW_PAIRS else isqrt(count - 1) + 1
    pairs = np.arange(count)
    columns = [_large(whole, pairs[at::width], n) for at in range(width)]
    asked = np.zeros(n, np.bool_)
    asked[whole.ones] = True
    for row, begin in enumerate(range(0, count, width)):
        mates = pairs[begin : begin + width]
        large = _large(whole, mates, n)
        yield (0, row), _part(number, whole, mates, np.flatnonzero(asked & ~large))
        hidden = np.flatnonzero(asked & large)
        for column, pair in enumerate(mates.tolist()):
            own = (hidden != whole.left[pair]) & (hidden != whole.right[pair])
            shared = columns[column][hidden]
            for turn, ones in ((1, hidden[own & ~shared]), (2, hidden[own & shared])):
                if len(ones):
                    yield (turn, column), _part(number, whole, pairs[pair : pair + 1], ones)


def _large(whole: Question, pairs: Ints, n: int) -> np.ndarray:
    """bool[n]: the leaves at which one of the pairs has a large number."""
    found = np.zeros(n, np.bool_)
    found[whole.left[pairs]] = found[whole.right[pairs]] = True
    return found
