"""Recorded steps on a device: case B25 through CUDA graphs, and what stays launch by launch."""

from __future__ import annotations

from typing import Any

import pytest

from parity.protocol import EngineSettings, Plan
from parity_cuda.decoder import Decoder
from parity_cuda.engine import CudaEngine
from tests.engines.cuda.graph_runs import (
    all_fields,
    first_difference,
    model_of,
    poisoned,
    replayed,
    walk,
)

pytestmark = pytest.mark.gpu


def engine_of(**options: str) -> Any:
    """A device engine with these options."""
    return CudaEngine(EngineSettings(options=options))


@pytest.mark.parametrize("preset", ["moe-tiny", "dense-tiny", "hybrid-tiny", "moe-48"])
def test_a_replay_gives_what_the_launches_give(preset: str) -> None:
    model = model_of(preset)
    engine = engine_of()
    count = replayed(engine)
    assert first_difference(walk(engine_of(graph="off"), model), walk(engine, model)) == ""
    assert count() > 25


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65])
def test_rows_past_the_length_do_not_matter(length: int) -> None:
    model, plan = model_of("moe-tiny"), Plan(("attn", "x", "logits"))
    found = []
    for poison in (False, True):
        engine = engine_of()
        engine.load(model, length + 4)
        if poison:
            poisoned(engine)
        engine.prefill([5] * length)
        steps = [engine.step(3, plan) for _ in range(3)]
        found.append([[(e.digest, e.nonfinite) for e in step.entries] for step in steps])
    assert found[0] == found[1]


def test_red_a_position_baked_into_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded launches read a copy that is made once for each position."""
    real = Decoder.forward
    copies: dict[int, Any] = {}

    def baked(self: Decoder, count: int, pos: int, *rest: Any) -> None:
        given, self.given = self.given, copies.setdefault(pos, self.given)
        try:
            real(self, count, pos, *rest)
        finally:
            self.given = given

    def feed(self: Decoder, tokens: Any, pos: int) -> None:
        copies[pos] = self.backend.empty(self.given.shape, int32)
        self.backend.write(copies[pos][: 1 + len(tokens)], array([pos, *tokens], int32))

    from numpy import array, int32

    model = model_of("moe-tiny")
    wanted = list(walk(engine_of(graph="off"), model))
    monkeypatch.setattr(Decoder, "forward", baked)
    monkeypatch.setattr(Decoder, "feed", feed)
    assert first_difference(wanted, walk(engine_of(), model)) == "every field at 2: t2_l0_nrm"


def test_every_field_of_both_modes_has_a_key() -> None:
    model = model_of("moe-tiny")
    plan = Plan(all_fields(model))
    counts = []
    for mode in ("on", "off"):
        engine = engine_of(graph=mode)
        engine.load(model, 8)
        counts.append([len(engine.step(1, plan).entries) for _ in range(4)])
    assert counts[0] == counts[1]
