"""What one forward showed: values taken as a plan asks, hashed when their steps are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from parity.dtypes import FLOATS
from parity.dump import Entry
from parity.errors import ParityBug
from parity.inject import check_replacement, move_element
from parity.keys import Key
from parity.protocol import Call, Plan, Step
from parity_torch.arrays import digests_of, host, type_of
from parity_torch.values import Row, Tensor, Value, all_to_host

Field = tuple[int, str]  # layer (-1 outside the layers) and field


@dataclass(frozen=True)
class _Kept:
    """A field of some rows as it was offered: ``tensor`` [R, *shape] of ``rows``."""

    field: Field
    rows: tuple[int, ...]
    tensor: Tensor


class Seen:
    """Collects what ``plan`` asks for of ``rows`` while one forward runs.

    ``order``: every field that may be offered, in dataflow order. ``ran`` takes the names of the
    functions that ran, where the plan traces.
    """

    def __init__(self, plan: Plan | None, rows: Sequence[Row], order: Iterable[Field]) -> None:
        self.plan = plan
        self.rows = tuple(rows)
        self.ran: list[str] = []
        self._rank = {field: at for at, field in enumerate(order)}
        self._asked = frozenset[str]() if plan is None else _fields_of(plan)
        self._kept: list[_Kept] = []
        self._offered: set[Field] = set()
        self._calls: dict[tuple[Key, int], tuple[Call, ...]] = {}  # by key and row
        self._before: tuple[Call, ...] = ()
        self._steps: list[Step] | None = None

    @property
    def offered(self) -> frozenset[Field]:
        """Every field that the forward offered, asked for or not."""
        return frozenset(self._offered)

    def offer(self, layer: int, field: str, make: Callable[[], Value]) -> None:
        """A value is final, and nothing has read it: move, take and replace as the plan says."""
        if (layer, field) in self._offered:
            raise ParityBug(f"layer {layer}: {field} was offered twice in one forward")
        self._offered.add((layer, field))
        plan = self.plan
        if plan is None or (plan.replace is None and field not in self._asked):
            return
        value = make()
        here = [
            (at, row, _key(row, (layer, field)))
            for at, row in enumerate(self.rows)
            if row.index >= value.first
        ]
        for _, row, key in here:
            _inject(plan, key, row, value)
        wanted = [(at, row) for at, row, key in here if plan.wants(key) or key in plan.tensors]
        if wanted:
            taken = value.take([row.batch for _, row in wanted], [row.index for _, row in wanted])
            self._kept.append(_Kept((layer, field), tuple(at for at, _ in wanted), taken))
        if plan.trace:
            self._trace([(key, at) for at, _, key in here], plan.trace)
        if plan.replace is not None:
            for _, row, key in here:
                _put(key, row, value, plan.replace(key, partial(_copy, value, row)))

    def _trace(self, keys: list[tuple[Key, int]], wanted: frozenset[Key]) -> None:
        """Note what ran since the value before; values of one op share its calls."""
        if self.ran:
            self._before, self.ran[:] = tuple(Call(name) for name in self.ran), []
        self._calls |= {key: self._before for key in keys if key[0] in wanted}

    def step(self, at: int, logits: np.ndarray) -> Step:
        """The Step of row ``at``; ``logits`` float32[vocab] are handed on."""
        if self._steps is None:
            self._steps = self._finished()
        found = self._steps[at]
        return Step(logits, found.entries, found.tensors, found.calls)

    def _finished(self) -> list[Step]:
        """One Step per row, its entries in dataflow order; logits are not filled in."""
        steps = [Step(np.empty(0, np.float32)) for _ in self.rows]
        if self.plan is None:
            return steps
        kept = sorted(self._kept, key=lambda one: self._rank[one.field])
        arrays = all_to_host([one.tensor for one in kept])
        values = [
            (_key(self.rows[row], one.field), row, array[at, ...])
            for one, array in zip(kept, arrays, strict=True)
            for at, row in enumerate(one.rows)
        ]
        hashed = [each for each in values if self.plan.wants(each[0])]
        digests = digests_of([array for _, _, array in hashed], self.plan.basis)
        told: list[list[Entry]] = [[] for _ in self.rows]
        for (key, row, array), digest in zip(hashed, digests, strict=True):
            told[row].append(Entry(key, digest, type_of(array), nonfinite_of(array)))
        steps = [replace(step, entries=mine) for step, mine in zip(steps, told, strict=True)]
        for key, row, array in values:
            if key in self.plan.tensors:
                steps[row].tensors[key] = array.copy()
        for (key, row), calls in self._calls.items():
            steps[row].calls[key] = calls
        self._kept = []
        return steps


def _key(row: Row, field: Field) -> Key:
    return Key(row.pos, None if field[0] < 0 else field[0], field[1])


def _fields_of(plan: Plan) -> frozenset[str]:
    keys = [*plan.tensors, *plan.trace, *(() if plan.inject is None else (plan.inject.key,))]
    return frozenset((*plan.fields, *(key.field for key in keys)))


def _copy(value: Value, row: Row) -> np.ndarray:
    """A copy of one row of ``value``."""
    return host(value.take([row.batch], [row.index]))[0, ...]


def _inject(plan: Plan, key: Key, row: Row, value: Value) -> None:
    moved, change = plan.injection(key), plan.change(key)
    if moved is not None:
        array = _copy(value, row)
        move_element(array, moved)
        value.put(key, row, array)
    if change is not None:
        _put(key, row, value, change(_copy(value, row)))


def _put(key: Key, row: Row, value: Value, given: np.ndarray | None) -> None:
    """Overwrite a row by ``given``, where something is given."""
    if given is not None:
        made = _copy(value, row)
        check_replacement(key, type_of(made), type_of(given))
        if made.tobytes() != given.tobytes():  # the same bytes change nothing, even read only
            value.put(key, row, given)


def nonfinite_of(array: np.ndarray) -> tuple[int, int] | None:
    """(count, flat index of the first) of NaN and infinities, or None (contract 1.10)."""
    form = FLOATS.get(type_of(array).dtype)
    if form is None:
        return None
    bits = array.reshape(-1).view(f"u{array.itemsize}")
    bad = (bits & form.infinity) == form.infinity
    count = int(np.count_nonzero(bad))
    return (count, int(np.argmax(bad))) if count else None
