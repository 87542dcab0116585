"""Run one side: an engine, a model and tokens give a dump and the states before and after.

The settings are frozen; nothing here compares or presents (docs/contract.md section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from parity import __version__
from parity.builds.provenance import PACKAGES, packages_of
from parity.comparison.states import unlike_row
from parity.dump import FORMAT, MAIN, PARTIAL, Dump, TensorType
from parity.dumps.greedy import format_greedy
from parity.dumps.table import Builder, Kinds, Places
from parity.errors import NotRunError
from parity.families import count_keys, dumped_fields
from parity.fnv import BASES
from parity.model.model import Model, model_digest
from parity.model.opening import source_of
from parity.protocol import Engine, EngineSettings, Plan, Step

State = dict[str, np.ndarray]
Progressing = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Run:
    """Settings of a run. ``prompt`` stands at positions 0 .. P-1, then ``n`` steps are dumped.

    ``prefill``: "own" or "ref". ``tokens_from``: "ref" or "own". ``hash_name``: a name of
    ``parity.fnv.BASES``. ``tokenizer``: digest of what made the prompt of a text, else "".
    """

    model: Model
    prompt: tuple[int, ...]
    n: int = 4
    prefill: str = "own"
    dump_prefill: bool = False
    tokens_from: str = "ref"
    extra_fields: tuple[str, ...] = ()
    hash_name: str = "fnv1a64"
    tokenizer: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields to dump, in dataflow order within their groups."""
        return dumped_fields(self.model.config, self.extra_fields)

    @property
    def start(self) -> int:
        """Position of the first decoded token."""
        return len(self.prompt)

    @property
    def positions(self) -> int:
        """Rows the KV cache needs."""
        return len(self.prompt) + self.n

    @property
    def dumped_steps(self) -> int:
        """How many steps are dumped."""
        return self.n + (self.start if self.dump_prefill else 0)

    @property
    def expected_keys(self) -> int:
        """Keys of a complete dump."""
        return self.dumped_steps * count_keys(self.model.config, self.fields)

    def plan(self, **changes: Any) -> Plan:
        """What every dumped step must report."""
        return Plan(**{"fields": self.fields, "basis": BASES[self.hash_name], **changes})


@dataclass
class Side:
    """One opened engine with the text that chose it. ``role``: "ref" or "dut"."""

    role: str
    spec: str
    engine: Engine
    progress: Progressing = field(default=lambda where, done, total: None)

    @cached_property
    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and digest of every tensor the engine holds: hashed once, for header and verdict."""
        return self.engine.weights()

    def has(self, capability: str) -> bool:
        """Whether the engine offers an optional capability."""
        return capability in self.engine.capabilities

    def read_state(self) -> State | None:
        """Copies of all state parts, or None for an engine that cannot give them."""
        return self.engine.read_state() if self.has("state") else None  # type: ignore[attr-defined]

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over a state; the capability was checked before the run."""
        self.engine.reset()
        self.engine.write_state(state)  # type: ignore[attr-defined]

    def take_over(self, state: State) -> None:
        """Take over the state of the other side; NotRunError where its rows have another form."""
        self.engine.reset()
        other = unlike_row(state, self.read_state() or {})
        if other:
            raise NotRunError(
                f"{self.spec} cannot take over the ref's state: {other}", "use --prefill own"
            )
        self.write_state(state)


@dataclass
class SideRun:
    """What a run left: the dump, both states, the tokens fed and the choice at each position."""

    dump: Dump
    fed: list[int]
    choices: dict[int, int]
    start: State | None = None
    end: State | None = None


class Interrupted(KeyboardInterrupt):
    """The user stopped a run. ``done``: the whole steps before that, in a dump marked partial."""

    def __init__(self, done: SideRun) -> None:
        super().__init__()
        self.done = done


def greedy(logits: np.ndarray, real_ids: int) -> int:
    """The lowest id among the maxima; -0 equals +0 (contract 7).

    ``real_ids``: ids from here on are padding and never win; 0: none is. With a NaN among the
    others it is the first NaN's id: such a run stops after the step (1.10).
    """
    return int(np.argmax(logits[: real_ids or None]))


def tokens_for_dut(run: Run, ref_fed: Sequence[int]) -> Sequence[int]:
    """What the dut is fed at P, P+1, ...: the ref's tokens, or none where it follows itself.

    With the ref's state handed over it has no choice of its own before P, the first is the ref's.
    """
    if run.tokens_from == "ref":
        return ref_fed
    return ref_fed[:1] if run.prefill == "ref" else ()


def run_side(
    side: Side, run: Run, *, fed: Sequence[int] | None = None, start: State | None = None
) -> SideRun:
    """Prefill (or take over ``start``), then decode ``run.n`` steps, dumping every key.

    ``fed``: tokens at P, P+1, ...; past its end, and with None, the side follows its own greedy
    choices. One that takes over ``start`` has none before P: it must be fed the token at P.
    Raises Interrupted, with the steps that were done, when the user stops it after the first.
    """
    collected = _Collected(side, run)
    result = SideRun(Dump(source=side.spec), [], collected.choices)
    try:
        _run_steps(collected, result, fed, start)
    except KeyboardInterrupt as stop:
        _keep_whole_steps(collected, result)
        if not result.dump.size:
            raise
        raise Interrupted(result) from stop
    header = _header(side, run, result, collected.stopped)
    result.dump = Dump(header, {MAIN: collected.told.table()}, side.spec)
    return result


def _keep_whole_steps(collected: _Collected, result: SideRun) -> None:
    """What a stopped run leaves: nothing of the step it was in."""
    side, run, end = collected.side, collected.run, collected.position
    result.fed = result.fed[: max(0, end - run.start)]
    result.choices = {pos: token for pos, token in collected.choices.items() if pos < end}
    told = collected.told.table()
    partial = {PARTIAL: f"interrupted at t{end}"}
    header = _header(side, run, result, collected.stopped) | partial
    result.dump = Dump(header, {MAIN: told.select(told.pos < end)}, side.spec)


def _run_steps(
    collected: _Collected, result: SideRun, fed: Sequence[int] | None, start: State | None
) -> None:
    side, run = collected.side, collected.run
    choice = collected.prefill() if start is None else collected.take_over(start)
    result.start = side.read_state()
    for index in range(run.n):
        if collected.stopped:
            break
        token = fed[index] if fed is not None and index < len(fed) else choice
        result.fed.append(token)
        choice = collected.step(token)
    result.end = side.read_state()


class _Collected:
    """What one run told and chose, while it goes on: no entry is made of what it told."""

    def __init__(self, side: Side, run: Run) -> None:
        self.side, self.run = side, run
        self.plan = run.plan()
        self.told = Builder(Places(), Kinds())
        self.choices: dict[int, int] = {}
        self.position = 0
        self.stopped = ""

    def prefill(self) -> int:
        self.side.engine.reset()
        dumped = self.plan if self.run.dump_prefill else None
        self.side.progress("prefill", 0, self.run.expected_keys)
        steps = self.side.engine.prefill(self.run.prompt, dumped)
        for step in steps:
            self._take(step)
        self.position = self.run.start
        return self._choose(steps[-1], self.run.start - 1)

    def take_over(self, state: State) -> int:
        self.side.take_over(state)
        self.position = self.run.start
        return -1

    def step(self, token: int) -> int:
        step = self.side.engine.step(token, self.plan)
        self._take(step)
        self.side.progress(f"t{self.position}", self.told.rows, self.run.expected_keys)
        choice = self._choose(step, self.position)
        self.position += 1
        return choice

    def _choose(self, step: Step, position: int) -> int:
        choice = greedy(step.logits, self.run.model.config.real_ids)
        # With the ref's state handed over, the dut has no choice of its own before P.
        if position >= self.run.start or self.run.prefill == "own":
            self.choices[position] = choice
        return choice

    def _take(self, step: Step) -> None:
        self.told.add(step.entries)
        if self.told.nonfinite and not self.stopped:
            self.stopped = self.told.table().key(min(self.told.nonfinite)).tag


def _header(side: Side, run: Run, result: SideRun, stopped: str) -> dict[str, str]:
    engine, config = side.engine, run.model.config
    settings: EngineSettings | None = getattr(engine, "settings", None)
    variants = sorted(settings.variants) if settings else []
    header = {
        "format": FORMAT,
        "hash": run.hash_name,
        "engine": engine.name,
        "version": engine.version or __version__,
        "tier": settings.tier if settings else engine.tiers[0],
        "variants": ",".join(variants) or "none",
        "family": config.family,
        "model": run.model.label,
        **_source(run.model),
        "kv": config.kv,
        **({"weights": f"{model_digest(config, side.weights):016x}"} if side.weights else {}),
        "tokens": ",".join(map(str, [*run.prompt, *result.fed])),
        **({"tokenizer": run.tokenizer} if run.tokenizer else {}),
        "prefill": f"{run.start} {run.prefill}",
        "fields": ",".join(run.extra_fields) or "default",
        PACKAGES: packages_of(engine),
        **engine.describe(),
        "greedy": format_greedy(result.choices),
    }
    return {**header, "stopped": stopped} if stopped else header


def _source(model: Model) -> dict[str, str]:
    """Format of the file a model was read from and how it stores its tensors; of a preset none."""
    source = source_of(model)
    return {} if source is None else {"source": source.format, "stored": source.stored}
