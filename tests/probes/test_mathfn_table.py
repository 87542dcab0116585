"""Kestrel's table: what it compares, when a row is red, and what a machine without a GPU does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parity.elementary.functions import open_implementation
from parity.elementary.mathfn import Expected, Table, TableRow, read_result
from parity.errors import NotRunError
from parity.progress import Progress
from parity.status import Verdict
from parity_cpu.functions import ExpViaDouble
from parity_probes import mathfn_table
from parity_probes.mathfn_inputs import half_near_zero
from parity_probes.mathfn_table import COMPARISONS, Comparison, measure, measure_row, within

NO_DEVICE = "cuda: no device (planted)"
EXP = (-100.0, 0.0)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a GPU, wherever this runs."""

    def opened(name: str) -> object:
        if "cuda" in name:
            raise NotRunError(NO_DEVICE, "")
        return open_implementation(name)

    monkeypatch.setattr(mathfn_table, "open_implementation", opened)


def table(seed: int = 7) -> Table:
    return measure(seed, "parity mathfn --table", Progress(quiet=True))


@pytest.mark.usefixtures("no_device")
def test_without_a_device_the_other_rows_are_run() -> None:
    found = table()
    assert found.verdict is Verdict.NOT_RUN
    run = [row for row in found.rows if row.verdict is not Verdict.NOT_RUN]
    assert [(row.name, row.verdict) for row in run] == [
        ("f32(exp(f64 x)) against the replica", Verdict.SAME)
    ]
    assert run[0].pairs == 400_002
    assert 15 <= run[0].differ <= 45
    assert run[0].max_ulp == 1
    assert run[0].first is not None
    assert {row.reason for row in found.rows if row not in run} == {NO_DEVICE}
    assert read_result(found.to_json(), "x") == found


def test_the_rows_of_the_articles_are_there() -> None:
    rows = {(one.function, one.ref, one.dut, one.samples, one.domain) for one in COMPARISONS}
    assert rows >= {
        ("expf", "ucrt", "cuda", 400_002, EXP),
        ("expf", "ucrt", "exp_via_double", 400_002, EXP),
        ("exp64", "exp_via_double", "exp_via_double@cuda", 400_002, EXP),
        ("rsqrt", "ucrt", "cuda", 400_002, (0.0, 100.0)),
        ("rsqrt", "ucrt", "ucrt@cuda", 400_002, (0.0, 100.0)),
        *(
            (function, "ucrt", "cuda", 600_002, (-size, size))
            for function in ("cosf", "sinf")
            for size in (10_000.0, 35.0)
        ),
    }


def test_half_of_the_samples_near_zero() -> None:
    x = half_near_zero(400_002, EXP, 7).view(np.float32)
    assert x.size == 400_002
    assert abs((x > -1).mean() - 0.505) < 0.003
    assert abs((x > -1e-4).mean() - 0.5 * 10.8 / 20) < 0.003
    assert x.min() < -99.9
    assert x.max() < 0


ROW = TableRow(
    "row", "a", "b", "", Expected(""), Verdict.NOT_RUN, pairs=1000, differ=280, max_ulp=2
)


@pytest.mark.parametrize(
    ("expected", "differ", "max_ulp", "holds"),
    [
        (Expected(""), 1000, 9, True),
        (Expected("", share=(24.0, 33.0)), 280, 2, True),
        (Expected("", share=(24.0, 33.0)), 239, 2, False),
        (Expected("", share=(24.0, 33.0)), 331, 2, False),
        (Expected("", share=(24.0, 33.0), max_ulp=2), 280, 3, False),
        (Expected("", share=(24.0, 33.0), max_ulp=2), 280, None, True),
        (Expected("", count=(15, 45)), 14, 1, False),
        (Expected("", count=(15, 45)), 45, 1, True),
        (Expected("", count=(15, 45)), 46, 1, False),
        (Expected("", count=(0, 0)), 0, None, True),
        (Expected("", count=(0, 0)), 1, 1, False),
    ],
)
def test_when_a_row_is_as_expected(
    expected: Expected, differ: int, max_ulp: int | None, holds: bool
) -> None:
    row = replace(ROW, expected=expected, differ=differ, max_ulp=max_ulp)
    assert within(row) is holds


def test_red_a_row_with_another_function_in_it() -> None:
    """libm in place of the exponential through double: some 250 samples differ, not 28."""
    comparison = next(one for one in COMPARISONS if one.dut == "exp_via_double")
    row = measure_row(replace(comparison, dut="libm"), 7, {})
    assert row.verdict is Verdict.DIVERGED
    assert row.differ > 100


def test_float64_results_are_compared_as_bits() -> None:
    class Nudged(ExpViaDouble):
        """The last bit of one result is another."""

        def exp64(self, x: np.ndarray) -> np.ndarray:
            out = super().exp64(x)
            out.view(np.uint64)[17] ^= 1
            return out

    comparison = Comparison("f64", "exp64", "a", "b", 100, EXP, Expected("", count=(0, 0)))
    same = measure_row(comparison, 7, {"a": ExpViaDouble(), "b": ExpViaDouble()})
    assert (same.verdict, same.differ, same.unit) == (Verdict.SAME, 0, "f64")
    row = measure_row(comparison, 7, {"a": ExpViaDouble(), "b": Nudged()})
    assert (row.verdict, row.differ, row.max_ulp) == (Verdict.DIVERGED, 1, 1)
    assert row.first is not None
    assert len(row.first.x_hex) == 8
    assert len(row.first.ref_hex) == len(row.first.dut_hex) == 16
    assert int(row.first.ref_hex, 16) ^ int(row.first.dut_hex, 16) == 1
