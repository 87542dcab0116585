"""What paired times say (docs/gate.md): signs and order statistics, exact, no distribution assumed.

A pair's ratio is the candidate's time divided by the base's: below 1 the candidate was faster.
Both the test and the interval count fair coins B of n, so they never disagree: the sign test is at
most ``1 - confidence`` exactly where the interval of the median excludes 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb

TEST = "exact two-sided sign test of the paired ratios, a tie counted against either side"
INTERVAL = "distribution-free interval of the median paired ratio, from its order statistics"


@dataclass(frozen=True)
class Signs:
    """How many pairs were faster, slower and tied, and the two-sided p of the larger count."""

    faster: int
    slower: int
    ties: int
    p: float


@dataclass(frozen=True)
class Interval:
    """An interval of the median. ``low`` and ``high``: None where the pairs are too few to bound
    it. ``ranks``: which order statistics they are, counted from 1. ``coverage``: the probability
    that they hold the median, at least ``confidence``; 1 where nothing is bounded."""

    confidence: float
    low: float | None = None
    high: float | None = None
    ranks: tuple[int, int] | None = None
    coverage: float = 1.0

    @property
    def below_one(self) -> bool:
        """The whole interval lies below 1."""
        return self.high is not None and self.high < 1

    @property
    def above_one(self) -> bool:
        """The whole interval lies above 1."""
        return self.low is not None and self.low > 1

    def within(self, margin: float) -> bool:
        """The whole interval lies within ``margin`` of 1, on either side."""
        if self.low is None or self.high is None:
            return False
        return self.low >= 1 - margin and self.high <= 1 + margin


@dataclass(frozen=True)
class Spread:
    """Median, quartiles and extremes of times, in nanoseconds."""

    median: float
    quartiles: tuple[float, float]
    extremes: tuple[float, float]


def at_most(n: int, k: int) -> Fraction:
    """P(B <= k), B the heads of ``n`` fair coins; 0 for k = -1."""
    return Fraction(sum(comb(n, heads) for heads in range(k + 1)), 2**n)


def sign_test(ratios: Sequence[float]) -> Signs:
    """Signs of ``ratios`` against 1, and p = min(1, 2 P(B >= the larger count))."""
    n = len(ratios)
    faster = sum(ratio < 1 for ratio in ratios)
    slower = sum(ratio > 1 for ratio in ratios)
    p = min(Fraction(1), 2 * at_most(n, n - max(faster, slower)))
    return Signs(faster, slower, n - faster - slower, float(p))


def fewest_pairs(confidence: Fraction) -> int:
    """The fewest pairs that can bound a median at ``confidence``: 6 at 0.95."""
    n = 1
    while 2 * at_most(n, 0) > 1 - confidence:
        n += 1
    return n


def median_interval(ratios: Sequence[float], confidence: Fraction) -> Interval:
    """Order statistics k and n + 1 - k, with the largest k for which 2 P(B < k) is at most
    ``1 - confidence``; unbounded where there is none."""
    n, k = len(ratios), 0
    while k < n // 2 and 2 * at_most(n, k) <= 1 - confidence:
        k += 1
    if not k:
        return Interval(float(confidence))
    ordered = sorted(ratios)
    coverage = float(1 - 2 * at_most(n, k - 1))
    return Interval(float(confidence), ordered[k - 1], ordered[n - k], (k, n + 1 - k), coverage)


def spread(times: Sequence[int]) -> Spread:
    """Median, quartiles (linear between order statistics) and extremes of at least one time."""
    quartiles = statistics.quantiles(
        [*times, *times[:1]] if len(times) < 2 else times, n=4, method="inclusive"
    )
    return Spread(statistics.median(times), (quartiles[0], quartiles[2]), (min(times), max(times)))
