"""Does capture change anything? One run without a tap against runs with random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.families import every_field, layer_fields
from parity.fnv import BASES
from parity.keys import FINAL_FIELDS, Key
from parity.model.config import ModelConfig
from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.protocol import Plan, Step

STEPS, ROWS, POSITIONS = 4, 3, 8
Plans = Callable[[int], Plan | None]  # by position of the first row


@dataclass
class Seen:
    """What a run left: logits of each step, the state at its end, and what its taps told."""

    logits: list[bytes] = field(default_factory=list)
    state: dict[str, bytes] = field(default_factory=dict)
    entries: int = 0
    tensors: int = 0
    calls: int = 0

    def add(self, steps: Sequence[Step]) -> None:
        self.logits += [step.logits.tobytes() for step in steps]
        self.entries += sum(len(step.entries) for step in steps)
        self.tensors += sum(len(step.tensors) for step in steps)
        self.calls += sum(len(step.calls) for step in steps)


def disturbance(quiet: Seen, tapped: Seen) -> str:
    """The first logits or part of the state that is not the same; "" where all is."""
    for at, (one, other) in enumerate(zip(quiet.logits, tapped.logits, strict=True)):
        if one != other:
            return f"logits of t{at}"
    parts = quiet.state.keys() | tapped.state.keys()
    return next((name for name in parts if quiet.state.get(name) != tapped.state.get(name)), "")


def run(engine: Any, model: Model, plans: Plans) -> Seen:
    """Single steps, then rows of one forward, then a prefill, then a step, each under its plan."""
    tokens = prompt_tokens(3, POSITIONS + 1, model.config.vocab)
    seen = Seen()
    engine.reset()
    for pos in range(STEPS):
        seen.add([engine.step(tokens[pos], plans(pos))])
    end = STEPS + ROWS
    seen.add(engine.step_rows(tokens[STEPS:end], plans(STEPS)))
    seen.add(engine.prefill(tokens[end : end + 1], plans(end)))
    seen.add([engine.step(tokens[end + 1], plans(end + 1))])
    state: Mapping[str, np.ndarray] = engine.read_state()
    seen.state = {
        name: f"{array.dtype}{array.shape}".encode() + array.tobytes()
        for name, array in state.items()
    }
    return seen


def no_plan(pos: int) -> None:
    """Taps off."""
    return None


def everything(config: ModelConfig, *, trace: bool) -> Plans:
    """Every field hashed, every value kept, every key traced."""

    def plan(pos: int) -> Plan:
        keys = frozenset(_keys(config, pos))
        return Plan(every_field(config), tensors=keys, trace=keys if trace else frozenset())

    return plan


def at_random(config: ModelConfig, seed: int, *, trace: bool) -> Plans:
    """Another random plan at each position: fields, places, tensors, basis, traced keys, a reader
    that replaces nothing or puts back what it read. Now and then none at all."""
    rng = random.Random(seed)

    def some(values: Sequence[Any]) -> frozenset[Any]:
        return frozenset(rng.sample(list(values), rng.randrange(len(values) + 1)))

    def plan(pos: int) -> Plan | None:
        keys = _keys(config, pos)
        places = sorted({(key.pos, key.layer) for key in keys}, key=str)
        if rng.random() < 0.15:
            return None
        return Plan(
            fields=sorted(some(every_field(config))),
            places=some(places) if rng.random() < 0.5 else None,
            tensors=some(keys) if rng.random() < 0.6 else frozenset(),
            basis=rng.choice([*BASES.values(), rng.getrandbits(64)]),
            trace=some(keys) if trace and rng.random() < 0.5 else frozenset(),
            replace=rng.choice([None, None, lambda key, read: None, lambda key, read: read()]),
        )

    return plan


def _keys(config: ModelConfig, pos: int) -> list[Key]:
    """Every key of the rows that begin at ``pos``."""
    rows = range(pos, pos + (ROWS if pos == STEPS else 1))
    fields = every_field(config)
    found = [
        Key(at, layer, name)
        for at in rows
        for layer in range(config.layers)
        for name in layer_fields(config, layer, fields)
    ]
    return [*found, *(Key(at, None, name) for at in rows for name in FINAL_FIELDS)]
