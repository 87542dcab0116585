"""parity.testing holds our engines to every promise, and finds each planted break of one."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest

from parity import testing
from parity.errors import NotRunError, ParityError
from parity.model.config import preset
from parity.model.model import SyntheticModel
from parity.protocol import EngineSettings
from parity.testing import PROMISES, ConformanceError, engine_conformance
from parity.variants import TIERS
from parity_cpu import Engine as CpuEngine
from parity_cuda import CudaEngine, EmuEngine
from tests.engines import broken_batches, broken_elementary, broken_late, broken_promises
from tests.engines.broken_capabilities import LengthAlone
from tests.engines.broken_promises import Broken

NAMES = [check.__name__ for check, _ in PROMISES]
# A kernel calls the functions it was compiled with, no others.
# Neither engine batches unrelated sequences.
ON_CPU = [f"{name}: not offered (batch)" if name.startswith("batch_") else name for name in NAMES]
ON_DEVICE = [
    f"{name}: not offered (borrow)" if name.startswith("borrow_") else name for name in ON_CPU
]
BROKEN = [
    *(*broken_promises.BROKEN, *broken_elementary.BROKEN, *broken_late.BROKEN),
    *broken_batches.BROKEN,
]
KEPT = [(CpuEngine, ON_CPU), (EmuEngine, ON_DEVICE), (broken_batches.Batched, NAMES)]
SMALL = SyntheticModel(
    replace(
        preset("moe-tiny"),
        name="moe-small",
        layers=2,
        hidden=32,
        n_q=2,
        n_kv=1,
        head_dim=32,
        inter=32,
        experts=4,
        top_k=2,
        vocab=48,
    ),
    seed=11,
)
HYBRID = SyntheticModel(
    replace(
        preset("hybrid-tiny"),
        name="hybrid-small",
        layers=4,
        hidden=32,
        n_q=2,
        n_kv=1,
        head_dim=32,
        inter=32,
        vocab=48,
        gdn=(1, 2, 32, 32),
    ),
    seed=11,
)
NEXT = SyntheticModel(
    replace(HYBRID.config, name="next-small", experts=4, top_k=2, shared_inter=64, vocab=47),
    seed=11,
)


class Bare(CpuEngine):
    """Offers no capability."""

    capabilities = frozenset()


class NotHere(CpuEngine):
    """Needs a device that is not there."""

    def __init__(self, settings: EngineSettings) -> None:
        raise NotRunError("toy: no device")


@pytest.mark.parametrize(("engine", "names"), KEPT)
def test_engine_keeps_every_promise(engine: Any, names: list[str]) -> None:
    assert engine_conformance(engine) == names
    assert engine_conformance(engine, model=HYBRID) == names
    assert engine_conformance(engine, model=NEXT) == names


@pytest.mark.gpu
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("model", ["moe-tiny", "dense-tiny", "hybrid-tiny"])
def test_cuda_keeps_every_promise(model: str, tier: str) -> None:
    settings = EngineSettings(tier=tier, variants=TIERS[tier])
    assert engine_conformance(CudaEngine, model=model, settings=settings) == ON_DEVICE


@pytest.mark.parametrize(("engine", "names"), KEPT)
def test_fast_tier_keeps_every_promise(engine: Any, names: list[str]) -> None:
    settings = EngineSettings(tier="fast", variants=TIERS["fast"])
    assert engine_conformance(engine, model=SMALL, settings=settings) == names


def test_another_model_and_settings() -> None:
    settings = EngineSettings(options={"shuffled": "5"})
    assert engine_conformance(EmuEngine, model=SMALL, settings=settings) == ON_DEVICE


def test_capabilities_that_are_not_offered_are_named() -> None:
    ran = engine_conformance(Bare, model=SMALL)
    assert len(ran) == len(NAMES)
    assert [name for name in ran if "not offered" in name] == [
        "capture_matches_digests: not offered (capture)",
        "state_round_trip: not offered (state)",
        "inject_moves_one_key: not offered (inject)",
        "replay_reads_what_is_given: not offered (replay)",
        "trace_tells_what_ran: not offered (trace)",
        "elementary_is_a_function: not offered (elementary)",
        "borrow_computes_with_what_is_given: not offered (borrow)",
        "rows_equal_steps: not offered (rows)",
        "batch_keeps_sequences_apart: not offered (batch)",
        "rollback_restores: not offered (rollback)",
        "counters_count: not offered (counters)",
    ]


def test_every_promise_is_documented_and_has_a_break() -> None:
    assert len(NAMES) == len(set(NAMES)) == 21
    for check, _ in PROMISES:
        assert getattr(testing, check.__name__) is check
        assert len(inspect.getdoc(check) or "") > 60
    assert {broken.promise for broken in BROKEN} == set(NAMES)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.what)
def test_red(broken: Broken) -> None:
    with pytest.raises(ConformanceError) as raised:
        engine_conformance(broken.engine, model=SMALL)
    assert raised.value.promise == broken.promise
    assert broken.said in raised.value.message
    assert f"breaks the promise {broken.promise}: " in raised.value.message
    assert (
        raised.value.next_step == f"the promise is the docstring of parity.testing.{broken.promise}"
    )


def test_red_what_is_recurrent_is_not_rolled_back() -> None:
    """Only a model with recurrent state can show it."""
    assert engine_conformance(LengthAlone, model=SMALL) == ON_CPU
    with pytest.raises(ConformanceError, match="rollback to 0: state part l0_") as raised:
        engine_conformance(LengthAlone, model=HYBRID)
    assert raised.value.promise == "rollback_restores"


def test_the_unchanged_engine_passes_on_the_small_model() -> None:
    assert engine_conformance(CpuEngine, model=SMALL) == ON_CPU


def test_an_engine_that_is_not_here_is_not_run() -> None:
    with pytest.raises(NotRunError, match="toy: no device"):
        engine_conformance(NotHere, model=SMALL)


def test_red_an_engine_that_raises() -> None:
    class Raises(CpuEngine):
        def reset(self) -> None:
            raise KeyError("reset")

    with pytest.raises(ConformanceError, match="raised KeyError: 'reset'") as raised:
        engine_conformance(Raises, model=SMALL)
    assert raised.value.promise == "members"
    assert isinstance(raised.value, ParityError)
    assert isinstance(raised.value.__cause__, KeyError)
