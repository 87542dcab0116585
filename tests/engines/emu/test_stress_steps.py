"""Whole steps of the device engine under stress: orders, poisoned memory, the fallback compiler."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from parity.families import dumped_fields
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity.variants import TIERS
from parity_cuda.emu import EmuModule, find_compiler
from parity_cuda.engine import DeviceEngine, EmuEngine
from tests.engines.emu import stress
from tests.engines.emu.stress import ASCENDING, ORDERS, POISONS, StressBackend
from tests.engines.emu.stress_builds import Builds
from tests.engines.emu.stress_cases import all_cases
from tests.engines.needed import lack

TOKENS = (3, 1, 4, 1, 5)
MODELS = (("dense-tiny", "f32"), ("moe-tiny", "q4"), ("moe-tiny", "f32"), ("hybrid-tiny", "q4"))
SCHEDULES = {
    **ORDERS,
    **{f"poison {poison:#x}": replace(ASCENDING, poison=poison) for poison in POISONS},
}
Given = list[tuple[bytes, list[tuple[str, int]]]]


class StressEngine(DeviceEngine):
    """The device engine on a module built before, with poisoned memory."""

    name: ClassVar[str] = "stress"

    def __init__(self, backend: StressBackend, tier: str) -> None:
        self._stress = backend
        super().__init__(EngineSettings(tier, TIERS[tier]))

    def open(self, settings: EngineSettings) -> Any:
        """The backend that was given."""
        return self._stress


def given_by(engine: DeviceEngine, preset: str, weights: str) -> Given:
    """Logits and digests of two single steps and one of three rows."""
    model = synthetic(preset, 7, weights)
    plan = Plan(dumped_fields(model.config, ("ffn", "s")))
    engine.load(model, len(TOKENS))
    steps = [engine.step(token, plan) for token in TOKENS[:2]]
    steps += engine.step_rows(TOKENS[2:], plan)
    return [
        (step.logits.tobytes(), [(str(entry.key), entry.digest) for entry in step.entries])
        for step in steps
    ]


@pytest.fixture(scope="module")
def module(builds: Builds) -> EmuModule:
    return builds.load(stress.stress_sources())


@pytest.fixture(scope="module")
def by(module: EmuModule) -> Callable[..., Given]:
    """What a model gives in a tier under a schedule."""

    def given(preset: str, weights: str, tier: str, schedule: Any = ASCENDING) -> Given:
        return given_by(StressEngine(StressBackend(module, schedule), tier), preset, weights)

    return given


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("preset", "weights"), MODELS)
def test_orders_and_poison_change_no_key(
    by: Callable[..., Given], preset: str, weights: str, tier: str
) -> None:
    wanted = by(preset, weights, tier)
    assert min(len(entries) for _, entries in wanted) > 20
    for name, schedule in SCHEDULES.items():
        assert by(preset, weights, tier, schedule) == wanted, name


def test_red_state_that_is_never_set(
    by: Callable[..., Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recurrent state left as it is allocated: poison shows it, orders do not."""
    plain = StressBackend.zero

    def all_but_floats(backend: StressBackend, target: Any) -> None:
        if target.dtype.char != "f":
            plain(backend, target)

    monkeypatch.setattr(StressBackend, "zero", all_but_floats)
    wanted = by("hybrid-tiny", "q4", "exact")
    different = [name for name, schedule in SCHEDULES.items()
                 if by("hybrid-tiny", "q4", "exact", schedule) != wanted]  # fmt: skip
    assert different == [f"poison {poison:#x}" for poison in POISONS]


# --- no g++, no clang++ ---------------------------------------------------------------------------


@pytest.fixture
def no_compiler_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing but the wheel ziglang."""
    if importlib.util.find_spec("ziglang") is None:
        lack("emu: the wheel ziglang is not installed")
    monkeypatch.delenv("PARITY_CXX", raising=False)
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("no_compiler_on_path")
def test_ziglang_gives_the_same_bits(builds: Builds, module: EmuModule) -> None:
    """Every kernel, NaN payloads aside."""
    compiler = find_compiler()
    assert "ziglang" in compiler.command
    other = builds.load(stress.stress_sources(), compiler)
    assert other.built.compiler.startswith("ziglang ")
    for group, cases in all_cases().items():
        assert stress.digests(other, cases) == stress.digests(module, cases), group


@pytest.mark.usefixtures("no_compiler_on_path")
def test_whole_steps_with_ziglang(
    builds: Builds, by: Callable[..., Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine finds it by itself and says so."""
    monkeypatch.setenv("PARITY_CACHE", str(builds.kept))
    engine = EmuEngine(EngineSettings())
    assert engine.backend.info()["compiler"].startswith("ziglang ")
    assert given_by(engine, "moe-tiny", "q4") == by("moe-tiny", "q4", "exact")


def test_red_another_rounding_shows(builds: Builds, module: EmuModule) -> None:
    """The comparison of two builds sees one operation that is rounded otherwise."""
    sources = stress.stress_sources()
    old = "out[j] = __fadd_rn(a[j], b[j]);"
    assert sources["add.cu"].count(old) == 1
    planted = "out[j] = (float)((double)a[j] + (double)b[j] * (1.0 + 0x1p-24));"
    sources = {"add.cu": sources["add.cu"].replace(old, planted)}
    cases = all_cases()["add"]
    assert stress.digests(builds.load(sources), cases) != stress.digests(module, cases)


def test_red_ci_without_the_wheel(tmp_path: Path) -> None:
    """In CI what is missing fails; elsewhere it is a skip that is counted."""
    with pytest.raises(pytest.fail.Exception, match="no wheel: CI must install it"):
        lack("no wheel", {"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="no wheel"):
        lack("no wheel", {})
