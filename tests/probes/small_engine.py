"""A model of two layers that takes microseconds, and faults in it by name: for tests of probes.

Every value is a checksum of all that was made and stored before it, so a difference reaches
whatever comes later. ``faults``: what ``Small`` does wrong, see where each is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np

from parity.dump import Entry, TensorType
from parity.errors import InputError
from parity.families import every_field, layer_fields
from parity.inject import move_element
from parity.keys import Key
from parity.model.config import ModelConfig, preset
from parity.protocol import Plan, Step
from parity.runs.probe import Ask, Found, Probe
from parity.runs.run import Side

ROW_FIELDS = ("k", "ks", "v", "vs")
WHOLE_FIELDS = ("s", "hist")
CAPABILITIES = ("rows", "state", "counters", "rollback", "inject")
LIMIT = 64  # rows of one forward
SHORT = 10  # tokens of one prefill, with the fault of that name


def small_config(kind: str) -> ModelConfig:
    """``moe-tiny`` or ``hybrid-tiny`` (a recurrent layer, then one of attention) of two layers."""
    return replace(preset(kind), layers=2, interval=2, vocab=32)


def small_model(kind: str = "moe-tiny", seed: int = 7) -> Any:
    """What a probe asks of a model."""
    return SimpleNamespace(config=small_config(kind), seed=seed)


class Small:
    """The engine. ``written``: lengths of the states written to it;
    ``drafts``: tokens of every forward of rows."""

    name = "small"

    def __init__(self, faults: Collection[str] = (), lacks: Collection[str] = ()) -> None:
        self.faults = frozenset(faults)
        self.capabilities = frozenset(CAPABILITIES) - frozenset(lacks)
        self.written: list[int] = []
        self.drafts: list[list[int]] = []
        self.forwards = self.rollbacks = 0

    def load(self, model: Any, positions: int) -> None:
        self.config: ModelConfig = model.config
        self.room, self.salt = positions, int(getattr(model, "seed", 0))
        self.calls: Counter[str] = Counter()
        self.parts = self._empty()
        self.reset()

    def reset(self) -> None:
        """Rows keep what they hold, as those of a real engine do."""
        empty = self._empty()
        self.length, self.hidden = 0, 0
        for name in self.parts:
            if name.split("_")[1] in WHOLE_FIELDS:
                self.parts[name] = empty[name]
        self.later = 0  # steps until something hidden shows
        self.drafted = False
        kept = getattr(self, "marked", None) if "mark after reset" in self.faults else None
        self.marked: dict[str, np.ndarray] | None = kept

    def _empty(self) -> dict[str, np.ndarray]:
        parts = {}
        for layer in range(self.config.layers):
            for field in layer_fields(self.config, layer, every_field(self.config)):
                if field in ROW_FIELDS:
                    parts[f"l{layer}_{field}"] = np.zeros((self.room, 3), self._dtype(field))
                elif field in WHOLE_FIELDS:
                    parts[f"l{layer}_{field}"] = np.zeros((2, 3), np.float32)
        return parts

    def _dtype(self, field: str) -> type:
        return np.int8 if field in ("k", "v") and self.config.kv == "int8" else np.float32

    # --- steps

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.calls.update(op=2, whole=1)
        if "flaky steps" in self.faults:
            self.hidden = self.forwards = self.forwards + 1
        return self._forward([token], plan, 1)[0]

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self.calls.update(prefill=1)
        if "short prefill" in self.faults and len(tokens) > SHORT:
            raise InputError(f"{len(tokens)} tokens in one prefill: 1 to {SHORT} are possible")
        steps = self._forward(tokens, plan, len(tokens) if "prefill" in self.faults else 1)
        if "last k" in self.faults:
            self.parts["l0_k"][self.length - 1, 1] += 1
        if "hidden prefill" in self.faults:
            self.hidden = 1
        return steps

    def step_rows(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        if len(tokens) > LIMIT:
            raise InputError(f"{len(tokens)} rows in one forward: 1 to {LIMIT} are possible")
        self.calls.update(op=2 * len(tokens) if "looped" in self.faults else 2, whole=len(tokens))
        self.forwards += 1
        self.drafts.append(list(tokens))
        self.drafted = True
        steps = self._forward(tokens, plan, len(tokens))
        if "hidden" in self.faults:  # told by no state, read by the next step
            self.hidden = len(tokens)
        return steps[:-1] if "short" in self.faults else steps

    def _forward(self, tokens: Sequence[int], plan: Plan | None, rows: int) -> list[Step]:
        if self.length + len(tokens) > self.room:
            raise InputError("no room")
        steps = []
        for row, token in enumerate(tokens):
            wrong = rows > 1 and row > 0
            if "once" in self.faults and self.forwards > 1:
                wrong = False
            steps.append(self._row(token, plan, wrong, rows))
        return steps

    def _row(self, token: int, plan: Plan | None, wrong: bool, rows: int) -> Step:
        self.later -= 1
        shows = self.later == 0
        total = crc32(bytes([token, (self.hidden + shows) % 256, self.salt % 256]))
        self.hidden = 0
        for name, array in self.parts.items():
            part = name.split("_")[1]
            if f"ignores {part}" in self.faults:
                continue
            read = array[: self.length] if part in ROW_FIELDS else array
            if "past" in self.faults and wrong and part in ROW_FIELDS:
                read = array[: self.length + 2]
            if "zeros past" in self.faults and self.room in self.written and part == "k":
                read = array[: self.length + (not array[self.length].any())]
            total = crc32(read.tobytes(), total)
        entries = []
        for layer in (*range(self.config.layers), None):
            for field in self._fields(layer):
                key = Key(self.length, layer, field)
                value = self._value(key, total, plan, wrong, rows)
                total = crc32(value.tobytes(), total)
                if plan is not None and plan.wants(key):
                    entries.append(self._entry(key, value))
                self._store(key, value, wrong)
        untapped = "untapped" in self.faults and plan is None and rows > 1
        untapped |= "untapped steps" in self.faults and plan is None and rows == 1
        logits = (np.arange(self.config.vocab, dtype=np.uint32) * np.uint32(total)) % 9973
        made = logits.astype(np.float32)
        if "draft logits" in self.faults and self.later == -1:
            made.view(np.uint32)[3] += 2
        if "nan logits" in self.faults and wrong:
            made[3] = np.nan
        if untapped or ("logits" in self.faults and wrong):
            made.view(np.uint32)[3:5] += 2
        self.length += 1
        return Step(made, entries)

    def _fields(self, layer: int | None) -> tuple[str, ...]:
        if layer is None:
            return ("final_normed", "logits")
        return layer_fields(self.config, layer, every_field(self.config))

    def _value(self, key: Key, total: int, plan: Plan | None, wrong: bool, rows: int) -> np.ndarray:
        number = crc32(key.tag.encode(), total)
        words = np.array([number % 9973, number % 97, number % 7], np.float32)
        value = words.astype(self._dtype(key.field)) if key.field in ("k", "v") else words
        if self._spoils(key, wrong, rows):
            move_element(value, 0)
        inject = plan.inject if plan is not None and "inject" in self.capabilities else None
        if inject is not None and inject.key == key and "dead tap" not in self.faults:
            move_element(value, inject.index % 3)
        if key.field == "attn" and (
            ("nan at 5" in self.faults and key.pos == 5)
            or "nan everywhere" in self.faults
            or (wrong and "nan" in self.faults)
        ):
            value[1] = np.nan
        return value

    def _spoils(self, key: Key, wrong: bool, rows: int) -> bool:
        if not wrong:
            return False
        if "attn" in self.faults and key.field == "attn":
            return rows >= 3 if "from 3" in self.faults else True
        return "final" in self.faults and key.field == "final_normed"

    def _entry(self, key: Key, value: np.ndarray) -> Entry:
        dtype = "int8" if value.dtype == np.int8 else "f32"
        bad = np.flatnonzero(~np.isfinite(value.astype(np.float32)))
        told = (len(bad), int(bad[0])) if len(bad) else None
        return Entry(key, crc32(value.tobytes()), TensorType(dtype, value.shape), told)

    def _store(self, key: Key, value: np.ndarray, wrong: bool) -> None:
        name = f"l{key.layer}_{key.field}"
        if key.layer is None or name not in self.parts:
            return
        kept = value.copy()
        if f"stores {key.field}" in self.faults and wrong:
            move_element(kept, 1)
        if key.field in ROW_FIELDS:
            self.parts[name][self.length] = kept
        else:
            self.parts[name][:] = [kept, kept * 2]

    # --- state, mark and rollback

    def read_state(self) -> dict[str, np.ndarray]:
        state = {"lengths": np.array([self.length], np.int32)}
        for name, array in self.parts.items():
            rows = name.split("_")[1] in ROW_FIELDS
            state[name] = (array[: self.length] if rows else array).copy()
        return state

    def write_state(self, state: Mapping[str, np.ndarray]) -> None:
        if state["lengths"].dtype != np.int32:
            raise InputError("lengths are int32")
        self.length = int(state["lengths"][0])
        self.written.append(self.length)
        for name, array in state.items():
            if name != "lengths":
                self.parts[name][: len(array)] = array
        self.hidden = self.later = 0
        if "lost write" in self.faults and len(self.written) > 4:
            self.parts["l0_k"][: self.length] = 5

    def mark(self) -> None:
        if "no mark at 0" in self.faults and not self.length:
            raise InputError("nothing to mark")
        if "first mark" in self.faults and self.marked is not None:
            return
        self.marked = self.read_state()

    def rollback(self) -> None:
        if self.marked is None:
            if "moves unmarked" in self.faults:
                self.length = max(0, self.length - 1)
            if "goes unmarked" in self.faults or ("goes drafted" in self.faults and self.drafted):
                return
            raise InputError("no mark")
        self.rollbacks += 1
        kept = {name: array.copy() for name, array in self.parts.items()}
        length = self.length
        self.length = int(self.marked["lengths"][0])
        for name, array in self.marked.items():
            if name != "lengths":
                self.parts[name][: len(array)] = array
        for name, array in kept.items():
            fault = f"keeps {name.split('_')[1]}"
            if fault in self.faults or (f"{fault} at 0" in self.faults and not self.length):
                self.parts[name] = array
        if {"keeps length", f"keeps length {self.rollbacks}"} & self.faults:
            self.length, self.parts = length, kept
        if "mark stays" not in self.faults:
            self.marked = None
        if "hidden draft" in self.faults or f"bad rollback {self.rollbacks}" in self.faults:
            self.hidden = 3
        self.later = 3 if "late draft" in self.faults else 0

    def counters(self) -> dict[str, int]:
        return dict(self.calls)


def small_side(
    faults: Collection[str] = (),
    lacks: Collection[str] = (),
    model: Any = None,
    positions: int = 40,
) -> Side:
    """One engine with a model loaded; what it announced stands in ``engine.told``."""
    engine: Any = Small(faults, lacks)
    engine.load(model or small_model(), positions)
    engine.told = []
    return Side("engine", "small", engine, lambda *told: engine.told.append(told))


def run_small(
    probe: type[Probe],
    *faults: str,
    kind: str = "moe-tiny",
    seeds: Sequence[int] = (7,),
    lacks: Collection[str] = (),
    sides: list[Side] | None = None,
    **ask: Any,
) -> Found:
    """What a probe finds on an engine with these faults."""
    models = tuple(small_model(kind, seed) for seed in seeds)

    def open_side(model: Any, positions: int) -> Side:
        side = small_side(faults, lacks, model, positions)
        if sides is not None:
            sides.append(side)
        return side

    asked = {"sizes": (2, 3), "starts": (3,), "more": 2, **ask}
    return probe().run(open_side, Ask(models=models, **asked))


def opened(probe: Any, *faults: str, **ask: Any) -> tuple[Found, Any]:
    """What was found, and the side of the first seed."""
    sides: list[Side] = []
    found = run_small(probe, *faults, sides=sides, **ask)
    return found, sides[0]
