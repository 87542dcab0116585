"""The fused launches of a Gated DeltaNet step on a device, overlapped or not: the ops' bytes."""

from __future__ import annotations

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity_cuda.cupy_backend import CupyBackend
from tests.engines.emu import delta_cases
from tests.engines.emu.delta_cases import SHAPES, Shape

pytestmark = pytest.mark.gpu

# Those of qwen3.5-27b, of one row and of as many as a launch may take.
LARGE = (Shape(16, 48, 128, 128), Shape(16, 48, 128, 128, 4), Shape(4, 8, 128, 128, 16))


@pytest.fixture(scope="module", params=["on", "off"])
def device(request: pytest.FixtureRequest) -> CupyBackend:
    return CupyBackend(EngineSettings(options={"overlap": request.param}))


@pytest.mark.parametrize("shape", [*SHAPES, *LARGE], ids=str)
def test_two_launches_have_the_bytes_of_the_ops(device: CupyBackend, shape: Shape) -> None:
    given = delta_cases.data(shape)
    for mask in delta_cases.masks():
        ref = delta_cases.by_ops(device, shape, given, mask)
        dut = delta_cases.by_launches(device, shape, given, mask)
        assert delta_cases.differing(ref, dut) == [], hex(mask)


def test_values_that_are_not_finite_and_zeros(device: CupyBackend) -> None:
    shape = Shape(2, 4, 128, 128, 2)
    given = delta_cases.data(shape, special=True)
    assert np.isnan(given["s"]).any()
    ref = delta_cases.by_ops(device, shape, given, 0)
    assert delta_cases.differing(ref, delta_cases.by_launches(device, shape, given, 0)) == []
