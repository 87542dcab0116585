"""The tree of a sum of squares, which has no negative terms, by triples.

Ones at leaves i and j, 2^24 at leaf k: a one alone is absorbed by 2^24 in f32, two that met before
are not. So the sum exceeds 2^24 exactly if i and j meet before they meet k. Of three leaves of a
tree of two-term additions exactly one pair meets first.

An output of fewer bits hides what f32 has kept, but not beside a tie: where the large square lies
halfway between two of its numbers and is rounded down to the even one, anything more is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.order.asking import Asker, NoTree
from parity.order.tree import Ints, Tree

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sizes:
    """Terms, by their roots: beside the square of ``big``, f32 loses a square of ``small``, but not
    two that come together. ``alone``: what the op answers where both are lost."""

    big: float
    small: float
    alone: float


# By the format of the output. 17^2 = 289 lies halfway between 288 and 290 of bf16, 47^2 = 2209
# between 2208 and 2210 of f16; their places in f32 are 2 and 2^-12 as scaled here.
SIZES = {
    "f32": Sizes(2.0**12, 1.0, 2.0**24),
    "bf16": Sizes(17 * 2.0**8, 0.875, 288 * 2.0**16),
    "f16": Sizes(47.0, 1.25 * 2.0**-7, 2208.0),
}


class Triples:
    """Triple queries of one op."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.n = asker.op.n
        self.sizes = SIZES[asker.op.out]

    def first(self, left: Ints, right: Ints, third: Ints) -> Flags:
        """bool[...]: do ``left`` and ``right`` meet before they meet ``third``?"""
        places = np.stack([left, right, third], axis=1)
        sizes = self.sizes
        values = np.tile([sizes.small, sizes.small, sizes.big], (len(places), 1))
        return self.asker.exceeds(len(places), self.asker.entries(places, values), sizes.alone)


@dataclass
class _Part:
    """Leaves of one set whose additions with its pivot are not told apart yet."""

    pivot: int
    leaves: Ints


def tree_by_triples(triples: Triples, rng: np.random.Generator) -> Tree:
    """The tree, near n log n queries for balanced trees, n log^2 n for chains: a set's other leaves
    are sorted by where they meet its pivot, as quicksort does; those that meet it at one addition
    are a new set.

    Raises NoTree where the answers are those of no tree of two-term additions.
    """
    children: list[list[int]] = []
    sets = [(np.arange(triples.n), -1)]  # leaves, and the addition that they are an operand of
    while sets:
        pivots = [int(leaves[rng.integers(len(leaves))]) for leaves, _ in sets]
        parts = [
            [_Part(pivot, leaves[leaves != pivot])] if len(leaves) > 1 else []
            for pivot, (leaves, _) in zip(pivots, sets, strict=True)
        ]
        later: list[tuple[Ints, int]] = []
        for pivot, (_, into), levels in zip(
            pivots, sets, _sorted(triples, parts, rng), strict=True
        ):
            node = pivot
            for level in levels:
                children.append([node])
                node = triples.n + len(children) - 1
                later.append((level, node))
            if into >= 0:
                children[into - triples.n].append(node)
        sets = later
    return Tree.joined(triples.n, children)


def _sorted(
    triples: Triples, parts: list[list[_Part]], rng: np.random.Generator
) -> list[list[Ints]]:
    """For each set its levels, the nearest to the pivot first."""
    done: list[dict[int, Ints]] = [{} for _ in parts]
    places = [[(0, part) for part in found] for found in parts]
    while any(places):
        waiting = [(k, at, part) for k, found in enumerate(places) for at, part in found]
        chosen = [int(part.leaves[rng.integers(len(part.leaves))]) for _, _, part in waiting]
        split = _split(triples, [part for _, _, part in waiting], chosen)
        places = [[] for _ in parts]
        for (k, at, part), (near, same, far) in zip(waiting, split, strict=True):
            done[k][at + len(near)] = same
            if len(near):
                places[k].append((at, _Part(part.pivot, near)))
            if len(far):
                places[k].append((at + len(near) + len(same), _Part(part.pivot, far)))
    return [[found[at] for at in sorted(found)] for found in done]


def _split(
    triples: Triples, parts: list[_Part], chosen: list[int]
) -> list[tuple[Ints, Ints, Ints]]:
    """Each part's leaves that meet the pivot before, with and after the chosen one."""
    others = [part.leaves[part.leaves != c] for part, c in zip(parts, chosen, strict=True)]
    counts = [len(leaves) for leaves in others]
    pivot = np.repeat([part.pivot for part in parts], counts)
    fixed = np.repeat(np.array(chosen, np.int64), counts)
    free = np.concatenate(others)
    after = triples.first(pivot, fixed, free)
    before = triples.first(pivot, free, fixed)
    _require_one(free, fixed, pivot, after & before)
    ends = np.cumsum(counts)[:-1]
    return [
        (leaves[b], np.append(leaves[w], c), leaves[a])
        for leaves, c, b, w, a in zip(
            others,
            chosen,
            np.split(before, ends),
            np.split(~after & ~before, ends),
            np.split(after, ends),
            strict=True,
        )
    ]


def _require_one(free: Ints, fixed: Ints, pivot: Ints, both: Flags) -> None:
    """Of three leaves one pair meets first."""
    if both.any():
        k = int(np.argmax(both))
        raise NoTree(
            f"leaf {pivot[k]} meets leaf {fixed[k]} before leaf {free[k]}, and leaf {free[k]} "
            f"before leaf {fixed[k]}: three terms in one addition, or a sum wider than f32"
        )
