"""How variants act together: what matters only beside another, and what cancels.

The runs made for it are counted apart from the search: at most one for each variant alone and one
for the guilty set alone, one for each pair of guilty variants that differ first at the same key,
and delta debugging where one of these runs shows that variants act together. Its answer is minimal
only one by one, so the smaller sets inside it are tried too: what is said names no idle variant.
Sets of three and more that act together only as a whole are found where one of these runs lies in
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, islice

from parity.isolate.delta import Kept, Search, minimise

NEEDS, BESIDE, CANCELS = "needs", "beside", "cancels"
PARTS = 14  # sets inside an answer that are tried at most: all parts of four


@dataclass(frozen=True)
class Interaction:
    """What a variant does beside others; ``others`` is as small as was found.

    ``needs``: ``name`` with all of ``others`` differs, and no part of that set does. ``beside``:
    ``name`` alone does not differ, nor do ``others``, but both together; a part may. ``cancels``:
    ``name`` differs, and with ``others`` beside it the run is equal.

    ``both``: of a cancelling pair, whether the other one differs alone as well.
    """

    kind: str
    name: str
    others: tuple[str, ...]
    both: bool = False

    def __str__(self) -> str:
        name, others = self.name, told(self.others)
        several = len(self.others) > 1
        if self.kind == NEEDS:
            return f"{name} differs only together with {others}"
        if self.kind == BESIDE:
            return f"{name} differs beside {others}: alone it does not, nor do they without it"
        if self.both:
            return f"{name} and {others} cancel: each differs alone, together they do not"
        if several:
            return f"{others} together hide {name}: alone it differs, beside them it does not"
        return f"{others} hides {name}: alone it differs, beside {others} it does not"


@dataclass
class Interplay:
    """``needed``: what the guilty set needs beside it to differ at all."""

    needed: list[str] = field(default_factory=list)
    found: list[Interaction] = field(default_factory=list)


def told(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def find_interplay(
    search: Search, guilty: Sequence[str], same_place: Callable[[str, str], bool]
) -> Interplay:
    """What the variants do together. ``guilty``: a 1-minimal removal, empty for an equal run.

    ``same_place``: whether two variants, each alone, differ first at the same key; only such a pair
    can cancel in every key.
    """
    made = Interplay()
    rest = [name for name in search.variants if name not in guilty]
    if guilty and not search.differs(guilty):
        made.needed = _needed(search, guilty, rest)
    made.found += _needing(search, guilty, rest)
    made.found += _cancelling_pairs(search, guilty, same_place)
    made.found += _cancelled(search, rest)
    return made


def smaller_guilty(search: Search, guilty: Sequence[str], made: Interplay) -> list[str] | None:
    """A 1-minimal part of ``guilty`` that is enough as well, or None where none is known.

    Without the others of it two that cancel may stay: that is tried here, one run for each pair.
    """
    for interaction in made.found:
        pair = {interaction.name, *interaction.others}
        if interaction.kind == CANCELS and pair < set(guilty):
            search.equal_without(set(guilty) - pair)
    found = search.smallest_equal(guilty)
    return None if found is None else minimise(found, search.equal_without)


def smallest(items: Sequence[str], holds: Callable[[Kept], bool]) -> list[str]:
    """A part of ``items`` for which ``holds``, which is known to hold for all of them.

    No part of it holds where it has up to four items; a larger one is minimal one by one, and no
    single item and few of its pairs hold.
    """
    found = minimise(items, holds)
    parts = islice(_parts(found), PARTS)
    return next((list(part) for part in parts if holds(frozenset(part))), found)


def _parts(items: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every part of ``items`` but none and all, the smallest first."""
    return chain.from_iterable(combinations(items, size) for size in range(1, len(items)))


def _needed(search: Search, names: Iterable[str], rest: Sequence[str]) -> list[str]:
    """What ``names`` need beside them to differ, and what does not differ without them."""
    return smallest(rest, lambda more: search.differs({*names, *more}) and not search.differs(more))


def _hiding(search: Search, name: str) -> Callable[[Kept], bool]:
    """Whether ``name``, which differs alone, does not with some more beside it."""
    return lambda more: not search.differs({name, *more})


def _needing(search: Search, guilty: Sequence[str], rest: Sequence[str]) -> list[Interaction]:
    """Guilty variants that do not differ alone; beside ``rest`` each does, for it is needed."""
    found = []
    for name in guilty:
        if not search.differs({name}):
            others = _needed(search, [name], rest)
            kind = NEEDS if _as_a_whole(search, [name, *others]) else BESIDE
            found.append(Interaction(kind, name, tuple(others)))
    return found


def _as_a_whole(search: Search, names: Sequence[str]) -> bool:
    """Whether no part of these names is known to differ; of more than four not all are tried."""
    return len(names) <= 4 and not any(search.differs(part) for part in _parts(names))


def _cancelling_pairs(
    search: Search, guilty: Sequence[str], same_place: Callable[[str, str], bool]
) -> list[Interaction]:
    if len(guilty) < 2:
        return []
    red = [name for name in guilty if search.differs({name})]
    return [
        Interaction(CANCELS, one, (other,), both=True)
        for one, other in combinations(red, 2)
        if same_place(one, other) and not search.differs({one, other})
    ]


def _cancelled(search: Search, rest: Sequence[str]) -> list[Interaction]:
    """Variants of an equal rest that differ alone: others of the rest cancel them."""
    found: list[Interaction] = []
    for name in rest if len(rest) > 1 else ():
        known = any(pair.both and name in pair.others for pair in found)
        if known or not search.differs({name}):
            continue
        others = [other for other in rest if other != name]
        less = smallest(others, _hiding(search, name))
        both = len(less) == 1 and search.differs(less)
        found.append(Interaction(CANCELS, name, tuple(less), both))
    return found
