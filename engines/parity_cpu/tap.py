"""The tap of the CPU engine: hash a buffer, keep it, or move one element of it first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.dump import Entry, TensorType
from parity.inject import check_replacement, move_element
from parity.keys import Key, KeyOrder
from parity.protocol import Call, Plan, Step
from parity_cpu.arguments import Ran
from parity_cpu.calls import Calls
from parity_cpu.ops.digest import count_nonfinite, digests_of, serial_bytes

# By type code, not by name: NumPy builds the name anew each time, and this runs once a key.
DTYPE_NAMES = {"f": "f32", "b": "int8", "i": "int32", "H": "f16", "B": "u8"}


def digest_of(array: np.ndarray, basis: int) -> int:
    """FNV-1a-64 over the bytes of a C-contiguous array."""
    return int(serial_bytes(array.reshape(-1).view(np.uint8), np.uint64(basis)))


def type_of(array: np.ndarray) -> TensorType:
    """dtype and shape as a dump states them."""
    return TensorType(DTYPE_NAMES[array.dtype.char], array.shape)


def put_in_place(buffer: np.ndarray, key: Key, given: np.ndarray | None) -> None:
    """Overwrite ``buffer`` by ``given``, where something is given."""
    if given is not None:
        check_replacement(key, type_of(buffer), type_of(given))
        buffer[...] = given


@dataclass(frozen=True)
class Kept:
    """A copy of one value as it was offered: its buffer is used again before the step ends."""

    key: Key
    value: np.ndarray
    nonfinite: tuple[int, int] | None


class Tap:
    """Collects what ``plan`` asks for while one step runs through ``call``."""

    def __init__(self, plan: Plan | None, call: Calls) -> None:
        self.plan = plan
        self.kept: list[Kept] = []
        self.tensors: dict[Key, np.ndarray] = {}
        self.calls: dict[Key, tuple[Call, ...]] = {}
        self._call = call
        self._ran: tuple[Ran, ...] = ()
        call.record = [] if plan is not None and plan.trace else None
        call.borrow = None if plan is None else plan.borrow

    def __call__(self, pos: int, layer: int | None, field: str, buffer: np.ndarray) -> None:
        """Offer one value: called when the buffer is final and before anything reads it."""
        plan = self.plan
        if plan is None:
            return
        key = Key(pos, layer, field)
        moved = plan.injection(key)
        if moved is not None:
            move_element(buffer, moved)
        change = plan.change(key)
        if change is not None:
            put_in_place(buffer, key, change(buffer.copy()))
        if plan.wants(key):
            self.kept.append(_kept(key, buffer))
        if key in plan.tensors:
            self.tensors[key] = buffer.copy()
        if plan.trace:
            self._trace(key, plan.trace)
        if plan.replace is not None:
            put_in_place(buffer, key, plan.replace(key, buffer.copy))

    def _trace(self, key: Key, wanted: frozenset[Key]) -> None:
        """Note what ran since the value before; values of one op share its calls."""
        if self._call.record:
            self._ran, self._call.record = tuple(self._call.record), []
        if key in wanted:
            self.calls[key] = tuple(ran.call(key.field) for ran in self._ran)

    def steps(self, logits: np.ndarray, pos: int) -> list[Step]:
        """One Step per row of logits (M, vocab), its keys in dataflow order."""
        order, entries = KeyOrder(), self._entries()
        entries.sort(key=lambda entry: order(entry.key))
        found = []
        for m in range(logits.shape[0]):
            mine = [entry for entry in entries if entry.key.pos == pos + m]
            kept = {key: value for key, value in self.tensors.items() if key.pos == pos + m}
            ran = {key: calls for key, calls in self.calls.items() if key.pos == pos + m}
            found.append(Step(logits[m], mine, kept, ran))
        self._call.record = self._call.borrow = None
        return found

    def _entries(self) -> list[Entry]:
        """Everything kept, hashed: values of one size at once."""
        if self.plan is None:
            return []
        digests = digests_of([kept.value for kept in self.kept], self.plan.basis)
        return [
            Entry(kept.key, digest, type_of(kept.value), kept.nonfinite)
            for kept, digest in zip(self.kept, digests, strict=True)
        ]


def _kept(key: Key, buffer: np.ndarray) -> Kept:
    nonfinite = None
    if buffer.dtype == np.float32:
        count, first = count_nonfinite(buffer.reshape(-1).view(np.uint32))
        nonfinite = (count, first) if count else None
    return Kept(key, buffer.copy(), nonfinite)
