"""The tally: every pair in one bin, the distances of B03, and no way of cutting that matters."""

from __future__ import annotations

import numpy as np
import pytest

from parity.elementary import tally
from parity.elementary.tally import EVERY_FLOAT, Row, Tally, bin_names
from parity.errors import ParityBug
from parity_probes.mathfn_tally import PairCounter
from tests.probes.tally_oracle import Pair, words_of

SEED = 20_261_130
EDGES = (
    *(0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001),
    *(0x40000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF),
)
SIGNED = (*EDGES, *(word | 0x80000000 for word in EDGES))
ONE, TWO, LARGEST, INF, NAN = 0x3F800000, 0x40000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000
MINUS = 0x80000000


def random_pairs(count: int, seed: int = SEED) -> list[Pair]:
    """Equal pairs, near ones and unrelated ones; some inputs several times over."""
    rng = np.random.default_rng(seed)
    x, ref, far = rng.integers(0, EVERY_FLOAT, (3, count))
    near = ref + rng.integers(-40, 40, count)
    dut = np.choose(rng.integers(0, 3, count), [ref, near % EVERY_FLOAT, far])
    x[1::7] = x[::7][: x[1::7].size]
    ref[1::7], dut[1::7] = ref[::7][: ref[1::7].size], dut[::7][: dut[1::7].size]
    return list(zip(x.tolist(), ref.tolist(), dut.tolist(), strict=True))


def edge_pairs() -> list[Pair]:
    both = [(ref, dut) for ref in SIGNED for dut in SIGNED]
    return [(x, ref, dut) for x, (ref, dut) in enumerate(both)]


PAIRS = [*edge_pairs(), *random_pairs(20_000)]


def counted(pairs: list[Pair], bounded: bool = False, cut: int = 0) -> Tally:
    """The tally of these pairs, counted ``cut`` at a time."""
    counter, total = PairCounter(bounded), Tally()
    columns = [np.array(column, np.uint32) for column in zip(*pairs, strict=True)]
    for start in range(0, len(pairs), cut or len(pairs)):
        stop = start + (cut or len(pairs))
        counter.add(*(column[start:stop] for column in columns))
    counter.move_to(total)
    total.add_inputs(columns[0])
    return total


def assert_words(found: Tally, expected: np.ndarray) -> None:
    assert np.flatnonzero(found.words != expected).tolist() == []


@pytest.mark.parametrize("bounded", [False, True])
def test_every_pair_as_the_oracle_counts_it(bounded: bool) -> None:
    found = counted(PAIRS, bounded)
    found.check(len(PAIRS))
    assert_words(found, words_of(PAIRS, bounded))
    assert all(found.rows(name) for name in tally.LISTS) is bounded
    assert (found.kinds > 0).all()
    assert (found.results > 0).all()


@pytest.mark.parametrize("cut", [1, 7, 4_095, 4_097, 20_001])
def test_no_cut_changes_a_count(cut: int) -> None:
    pairs = PAIRS if cut > 7 else PAIRS[:500]
    assert_words(counted(pairs, True, cut), words_of(pairs, True))


def test_order_of_the_parts_does_not_matter() -> None:
    halves = [counted(PAIRS[:9_000], True), counted(PAIRS[9_000:], True)]
    for parts in (halves, halves[::-1]):
        total = Tally()
        for part in parts:
            total.add([part.words])
        assert_words(total, words_of(PAIRS, True))


# Pair, distance, bin; None: no distance (B03).
DISTANCES = {
    "1 and the next": (ONE, ONE + 1, 1, "1"),
    "across zero": (MINUS | 1, 1, 2, "2"),
    "both zeros": (0, MINUS, None, "zero sign"),
    "largest and inf": (LARGEST, INF, 1, "infinity"),
    "2 and -2": (TWO, MINUS | TWO, 2_147_483_648, "1,073,741,825 to 2,147,483,648"),
    "largest of both signs": (
        MINUS | LARGEST,
        LARGEST,
        4_278_190_078,
        "2,147,483,649 to 4,294,967,296",
    ),
    "both infinities": (INF, MINUS | INF, 4_278_190_080, "infinity"),
    "NaN and 1": (NAN, ONE, None, "NaN in ref"),
    "1 and NaN": (ONE, NAN, None, "NaN in dut"),
    "two NaNs": (NAN, NAN + 1, None, "NaN payload"),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", DISTANCES)
def test_distances(name: str, swapped: bool) -> None:
    ref, dut, distance, label = DISTANCES[name]
    if swapped:
        ref, dut = dut, ref
        label = {"NaN in ref": "NaN in dut", "NaN in dut": "NaN in ref"}.get(label, label)
    found = counted([(5, ref, dut)])
    found.check(1)
    largest = int(found.by_exponent[2][0])
    assert largest == (distance or 0)
    assert found.rows("worst") == ([Row(5, ref, dut)] if distance else [])
    bins = dict(zip(bin_names(), found.below + found.above, strict=True))
    bins |= dict(zip(tally.KINDS, found.kinds, strict=True))
    assert [name for name, count in bins.items() if count] == [label]


def test_nan_against_a_number_is_ranked_apart_and_never_lost() -> None:
    """B02: the largest distances elsewhere do not push it out."""
    many = [(x, ONE, MINUS | LARGEST) for x in range(100)]
    found = counted([*many, (2000, 0x40A00000, NAN), (3000, NAN, 0x40A00000)])
    assert len(found.rows("worst")) == tally.KEEP
    assert found.rows("NaN in dut") == [Row(2000, 0x40A00000, NAN)]
    assert found.rows("NaN in ref") == [Row(3000, NAN, 0x40A00000)]


def test_bin_names() -> None:
    names = bin_names()
    assert names[:5] == ["1", "2", "3 to 4", "5 to 8", "9 to 16"]
    assert len(names) == tally.BINS


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, EVERY_FLOAT), (0, 0), (0x7F7FFFFF, 0x7F800002), (0x80000000, 0x80000001), (5, 1 << 24)],
)
def test_inputs_of_a_range(start: int, stop: int) -> None:
    found = Tally()
    found.add_range(start, stop)
    if stop - start < EVERY_FLOAT:
        other = Tally()
        other.add_inputs(np.arange(start, stop, dtype=np.int64).astype(np.uint32))
        assert_words(found, other.words)
    else:  # B28
        assert found.inputs.tolist() == [16_777_214, 2, 2, 16_777_214, 4_261_412_864]
        assert found.by_exponent[0].tolist() == [1 << 23] * tally.EXPONENTS


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (tally.EQUAL, "equal pairs and bins"),
        (tally.KIND + 2, "equal pairs and bins"),
        (tally.BELOW + 32, "equal pairs and bins"),
        (tally.ABOVE, "equal pairs and bins"),
        (tally.RESULTS + 24, "classes of results"),
        (tally.INPUTS, "classes of inputs"),
        (tally.PAIRS + 511, "exponents"),
        (tally.DIFFER, "equal pairs and exponents that differ"),
    ],
)
def test_red_one_count_wrong(place: int, said: str) -> None:
    found = counted(PAIRS[:100])
    found.check(100)
    found.words[place] += 1
    with pytest.raises(ParityBug, match=f"tally: {said} add up to"):
        found.check(100)


def test_red_a_pair_lost_or_a_negative_count() -> None:
    found = counted(PAIRS[:100])
    with pytest.raises(ParityBug, match="classes of results add up to 100, not to 101 pairs"):
        found.check(101)
    found.words[tally.ABOVE] -= 1000
    found.words[tally.BELOW] += 1000
    with pytest.raises(ParityBug, match="a count is negative"):
        found.check(100)
