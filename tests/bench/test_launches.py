"""The bench of single launches lists every launch of a step and repeats each as it was."""

from collections import Counter
from typing import Any

import pytest

from parity.errors import NotRunError
from parity.model.model import synthetic
from parity.protocol import EngineSettings
from parity_cuda.engine import EmuEngine
from tests.bench import launches


@pytest.fixture(scope="module")
def engine() -> Any:
    """At position 1."""
    opened: Any = EmuEngine(EngineSettings())
    opened.load(synthetic("moe-tiny", 7), 4)
    opened.step(3)
    return opened


def test_every_launch_of_a_step_is_listed(engine: Any) -> None:
    before = Counter(engine.counters())
    calls = launches.listed(engine)
    assert Counter(call.shape[0] for call in calls) == Counter(engine.counters()) - before
    groups = launches.by_shape(calls)
    assert [len(group) for group in groups.values()] == [
        sum(call.shape == shape for call in calls) for shape in groups
    ]
    assert {call.shape[0] for call in calls} >= {"fused_project", "fused_experts", "attention_int8"}


def test_a_call_is_repeated_as_it_was() -> None:
    call = launches.Call(("k", (2, 1), (64,), 96), (1, 2.5), True)
    seen: list[Any] = []
    call.again(lambda *args, **named: seen.append((args, named)))
    assert seen == [(("k", (2, 1), (64,), (1, 2.5), 96), {"overlap": True})]


def test_table(engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Alone: a share of the group's time; left out: what the rest is short of the whole."""
    monkeypatch.setattr(launches, "graph_us", lambda _, calls: 2.0 * len(calls) + 3.0)
    lines = launches.table(engine)
    whole, first = lines[0], lines[1]
    count = first["launches"]
    assert whole["alone"] == 2.0 * whole["launches"] + 3.0
    assert (first["alone"], first["left out"]) == ((2.0 * count + 3.0) / count, 2.0)
    launches.show(lines)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == len(lines) + 1
    assert "fused_" in shown[2] or "embed" in shown[2]


def test_without_a_device_it_says_so(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise NotRunError("cuda: no device", "use --dut emu")

    monkeypatch.setattr(launches, "CudaEngine", none)
    assert launches.main(["moe-tiny"]) == 3
    assert capsys.readouterr() == ("", "bench: cuda: no device\n")
