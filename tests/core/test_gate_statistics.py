"""Exact counts against brute force; coverage and false defaults on times that are made up."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from parity.gate import statistics
from parity.gate.statistics import (
    Interval,
    at_most,
    fewest_pairs,
    median_interval,
    sign_test,
    spread,
)
from parity.gate.summary import ALL, corrected_intervals, summarise
from parity.gate.timing import Pair
from parity.gate.verdict import GateVerdict, decide

LEVEL = Fraction("0.95")
DRAWS = 4000
Draw = Callable[[np.random.Generator, int], np.ndarray]


@pytest.mark.parametrize("n", range(1, 11))
def test_coins_are_counted_exactly(n: int) -> None:
    heads = [sum(coins) for coins in product((0, 1), repeat=n)]
    for k in range(-1, n + 1):
        assert at_most(n, k) == Fraction(sum(head <= k for head in heads), 2**n)


@pytest.mark.parametrize(
    ("n", "ranks", "coverage"),
    [
        (6, (1, 6), 0.96875),
        (8, (1, 8), 0.9921875),
        (9, (2, 8), 0.9609375),
        (12, (3, 10), 0.96142578125),
        (20, (6, 15), 0.95861053466796875),
        (24, (7, 18), 1 - 2 * 190_051 / 2**24),
        (100, (40, 61), None),
    ],
)
def test_ranks_of_the_textbook(n: int, ranks: tuple[int, int], coverage: float | None) -> None:
    found = median_interval([float(value) for value in range(n, 0, -1)], LEVEL)
    assert found.ranks == ranks
    assert (found.low, found.high) == ranks  # the values are their own ranks
    assert coverage is None or found.coverage == coverage


@pytest.mark.parametrize("n", range(1, 6))
def test_fewer_than_six_pairs_bound_nothing(n: int) -> None:
    """Three rounds of one sign, and five of them, are not significant."""
    ratios = [0.5] * n
    found = median_interval(ratios, LEVEL)
    assert found == Interval(0.95)
    assert not found.below_one
    assert sign_test(ratios).p == 2 ** (1 - n) > 0.05
    decision = decide(found, {}, identical=False)
    assert decision.verdict is GateVerdict.UNDECIDED
    assert decision.reason == "equal, with too few pairs to tell: 6 are the fewest"


def test_six_pairs_of_one_sign_do() -> None:
    found = median_interval([0.5] * 6, LEVEL)
    assert (found.low, found.high, found.below_one) == (0.5, 0.5, True)
    assert sign_test([0.5] * 6).p == 0.03125
    assert decide(found, {}, identical=False).verdict is GateVerdict.DEFAULT


@pytest.mark.parametrize(("level", "pairs"), [("0.95", 6), ("0.99", 8), ("0.999", 11)])
def test_fewest_pairs(level: str, pairs: int) -> None:
    assert fewest_pairs(Fraction(level)) == pairs
    assert median_interval([0.5] * (pairs - 1), Fraction(level)).low is None
    assert median_interval([0.5] * pairs, Fraction(level)).low == 0.5


@pytest.mark.parametrize("level", ["0.95", "0.99"])
@pytest.mark.parametrize("n", [1, 5, 6, 7, 8, 12, 20, 24, 31])
def test_test_and_interval_never_disagree(n: int, level: str) -> None:
    """The interval excludes 1 exactly where the sign test's p is at most 1 - level, ties too."""
    alpha = 1 - Fraction(level)
    for faster in range(n + 1):
        for ties in range(n + 1 - faster):
            ratios = [0.9] * faster + [1.0] * ties + [1.1] * (n - faster - ties)
            found, signs = median_interval(ratios, Fraction(level)), sign_test(ratios)
            assert (signs.faster, signs.ties, signs.slower) == (faster, ties, n - faster - ties)
            excluded = found.below_one or found.above_one
            assert excluded == (Fraction(signs.p) <= alpha), (n, faster, ties)


@pytest.mark.parametrize(
    ("ratios", "p"),
    [
        ([0.9] * 3, 0.25),
        ([0.9] * 8 + [1.1] * 2, 0.109375),
        ([0.9] * 5 + [1.1] * 5, 1.0),
        ([1.0] * 9, 1.0),
        ([0.9] * 6 + [1.0], 0.125),  # a tie counts against: 6 of 7, not 6 of 6
    ],
    ids=["three of one sign", "eight of ten", "half", "all tied", "a tie"],
)
def test_sign_test(ratios: list[float], p: float) -> None:
    assert sign_test(ratios).p == p


def test_spread() -> None:
    found = spread([5, 1, 4, 2, 3])
    assert (found.median, found.quartiles, found.extremes) == (3, (2.0, 4.0), (1, 5))
    alone = spread([7])
    assert (alone.median, alone.quartiles, alone.extremes) == (7, (7.0, 7.0), (7, 7))


# --- coverage -------------------------------------------------------------------------------------

RATIOS: dict[str, Draw] = {
    "normal": lambda draw, n: draw.normal(1.0, 0.1, n),
    "skewed": lambda draw, n: draw.lognormal(0.0, 0.7, n),
    "heavy tails": lambda draw, n: 1 + 0.05 * draw.standard_cauchy(n),
    "tied": lambda draw, n: draw.integers(-1, 2, n) * 0.1 + 1,
    "another spread each": lambda draw, n: 1 + draw.normal(0, 1, n) * draw.uniform(0.01, 1, n),
}


def covered(draw: Draw, n: int, level: Fraction) -> float:
    """In how many of DRAWS runs the interval holds the median ratio, which is 1."""
    source = np.random.default_rng(20261130)
    hits = 0
    for _ in range(DRAWS):
        found = median_interval(draw(source, n).tolist(), level)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1 <= found.high
    return hits / DRAWS


@pytest.mark.parametrize("n", [6, 20, 24])
@pytest.mark.parametrize("name", RATIOS)
def test_interval_covers_at_least_what_it_says(name: str, n: int) -> None:
    assert covered(RATIOS[name], n, LEVEL) >= 0.95


def test_coverage_is_what_the_interval_states() -> None:
    """Of a continuous distribution it is exact: 0.9586 of 20 pairs, to three standard errors."""
    stated = median_interval([1.0] * 20, LEVEL).coverage
    error = 3 * (stated * (1 - stated) / DRAWS) ** 0.5
    assert abs(covered(RATIOS["skewed"], 20, LEVEL) - stated) < error


def test_red_interval_that_is_one_rank_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "at_most", lambda n, k: at_most(n, k - 1))
    assert covered(RATIOS["normal"], 20, LEVEL) < 0.9


# --- false defaults -------------------------------------------------------------------------------

SIZES = (1, 2, 4, 8)


def a_against_a(source: np.random.Generator, rounds: int) -> list[Pair]:
    """Two sides of one speed: drift over the rounds, skewed noise and outliers on both."""
    pairs = []
    for number in range(rounds):
        drift = 1 + 0.3 * np.sin(number / 5)
        for size in SIZES:
            noise = source.lognormal(0, 0.05, 2) + source.exponential(0.3, 2) * (
                source.random(2) < 0.1
            )
            base, candidate = (round(1e6 * size * drift * one) for one in noise)
            pairs.append(Pair(7, number, size, False, base, candidate))
    return pairs


def verdicts(rounds: int, draws: int) -> dict[GateVerdict, float]:
    """How often each verdict is given to a candidate that is the base."""
    source = np.random.default_rng(8)
    counts = dict.fromkeys(GateVerdict, 0)
    for _ in range(draws):
        pairs = a_against_a(source, rounds)
        whole = summarise(pairs, SIZES, LEVEL)[ALL].interval
        by_size = corrected_intervals(pairs, SIZES, LEVEL)
        counts[decide(whole, by_size, identical=False).verdict] += 1
    return {verdict: count / draws for verdict, count in counts.items()}


@pytest.mark.parametrize("rounds", [6, 24])
def test_a_against_a_is_rarely_called_faster(rounds: int) -> None:
    found = verdicts(rounds, 1000)
    assert found[GateVerdict.DEFAULT] < 0.05
    assert found[GateVerdict.UNDECIDED] > 0.9
    assert found[GateVerdict.REFUSED] == 0


def test_red_medians_alone_call_a_against_a_faster_half_the_time() -> None:
    """What the interval is for: whichever median is smaller wins every second time."""
    source = np.random.default_rng(8)
    faster = 0
    for _ in range(400):
        timing = summarise(a_against_a(source, 24), SIZES, LEVEL)[ALL]
        faster += timing.candidate.median < timing.base.median
    assert faster / 400 > 0.4


def test_identical_sides_are_never_the_default() -> None:
    clear = median_interval([0.5] * 24, LEVEL)
    assert decide(clear, {}, identical=False).verdict is GateVerdict.DEFAULT
    decision = decide(clear, {}, identical=True)
    assert decision.verdict is GateVerdict.UNDECIDED
    assert decision.reason == "equal, and both sides run the same code: nothing to gate"
