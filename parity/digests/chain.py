"""Prefix-chained digests: digest i stands for lines 0..i, so two runs can be bisected.

Digest i is FNV-1a-64 continued over ``<line i>`` and a line feed, starting from digest i-1: the
hash of the text of the first i+1 lines. Where two chains part, no later digest agrees again
(short of a 64-bit collision), so the first difference is found in about log2(n) looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from parity.comparison.matching import dump_order, segment_names
from parity.dump import Dump, Entry
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_prefixes
from parity.keys import Key, KeyOrder
from parity.tree import Search

Chain = Sequence[int] | Callable[[int], int]
Item = tuple[str, Entry]  # segment and entry


def chain(entries_in_order: Iterable[Entry], basis: int = BASES["fnv1a64"]) -> list[int]:
    """The chained digest after each entry; every line is ``<tag> <hash16> [dtype[shape]]``."""
    return chain_lines((_line(entry, entry.type is not None) for entry in entries_in_order), basis)


def chain_lines(lines: Iterable[str], basis: int = BASES["fnv1a64"]) -> list[int]:
    """The chained digest after each line, each an int in 0..2^64-1."""
    texts = [f"{line}\n".encode() for line in lines]
    return fnv1a64_prefixes(b"".join(texts), [*accumulate(map(len, texts))], basis)


def bisect_first(
    ref_chain: Chain, dut_chain: Chain, *, lengths: tuple[int, int] | None = None
) -> tuple[int | None, int]:
    """(index of the first line that differs or is on one side only, digests read).

    None when the chains are equal. A callable gives the digest at an index and needs ``lengths``.
    Of n lines on the shorter side, at most 2 * (ceil(log2(n)) + 1) digests are read.
    """
    if lengths is None:
        lengths = (_length(ref_chain), _length(dut_chain))
    shorter = min(lengths)
    looks = 0

    def equal_at(index: int) -> bool:
        nonlocal looks
        looks += 2
        return _read(ref_chain, index) == _read(dut_chain, index)

    if shorter == 0 or equal_at(shorter - 1):
        return (None if lengths[0] == lengths[1] else shorter), looks
    low, high = 0, shorter - 1  # the first difference lies in low..high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if equal_at(middle) else (low, middle)
    return low, looks


def first_by_bisection(ref: Dump, dut: Dump) -> tuple[Key | None, Search]:
    """The first divergence by bisecting the chains of two dumps, and what the search cost.

    Names the key that ``compare_dumps`` names, for a missing, an extra or a differing key; values
    that are not finite are not looked at. Raises InputError for a key given twice.
    """
    order = dump_order(ref, dut)
    sides = [in_order(side, segment_names(ref, dut), order) for side in (ref, dut)]
    typed = _typed(sides[0]) & _typed(sides[1])
    ref_chain, dut_chain = (chain_lines(line_texts(side, typed)) for side in sides)
    index, looks = bisect_first(ref_chain, dut_chain)
    total = len(sides[0]) + len(sides[1])
    if index is None:
        return None, Search(None, looks, total, 0)
    ranks = {name: rank for rank, name in enumerate(segment_names(ref, dut))}
    reached = [side[index] for side in sides if index < len(side)]
    _, entry = min(reached, key=lambda item: (ranks[item[0]], order(item[1].key)))
    return entry.key, Search(_layer_name(entry.key), looks, total, 0)


def _length(side: Chain) -> int:
    if callable(side):
        raise TypeError("a chain given as a callable needs lengths")
    return len(side)


def _read(side: Chain, index: int) -> int:
    return side(index) if callable(side) else side[index]


def in_order(dump: Dump, segments: Iterable[str], order: KeyOrder) -> list[Item]:
    """Entries segment by segment, in ``order``; raises InputError for a key given twice."""
    items = []
    for segment in segments:
        by_key = _by_key(dump, segment)
        items += [(segment, by_key[key]) for key in sorted(by_key, key=order)]
    return items


def _by_key(dump: Dump, segment: str) -> dict[Key, Entry]:
    """One segment's entries by key; raises InputError for a key given twice."""
    entries = dump.segments.get(segment, [])
    by_key = {entry.key: entry for entry in entries}
    if len(by_key) != len(entries):
        counted = Counter(entry.key for entry in entries)
        twice = next(key for key, count in counted.items() if count > 1)
        raise InputError(
            f"{dump.source}: key {twice} appears twice in its segment",
            "write the dump again, with one line for each key",
        )
    return by_key


def _typed(items: Iterable[Item]) -> set[tuple[str, Key]]:
    """Keys whose type was recorded: a type counts only where both sides recorded one."""
    return {(segment, entry.key) for segment, entry in items if entry.type is not None}


def line_texts(items: Iterable[Item], typed: set[tuple[str, Key]]) -> Iterable[str]:
    """The chained text of each item; a segment's name stands before its first line."""
    previous = ""
    for segment, entry in items:
        line = _line(entry, (segment, entry.key) in typed)
        yield line if segment == previous else f"# segment {segment}\n{line}"
        previous = segment


def _line(entry: Entry, typed: bool) -> str:
    line = f"{entry.key.tag} {entry.digest:016x}"
    return f"{line} {entry.type}" if typed else line


def _layer_name(key: Key) -> str:
    """``t33_l7``, or ``t33`` for a key outside the layers."""
    return f"t{key.pos}" if key.layer is None else f"t{key.pos}_l{key.layer}"
