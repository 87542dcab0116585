"""A program in line mode as an engine (docs/exec.md)."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np

from parity.dump import TensorType
from parity.errors import InputError, ParityBug
from parity.fnv import BASES
from parity.keys import FINAL_FIELDS, LAYER_FIELDS, Key, KeyOrder, in_schema
from parity.model.checks import check_rows, check_tokens
from parity.model.config import ModelConfig
from parity.model.model import Model
from parity.program import codec
from parity.program.codec import Hello, Row
from parity.program.dump_mode import told_model
from parity.program.reply import CHECK, Reply
from parity.program.talk import Talk
from parity.protocol import PROTOCOL, Engine, EngineSettings, Plan, Step
from parity.spec import ProgramSpec

TIER = "own"  # the only one: what a program computes is its own affair
_TOLD = ("device", "driver", "compiler", "options", "kernels")
_ENGINE_CAPABILITIES = frozenset({"rows", "rollback", "state", "counters"})
_HASHES = {basis: name for name, basis in BASES.items()}


def program_engine(spec: ProgramSpec) -> type[Engine]:
    """An engine class for a program, with the capabilities it tells.

    The program is started once for that. Raises NotRunError where it has no line mode, InputError
    where it cannot be started or answers wrongly.
    """
    talk = Talk(spec)
    try:
        talk.quit()
    finally:
        talk.stop()
    hello = talk.hello
    told = {
        "name": hello.engine,
        "version": hello.version,
        "capabilities": hello.capabilities & _ENGINE_CAPABILITIES,
        "spec": spec,
        "hello": hello,
    }
    return type("ProgramEngine", (ProgramEngine,), told)


class ProgramEngine:
    """One program that runs for each engine; ``program_engine`` makes the class of a command."""

    name: ClassVar[str]
    version: ClassVar[str]
    tiers: ClassVar[tuple[str, ...]] = (TIER,)
    variants: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[frozenset[str]]
    protocol: ClassVar[int] = PROTOCOL
    spec: ClassVar[ProgramSpec]
    hello: ClassVar[Hello]

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._talk = Talk(self.spec)
        self._end = weakref.finalize(self, self._talk.stop)
        if self._talk.hello != self.hello:
            self._end()
            raise InputError(f"{self.spec.text}: answers hello in another way than before", CHECK)

    def describe(self) -> Mapping[str, str]:
        """What the program told; ``untold`` where it did not."""
        return {**dict.fromkeys(_TOLD, "untold"), "emulated": "no", **self.hello.header}

    def load(self, model: Model, positions: int) -> None:
        """Let the program load the model. InputError where it has fewer logits than tokens."""
        config = model.config
        self._config: ModelConfig = config
        self._positions = positions
        self._vocab = self.hello.vocab or config.vocab
        if self._vocab < config.vocab:
            raise InputError(
                f"{self.spec.text}: has {self._vocab:,} logits, fewer than {config.name} has "
                f"tokens ({config.vocab:,})",
                "choose a --model with fewer tokens",
            )
        self._do(f"load {positions} {told_model(model)}")
        self._pos, self._marked, self._tap = 0, 0, "-"
        self._weights: dict[str, tuple[TensorType, int]] = {}
        if "weights" in self.hello.capabilities:
            self._weights = self._talk.ask("weights", codec.WEIGHTS, codec.read_weights)

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and digest of every tensor; none where the program does not tell them."""
        return self._weights

    def reset(self) -> None:
        """Back to position 0."""
        self._do("reset")
        self._pos = 0

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """Feed the prompt: one Step per token with a tap, else the last one."""
        self._tune(plan)
        told = len(tokens) if self._tap != "-" else 1
        steps = self._feed("prefill", tokens, told, plan)
        return steps if plan is not None else steps[-1:]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """Feed one token."""
        self._tune(plan)
        return self._feed("step", [token], 1, plan)[0]

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """Feed M tokens in one forward."""
        check_rows(tokens)
        self._tune(plan)
        return self._feed("rows", tokens, len(tokens), plan)

    def read_state(self) -> dict[str, np.ndarray]:
        """Every state part by name."""
        return self._talk.ask("state", codec.PARTS, codec.read_parts)

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over a state."""
        length = int(state["lengths"][0])
        check_tokens(self._config, (), length, self._positions)
        lines = [*codec.part_lines(state), "end"]
        self._talk.ask("set-state", codec.NOTHING, codec.read_nothing, lines)
        self._pos = length

    def mark(self) -> None:
        """Remember the state."""
        self._do("mark")
        self._marked = self._pos

    def rollback(self) -> None:
        """Go back to the mark."""
        self._do("rollback")
        self._pos = self._marked

    def counters(self) -> Mapping[str, int]:
        """Calls or launches so far, by name."""
        return self._talk.ask("counters", codec.COUNTS, codec.read_counts)

    def _do(self, request: str) -> None:
        self._talk.ask(request, codec.NOTHING, codec.read_nothing)

    def _tune(self, plan: Plan | None) -> None:
        """Set the tap, where it is not set so."""
        tap = "-"
        if plan is not None and plan.fields:
            if plan.basis not in _HASHES:
                raise ParityBug(f"no hash is called by the basis {plan.basis:016x}")
            tap = f"{_HASHES[plan.basis]} {','.join(_ordered(plan.fields))}"
        if tap != self._tap:
            self._do(f"tap {tap}")
            self._tap = tap

    def _feed(
        self, request: str, tokens: Sequence[int], told: int, plan: Plan | None
    ) -> list[Step]:
        """``told``: how many rows come back, those of the last tokens."""
        check_tokens(self._config, tokens, self._pos, self._positions)
        first = self._pos + len(tokens) - told

        def read(reply: Reply) -> list[Step]:
            rows = codec.read_rows(reply, first, told, self._vocab, tapped=self._tap != "-")
            return [_step(reply, row, plan) for row in rows]

        steps = self._talk.ask(f"{request} {' '.join(map(str, tokens))}", codec.ROWS, read)
        self._pos += len(tokens)
        return steps


def _step(reply: Reply, row: Row, plan: Plan | None) -> Step:
    """The row as a Step; its key ``logits`` is made here, and must be what the program told."""
    if plan is None or not plan.fields:
        return Step(row.logits)
    logits = codec.entry_of(Key(row.pos, None, "logits"), row.logits, plan.basis)
    entries = {entry.key: entry for entry in row.entries}
    told = entries.get(logits.key, logits)
    if (told.digest, told.type) != (logits.digest, logits.type):
        told_text, given = told.value_text(), logits.value_text()
        name = _HASHES[plan.basis]
        reply.refuse(f"{told.key} {told_text} is not the {name} of the logits given, {given}")
    entries[logits.key] = logits
    order = KeyOrder(entries)
    kept = [entry for key, entry in entries.items() if _wanted(key, plan)]
    return Step(row.logits, sorted(kept, key=lambda entry: order(entry.key)))


def _ordered(fields: Collection[str]) -> list[str]:
    """Fields in dataflow order, those of no schema by name after them."""
    known = [name for name in (*LAYER_FIELDS, *FINAL_FIELDS) if name in fields]
    return [*known, *sorted(set(fields) - set(known))]


def _wanted(key: Key, plan: Plan) -> bool:
    """What was asked for, and fields that only the program knows."""
    if plan.places is not None and (key.pos, key.layer) not in plan.places:
        return False
    return key.field in plan.fields or not in_schema(key)
