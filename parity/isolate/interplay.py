"""How variants act together: what matters only beside another, and what cancels.

The runs made for it are counted apart from the search: at most one for each variant alone and one
for the guilty set alone, one for each pair of guilty variants that differ first at the same key,
and delta debugging where one of these runs shows that variants act together. Sets of three and more
that act together only as a whole are found where one of these runs lies in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from parity.isolate.delta import Kept, Search, minimise

NEEDS, CANCELS = "needs", "cancels"


@dataclass(frozen=True)
class Interaction:
    """``needs``: ``names`` differ only with all of ``others``. ``cancels``: ``names`` differ, and
    with ``others`` beside them the run is equal. Both sets are 1-minimal in ``others``.

    ``both``: of a cancelling pair, whether the other one differs alone as well.
    """

    kind: str
    names: tuple[str, ...]
    others: tuple[str, ...]
    both: bool = False

    def __str__(self) -> str:
        names, others = " and ".join(self.names), " and ".join(self.others)
        verb = "differ" if len(self.names) > 1 else "differs"
        if self.kind == NEEDS:
            return f"{names} {verb} only together with {others}"
        if self.both:
            return f"{names} and {others} cancel: each differs alone, together they do not"
        return f"{others} hides {names}: it {verb} alone, and not with {others} beside it"


@dataclass
class Interplay:
    """``needed``: what the guilty set needs beside it to differ at all."""

    needed: list[str] = field(default_factory=list)
    found: list[Interaction] = field(default_factory=list)


def find_interplay(
    search: Search, guilty: Sequence[str], same_place: Callable[[str, str], bool]
) -> Interplay:
    """What the variants do together. ``guilty``: a 1-minimal removal, empty for an equal run.

    ``same_place``: whether two variants, each alone, differ first at the same key; only such a pair
    can cancel in every key.
    """
    made = Interplay()
    rest = [name for name in search.variants if name not in guilty]
    if guilty:
        made.needed = _needed(search, guilty, rest)
    if made.needed:
        made.found.append(Interaction(NEEDS, tuple(guilty), tuple(made.needed)))
    if len(guilty) > 1:
        made.found += _needing(search, guilty, rest)
        made.found += _cancelling_pairs(search, guilty, same_place)
    made.found += _cancelled(search, rest)
    return made


def smaller_guilty(search: Search, guilty: Sequence[str], made: Interplay) -> list[str] | None:
    """A 1-minimal part of ``guilty`` that is enough as well, or None where none is known.

    Without the others of it two that cancel may stay: that is tried here, one run for each pair.
    """
    for interaction in made.found:
        pair = {*interaction.names, *interaction.others}
        if interaction.kind == CANCELS and pair < set(guilty):
            search.equal_without(set(guilty) - pair)
    found = search.smallest_equal(guilty)
    return None if found is None else minimise(found, search.equal_without)


def _needed(search: Search, guilty: Sequence[str], rest: Sequence[str]) -> list[str]:
    if search.differs(guilty):
        return []
    return minimise(rest, _beside(search, guilty, red=True))


def _beside(search: Search, names: Iterable[str], *, red: bool) -> Callable[[Kept], bool]:
    """Whether ``names`` with some more differ, or do not."""
    return lambda more: search.differs({*names, *more}) is red


def _needing(search: Search, guilty: Sequence[str], rest: Sequence[str]) -> list[Interaction]:
    """Guilty variants that do not differ alone; beside ``rest`` each does, for it is needed."""
    found = []
    for name in guilty:
        if not search.differs({name}):
            more = minimise(rest, _beside(search, [name], red=True))
            found.append(Interaction(NEEDS, (name,), tuple(more)))
    return found


def _cancelling_pairs(
    search: Search, guilty: Sequence[str], same_place: Callable[[str, str], bool]
) -> list[Interaction]:
    red = [name for name in guilty if search.differs({name})]
    return [
        Interaction(CANCELS, (one,), (other,), both=True)
        for one, other in combinations(red, 2)
        if same_place(one, other) and not search.differs({one, other})
    ]


def _cancelled(search: Search, rest: Sequence[str]) -> list[Interaction]:
    """Variants of an equal rest that differ alone: others of the rest cancel them."""
    found: list[Interaction] = []
    for name in rest if len(rest) > 1 else ():
        told = any(name in (*other.names, *other.others) for other in found)
        if told or not search.differs({name}):
            continue
        others = [other for other in rest if other != name]
        less = minimise(others, _beside(search, [name], red=False))
        both = len(less) == 1 and search.differs(less)
        found.append(Interaction(CANCELS, (name,), tuple(less), both))
    return found
