"""The fused launches of the MoE FFN on a real device, byte for byte against its ops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity.variants import TIERS, variant_mask
from parity_cuda.cupy_backend import CupyBackend
from tests.engines.emu import moe_cases
from tests.engines.emu.moe_cases import Masks, Shape, asked, by_launches, by_ops

pytestmark = pytest.mark.gpu

REAL = Shape(128, 8, 768, 2048)
SHAPES = (*moe_cases.cases(), *(replace(REAL, data=kind) for kind in ("random", "near", "equal")),
          replace(REAL, shared=True, guess=False))  # fmt: skip


@pytest.fixture(scope="module", params=TIERS)
def tier(request: pytest.FixtureRequest) -> str:
    """Whose code the device has."""
    return str(request.param)


@pytest.fixture(scope="module", params=["on", "off"], ids=["overlapping", "one by one"])
def device(request: pytest.FixtureRequest, tier: str) -> CupyBackend:
    """The device with the kernels as they ship."""
    return CupyBackend(EngineSettings(tier, TIERS[tier], options={"overlap": request.param}))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_three_launches_have_the_bytes_of_the_ops(
    device: CupyBackend, shape: Shape, tier: str
) -> None:
    shape = replace(shape, guess=shape.guess and tier == "exact")
    mask = asked(shape, variant_mask(TIERS[tier]))
    given = moe_cases.data(shape)
    with np.errstate(all="ignore"):
        wanted = by_ops(device, shape, given, mask)
        found, anew = by_launches(device, shape, given, Masks(mask, mask, mask))
    assert moe_cases.differing(wanted, found) == []
    if tier == "exact" and shape.data in ("near", "equal") and shape.experts == REAL.experts:
        assert anew == (shape.data == "near")
