"""The tap of the device engine: values are hashed where they lie, in one launch at a step's end;
the digests come back with the logits in the step's one copy to the host.

A value stays where it lies until the end of the step (pool.py); one that a later row changes in
place is copied into an arena first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from parity.dtypes import dtype_name
from parity.dump import TensorType
from parity.dumps.forms import Form, Forms
from parity.errors import ParityBug
from parity.families import field_type, layer_fields
from parity.inject import check_replacement
from parity.keys import FINAL_FIELDS, Key, KeyOrder
from parity.model.config import ModelConfig
from parity.protocol import Call, Plan, Step
from parity_cuda.backend import Backend, Buffer
from parity_cuda.digests import PART, RESULT, Table, launch_digests, make_table, zeros
from parity_cuda.sources import source_of

ALIGN = 16
ITEM_BYTES = {"f32": 4, "int32": 4, "int8": 1}
NUMPY_TYPES = {"f32": np.float32, "int32": np.int32, "int8": np.int8}
STATE = ("hist", "s")  # offered as ``passing``: room is made for them


def aligned(count: int) -> int:
    """``count`` bytes, rounded up to the arena's alignment."""
    return -(-count // ALIGN) * ALIGN


def type_bytes(kind: TensorType) -> int:
    """Bytes of a value of this type."""
    return ITEM_BYTES[kind.dtype] * int(np.prod(kind.shape))


@dataclass(frozen=True)
class Slot:
    """One value, and where it lies on the device."""

    key: Key
    kind: TensorType
    buffer: Buffer


class Arena:
    """Device memory of the tap: values that must be copied, the table of jobs, and the block that
    goes to the host: logits (M, vocab) first, then one result a key. Grows when a forward needs
    more, and is the same for every forward after.

    ``version`` counts the times it grew: what held its addresses is of no use after.
    """

    def __init__(self, backend: Backend, config: ModelConfig) -> None:
        self.backend, self.config = backend, config
        self.version = 0
        self.forms = Forms()
        self._written = b""
        self._needed: dict[tuple[frozenset[str], bool, bool], tuple[int, int]] = {}
        self._room = {"values": -1, "keys": -1, "rows": 0, "table": -1, "work": -1}

    def prepare(self, rows: int, plan: Plan | None) -> None:
        """Make room for a forward of ``rows`` rows that reports what ``plan`` asks for."""
        count, keys = self._needs(rows, plan)
        if rows > self._room["rows"] or keys * rows > self._room["keys"]:
            self._room["rows"] = max(rows, self._room["rows"])
            self._room["keys"] = max(keys * rows, self._room["keys"])
            results = max(self._room["keys"], 1) * RESULT.itemsize
            size = self.logits_bytes(self._room["rows"]) + results
            self.answer = self.backend.empty((size,), np.uint8)
            self.version += 1
        if count * rows > self._room["values"]:
            self._room["values"] = count * rows
            self.values = self.backend.empty((max(count * rows, ALIGN),), np.uint8)
            self.version += 1

    def type_of(self, key: Key) -> TensorType:
        """dtype and shape of a value of this model."""
        return field_type(self.config, key.field, key.layer)

    def logits_bytes(self, rows: int) -> int:
        """Bytes of the logits of ``rows`` rows in the answer, aligned."""
        return aligned(4 * self.config.vocab * rows)

    def logits(self, rows: int) -> Buffer:
        """Where a forward writes its logits, (rows, vocab) f32."""
        count = 4 * self.config.vocab * rows
        return self.answer[:count].view(np.float32).reshape(rows, self.config.vocab)

    def place(self, table: Table) -> None:
        """Make room for a table of jobs, and the zeros that the digests need."""
        size = len(table.text) + PART.itemsize  # no view of it is empty
        if size > self._room["table"]:
            self._room["table"] = size
            self.text = self.backend.empty((size,), np.uint8)
            self._written = b""
            self.version += 1
        if table.work_bytes > self._room["work"]:
            self._room["work"] = table.work_bytes
            self.work = zeros(self.backend, table.work_bytes)
            self.version += 1

    def write(self, table: Table) -> None:
        """Copy a table of jobs to the device: the same for every position of a run, so only when
        it is another one than before."""
        if table.text != self._written:
            target = self.text[: len(table.text)]
            self.backend.write(target, np.frombuffer(table.text, np.uint8))
            self._written = table.text

    def _needs(self, rows: int, plan: Plan | None) -> tuple[int, int]:
        """Bytes of values to copy and number of keys of one row of ``rows``."""
        if plan is None:
            return 0, 0
        # The same for every step of a run: worked out once, not layer by layer at each.
        names = frozenset([*plan.fields, *(key.field for key in plan.tensors)])
        state = (names, plan.replace is not None, rows > 1)
        if state not in self._needed:
            self._needed[state] = self._sum(*state)
        return self._needed[state]

    def _sum(self, names: frozenset[str], every: bool, many: bool) -> tuple[int, int]:
        last = [name for name in names if name in FINAL_FIELDS]
        found = [Key(0, None, name) for name in last]
        for layer in range(self.config.layers):
            fields = layer_fields(self.config, layer, [n for n in names if n not in last])
            found += [Key(0, layer, name) for name in fields]
        copied = [key for key in found if every or (many and key.field in STATE)]
        return sum(aligned(type_bytes(self.type_of(key))) for key in copied), len(found)


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

    def __call__(
        self, pos: int, layer: int | None, field: str, buffer: Buffer, *, passing: bool = False
    ) -> None:
        """Offer one value: called when the buffer is final and before anything reads it.
        ``passing``: the rows that follow change it in place."""
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
            self._keep(key, buffer, passing)
        if plan.trace:
            self._trace(key, plan.trace)
        if plan.replace is not None:
            self._replace(key, buffer, plan)

    def asks(self, field: str) -> bool:
        """Whether this forward may be asked for a value of ``field``, or changes values."""
        plan = self.plan
        if plan is None:
            return False
        special = (plan.inject, plan.replace, plan.borrow, plan.places)
        if plan.trace or any(each is not None for each in special):
            return True
        return field in plan.fields or any(key.field == field for key in plan.tensors)

    def _trace(self, key: Key, wanted: frozenset[Key]) -> None:
        """Note what was launched since the value before; values of one launch share it."""
        launched = self._counts()
        ran = [name for name in launched if launched[name] > self._launched[name]]
        new = tuple(Call(name, source=source_of(name)) for name in ran)
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
        return self.backend.download(buffer).reshape(self.arena.type_of(key).shape)

    def _write(self, key: Key, buffer: Buffer, given: np.ndarray) -> None:
        kind = self.arena.type_of(key)
        check_replacement(key, kind, TensorType(dtype_name(given.dtype), given.shape))
        self.backend.write(buffer, given.reshape(buffer.shape))

    def _move(self, buffer: Buffer, index: int) -> None:
        width = buffer.dtype.itemsize
        is_float = np.int32(buffer.dtype == np.float32)
        args = [buffer, np.int64(index), np.int32(width), is_float]
        self.backend.launch("move_element", (1,), 1, args)

    def _keep(self, key: Key, buffer: Buffer, passing: bool) -> None:
        kind = self.arena.type_of(key)
        count = type_bytes(kind)
        if count != buffer.nbytes:
            raise ParityBug(f"{key}: a buffer of {buffer.nbytes} bytes, {kind} has {count}")
        passing = passing and self.rows > 1
        if passing or (self.plan is not None and self.plan.replace is not None):
            copied = self.arena.values[self._used : self._used + count]
            self.backend.copy(copied, buffer)
            self._used += aligned(count)
            buffer = copied
        self.slots.append(Slot(key, kind, buffer))

    def table(self) -> Table | None:
        """The jobs of what was kept, with room made for them; None where nothing was."""
        if not self.slots:
            return None
        addresses = [self.backend.address(slot.buffer) for slot in self.slots]
        sizes = [type_bytes(slot.kind) for slot in self.slots]
        table = make_table(addresses, sizes, [slot.kind.dtype == "f32" for slot in self.slots])
        self.arena.place(table)
        return table

    def launch(self, table: Table | None) -> None:
        """Hash what was kept. The table is written before any of this runs."""
        if self.plan is not None and table is not None:
            results = self.arena.answer[self.arena.logits_bytes(self.rows) :]
            memory = (self.arena.text, self.arena.work)
            launch_digests(self.backend, results, table, *memory, self.plan.basis)

    def forms(self, pos: int) -> list[Form]:
        """What each row of a forward at ``pos`` tells: keys but for the position, and types."""
        plan = self.plan
        if plan is None:
            return []
        rows = [slot.key.pos - pos if plan.wants(slot.key) else None for slot in self.slots]
        where = [slot.key[1:] for slot in self.slots]
        return self.arena.forms.of(rows, where, [slot.kind for slot in self.slots], self.rows)

    def steps(self, pos: int, table: Table | None, forms: list[Form]) -> list[Step]:
        """One Step per row, with one copy of logits and digests. ``forms``: those of the forward,
        or of a recorded one that did the same elsewhere.

        A replaced row of logits is what the Step gives: it is what is read afterwards.
        """
        arena, rows = self.arena, self.rows
        if table is None:
            logits = self.backend.download(arena.logits(rows))
            return [Step(logits[m], [], {}, self._calls_at(pos + m)) for m in range(rows)]
        begin = arena.logits_bytes(rows)
        # The copy is nobody else's: logits are handed out as they lie in it.
        answer = self.backend.download(arena.answer[: begin + table.order.size * RESULT.itemsize])
        shape = (rows, arena.config.vocab)
        logits = answer[: 4 * shape[0] * shape[1]].view(np.float32).reshape(shape)
        digests, nonfinite = table.results(answer[begin:].view(RESULT))
        return [
            Step(
                logits[m],
                forms[m].table(pos + m, digests, nonfinite),
                self._tensors_at(pos + m),
                self._calls_at(pos + m),
            )
            for m in range(rows)
        ]

    def _tensors_at(self, pos: int) -> dict[Key, np.ndarray]:
        """What the plan wants kept of one row, in dataflow order."""
        if self.plan is None or not self.plan.tensors:
            return {}
        order, wanted = KeyOrder(), self.plan.tensors
        mine = [slot for slot in self.slots if slot.key.pos == pos and slot.key in wanted]
        mine.sort(key=lambda slot: order(slot.key))
        return {slot.key: self._tensor(slot) for slot in mine}

    def _calls_at(self, pos: int) -> dict[Key, tuple[Call, ...]]:
        return {key: calls for key, calls in self.calls.items() if key.pos == pos}

    def _tensor(self, slot: Slot) -> np.ndarray:
        raw = self.backend.download(slot.buffer).reshape(-1).view(NUMPY_TYPES[slot.kind.dtype])
        return raw.reshape(slot.kind.shape)
