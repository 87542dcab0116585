"""The independent comparison: every tensor of both sides, byte by byte, with NumPy alone.

It uses nothing that a verdict of ``parity`` is made of: no digest, no dump, no key order, no
comparison. The order of the keys is the one in which the engine makes them, as it tells through
``Plan.replace``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.model import SyntheticModel
from parity.protocol import EngineSettings, Plan, Step
from parity.runs.run import Run
from parity_cpu.engine import Engine

State = Mapping[str, np.ndarray]
Tensors = dict[Key, np.ndarray]
Place = tuple[int | None, str]


@dataclass
class Seen:
    """All values of a side's dumped steps, in the order they were made; the tokens it was fed after
    the prompt; its choices by position; its states before and after."""

    tensors: Tensors = field(default_factory=dict)
    fed: list[int] = field(default_factory=list)
    choices: dict[int, int] = field(default_factory=dict)
    start: State = field(default_factory=dict)
    end: State = field(default_factory=dict)


@lru_cache(maxsize=32)
def places(config: ModelConfig) -> tuple[Place, ...]:
    """(layer, field) of every value of a step, in the order a plain engine makes them."""
    found: list[Place] = []

    def note(key: Key, read: Callable[[], np.ndarray]) -> None:
        found.append((key.layer, key.field))

    engine = Engine(EngineSettings())
    engine.load(SyntheticModel(config, 0), 1)
    engine.step(0, Plan(fields=(), replace=note))
    return tuple(found)


def keys_at(config: ModelConfig, positions: Sequence[int]) -> list[Key]:
    """The keys of some positions, in dataflow order."""
    return [Key(pos, *place) for pos in positions for place in places(config)]


def watch(engine: Any, run: Run, fed: Sequence[int] = (), start: State | None = None) -> Seen:
    """Run a loaded engine as ``run`` says, keep every value. ``fed``: tokens after the prompt, past
    its end the engine's own choices. ``start``: a state to take over in place of a prefill."""
    seen = Seen()
    keys = keys_at(run.model.config, range(run.positions))
    dumped = [key for key in keys if run.dump_prefill or key.pos >= run.start]
    plan = Plan(fields=(), tensors=frozenset(dumped))
    engine.reset()
    choice = -1
    if start is None:
        steps = engine.prefill(run.prompt, plan)
        choice = _keep(seen, steps)
        seen.choices[run.start - 1] = choice
    else:
        engine.write_state(start)
    seen.start = engine.read_state()
    for at in range(run.n):
        seen.fed.append(fed[at] if at < len(fed) else choice)
        choice = _keep(seen, [engine.step(seen.fed[-1], plan)])
        seen.choices[run.start + at] = choice
    seen.end = engine.read_state()
    seen.tensors = {key: seen.tensors[key] for key in dumped if key in seen.tensors}
    return seen


def _keep(seen: Seen, steps: Sequence[Step]) -> int:
    for step in steps:
        seen.tensors.update(step.tensors)
    return int(np.argmax(steps[-1].logits))


def changed(ref: Tensors, dut: Tensors) -> list[Key]:
    """Keys with another dtype, shape or byte, or that one side lacks, in the ref's order."""
    return [
        key for key in (*ref, *(key for key in dut if key not in ref)) if _unlike(key, ref, dut)
    ]


def _unlike(key: Key, ref: Tensors, dut: Tensors) -> bool:
    return key not in ref or key not in dut or unlike(ref[key], dut[key])


def unlike(ref: np.ndarray, dut: np.ndarray) -> bool:
    """Whether dtype, shape or bytes differ."""
    if (ref.dtype, ref.shape) != (dut.dtype, dut.shape):
        return True
    return ref.tobytes() != dut.tobytes()


def parts_changed(ref: State, dut: State) -> list[str]:
    """Names of the state parts (or weights) that differ, in the ref's order."""
    return [name for name in ref if name not in dut or unlike(ref[name], dut[name])]


def pairs_of(keys: Sequence[Key], ref: Tensors, dut: Tensors) -> Iterator[tuple[np.ndarray, ...]]:
    """The tensors of the keys that both sides have: what another tool is given."""
    for key in keys:
        if key in ref and key in dut:
            yield ref[key], dut[key]


def only(tensors: Tensors, fields: Collection[str]) -> Tensors:
    """The values of some fields alone: those that are tapped."""
    return {key: value for key, value in tensors.items() if key.field in fields}


# --- M rows and rollback --------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """M rows at ``start``, and what follows: ``more`` single steps."""

    tokens: Sequence[int]
    start: int
    more: int
    fields: frozenset[str]

    def plan(self, config: ModelConfig, count: int) -> Plan:
        """A plan that keeps the fields of ``count`` positions from ``start`` on."""
        positions = range(self.start, self.start + count)
        keys = [key for key in keys_at(config, positions) if key.field in self.fields]
        return Plan(fields=(), tensors=frozenset(keys))


def in_order(config: ModelConfig, tensors: Tensors) -> Tensors:
    """The same values by position, then in the order of a single step."""
    positions = sorted({key.pos for key in tensors})
    return {key: tensors[key] for key in keys_at(config, positions) if key in tensors}


def single_steps(engine: Any, config: ModelConfig, block: Block, count: int) -> Seen:
    """The prompt before the block, then ``count`` single steps."""
    seen, plan = Seen(), block.plan(config, count)
    engine.reset()
    if block.start:
        engine.prefill(block.tokens[: block.start])
    seen.start = engine.read_state()
    for token in block.tokens[block.start : block.start + count]:
        seen.tensors.update(engine.step(token, plan).tensors)
    seen.end = engine.read_state()
    seen.tensors = in_order(config, seen.tensors)
    return seen


def rows(engine: Any, config: ModelConfig, block: Block, size: int) -> Seen:
    """The prompt, ``size`` rows in one forward, then the further steps."""
    seen, plan = Seen(), block.plan(config, size + block.more)
    end = block.start + size
    engine.reset()
    if block.start:
        engine.prefill(block.tokens[: block.start])
    for step in engine.step_rows(block.tokens[block.start : end], plan):
        seen.tensors.update(step.tensors)
    for token in block.tokens[end : end + block.more]:
        seen.tensors.update(engine.step(token, plan).tensors)
    seen.end = engine.read_state()
    seen.tensors = in_order(config, seen.tensors)
    return seen


def taken_back(engine: Any, config: ModelConfig, block: Block, size: int, right: int) -> Seen:
    """The prompt, a draft of ``size`` with ``right`` right tokens that is taken back, then those
    and the further steps singly. ``start`` is the state right after going back."""
    seen, plan = Seen(), block.plan(config, right + block.more)
    wanted = block.tokens[block.start : block.start + size]
    draft = [*wanted[:right], *((token + 1) % config.vocab for token in wanted[right:])]
    engine.reset()
    if block.start:
        engine.prefill(block.tokens[: block.start])
    engine.mark()
    engine.step_rows(draft)
    engine.rollback()
    seen.start = engine.read_state()
    for token in block.tokens[block.start : block.start + right + block.more]:
        seen.tensors.update(engine.step(token, plan).tensors)
    seen.end = engine.read_state()
    seen.tensors = in_order(config, seen.tensors)
    return seen
