"""The tap of the CPU engine: hash a buffer where it lies, keep it, or move one element first."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from parity.dump import TensorType
from parity.dumps.forms import Forms, Where
from parity.inject import check_replacement, move_element
from parity.keys import Key
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


@dataclass
class Told:
    """What was hashed, in the order of offering: a column each, of which a step's entries are
    made when somebody looks at them. ``nonfinite``: by value, (count, flat index of the first)."""

    pos: list[int] = field(default_factory=list)
    where: list[Where] = field(default_factory=list)
    kinds: list[TensorType] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    nonfinite: dict[int, tuple[int, int]] = field(default_factory=dict)


class Tap:
    """Collects what ``plan`` asks for while one step runs through ``call``."""

    def __init__(self, plan: Plan | None, call: Calls) -> None:
        self.plan = plan
        self.told = Told()
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
                self._tell(pos, layer, field, buffer)
            return
        key = Key(pos, layer, field)
        moved = plan.injection(key)
        if moved is not None:
            move_element(buffer, moved)
        change = plan.change(key)
        if change is not None:
            put_in_place(buffer, key, change(buffer.copy()))
        if plan.wants(key):
            self._tell(pos, layer, field, buffer)
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

    def steps(self, logits: np.ndarray, pos: int, forms: Forms) -> list[Step]:
        """One Step per row of logits (M, vocab), its keys in dataflow order. ``forms``: kept from
        step to step."""
        told, found = self.told, [Step(row) for row in logits]
        if told.pos:
            rows = [each - pos for each in told.pos]
            digests = np.array(told.digests, np.uint64)
            made = forms.of(rows, told.where, told.kinds, len(found))
            tables = (form.table(pos + m, digests, told.nonfinite) for m, form in enumerate(made))
            found = [Step(*pair) for pair in zip(logits, tables, strict=True)]
        for key, value in self.tensors.items():
            found[key.pos - pos].tensors[key] = value
        for key, calls in self.calls.items():
            found[key.pos - pos].calls[key] = calls
        self._call.record = self._call.borrow = None
        return found

    def _tell(self, pos: int, layer: int | None, field: str, buffer: np.ndarray) -> None:
        told = self.told
        floats = buffer.dtype.char == "f"
        found, count, first = digest(np.frombuffer(buffer, np.uint8), self._basis, floats)
        if count:
            told.nonfinite[len(told.pos)] = count, first
        told.pos.append(pos)
        told.where.append((layer, field))
        told.kinds.append(type_of(buffer))
        told.digests.append(found)
