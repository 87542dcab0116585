"""Which interval gives which verdict and exit status; what the sums over sizes are."""

from __future__ import annotations

from fractions import Fraction

import pytest

from parity.gate.statistics import Interval
from parity.gate.summary import ALL, corrected_intervals, summarise, times_of
from parity.gate.timing import Pair
from parity.gate.verdict import MARGIN, GateVerdict, decide

CASES = [
    # low, high, verdict, reason
    (0.7, 0.8, "default", "equal and faster"),
    (0.995, 0.999, "default", "equal and faster"),
    (1.2, 1.3, "opt-in", "equal, slower"),
    (1.001, 1.5, "opt-in", "equal, slower"),
    (1.0, 1.5, "opt-in", "equal, not faster"),
    (1.0, 1.0, "opt-in", "equal, not faster"),
    (0.99, 1.01, "opt-in", "equal and the same speed within 1 %"),
    (0.995, 1.0, "opt-in", "equal and the same speed within 1 %"),
    (0.98, 1.005, "undecided", "equal, and the noise hides whether it is faster"),
    (0.995, 1.02, "undecided", "equal, and the noise hides whether it is faster"),
    (0.5, 1.0, "undecided", "equal, and the noise hides whether it is faster"),
    (0.5, 2.0, "undecided", "equal, and the noise hides whether it is faster"),
    (None, None, "undecided", "equal, with too few pairs to tell: 6 are the fewest"),
]


@pytest.mark.parametrize(("low", "high", "verdict", "reason"), CASES)
def test_verdict_of_an_interval(
    low: float | None, high: float | None, verdict: str, reason: str
) -> None:
    found = decide(Interval(0.95, low, high), {}, identical=False)
    assert found.verdict == verdict
    assert found.reason.partition(":")[0] == reason.partition(":")[0]


def test_exit_statuses() -> None:
    assert {verdict.value: int(verdict.exit_status) for verdict in GateVerdict} == {
        "default": 0,
        "opt-in": 1,
        "refused": 1,
        "undecided": 3,
    }


def test_a_size_that_is_shown_to_be_slower_takes_the_default_away() -> None:
    faster, slower, unclear = Interval(0.95, 0.7, 0.8), Interval(0.95, 1.1, 1.2), Interval(0.95)
    by_size = {1: faster, 4: unclear, 8: slower}
    found = decide(faster, by_size, identical=False)
    assert found.verdict is GateVerdict.OPT_IN
    assert found.reason == "equal and faster over all, but slower at M = 8"
    assert decide(faster, {1: faster, 4: unclear}, identical=False).verdict is GateVerdict.DEFAULT


def test_within_needs_both_bounds() -> None:
    assert Interval(0.95, 1 - MARGIN, 1 + MARGIN).within(MARGIN)
    assert not Interval(0.95, 0.98, 1.0).within(MARGIN)
    assert not Interval(0.95, 1.0, 1.02).within(MARGIN)
    assert not Interval(0.95).within(MARGIN)


def pairs() -> list[Pair]:
    """Two rounds at M = 1 and M = 4; the candidate is twice as fast at 4."""
    return [
        Pair(7, 1, 1, False, 100, 100),
        Pair(7, 1, 4, True, 300, 150),
        Pair(8, 2, 1, True, 110, 100),
        Pair(8, 2, 4, False, 310, 160),
    ]


def test_all_sizes_are_summed_round_by_round() -> None:
    assert times_of(pairs(), 1) == [(100, 100), (110, 100)]
    assert times_of(pairs(), 4) == [(300, 150), (310, 160)]
    assert times_of(pairs(), ALL) == [(400, 250), (420, 260)]
    timings = summarise(pairs(), (1, 4), Fraction("0.95"))
    assert timings[ALL].base.median == 410
    assert timings[4].ratio == (150 / 300 + 160 / 310) / 2
    assert timings[1].signs.ties == 1


def test_corrected_intervals_share_out_the_error() -> None:
    many = [Pair(7, number, size, False, 100, 90) for number in range(7) for size in (1, 2)]
    single = summarise(many, (1, 2), Fraction("0.95"))[1].interval
    shared = corrected_intervals(many, (1, 2), Fraction("0.95"))[1]
    assert (single.low, single.confidence) == (0.9, 0.95)
    assert (shared.low, shared.confidence) == (0.9, 0.975)
    fewer = [pair for pair in many if pair.round < 6]  # 6 bound 0.95, and not 0.975
    assert summarise(fewer, (1, 2), Fraction("0.95"))[1].interval.low == 0.9
    assert corrected_intervals(fewer, (1, 2), Fraction("0.95"))[1].low is None
