"""The rounds of a gate summed up: by M, and all sizes together, which is what decides."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from parity.gate.statistics import (
    Interval,
    Signs,
    Spread,
    median_interval,
    sign_test,
    spread,
)
from parity.gate.timing import Pair

ALL = 0  # in place of an M: the sum over all of them, round by round
Times = Sequence[tuple[int, int]]  # (base, candidate) of each round, nanoseconds


@dataclass(frozen=True)
class Timing:
    """What the rounds say of one M: spreads of both sides; the ratio's median, signs, interval."""

    base: Spread
    candidate: Spread
    ratio: float
    signs: Signs
    interval: Interval


def summarise(
    pairs: Sequence[Pair], sizes: Sequence[int], confidence: Fraction
) -> dict[int, Timing]:
    """The timing of every M, and of all of them together (ALL)."""
    return {size: _timing(times_of(pairs, size), confidence) for size in (*sizes, ALL)}


def corrected_intervals(
    pairs: Sequence[Pair], sizes: Sequence[int], confidence: Fraction
) -> dict[int, Interval]:
    """An interval for each M, all of which hold together at ``confidence`` (Bonferroni)."""
    each = 1 - (1 - confidence) / len(sizes)
    return {size: median_interval(_ratios(times_of(pairs, size)), each) for size in sizes}


def times_of(pairs: Sequence[Pair], size: int) -> Times:
    """Times of each round at one M, or for ALL the sums over every M."""
    rounds: dict[int, tuple[int, int]] = {}
    for pair in pairs:
        if size in (ALL, pair.size):
            base, candidate = rounds.get(pair.round, (0, 0))
            rounds[pair.round] = (base + pair.base, candidate + pair.candidate)
    return list(rounds.values())


def _timing(times: Times, confidence: Fraction) -> Timing:
    ratios = _ratios(times)
    return Timing(
        base=spread([base for base, _ in times]),
        candidate=spread([candidate for _, candidate in times]),
        ratio=statistics.median(ratios),
        signs=sign_test(ratios),
        interval=median_interval(ratios, confidence),
    )


def _ratios(times: Times) -> list[float]:
    return [candidate / base for base, candidate in times]
