"""Recorded steps on the emulated device: case B25, with the faults that it is about planted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError, ParityBug
from parity.keys import Key
from parity.protocol import EngineSettings, Injection, Plan
from parity_cuda import graph
from parity_cuda.decoder import Decoder
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.graph import Captured, Graphs, repeats
from parity_cuda.tap import Tap
from tests.cli_runner import run_cli
from tests.engines.cuda.graph_runs import (
    Row,
    all_fields,
    first_difference,
    model_of,
    poisoned,
    replayed,
    walk,
)

# The recurrent layers of the hybrid as far as going back: a device walks all of it.
RUNS = (("moe-tiny", False, 25), ("hybrid-tiny", True, 15))


def engine_of(**options: str) -> Any:
    """An emulated engine with these options."""
    return EmuEngine(EngineSettings(options=options))


@cache
def launched(preset: str, short: bool = False) -> list[Row]:
    """The walk, launch by launch and op by op."""
    return list(walk(engine_of(graph="off", fuse="off"), model_of(preset), short=short))


def replay_differs(preset: str = "moe-tiny") -> str:
    """Where the walk with recorded steps first differs."""
    return first_difference(launched(preset), walk(engine_of(graph="on"), model_of(preset)))


@pytest.mark.parametrize(("preset", "short", "replays"), RUNS)
def test_a_replay_gives_what_the_launches_give(preset: str, short: bool, replays: int) -> None:
    engine = engine_of(graph="on")
    count = replayed(engine)
    steps = walk(engine, model_of(preset), short=short)
    assert first_difference(launched(preset, short), steps) == ""
    assert count() >= replays


@pytest.mark.parametrize("length", [1, 31, 33])
def test_rows_past_the_length_do_not_matter(length: int) -> None:
    """Case B14 under replay: the cache full of NaN, and the walk's own rows."""
    model, plan = model_of("moe-tiny"), Plan(("attn", "x", "logits"))
    found = []
    for poison in (False, True):
        engine = engine_of(graph="on")
        engine.load(model, length + 4)
        if poison:
            poisoned(engine)
        engine.prefill([5] * length)
        steps = [engine.step(3, plan) for _ in range(3)]
        found.append([[e.digest for e in step.entries] for step in steps])
        assert not any(e.nonfinite for step in steps for e in step.entries)
    assert found[0] == found[1]


def test_launches_are_counted_as_often_as_they_run() -> None:
    found = []
    for mode in ("on", "off"):
        engine = engine_of(graph=mode)
        engine.load(model_of("moe-tiny"), 8)
        for _ in range(4):
            engine.step(1, Plan(("x",)))
        found.append(Counter(engine.counters()))
    assert found[0] == found[1]


def test_one_copy_each_way_a_replayed_token(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    for name in ("write", "download", "launch", "copy", "empty"):
        real = getattr(EmuBackend, name)

        def counted(*args: Any, _name: str = name, _real: Any = real, **named: Any) -> Any:
            calls[_name] += 1
            return _real(*args, **named)

        monkeypatch.setattr(EmuBackend, name, counted)
    engine = engine_of(graph="on")
    engine.load(model_of("moe-tiny"), 8)
    plan = Plan(all_fields(model_of("moe-tiny")))
    engine.prefill([1, 2, 3], plan)
    calls.clear()
    engine.step(4, plan)
    assert calls == Counter({"write": 1, "download": 1})


@pytest.mark.parametrize(
    "plan",
    [
        Plan(("x",), places=frozenset({(1, 1)})),
        Plan(("x",), tensors=frozenset({Key(1, 1, "x")})),
        Plan(("x",), inject=Injection(Key(1, 1, "x"), 0)),
        Plan(("x",), replace=lambda _key, _read: None),
        Plan(("x",), trace=frozenset({Key(1, 1, "x")})),
    ],
    ids=["places", "tensors", "inject", "replace", "trace"],
)
def test_a_plan_that_is_not_the_same_at_every_position_is_launched(plan: Plan) -> None:
    engine = engine_of(graph="on")
    engine.load(model_of("moe-tiny"), 8)
    count = replayed(engine)
    for _ in range(4):
        engine.step(1, plan)
    assert (repeats(plan), count()) == (False, 0)


def test_emu_launches_by_default_and_says_what_it_cannot_read() -> None:
    assert [EmuEngine(EngineSettings()).backend.graph, engine_of(graph="on").backend.graph] == [
        False,
        True,
    ]
    with pytest.raises(InputError, match=r"emu@graph=yes: not on or off"):
        engine_of(graph="yes")
    result = run_cli("diff", "--dut", "emu@graph=maybe", "--n", "1", "-q")
    assert result.status == 2
    assert "emu@graph=maybe: not on or off\n  next: write emu@graph=off" in result.stderr


def test_a_recording_may_not_touch_the_host() -> None:
    backend = EmuBackend(EngineSettings())
    buffer = backend.empty((4,), np.int32)
    zeros = np.zeros(4, np.int32)
    for run in (
        lambda: backend.write(buffer, zeros),
        lambda: backend.download(buffer),
        lambda: backend.empty((1,), np.int32),
        lambda: backend.upload(zeros),
    ):
        with pytest.raises(ParityBug, match="while a step is recorded"):
            backend.record(run)  # type: ignore[arg-type]


# --- planted faults -------------------------------------------------------------------------------


def test_red_a_position_baked_into_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """RoPE and attention read the position of the recording: a buffer that nothing writes again."""
    real = Decoder.forward

    def baked(self: Decoder, count: int, pos: int, *rest: Any) -> None:
        given = self.given
        self.given = self.backend_copy.setdefault(pos, given.copy())  # type: ignore[attr-defined]
        self.given[1:] = given[1:]
        try:
            real(self, count, pos, *rest)
        finally:
            self.given = given

    monkeypatch.setattr(Decoder, "backend_copy", {}, raising=False)
    monkeypatch.setattr(Decoder, "forward", baked)
    # Recorded at 1, and the token of 1 with it: the first replay is the first to differ.
    assert replay_differs() == "every field at 2: t2_l0_nrm"


def keep_in_a_recording(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The tap keeps one value of layer 2 so many times, but only while a step is recorded."""
    real = Tap._keep

    def keep(self: Tap, key: Key, buffer: Any, passing: bool) -> None:
        recording = self.backend._recording is not None  # type: ignore[attr-defined]
        for _ in range(times if recording and key[1:] == (2, "ores") else 1):
            real(self, key, buffer, passing)

    monkeypatch.setattr(Tap, "_keep", keep)


def test_red_a_tap_left_out_of_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_in_a_recording(monkeypatch, 0)
    assert replay_differs() == "every field at 1: keys lost: t1_l2_ores, 77 of 78"


def test_red_a_tap_twice_in_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """More values than the launches before made room for: refused before anything is read."""
    keep_in_a_recording(monkeypatch, 2)
    with pytest.raises(ParityBug, match="emu: memory is asked for while a step is recorded"):
        replay_differs()


def test_red_a_graph_used_for_other_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Graphs, "_kind", lambda self, rows, plan: (rows, plan is None, 0, self.arena.version)
    )
    # The plan of few fields gets the graph of all of them: more keys than it has asked for.
    assert replay_differs() == "few fields at 5: keys lost: , 78 of 9"


def test_red_a_graph_used_for_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Graphs._kind
    monkeypatch.setattr(Graphs, "_kind", lambda self, _rows, plan: real(self, 1, plan))
    assert replay_differs() == "after the mark at 25: t25_l0_nrm"


def test_red_an_old_table_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of the plan before is still on the device."""
    real = Graphs.steps

    def without(self: Graphs, rows: int, plan: Any, pos: int, forward: Any) -> Any:
        captured = self._found.get(self._kind(rows, plan))
        if isinstance(captured, Captured) and captured.table is not None:
            self.arena._written = captured.table.text
        return real(self, rows, plan, pos, forward)

    monkeypatch.setattr(Graphs, "steps", without)
    assert replay_differs().startswith("every field again at 8: ")


def test_red_an_address_of_an_arena_that_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of the first steps writes where no answer is read any more."""
    real = Graphs._kind
    monkeypatch.setattr(Graphs, "_kind", lambda self, rows, plan: (*real(self, rows, plan)[:3], 0))
    monkeypatch.setattr(Graphs, "_forget_old", lambda _self: None)
    assert replay_differs() != ""


def test_red_diff_ends_1_at_the_first_replayed_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are appended where they were when the step was recorded: exit status 1 and the key."""
    real, capture = graph.Graphs.steps, graph.Graphs._capture
    recorded: dict[int, int] = {}  # positions

    def noted(self: Any, tap: Any, pos: int, forward: Any) -> Any:
        found = capture(self, tap, pos, forward)
        recorded[id(found)] = pos
        return found

    def stale(self: Any, rows: int, plan: Any, pos: int, forward: Any) -> Any:
        captured = self._found.get(self._kind(rows, plan))
        if captured is not None:
            decoder = _decoder_of(forward)
            decoder.given[:1] = recorded[id(captured)]
        return real(self, rows, plan, pos, forward)

    monkeypatch.setattr(graph.Graphs, "_capture", noted)
    monkeypatch.setattr(graph.Graphs, "steps", stale)
    # With the ref's prefill: its own would leave rows unwritten, and what lies there is chance.
    result = run_cli("diff", "--dut", "emu@graph=on", "--prefill", "ref", "--n", "3", "-q")
    said = (
        "unstable: dut not repeatable, first at t34_l0_k in run 2 of 2, dut emulated, decode only\n"
    )
    assert (result.status, result.stdout) == (1, said)


def _decoder_of(forward: Any) -> Any:
    cells = dict(zip(forward.__code__.co_freevars, forward.__closure__, strict=True))
    return cells["self"].cell_contents._decoder
