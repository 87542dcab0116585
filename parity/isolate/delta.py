"""Delta debugging over variants: a minimal set whose removal makes the run equal.

Nothing here runs an engine: ``differs(kept)`` says whether the dut with just these variants differs
from the ref. It need not be monotone: variants may cancel, or matter only with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Kept = frozenset[str]
Differs = Callable[[Kept], bool]


class Search:
    """What is known of a run with ``variants`` on: which sets of them differ from the ref.

    ``differs`` is asked once for a set; ``red`` says what is known before: whether all of them do.
    """

    def __init__(self, variants: Sequence[str], differs: Differs, *, red: bool = True) -> None:
        self.variants = tuple(variants)
        self._ask = differs
        self._known: dict[Kept, bool] = {frozenset(variants): red}

    def differs(self, kept: Iterable[str]) -> bool:
        """Whether the run differs with just these variants."""
        chosen = frozenset(kept)
        if chosen not in self._known:
            self._known[chosen] = self._ask(chosen)
        return self._known[chosen]

    def equal_without(self, removed: Iterable[str]) -> bool:
        """Whether the run is equal with these variants removed."""
        return not self.differs(frozenset(self.variants) - frozenset(removed))

    def in_order(self, names: Iterable[str]) -> list[str]:
        """``names`` in the order of ``variants``."""
        chosen = frozenset(names)
        return [name for name in self.variants if name in chosen]

    def smallest_equal(self, within: Iterable[str]) -> list[str] | None:
        """The smallest removal inside ``within``, and not all of it, that is known to make the run
        equal."""
        everything, limit = frozenset(self.variants), frozenset(within)
        removals = [everything - kept for kept, red in self._known.items() if not red]
        inside = [self.in_order(removed) for removed in removals if removed < limit]
        return min(inside, key=len, default=None)


def find_guilty(search: Search, alone: Sequence[str], likely: Sequence[str]) -> list[str] | None:
    """A 1-minimal set of variants whose removal makes the run equal; None where none is found.

    ``alone``: the variants each of which may be the only cause; ``likely``: those that may be among
    several. Both are hints: wrong ones cost runs, never the truth of the answer.

    One guilty switch among k in ``alone`` takes at most 1 + ceil(log2 k) runs, the one that shows
    the run equal without just that switch included. Otherwise a set that is enough is looked for
    and made smaller until each variant left in it is needed.
    """
    only = _halve(search, list(alone))
    if only is not None:
        return [only]
    found = _enough(search, likely)
    if found is None:
        return None
    # With a hint most of what is left is guilty, and single removals are the quickest.
    size = 1 if set(found) == set(likely) else max(len(found) // 4, 1)
    return minimise(found, search.equal_without, size)


def minimise(items: Sequence[str], holds: Callable[[Kept], bool], size: int = 1) -> list[str]:
    """A 1-minimal part of ``items`` for which ``holds``, which is known to hold for all of them.

    Parts of ``size`` items are left out first, then of half as many, at last single ones until none
    can be left out (Zeller's ddmin by complements). ``holds`` must remember its answers.
    """
    kept = list(items)
    while True:
        before = len(kept)
        at = 0
        while at < len(kept):
            rest = kept[:at] + kept[at + size :]
            if holds(frozenset(rest)):
                kept = rest
            else:
                at += size
        if size == 1 and len(kept) == before:
            return kept
        size = max(size // 2, 1)


def _halve(search: Search, suspects: list[str]) -> str | None:
    """The only cause among ``suspects``, shown to be it; None when the runs refute that there is
    one. A removal that makes the run equal proves its half, another only points at the rest."""
    proved = False
    while len(suspects) > 1 or (suspects and not proved):
        half = suspects[: (len(suspects) + 1) // 2]
        equal = search.equal_without(half)
        if not equal and len(suspects) == 1:
            return None
        suspects = half if equal else suspects[len(half) :]
        proved = equal
    return suspects[0] if suspects else None


def _enough(search: Search, likely: Sequence[str]) -> list[str] | None:
    """Variants whose removal makes the run equal: the fewest known, the likely ones, or all."""
    known = search.smallest_equal(search.variants)
    if known is not None:
        return known
    for removed in (search.in_order(likely), list(search.variants)):
        if removed and search.equal_without(removed):
            return removed
    return None
