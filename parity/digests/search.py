"""Find the first differing key of two digest trees, in about log2(n) digests read of each other.

It is the key that ``compare_dumps`` names on the dumps. Nothing is known of the keys after it: they
are not comparable. Keys and types stand in the trees in clear, so that a key which only one side
has, and another line order, are told from a key that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from parity.comparison.compare import ROWS_LIMIT, compare_dumps
from parity.comparison.parting import note_parting
from parity.digests.chain import bisect_first
from parity.digests.key_layout import Layout, Place
from parity.digests.tree import DigestTree, fold
from parity.dumps.greedy import match_greedy
from parity.errors import InputError
from parity.keys import Key, KeyOrder
from parity.status import Level, Verdict
from parity.tree import UNTYPED, Counts, KeyRow, KeyState, Tree


@dataclass(frozen=True)
class First:
    """The first difference. ``index``: place in both sequences of keys, None where there is none;
    ``exchanges``: digests read of the other tree; ``state``: a KeyState (NOT_COMPARABLE: the two
    order their keys otherwise from there on); ``place``: the key."""

    index: int | None
    exchanges: int
    state: str = KeyState.SAME
    place: Place | None = None


def find_first(ref: DigestTree, dut: DigestTree) -> First:
    """The first key at which the sequences part, within ceil(log2 n) + 1 exchanges, where n are
    the keys of the shorter one."""
    bits, equal = min(ref.bits, dut.bits), len(ref) == len(dut)

    def reader(side: DigestTree) -> Callable[[int], int]:
        def read(index: int) -> int:
            if equal and index == len(side) - 1:
                return side.whole  # the verdict "same" rests on all 64 bits
            return fold(side.links[index], bits) if side.bits != bits else side.links[index]

        return read

    index, looks = bisect_first(reader(ref), reader(dut), lengths=(len(ref), len(dut)))
    if index is None:
        return First(None, looks // 2)
    return First(index, looks // 2, *_parted(ref.layout, dut.layout, index))


def compare_trees(ref: DigestTree, dut: DigestTree) -> Tree:
    """The divergence tree of two digest trees.

    Its rows hold the digests up to each key, not those of the keys. Raises InputError when the
    dumps were hashed differently, or one recorded types that the other did not.
    """
    tree = compare_dumps(ref.head, dut.head)  # what the headers say, and no key
    _check_types(ref, dut)
    note_parting(tree, ref.head, dut.head)
    union = _union(ref.layout, dut.layout)
    tree.counts = Counts(len(ref), len(dut), 0, 0, 0, 0, len(union))
    if len(union) == len(ref) + len(dut):
        tree.reason = _nothing(tree.counts)
        return tree
    first = find_first(ref, dut)
    _judge(tree, ref, dut, first)
    fault = first if tree.verdict is Verdict.DIVERGED else First(None, first.exchanges)
    tree.keys = [*_rows(ref, dut, union, fault, tree.counts.same)]
    tree.notes.insert(0, _cost(first, len(ref)))
    for role, side in (("ref", ref), ("dut", dut)):
        if side.layout.untyped:
            tree.notes.append(f"{UNTYPED} in {role} ({side.layout.untyped:,} keys)")
    return tree


def _cost(first: First, keys: int) -> str:
    plural = "" if first.exchanges == 1 else "s"
    found = f"{first.exchanges} exchange{plural} of {keys:,} keys"
    return f"found in {found}; a digest shown here is of all keys up to that one"


def _judge(tree: Tree, ref: DigestTree, dut: DigestTree, first: First) -> None:
    """Verdict, level, first key and counts, as ``compare_dumps`` has them."""
    greedy = match_greedy(ref.head, dut.head)
    stop = min((side.stop for side in (ref, dut) if side.stop is not None), default=None)
    same, place = tree.counts.total if first.index is None else first.index, first.place
    tree.verdict, tree.level, tree.reason = Verdict.NOT_RUN, Level.NONE, ""
    if stop is not None and same > stop:
        same, where = stop + 1, ref.layout[stop].key
        tree.reason = f"not finite with the same bytes: {where}"
        tree.notes.append(f"not finite at {where}: the keys after it are not comparable")
    elif first.state == KeyState.NOT_COMPARABLE and place is not None:
        tree.reason = f"{same:,} keys are the same; from {place.key} on the line order differs"
        tree.reason += "\nparity compare on the dumps, which needs no line order"
    elif place is not None:
        tree.verdict, tree.first = Verdict.DIVERGED, place.key.tag
        tree.level = Level.GREEDY if greedy.equal else Level.NONE
    elif greedy.flip is not None:
        pos, one, other = greedy.flip
        tree.verdict, tree.first = Verdict.DIVERGED, Key(pos, None, "logits").tag
        choices = f"position {pos}, ref {one}, dut {other}"
        tree.reason = f"greedy choice differs at equal logits: {choices}"
    else:
        tree.verdict, tree.level = Verdict.SAME, Level.BIT
    state = first.state if tree.verdict is Verdict.DIVERGED else KeyState.SAME
    tree.counts = _counts(tree.counts, same, state)


def _counts(whole: Counts, same: int, state: str) -> Counts:
    """``same`` keys, then one in ``state``; of the keys after it nothing is known."""
    differ, missing, extra = (
        int(state == name) for name in (KeyState.DIFFERS, KeyState.MISSING, KeyState.EXTRA)
    )
    left = whole.total - same - differ - missing - extra
    return Counts(whole.ref, whole.dut, same, differ, missing, extra, left)


def _nothing(counts: Counts) -> str:
    empty = [side for side, keys in (("ref", counts.ref), ("dut", counts.dut)) if not keys]
    if empty:
        return f"nothing compared: no keys in {' and '.join(empty)}"
    return f"nothing compared: no key in common (ref {counts.ref:,}, dut {counts.dut:,})"


def _parted(ref: Layout, dut: Layout, index: int) -> tuple[str, Place]:
    """What became of the first key at which the sequences part, and which key it is."""
    one = ref[index] if index < len(ref) else None
    other = dut[index] if index < len(dut) else None
    if one is not None and other is not None and one[:2] == other[:2]:
        return KeyState.DIFFERS, one
    alone = []
    if one is not None and dut.index(one.segment, one.key) is None:
        alone.append((KeyState.MISSING, one))
    if other is not None and ref.index(other.segment, other.key) is None:
        alone.append((KeyState.EXTRA, other))
    rank = _ranks(ref, dut)
    if alone:
        return min(alone, key=lambda found: rank(found[1]))
    # Each has the other's key further on: the sides order the same keys in two ways.
    return KeyState.NOT_COMPARABLE, min(filter(None, (one, other)), key=rank)


def _ranks(ref: Layout, dut: Layout) -> Callable[[Place], tuple[int, ...]]:
    """The dataflow order of both sides' keys: segment, then position, layer and field."""
    segments = sorted(dict.fromkeys([*ref.segments, *dut.segments]), key=bool)  # "" is before all
    order = KeyOrder(ref.samples, dut.samples)
    return lambda place: (segments.index(place.segment), *order(place.key))


def _union(ref: Layout, dut: Layout) -> Sequence[Place]:
    """The keys of both sides, in dataflow order."""
    if ref == dut:
        return [*ref]
    places = {place[:2]: place for side in (dut, ref) for place in side}
    return sorted(places.values(), key=_ranks(ref, dut))


def _check_types(ref: DigestTree, dut: DigestTree) -> None:
    """A type that only one side recorded stands in its digests: nothing can be compared."""
    if ref.layout == dut.layout or not (ref.layout.untyped or dut.layout.untyped):
        return
    for place in ref.layout:
        at = dut.layout.index(place.segment, place.key)
        if at is not None and (place.type is None) != (dut.layout[at].type is None):
            lacking, other = (ref, dut) if place.type is None else (dut, ref)
            raise InputError(
                f"{lacking.source}: no dtype and shape of {place.key}, which {other.source} has",
                "write both again with parity digest --plain",
            )


def _rows(
    ref: DigestTree, dut: DigestTree, union: Sequence[Place], fault: First, same: int
) -> Iterator[KeyRow]:
    """A row a key: the first ``same`` are equal, then ``fault``; of very many keys that alone."""
    many = len(union) > ROWS_LIMIT
    for place in [fault.place] if many and fault.place else [] if many else union:
        at = ref.layout.index(place.segment, place.key)
        become = KeyState.SAME if at is not None and at < same else KeyState.NOT_COMPARABLE
        if fault.place is not None and place[:2] == fault.place[:2]:
            become = fault.state
        yield KeyRow(place.key.tag, become, _text(ref, place), _text(dut, place), place.segment)


def _text(side: DigestTree, place: Place) -> str | None:
    """The digest of all keys up to one and that key's type; None where the side lacks it."""
    at = side.layout.index(place.segment, place.key)
    if at is None:
        return None
    kind = side.layout[at].type
    return f"{side.links[at]:0{side.bits // 4}x}" + (f" {kind}" if kind else "")
