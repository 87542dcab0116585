"""Capture changes nothing on a device: taps off, all on, and random subsets."""

from __future__ import annotations

import pytest

from parity.model.model import synthetic
from parity_cuda.engine import CudaEngine
from tests.engines.capture import ROWS, STEPS, at_random, disturbance, everything, no_plan, run
from tests.probes.asking import opened

pytestmark = pytest.mark.gpu

ROOM = STEPS + ROWS + 2
MODELS = [("moe-tiny", "f32"), ("moe-48", "q4"), ("hybrid-64", "q4")]


@pytest.mark.parametrize("tier", ["exact", "fast"])
@pytest.mark.parametrize(("name", "weights"), MODELS)
def test_taps_change_nothing(name: str, weights: str, tier: str) -> None:
    model = synthetic(name, 7, weights)
    one = opened(CudaEngine, model, ROOM, tier=tier)
    quiet = run(one, model, no_plan)
    full = run(one, model, everything(model.config, trace=True))
    assert full.entries == full.tensors == full.calls > 0
    assert disturbance(quiet, full) == ""
    for seed in range(6):
        some = run(one, model, at_random(model.config, seed, trace=True))
        assert disturbance(quiet, some) == "", f"seed {seed}"
    assert disturbance(quiet, run(one, model, no_plan)) == ""
