"""Each test of test_rows_engine.py fails on an engine that breaks what it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError, ParityError
from parity.keys import Key
from parity.model.model import Model
from parity.protocol import Engine as EngineProtocol
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity_cpu.engine import Engine
from parity_cuda.engine import EmuEngine
from parity_cuda.pool import Pool
from tests.probes import asking
from tests.probes import test_rows_engine as checks
from tests.red import rollback_faults
from tests.red import row_faults as faults


def planted(kind: type[Any], fault: str) -> type[EngineProtocol]:
    """``OnCpu`` or ``OnEmu`` with one fault, as a class that needs no options."""

    class Planted(kind):  # type: ignore[misc]
        def __init__(self, settings: EngineSettings) -> None:
            super().__init__(replace(settings, options={"fault": fault}))

    return Planted


class MovedRow(Engine):
    """A forward of one row is not a step."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None:
            plan = replace(plan, inject=Injection(Key(self.length, 0, "attn"), 0))
        return super().step_rows(tokens, plan)


class OneArray(Engine):
    """The logits of every forward lie in one array."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.array = np.empty((64, model.config.vocab), np.float32)

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        for m, step in enumerate(steps):
            self.array[m] = step.logits
        return [replace(step, logits=self.array[m]) for m, step in enumerate(steps)]


class Sticky(EmuEngine):
    """Once rows ran, single steps take the rows' kernels too: same bits, other launches."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.backend.fuse = False

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        ops = self._decoder.ops

        def q4_matvec(out: Any, d: Any, qs: Any, x: Any, variants: int) -> None:
            shape = ops.tuning.q4(*d.shape, max(2, len(x)), variants)
            last = (shape.m, shape.tile, shape.stock, len(x))
            sizes = [np.int32(value) for value in (variants, *d.shape, *last)]
            args, grid = [out, d, qs, x, *sizes], (shape.blocks, 1)
            ops.backend.launch("q4_matvec_rows", grid, shape.threads, args, shared=shape.shared)

        ops.q4_matvec = q4_matvec  # type: ignore[method-assign]
        return super().step_rows(tokens, plan)


class Busier(Engine):
    """Once rows ran, every step calls one op more."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self.ran = True
        return super().step_rows(tokens, plan)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self._decoder.call.counts["add"] += getattr(self, "ran", False)
        return super().step(token, plan)


class GrowingPool(Pool):
    """Buffers of as many rows as were asked for, made again for more."""

    def take(self, name: str, rows: int, shape: tuple[int, ...], dtype: type) -> Any:
        if len(self._buffers.get(name, ())) < rows:
            self._buffers[name] = self.backend.empty((rows, *shape), dtype)
        return self._buffers[name][:rows]


class Growing(EmuEngine):
    """Buffers are not sized by the cap."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._decoder.many = GrowingPool(self.backend, 1)


class Eager(EmuEngine):
    """What mark needs is made at load."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self.mark()
        self._marked = None


class RunsOn(Engine):
    """Refuses a row when it comes to it, after the rows before it."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = []
        for token in tokens:
            steps += super().step_rows([token], plan)
        if not 1 <= len(tokens) <= 64:
            raise InputError(f"{len(tokens)} rows in one forward: 1 to 64 are possible", "fewer")
        return steps


class OneLess(Engine):
    """Its cache has no room for the last row."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if self.length + len(tokens) >= self.positions:
            raise InputError("full", "less")
        return super().step_rows(tokens, plan)


class WrongTensors(Engine):
    """Every row's tensors are those of the row before."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().step_rows(tokens, plan)
        moved = []
        for m, step in enumerate(steps):
            old = steps[m - 1].tensors
            tensors = {
                key: old.get(Key(key.pos - 1, key.layer, key.field), array)
                for key, array in step.tensors.items()
            }
            moved.append(replace(step, tensors=tensors))
        return moved


class AllRows(Engine):
    """An injection hits its field in the row before its own."""

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if plan is not None and plan.inject is not None:
            pos, layer, field = plan.inject.key
            plan = replace(plan, inject=Injection(Key(pos - 1, layer, field), plan.inject.index))
        return super().step_rows(tokens, plan)


CASES: list[tuple[Callable[..., None], dict[str, Any], type[Any]]] = [
    (
        checks.test_sizes_one_after_the_other_in_one_process,
        {"kind": "moe-tiny"},
        planted(faults.OnCpu, "rope_at_first"),
    ),
    (checks.test_a_forward_of_one_row_is_a_step, {}, MovedRow),
    (checks.test_logits_of_rows_are_copies, {}, OneArray),
    (checks.test_rows_leave_the_single_row_path_as_it_was, {"kind": "moe-tiny"}, Sticky),
    (checks.test_single_steps_call_the_same_ops_after_rows, {}, Busier),
    (checks.test_buffers_of_rows_are_sized_by_the_cap_on_first_use, {}, Growing),
    (
        checks.test_row_count_is_in_the_launch_shape_or_in_one_argument,
        {"kind": "moe-tiny"},
        planted(faults.OnEmu, "split_by_rows"),
    ),
    *(
        (
            checks.test_what_cannot_be_done_is_refused_before_anything_changes,
            {"kind": "hybrid-tiny", "rows": rows, "room": room, "text": "."},
            RunsOn,
        )
        for rows, room in (([1] * 65, 80), ([1, 2, 3, 4], 8), ([1, 2, 512, 4], 80), ([1, -1], 80))
    ),
    (checks.test_rows_that_just_fill_the_cache, {}, OneLess),
    *(
        (checks.test_load_reset_and_a_written_state_drop_the_mark, {}, engine)
        for engine in (rollback_faults.OutlivesReset, rollback_faults.Silent, rollback_faults.Cuts)
    ),
    (checks.test_mark_allocates_on_first_use_alone, {}, Eager),
    *(
        (checks.test_mark_copies_and_a_second_one_replaces_it, {}, engine)
        for engine in (
            rollback_faults.FirstMark,
            rollback_faults.RestoresTwice,
            rollback_faults.Aliases,
            rollback_faults.OnceCopied,
        )
    ),
    *(
        (checks.test_every_part_that_the_engine_lists_is_marked, {}, engine)
        for engine in (
            rollback_faults.SkipsHist,
            rollback_faults.SkipsElement,
            rollback_faults.SpoilsKv,
            rollback_faults.KeepsLength,
        )
    ),
    (checks.test_tap_changes_nothing_in_rows, {"kind": "moe-tiny"}, faults.ShortHash),
    (checks.test_tensors_of_a_row_have_its_digests, {"kind": "moe-tiny"}, WrongTensors),
    *(
        (check, {**settings}, engine)
        for engine in (AllRows, faults.DeadTap)
        for check, settings in (
            (
                checks.test_injection_moves_its_row_and_what_follows,
                {"kind": "moe-tiny", "field": "v", "layer": 1},
            ),
            (checks.test_injected_rows_equal_injected_steps, {}),
            (checks.test_moved_element_is_what_the_device_moves, {}),
        )
    ),
    (
        checks.test_a_row_depends_on_the_rows_before_it_alone,
        {"kind": "moe-tiny", "past": 5},
        planted(faults.OnCpu, "key_too_many"),
    ),
    (
        checks.test_rows_do_not_depend_on_what_lies_past_the_length,
        {"kind": "moe-tiny"},
        planted(faults.OnCpu, "key_too_many"),
    ),
]


def arguments(check: Callable[..., None], patch: pytest.MonkeyPatch, engine: str) -> dict[str, Any]:
    """What a fixture would give."""
    given = {"monkeypatch": patch, "engine_name": engine}
    wanted = inspect.signature(check).parameters
    return {name: value for name, value in given.items() if name in wanted}


@pytest.mark.parametrize(
    ("check", "settings", "engine"),
    CASES,
    ids=[f"{check.__name__[5:]}-{engine.__name__}" for check, _, engine in CASES],
)
def test_check_turns_red(
    check: Callable[..., None],
    settings: dict[str, Any],
    engine: type[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "emu" if issubclass(engine, EmuEngine) else "cpu"
    monkeypatch.setitem(asking.ENGINES, name, engine)
    with pytest.raises((AssertionError, ParityError, pytest.fail.Exception)):
        check(**settings, **arguments(check, monkeypatch, name))


def test_every_check_has_a_case() -> None:
    named = {check.__name__ for check, _, _ in CASES}
    assert named == {name for name in vars(checks) if name.startswith("test_")}
