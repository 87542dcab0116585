"""The same argument gives the same bits wherever it sits, or the place that matters is found."""

from __future__ import annotations

import numpy as np
import pytest

from parity.elementary.functions import open_implementation
from parity.elementary.positions import AGAIN, LENGTHS, OFFSETS, check_positions, layouts, on_a_line
from parity.errors import InputError

N = 10_001
FAULTS = "tests.red.function_faults"
RNG = np.random.default_rng(26)
X = RNG.normal(0, 20, N).astype(np.float32)


@pytest.mark.parametrize("name", ["ucrt", "libm", "correct"])
@pytest.mark.parametrize("function", ["expf", "logf", "sinf", "cosf"])
def test_implementations_that_promise_it(name: str, function: str) -> None:
    x = np.abs(X) if function == "logf" else X
    assert check_positions(open_implementation(name), function, x) == []


@pytest.mark.parametrize("function", ["expf", "logf", "sinf", "cosf", "softplus"])
def test_numpy_is_reported_as_it_is(function: str) -> None:
    """NumPy promises nothing here: whatever is found must be so."""
    opened = open_implementation("numpy")
    for violation in check_positions(opened, function, np.abs(X)):
        assert violation.as_array != violation.as_laid
        whole = opened.evaluate(function, on_a_line(np.abs(X))).view(np.uint32)
        assert int(whole[violation.index]) == violation.as_array


def test_red_the_rest_of_an_array_has_other_bits() -> None:
    found = check_positions(open_implementation(f"{FAULTS}:by_place"), "expf", X)
    first = found[0]
    assert (first.layout, first.index, first.x) == ("alone", 0, int(X.view(np.uint32)[0]))
    assert first.as_laid == first.as_array ^ 1
    assert str(first) == f"{first.x:08x}: {first.as_array:08x} in the array, " + (
        f"{first.as_laid:08x} alone"
    )
    # The last element is in a rest both times; all others come out differently alone.
    assert [one.index for one in found if one.layout == "alone"] == list(range(N - 1))
    lengths = {one.layout.split(" at ")[0] for one in found if one.layout.startswith("in a slice")}
    assert lengths == {f"in a slice of {k}" for k in LENGTHS if k % 16}


def test_red_a_strided_array_has_other_bits() -> None:
    found = check_positions(open_implementation(f"{FAULTS}:by_stride"), "expf", X)
    count = {layout: 0 for layout in ("at stride 2", "at stride 2 from 1", "backwards")}
    for one in found:
        count[one.layout] += 1
    assert count == {"at stride 2": 5_001, "at stride 2 from 1": 5_000, "backwards": N}
    assert found[-1].index == 0


@pytest.mark.parametrize("name", ["flaky", "seldom_flaky"])
def test_red_a_result_that_does_not_repeat(name: str) -> None:
    """No matter of places: the same array, or the same element alone, gives other bits."""
    (first,) = check_positions(open_implementation(f"{FAULTS}:{name}"), "expf", X)
    assert first.layout == AGAIN
    assert first.x == int(X.view(np.uint32)[first.index])
    assert first.as_laid == first.as_array ^ 1
    assert str(first) == (
        f"not repeatable: the same input in the same place, {first.x:08x}, gave "
        f"{first.as_array:08x} and then {first.as_laid:08x}"
    )


def test_layouts_are_those_of_the_claim() -> None:
    named = list(layouts(N))
    alone = [places.start for name, places in named if name == "alone"]
    assert alone == list(range(N))
    slices = [(name, places) for name, places in named if name.startswith("in a slice")]
    assert len(slices) == len(LENGTHS) * len(OFFSETS) == 33 * 16
    for name, places in slices:
        length, offset = places.stop - places.start, places.start % 16
        assert name == f"in a slice of {length} at offset {offset}"
        assert places.stop <= N


@pytest.mark.parametrize("n", [64, 65, 100, 1_000])
def test_every_slice_lies_inside(n: int) -> None:
    assert all(0 <= places.start < n for name, places in layouts(n) if "slice" in name)
    assert all(places.stop <= n for name, places in layouts(n) if "slice" in name)


def test_the_array_starts_a_line() -> None:
    for start in range(16):
        copy = on_a_line(X[start:])
        assert copy.ctypes.data % 64 == 0
        assert copy.tobytes() == X[start:].tobytes()


def test_red_too_few_arguments() -> None:
    with pytest.raises(InputError, match="63 arguments are too few to lay out"):
        check_positions(open_implementation("numpy"), "expf", X[:63])
