"""Capture changes nothing: taps off, all on, and random subsets give the same logits and state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.explain.dataflow import step_keys
from parity.families import every_field
from parity.model.model import Model, synthetic
from parity.protocol import Plan, Step
from parity_cpu.engine import Engine as CpuEngine
from parity_cuda.engine import EmuEngine
from tests.engines.capture import (
    ROWS,
    STEPS,
    at_random,
    disturbance,
    everything,
    no_plan,
    run,
)
from tests.probes.asking import opened

ENGINES: dict[str, type[Any]] = {"cpu": CpuEngine, "emu": EmuEngine}
MODELS = [("moe-tiny", "q4"), ("moe-tiny", "f32"), ("dense-tiny", "q4"), ("hybrid-tiny", "q4")]
SEEDS = range(6)
ROOM = STEPS + ROWS + 2


def made(name: str, weights: str = "q4") -> Model:
    return synthetic(name, 7, weights)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tier", ["exact", "fast"])
@pytest.mark.parametrize(("name", "weights"), MODELS)
def test_taps_change_nothing(name: str, weights: str, tier: str, engine: str) -> None:
    model = made(name, weights)
    one = opened(engine, model, ROOM, tier=tier)
    quiet = run(one, model, no_plan)
    assert (quiet.entries, quiet.tensors, quiet.calls) == (0, 0, 0)
    full = run(one, model, everything(model.config, trace=True))
    keys = ROOM * len(step_keys(model.config, 0, every_field(model.config)))
    assert (full.entries, full.tensors, full.calls) == (keys, keys, keys)
    assert disturbance(quiet, full) == ""
    told = 0
    for seed in SEEDS:
        some = run(one, model, at_random(model.config, seed, trace=True))
        assert disturbance(quiet, some) == "", f"seed {seed}"
        assert some.entries < keys
        told += some.entries
    assert told > 0
    assert disturbance(quiet, run(one, model, no_plan)) == ""


# --- engines whose tap disturbs -------------------------------------------------------------------


class _Disturbed(CpuEngine):
    """Adds to one element of the last K row after a forward whose plan asks for something."""

    def asked(self, plan: Plan) -> bool:
        raise NotImplementedError

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        steps = super()._forward(tokens, plan)
        if plan is not None and self.asked(plan):
            self._state.layers[0]["k"][self.length - 1, 0, 0] += np.int8(1)
        return steps


class ByFields(_Disturbed):
    def asked(self, plan: Plan) -> bool:
        return "attn" in plan.fields


class ByTensors(_Disturbed):
    def asked(self, plan: Plan) -> bool:
        return bool(plan.tensors)


class ByPlaces(_Disturbed):
    def asked(self, plan: Plan) -> bool:
        return plan.places is not None


class ByTrace(_Disturbed):
    def asked(self, plan: Plan) -> bool:
        return bool(plan.trace)


class ByReading(_Disturbed):
    def asked(self, plan: Plan) -> bool:
        return plan.replace is not None


class ByRows(_Disturbed):
    def asked(self, plan: Plan) -> bool:
        return self.length == STEPS + ROWS


class OtherLogits(CpuEngine):
    """What a tapped step returns is rounded once more; the state is right."""

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        steps = super()._forward(tokens, plan)
        if plan is None:
            return steps
        return [
            replace(step, logits=step.logits.astype(np.float16).astype(np.float32))
            for step in steps
        ]


@pytest.mark.parametrize(
    "kind", [ByFields, ByTensors, ByPlaces, ByTrace, ByReading, ByRows, OtherLogits]
)
def test_red_tap_that_disturbs_is_found(kind: type[CpuEngine]) -> None:
    model = made("moe-tiny")
    one = opened(kind, model, ROOM)
    quiet = run(one, model, no_plan)
    found = [
        disturbance(quiet, run(one, model, at_random(model.config, seed, trace=True)))
        for seed in SEEDS
    ]
    assert any(found)
    assert disturbance(quiet, run(one, model, no_plan)) == ""


def test_red_tap_that_disturbs_the_last_state_alone() -> None:
    """No logits come after it: the state tells."""

    class Late(_Disturbed):
        def asked(self, plan: Plan) -> bool:
            return self.length == ROOM

    model = made("moe-tiny")
    one = opened(Late, model, ROOM)
    full = run(one, model, everything(model.config, trace=False))
    assert disturbance(run(one, model, no_plan), full) == "l0_k"


def test_red_logits_are_named_by_their_position() -> None:
    model = made("moe-tiny")
    one = opened(OtherLogits, model, ROOM)
    full = run(one, model, everything(model.config, trace=False))
    assert disturbance(run(one, model, no_plan), full) == "logits of t0"
