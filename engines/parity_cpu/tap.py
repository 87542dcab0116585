"""The tap of the CPU engine: hash a buffer where it lies, keep it, or move one element first."""

from __future__ import annotations

from functools import cache

import numpy as np

from parity.dump import Entry, TensorType
from parity.inject import check_replacement, move_element
from parity.keys import Key, KeyOrder
from parity.protocol import Call, Plan, Step
from parity_cpu.arguments import Ran
from parity_cpu.calls import Calls
from parity_cpu.ops.digest import digest

# By type code, not by name: NumPy builds the name anew each time, and this runs once a key.
DTYPE_NAMES = {"f": "f32", "b": "int8", "i": "int32", "H": "f16", "B": "u8"}


def digest_of(array: np.ndarray, basis: int) -> int:
    """FNV-1a-64 over the bytes of a C-contiguous array."""
    return int(digest(np.frombuffer(array, np.uint8), np.uint64(basis), False)[0])


def type_of(array: np.ndarray) -> TensorType:
    """dtype and shape as a dump states them."""
    return _type(array.dtype.char, array.shape)


@cache
def _type(char: str, shape: tuple[int, ...]) -> TensorType:
    return TensorType(DTYPE_NAMES[char], shape)


def put_in_place(buffer: np.ndarray, key: Key, given: np.ndarray | None) -> None:
    """Overwrite ``buffer`` by ``given``, where something is given."""
    if given is not None:
        check_replacement(key, type_of(buffer), type_of(given))
        buffer[...] = given


class Tap:
    """Collects what ``plan`` asks for while one step runs through ``call``."""

    def __init__(self, plan: Plan | None, call: Calls) -> None:
        self.plan = plan
        self.entries: list[Entry] = []
        self.tensors: dict[Key, np.ndarray] = {}
        self.calls: dict[Key, tuple[Call, ...]] = {}
        self._call = call
        self._basis = np.uint64(0 if plan is None else plan.basis)
        self._ran: tuple[Ran, ...] = ()
        # A plain dump asks for nothing but digests: what it need not look at costs it most.
        self._digests_alone = plan is not None and Plan(plan.fields, basis=plan.basis) == plan
        call.record = [] if plan is not None and plan.trace else None
        call.borrow = None if plan is None else plan.borrow

    def __call__(self, pos: int, layer: int | None, field: str, buffer: np.ndarray) -> None:
        """Offer one value: called when the buffer is final and before anything reads it."""
        plan = self.plan
        if plan is None:
            return
        if self._digests_alone:
            if field in plan.fields:
                self.entries.append(self._entry(Key(pos, layer, field), buffer))
            return
        key = Key(pos, layer, field)
        moved = plan.injection(key)
        if moved is not None:
            move_element(buffer, moved)
        change = plan.change(key)
        if change is not None:
            put_in_place(buffer, key, change(buffer.copy()))
        if plan.wants(key):
            self.entries.append(self._entry(key, buffer))
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
        order, found = KeyOrder(), [Step(row) for row in logits]
        for entry in sorted(self.entries, key=lambda entry: order(entry.key)):
            found[entry.key.pos - pos].entries.append(entry)
        for key, value in self.tensors.items():
            found[key.pos - pos].tensors[key] = value
        for key, calls in self.calls.items():
            found[key.pos - pos].calls[key] = calls
        self._call.record = self._call.borrow = None
        return found

    def _entry(self, key: Key, buffer: np.ndarray) -> Entry:
        floats = buffer.dtype.char == "f"
        found, count, first = digest(np.frombuffer(buffer, np.uint8), self._basis, floats)
        return Entry(key, found, type_of(buffer), (count, first) if count else None)
