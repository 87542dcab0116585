"""Fused steps on a device: eager, recorded, overlapping or not, they give what the ops give."""

from __future__ import annotations

from typing import Any

import pytest

from parity.protocol import EngineSettings, Plan
from parity.variants import TIERS
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.engine import CudaEngine
from parity_cuda.programmatic import Programmatic
from tests.engines.cuda.graph_runs import all_fields, first_difference, model_of, walk

pytestmark = pytest.mark.gpu

OP_BY_OP = {"fuse": "off", "graph": "off"}
WAYS = {
    "launched": {"graph": "off"},
    "launched, no overlap": {"graph": "off", "overlap": "off"},
    "recorded": {},
    "recorded, no overlap": {"overlap": "off"},
    "recorded, op by op": {"fuse": "off"},
}
LONG = 200  # steps: what overlaps by chance only shows after many


def engine_of(tier: str = "exact", **options: str) -> Any:
    """A device engine with these options."""
    return CudaEngine(EngineSettings(tier, TIERS[tier], options=options))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("preset", ["moe-tiny", "dense-tiny", "hybrid-tiny", "next-tiny", "moe-48"])
def test_fused_steps_give_what_the_ops_give(preset: str, tier: str, way: str) -> None:
    model = model_of(preset)
    wanted = walk(engine_of(tier, **OP_BY_OP), model)
    assert first_difference(wanted, walk(engine_of(tier, **WAYS[way]), model)) == ""


def run_of(preset: str, **options: str) -> list[object]:
    """Digests of every field, then the logits, of a long run of replayed steps."""
    model = model_of(preset)
    engine = engine_of(**options)
    engine.load(model, LONG)
    plan = Plan(all_fields(model))
    steps = [engine.step((11 * at) % 500, plan) for at in range(LONG)]
    return [([entry.digest for entry in step.entries], step.logits.tobytes()) for step in steps]


@pytest.mark.parametrize("preset", ["moe-48", "hybrid-tiny"])
def test_overlap_shows_in_no_step_of_a_long_run(preset: str) -> None:
    assert run_of(preset) == run_of(preset, **OP_BY_OP)


def test_launches_are_told_and_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """From sm_90 on, in a step that is recorded too; and by none that is asked not to."""
    launched: list[bool] = []
    real = Programmatic.launch

    def counted(self: Programmatic, *given: Any) -> None:
        launched.append(True)
        real(self, *given)

    monkeypatch.setattr(Programmatic, "launch", counted)
    found = []
    off = {"overlap": "off"}
    for options in ({}, off, {"fuse": "off"}, {"fuse": "off", **off}):
        engine = engine_of(**options)
        engine.load(model_of("moe-tiny"), 8)
        launched.clear()
        for _ in range(3):  # launch by launch, recorded, replayed
            engine.step(1)
        found.append((engine.describe()["launches"], bool(launched)))
    arch = int(CupyBackend(EngineSettings())._arch.removeprefix("sm_"))
    wanted = "overlapping" if arch >= 90 else f"no overlap: sm_{arch} has none"
    assert found == [
        (f"fused, {wanted}", arch >= 90),
        ("fused, no overlap: not asked for", False),
        (f"op by op, {wanted}", arch >= 90),  # attention's two launches
        ("op by op, no overlap: not asked for", False),
    ]
