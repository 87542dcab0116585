"""A second writing of the tally, pair by pair in Python integers, from tally.py's words."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parity.elementary import tally

Pair = tuple[int, int, int]  # input, ref, dut


def class_of(bits: int) -> str:
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 255:
        return "NaN" if fraction else "inf"
    if exponent == 0:
        return "subnormal" if fraction else "zero"
    return "normal"


def ordered(bits: int) -> int:
    """The place of a value among all: -0 and +0 at 0, its neighbours at -1 and 1."""
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


def kind_of(ref: int, dut: int) -> str:
    classes = class_of(ref), class_of(dut)
    if classes == ("NaN", "NaN"):
        return "NaN payload"
    if "NaN" in classes:
        return "NaN in ref" if classes[0] == "NaN" else "NaN in dut"
    if ordered(ref) == ordered(dut):
        return "zero sign"
    return "infinity" if "inf" in classes else "value"


def bin_of(distance: int) -> int:
    """0 for 1, 1 for 2, 2 for 3 to 4, 3 for 5 to 8, ..."""
    place, top = 0, 1
    while distance > top:
        place, top = place + 1, 2 * top
    return place


def words_of(pairs: Iterable[Pair], bounded: bool = False) -> np.ndarray:
    """The array of parity/elementary/tally.py for these pairs, every one counted by itself."""
    words = tally.empty_words()
    lists: dict[str, set[tuple[int, int, int, int]]] = {name: set() for name in tally.LISTS}
    for x, ref, dut in pairs:
        place = tally.CLASSES.index(class_of(ref)) * 5 + tally.CLASSES.index(class_of(dut))
        words[tally.RESULTS + place] += 1
        words[tally.INPUTS + tally.CLASSES.index(class_of(x))] += 1
        words[tally.PAIRS + (x >> 23)] += 1
        for side, (name, bits) in enumerate((("ref beyond 1", ref), ("dut beyond 1", dut))):
            if bounded and class_of(bits) != "NaN" and abs(ordered(bits)) > 0x3F800000:
                words[tally.OUTSIDE + side] += 1
                lists[name].add((0, x, ref, dut))
        if ref == dut:
            words[tally.EQUAL] += 1
            continue
        _difference(words, lists, x, ref, dut)
    for name, rows in lists.items():
        start = tally.ROWS + 32 * tally.LISTS.index(name)
        for at, row in enumerate(sorted(rows)[: tally.KEEP]):
            words[start + 4 * at : start + 4 * at + 4] = row
    return words


def _difference(
    words: np.ndarray, lists: dict[str, set[tuple[int, int, int, int]]], x: int, ref: int, dut: int
) -> None:
    words[tally.DIFFER + (x >> 23)] += 1
    lists["first"].add((0, x, ref, dut))
    kind = kind_of(ref, dut)
    if kind != "value":
        words[tally.KIND + tally.KINDS.index(kind)] += 1
        lists[kind].add((0, x, ref, dut))
    if kind not in ("value", "infinity"):
        return
    distance = abs(ordered(ref) - ordered(dut))
    lists["worst"].add((-distance, x, ref, dut))
    words[tally.LARGEST + (x >> 23)] = max(words[tally.LARGEST + (x >> 23)], distance)
    if kind == "value":
        side = tally.ABOVE if ordered(dut) > ordered(ref) else tally.BELOW
        words[side + bin_of(distance)] += 1
