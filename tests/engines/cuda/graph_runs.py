"""Case B25: one run with and without recorded steps, through everything that could go stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from parity.families import dumped_fields
from parity.keys import Key
from parity.model.model import Model, synthetic
from parity.protocol import Plan, Step

POSITIONS = 96
Engine = Any
Row = tuple[str, list[tuple[Key, int, object, object]], bytes]


def model_of(preset: str) -> Model:
    """Small, with every kind of layer of its family."""
    return synthetic(preset, 7)


def all_fields(model: Model) -> tuple[str, ...]:
    """Every field there is."""
    groups = ("ffn", "s") if model.config.family == "hybrid" else ("ffn",)
    return dumped_fields(model.config, groups)


def walk(engine: Engine, model: Model, *, short: bool = False) -> Iterator[Row]:
    """What every step of the walk gave, by the name of the step, as it is taken.

    Recorded at positions 0 to 5, replayed across 32 and 64; back from a mark; one row, three, one;
    a plan of fewer fields and another basis between; M rows that make the arena grow; a step that
    cannot be recorded; a state written into the engine. ``short``: no further than going back.
    """
    engine.load(model, POSITIONS)
    every, few = Plan(all_fields(model)), Plan(("attn", "x", "logits"))
    other = Plan(every.fields, basis=1)

    def named(name: str, steps: list[Step]) -> Iterator[Row]:
        for step in steps:
            entries = [(e.key, e.digest, e.type, e.nonfinite) for e in step.entries]
            yield f"{name} at {engine.length - 1}", entries, step.logits.tobytes()

    def single(name: str, count: int, plan: Plan | None) -> Iterator[Row]:
        for number in range(count):
            yield from named(name, [engine.step((7 * engine.length + number) % 500, plan)])

    def many(name: str, count: int, plan: Plan | None) -> Iterator[Row]:
        tokens = [(3 * n + engine.length) % 500 for n in range(count)]
        yield from named(name, engine.step_rows(tokens, plan))

    yield from single("every field", 5, every)
    yield from single("few fields", 3, few)
    yield from single("every field again", 2, every)
    yield from single("another basis", 3, other)
    yield from single("no plan", 3, None)
    for _ in range(3):
        yield from many("three rows", 3, every)
    engine.mark()
    yield from single("after the mark", 4, every)
    engine.rollback()
    yield from single("after going back", 4, every)
    if short:
        return
    yield from many("eight rows", 8, every)
    yield from single("one row after eight", 3, every)
    kept = Plan(every.fields, tensors=frozenset({Key(engine.length, 1, "x")}))
    yield from single("with a kept tensor", 1, kept)
    yield from single("past a step that is not recorded", 3, every)
    state = engine.read_state()
    yield from single("before the state", 2, every)
    engine.write_state(state)
    yield from single("after the state", 3, every)
    yield from single("across 64", max(0, 66 - engine.length), few)
    yield "state", [], b"".join(part.tobytes() for part in engine.read_state().values())


def first_difference(ref: Iterable[Row], dut: Iterable[Row]) -> str:
    """``after going back at 26: t26_l0_kraw``, or what else is first; empty where nothing is."""
    for (name, one, logits), (_, two, other) in zip(ref, dut, strict=True):
        keys, found = [entry[0] for entry in one], [entry[0] for entry in two]
        if keys != found:
            gone = [key for key in keys if key not in found]
            return (
                f"{name}: keys lost: {', '.join(map(str, gone[:3]))}, {len(found)} of {len(keys)}"
            )
        for left, right in zip(one, two, strict=True):
            if left != right:
                return f"{name}: {left[0]}"
        if logits != other:
            return f"{name}: bytes"
    return ""


def replayed(engine: Engine) -> Callable[[], int]:
    """Counts the replays of an engine's backend from now on."""
    count, replay = [0], engine.backend.replay

    def counting(recorded: Any) -> None:
        count[0] += 1
        replay(recorded)

    engine.backend.replay = counting
    return lambda: count[0]


def poisoned(engine: Engine) -> None:
    """Case B14: fill every KV row of a loaded engine with NaN scales and the largest int8."""
    for layer in engine._state.layers:
        for part, buffer in layer.items():
            if part in ("k", "v", "ks", "vs"):
                fill = 127 if buffer.dtype == np.int8 else np.nan
                engine.backend.write(buffer, np.full(buffer.shape, fill, buffer.dtype))
