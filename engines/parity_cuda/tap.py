"""The tap of the device engine: values are copied into an arena, hashed there in one launch, and
the digests come back with the logits in the step's one copy to the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.dump import Entry, TensorType
from parity.errors import ParityBug
from parity.families import dumped_fields, field_type
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.protocol import Plan
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
    """Device memory of the tap, made once a model: all values of one step, jobs, and the block
    that goes to the host: logits first, then one result a key."""

    def __init__(self, backend: Backend, config: ModelConfig) -> None:
        fields = dumped_fields(config, ("ffn",))
        layer_fields = [field for field in fields if field not in ("final_normed", "logits")]
        layer = sum(aligned(type_bytes(field_type(config, field))) for field in layer_fields)
        last = [type_bytes(field_type(config, field)) for field in ("final_normed", "logits")]
        self.config = config
        self.types = {field: field_type(config, field) for field in fields}
        self.values = backend.empty((config.layers * layer + sum(map(aligned, last)),), np.uint8)
        self.most_keys = config.layers * len(layer_fields) + 2
        self.logits_bytes = aligned(last[1])
        self.answer = backend.empty(
            (self.logits_bytes + self.most_keys * RESULT.itemsize,), np.uint8
        )
        self.logits = self.answer[: last[1]].view(np.float32).reshape(1, config.vocab)
        self.jobs = backend.empty((self.most_keys * JOB.itemsize,), np.uint8)
        self.written_jobs = b""


class Tap:
    """Collects what ``plan`` asks for while one step runs on ``backend``."""

    def __init__(self, backend: Backend, arena: Arena, plan: Plan | None) -> None:
        self.backend, self.arena, self.plan = backend, arena, plan
        self.slots: list[Slot] = []
        self._used = 0

    def __call__(self, pos: int, layer: int | None, field: str, buffer: Buffer) -> None:
        """Offer one value: called when the buffer is final and before anything reads it."""
        plan = self.plan
        if plan is None:
            return
        key = Key(pos, layer, field)
        moved = plan.injection(key)
        if moved is not None:
            self._move(buffer, moved)
        if plan.wants(key) or key in plan.tensors:
            self._keep(key, buffer)

    def _move(self, buffer: Buffer, index: int) -> None:
        width = buffer.dtype.itemsize
        is_float = np.int32(buffer.dtype == np.float32)
        args = [buffer, np.int64(index), np.int32(width), is_float]
        self.backend.launch("move_element", (1,), 1, args)

    def _keep(self, key: Key, buffer: Buffer) -> None:
        kind = self.arena.types[key.field]
        count = type_bytes(kind)
        if count != buffer.nbytes:
            raise ParityBug(f"{key}: a buffer of {buffer.nbytes} bytes, {kind} has {count}")
        target = self.arena.values[self._used : self._used + count]
        self.backend.copy(target, buffer)
        self.slots.append(Slot(key, kind, self._used))
        self._used += aligned(count)

    def finish(self) -> tuple[np.ndarray, list[Entry], dict[Key, np.ndarray]]:
        """Hash what was kept; logits, entries and tensors, with one copy of logits and digests."""
        arena, plan = self.arena, self.plan
        vocab = arena.config.vocab
        if plan is None or not self.slots:
            return self.backend.download(arena.logits)[0], [], {}
        self._launch_digests(plan.basis)
        count = arena.logits_bytes + len(self.slots) * RESULT.itemsize
        answer = self.backend.download(arena.answer[:count])
        logits = answer[: 4 * vocab].view(np.float32).copy()
        results = answer[arena.logits_bytes :].view(RESULT)
        pairs = zip(self.slots, results, strict=True)
        entries = [_entry(slot, result) for slot, result in pairs if plan.wants(slot.key)]
        kept = {slot.key: self._tensor(slot) for slot in self.slots if slot.key in plan.tensors}
        return logits, entries, kept

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
        results = arena.answer[arena.logits_bytes :]
        args = [results, arena.jobs, np.uint64(basis), np.int32(count)]
        self.backend.launch("digest", (blocks,), DIGEST_THREADS, args)

    def _tensor(self, slot: Slot) -> np.ndarray:
        count = type_bytes(slot.kind)
        raw = self.backend.download(self.arena.values[slot.offset : slot.offset + count])
        return raw.view(NUMPY_TYPES[slot.kind.dtype]).reshape(slot.kind.shape)


def _entry(slot: Slot, result: np.void) -> Entry:
    count, first = int(result["nonfinite"]), int(result["first"])
    return Entry(slot.key, int(result["hash"]), slot.kind, (count, first) if count else None)
