"""The tap of the device engine: values are copied into an arena, hashed there in one launch, and
the digests come back with the logits in the step's one copy to the host."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from parity.dtypes import dtype_name
from parity.dump import Entry, TensorType
from parity.errors import ParityBug
from parity.families import field_type, layer_fields
from parity.inject import check_replacement
from parity.keys import FINAL_FIELDS, Key, KeyOrder
from parity.model.config import ModelConfig
from parity.protocol import Call, Plan, Step
from parity_cuda.backend import Backend, Buffer

JOB = np.dtype([("data", "<u8"), ("bytes", "<i8"), ("is_float", "<i4"), ("unused", "<i4")])
RESULT = np.dtype([("hash", "<u8"), ("nonfinite", "<i4"), ("first", "<i4")])
ALIGN = 16
ITEM_BYTES = {"f32": 4, "int32": 4, "int8": 1}
NUMPY_TYPES = {"f32": np.float32, "int32": np.int32, "int8": np.int8}
DIGEST_THREADS = 32


def aligned(count: int) -> int:
    """``count`` bytes, rounded up to the arena's alignment."""
    return -(-count // ALIGN) * ALIGN


def type_bytes(kind: TensorType) -> int:
    """Bytes of a value of this type."""
    return ITEM_BYTES[kind.dtype] * int(np.prod(kind.shape))


@dataclass(frozen=True)
class Slot:
    """One value in the arena."""

    key: Key
    kind: TensorType
    offset: int


class Arena:
    """Device memory of the tap: the values of one forward, the table of jobs, and the block that
    goes to the host: logits (M, vocab) first, then one result a key. Grows when a forward needs
    more, and is the same for every forward after."""

    def __init__(self, backend: Backend, config: ModelConfig) -> None:
        self.backend, self.config = backend, config
        self.written_jobs = b""
        self._needed: dict[frozenset[str], tuple[int, int]] = {}
        self._room = {"values": -1, "keys": -1, "rows": 0}

    def prepare(self, rows: int, plan: Plan | None) -> None:
        """Make room for a forward of ``rows`` rows that reports what ``plan`` asks for."""
        count, keys = self._needs(plan)
        if rows > self._room["rows"] or keys * rows > self._room["keys"]:
            self._room["rows"] = max(rows, self._room["rows"])
            self._room["keys"] = max(keys * rows, self._room["keys"])
            self._answers()
        if count * rows > self._room["values"]:
            self._room["values"] = count * rows
            self.values = self.backend.empty((max(count * rows, ALIGN),), np.uint8)
            self.written_jobs = b""

    def type_of(self, field: str) -> TensorType:
        """dtype and shape of a field of this model."""
        return field_type(self.config, field)

    def logits_bytes(self, rows: int) -> int:
        """Bytes of the logits of ``rows`` rows in the answer, aligned."""
        return aligned(4 * self.config.vocab * rows)

    def logits(self, rows: int) -> Buffer:
        """Where a forward writes its logits, (rows, vocab) f32."""
        count = 4 * self.config.vocab * rows
        return self.answer[:count].view(np.float32).reshape(rows, self.config.vocab)

    def _answers(self) -> None:
        keys = max(self._room["keys"], 1)
        results = keys * RESULT.itemsize
        self.answer = self.backend.empty(
            (self.logits_bytes(self._room["rows"]) + results,), np.uint8
        )
        self.jobs = self.backend.empty((keys * JOB.itemsize,), np.uint8)
        self.written_jobs = b""

    def _needs(self, plan: Plan | None) -> tuple[int, int]:
        """Bytes of values and number of keys of one row."""
        if plan is None:
            return 0, 0
        # The same for every step of a run: worked out once, not layer by layer at each.
        names = frozenset([*plan.fields, *(key.field for key in plan.tensors)])
        if names not in self._needed:
            self._needed[names] = self._sum(names)
        return self._needed[names]

    def _sum(self, names: frozenset[str]) -> tuple[int, int]:
        last = [name for name in names if name in FINAL_FIELDS]
        found = list(last)
        for layer in range(self.config.layers):
            found += layer_fields(self.config, layer, [n for n in names if n not in last])
        return sum(aligned(type_bytes(self.type_of(name))) for name in found), len(found)


class Tap:
    """Collects what ``plan`` asks for while one step runs on ``backend``."""

    def __init__(self, backend: Backend, arena: Arena, plan: Plan | None, rows: int) -> None:
        arena.prepare(rows, plan)
        self.backend, self.arena, self.plan, self.rows = backend, arena, plan, rows
        self.slots: list[Slot] = []
        self.calls: dict[Key, tuple[Call, ...]] = {}
        self._used = 0
        self._ran: tuple[Call, ...] = ()
        self._launched = self._counts()

    def __call__(self, pos: int, layer: int | None, field: str, buffer: Buffer) -> None:
        """Offer one value: called when the buffer is final and before anything reads it."""
        plan = self.plan
        if plan is None:
            return
        key = Key(pos, layer, field)
        moved = plan.injection(key)
        if moved is not None:
            self._move(buffer, moved)
        change = plan.change(key)
        if change is not None:
            self._write(key, buffer, change(self._read(key, buffer)))
        if plan.wants(key) or key in plan.tensors:
            self._keep(key, buffer)
        if plan.trace:
            self._trace(key, plan.trace)
        if plan.replace is not None:
            self._replace(key, buffer, plan)

    def _trace(self, key: Key, wanted: frozenset[Key]) -> None:
        """Note what was launched since the value before; values of one launch share it."""
        launched = self._counts()
        new = tuple(Call(name) for name in launched if launched[name] > self._launched[name])
        self._launched = launched
        self._ran = new or self._ran
        if key in wanted:
            self.calls[key] = self._ran

    def _counts(self) -> Counter[str]:
        """Launches so far, by kernel, but for those that move an element for the tap."""
        if self.plan is None or not self.plan.trace:
            return Counter()
        return Counter({k: n for k, n in self.backend.counts.items() if k != "move_element"})

    def _replace(self, key: Key, buffer: Buffer, plan: Plan) -> None:
        """What was kept is what the op made; what is read from here on is the replacement."""
        if plan.replace is None:
            return
        given = plan.replace(key, lambda: self._read(key, buffer))
        if given is not None:
            self._write(key, buffer, given)

    def _read(self, key: Key, buffer: Buffer) -> np.ndarray:
        return self.backend.download(buffer).reshape(self.arena.type_of(key.field).shape)

    def _write(self, key: Key, buffer: Buffer, given: np.ndarray) -> None:
        kind = self.arena.type_of(key.field)
        check_replacement(key, kind, TensorType(dtype_name(given.dtype), given.shape))
        self.backend.write(buffer, given.reshape(buffer.shape))

    def _move(self, buffer: Buffer, index: int) -> None:
        width = buffer.dtype.itemsize
        is_float = np.int32(buffer.dtype == np.float32)
        args = [buffer, np.int64(index), np.int32(width), is_float]
        self.backend.launch("move_element", (1,), 1, args)

    def _keep(self, key: Key, buffer: Buffer) -> None:
        kind = self.arena.type_of(key.field)
        count = type_bytes(kind)
        if count != buffer.nbytes:
            raise ParityBug(f"{key}: a buffer of {buffer.nbytes} bytes, {kind} has {count}")
        target = self.arena.values[self._used : self._used + count]
        self.backend.copy(target, buffer)
        self.slots.append(Slot(key, kind, self._used))
        self._used += aligned(count)

    def steps(self, pos: int) -> list[Step]:
        """Hash what was kept; one Step per row, with one copy of logits and digests.

        A replaced row of logits is what the Step gives: it is what is read afterwards.
        """
        arena, plan, rows = self.arena, self.plan, self.rows
        if plan is None or not self.slots:
            logits = self.backend.download(arena.logits(rows))
            return [self._step(logits[m], pos + m, []) for m in range(rows)]
        self._launch_digests(plan.basis)
        begin = arena.logits_bytes(rows)
        answer = self.backend.download(arena.answer[: begin + len(self.slots) * RESULT.itemsize])
        shape = (rows, arena.config.vocab)
        logits = answer[: 4 * shape[0] * shape[1]].view(np.float32).reshape(shape).copy()
        pairs = list(zip(self.slots, answer[begin:].view(RESULT), strict=True))
        return [self._step(logits[m], pos + m, pairs) for m in range(rows)]

    def _step(self, logits: np.ndarray, pos: int, pairs: list[tuple[Slot, np.void]]) -> Step:
        """The Step of one row, its keys in dataflow order."""
        mine = [pair for pair in pairs if pair[0].key.pos == pos]
        if self.rows > 1 or self.arena.config.family == "hybrid":
            order = KeyOrder()
            mine.sort(key=lambda pair: order(pair[0].key))
        plan = self.plan
        if plan is None:
            return Step(logits)
        entries = [_entry(slot, result) for slot, result in mine if plan.wants(slot.key)]
        kept = {slot.key: self._tensor(slot) for slot, _ in mine if slot.key in plan.tensors}
        ran = {key: calls for key, calls in self.calls.items() if key.pos == pos}
        return Step(logits, entries, kept, ran)

    def _launch_digests(self, basis: int) -> None:
        arena, count = self.arena, len(self.slots)
        jobs = np.zeros(count, JOB)
        jobs["data"] = self.backend.address(arena.values)
        jobs["data"] += np.array([slot.offset for slot in self.slots], np.uint64)
        jobs["bytes"] = [type_bytes(slot.kind) for slot in self.slots]
        jobs["is_float"] = [slot.kind.dtype == "f32" for slot in self.slots]
        text = jobs.tobytes()
        # The table is the same for every position of a run: write it when it changes.
        if text != arena.written_jobs:
            target = arena.jobs[: len(text)]
            self.backend.write(target, np.frombuffer(text, np.uint8))
            arena.written_jobs = text
        blocks = -(-count // DIGEST_THREADS)
        results = arena.answer[arena.logits_bytes(self.rows) :]
        args = [results, arena.jobs, np.uint64(basis), np.int32(count)]
        self.backend.launch("digest", (blocks,), DIGEST_THREADS, args)

    def _tensor(self, slot: Slot) -> np.ndarray:
        count = type_bytes(slot.kind)
        raw = self.backend.download(self.arena.values[slot.offset : slot.offset + count])
        return raw.view(NUMPY_TYPES[slot.kind.dtype]).reshape(slot.kind.shape)


def _entry(slot: Slot, result: np.void) -> Entry:
    count, first = int(result["nonfinite"]), int(result["first"])
    return Entry(slot.key, int(result["hash"]), slot.kind, (count, first) if count else None)
