"""The device engine's tap: one copy to the host a token, no launch but its own, no wrong sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from parity.errors import ParityBug
from parity.families import count_keys, dumped_fields
from parity.keys import Key
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity_cuda.backend import Backend
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import DeviceEngine
from parity_cuda.tap import Arena, Tap

MODEL = synthetic("moe-tiny", 7)
FIELDS = dumped_fields(MODEL.config, ("ffn",))
ALL = Plan(FIELDS)
TOKENS = (3, 1, 4, 1)


class Counting:
    """A backend that counts what passes through it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.graph, self.fuse = backend.graph, backend.fuse
        self.processors = backend.processors
        self.calls: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        called: Callable[..., Any] = getattr(self._backend, name)

        def counted(*args: Any, **named: Any) -> Any:
            self.calls[name] += 1
            if name == "launch":
                self.kernels[args[0]] += 1
            return called(*args, **named)

        return counted


class CountingEngine(DeviceEngine):
    """The emulated engine over a counting backend."""

    name: ClassVar[str] = "counting"

    def open(self, settings: EngineSettings) -> Any:
        """Count from the start."""
        return Counting(EmuBackend(settings))


def counted_steps(plan: Plan | None) -> tuple[list[Counter[str]], list[Counter[str]]]:
    """Calls, and launches by kernel, of each of four steps."""
    engine = CountingEngine(EngineSettings())
    engine.load(MODEL, len(TOKENS))
    counts: Any = engine.backend
    calls, kernels = [], []
    for token in TOKENS:
        counts.calls, counts.kernels = Counter(), Counter()
        engine.step(token, plan)
        calls.append(counts.calls)
        kernels.append(counts.kernels)
    return calls, kernels


def downloads(plan: Plan | None) -> list[int]:
    """Copies to the host in each step."""
    return [calls["download"] for calls in counted_steps(plan)[0]]


PLANS = {
    "no tap": None,
    "every field": ALL,
    "one field": Plan(("attn",)),
    "one place": Plan(FIELDS, places=frozenset({(2, 1)})),
    "an offset basis": Plan(FIELDS, basis=1),
}


@pytest.mark.parametrize("what", PLANS)
def test_one_copy_to_the_host_a_token(what: str) -> None:
    assert downloads(PLANS[what]) == [1, 1, 1, 1]


def test_a_kept_tensor_is_one_copy_more() -> None:
    keys = frozenset({Key(1, 0, "nrm"), Key(1, 3, "x"), Key(2, None, "logits")})
    assert downloads(Plan(FIELDS, tensors=keys)) == [1, 3, 2, 1]


def test_the_tap_launches_the_digest_and_nothing_else() -> None:
    quiet, tapped = counted_steps(None)[1], counted_steps(ALL)[1]
    assert sum(quiet[0].values()) > 30
    assert quiet == [quiet[0]] * 4
    assert [kernels - quiet[0] for kernels in tapped] == [Counter({"digest": 1})] * 4


def test_the_table_of_jobs_is_written_when_it_changes() -> None:
    """One write a step is the token; the table is another one, in the first step alone."""
    quiet = [calls["write"] for calls in counted_steps(None)[0]]
    assert [calls["write"] for calls in counted_steps(ALL)[0]] == [quiet[0] + 1, *quiet[1:]]
    moving = Plan(FIELDS, places=frozenset({(0, 0), (1, 1)}))
    # Each layer's values lie where they are made: another layer is another table.
    wanted = [quiet[0] + 1, quiet[1] + 1, quiet[2], quiet[3]]
    assert [calls["write"] for calls in counted_steps(moving)[0]] == wanted


def test_red_a_copy_for_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Tap._keep

    def copying(self: Tap, key: Key, buffer: Any, passing: bool) -> None:
        self.backend.download(buffer)
        kept(self, key, buffer, passing)

    monkeypatch.setattr(Tap, "_keep", copying)
    keys = MODEL.config.layers * (len(FIELDS) - 2) + 2
    assert downloads(ALL) == [1 + keys] * 4
    assert downloads(None) == [1] * 4


def test_red_a_launch_for_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Tap._keep

    def launching(self: Tap, key: Key, buffer: Any, passing: bool) -> None:
        kept(self, key, buffer, passing)
        table = self.table()
        assert table is not None
        self.arena.write(table)
        self.launch(table)

    monkeypatch.setattr(Tap, "_keep", launching)
    quiet, tapped = counted_steps(None)[1], counted_steps(ALL)[1]
    assert [kernels - quiet[0] for kernels in tapped] != [Counter({"digest": 1})] * 4


@pytest.mark.parametrize(
    ("field", "shape", "dtype", "said"),
    [
        ("nrm", (1, 159), np.float32, r"t0_l0_nrm: a buffer of 636 bytes, f32\[160\] has 640"),
        ("nrm", (1, 160), np.float64, r"a buffer of 1280 bytes, f32\[160\] has 640"),
        ("k", (2, 96), np.int16, r"t0_l0_k: a buffer of 384 bytes, int8\[2,96\] has 192"),
        ("topk", (0,), np.int32, r"a buffer of 0 bytes, int32\[3\] has 12"),
    ],
)
def test_red_a_buffer_of_another_size(
    field: str, shape: tuple[int, ...], dtype: type, said: str
) -> None:
    backend = EmuBackend(EngineSettings())
    tap = Tap(backend, Arena(backend, MODEL.config), ALL, 1)
    with pytest.raises(ParityBug, match=said):
        tap(0, 0, field, backend.empty(shape, dtype))


@pytest.mark.parametrize("weights", ["q4", "f32"])
@pytest.mark.parametrize("preset", ["moe-tiny", "dense-tiny", "hybrid-tiny"])
def test_the_arena_holds_every_key_of_many_rows(preset: str, weights: str) -> None:
    """It grows when it must: one row, then three, then one again, each with one copy."""
    model = synthetic(preset, 7, weights)
    plan = Plan(dumped_fields(model.config, ("ffn", "s")))
    engine = CountingEngine(EngineSettings())
    engine.load(model, 5)
    counts: Any = engine.backend
    for rows in (1, 3, 1):
        counts.calls = Counter()
        steps = engine.step_rows(TOKENS[:rows], plan)
        assert [len(step.entries) for step in steps] == [
            count_keys(model.config, plan.fields)  # type: ignore[arg-type]
        ] * rows
        assert counts.calls["download"] == 1


def copies(fields: tuple[str, ...], fuse: str) -> list[int]:
    """Copies on the device of a hybrid's forward of one row, of three and of one again."""
    model = synthetic("hybrid-tiny", 7)
    plan = Plan(dumped_fields(model.config, fields))
    engine = CountingEngine(EngineSettings(options={"fuse": fuse}))
    engine.load(model, 5)
    counts: Any = engine.backend
    found = []
    for rows in (1, 3, 1):
        counts.calls = Counter()
        engine.step_rows(TOKENS[:rows], plan)
        found.append(counts.calls["copy"])
    return found


def test_only_states_that_a_later_row_changes_are_copied() -> None:
    """Six layers have a state; of three rows in two launches hist lies behind qkv."""
    assert copies((), "on") == [0, 6, 0]
    assert copies((), "off") == [0, 18, 0]
    assert copies(("s",), "on") == copies(("s",), "off") == [0, 36, 0]


def test_red_a_state_that_a_later_row_changes_is_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every row then shows the state after the last: the rows before it differ there alone."""
    model = synthetic("hybrid-tiny", 7)
    plan = Plan(dumped_fields(model.config, ("s",)))

    def shown() -> list[list[tuple[str, int]]]:
        engine = CountingEngine(EngineSettings())
        engine.load(model, 5)
        steps = engine.step_rows(TOKENS[:3], plan)
        return [[(str(each.key), each.digest) for each in step.entries] for step in steps]

    ref = shown()
    kept = Tap._keep
    monkeypatch.setattr(Tap, "_keep", lambda self, key, buffer, _: kept(self, key, buffer, False))
    pairs = [
        [one[0] for one, other in zip(*row, strict=True) if one != other]
        for row in zip(ref, shown(), strict=True)
    ]
    states = [f"l{layer}_{field}" for layer in (0, 1, 2, 4, 5, 6) for field in ("hist", "s")]
    assert pairs == [[f"t{row}_{state}" for state in states] for row in (0, 1)] + [[]]
