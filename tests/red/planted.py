"""A CPU engine with faults planted in ops and values: ``tests.red.planted:Planted``.

``@keys=TAG+TAG``: element 0 of those values is moved by 1 ULP before it is hashed and used, in
steps with a plan. ``@ops=OP/ARGUMENT.CALL.POSITION+...``: what the CALL-th call of an op in the
forward at that position puts into one of its arguments is changed in every element, tapped or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step
from parity_cpu.calls import Calls
from parity_cpu.engine import Engine


class OpFault(NamedTuple):
    """``argument``: index of the op's output; ``call``: from 0, in one forward."""

    op: str
    argument: int
    call: int
    pos: int

    @classmethod
    def parse(cls, text: str) -> OpFault:
        """``quant8/1.3.33``; without an argument the first one."""
        name, call, pos = text.split(".")
        op, _, argument = name.partition("/")
        return cls(op, int(argument or 0), int(call), int(pos))


@dataclass(frozen=True)
class ManyMoved(Plan):
    """A plan that moves element 0 of several values."""

    moved: frozenset[Key] = frozenset()

    def injection(self, key: Key) -> int | None:
        return 0 if key in self.moved else super().injection(key)


class _Calls(Calls):
    """The decoder's ``call``, with the faults behind it."""

    def __init__(self, engine: Planted) -> None:
        super().__init__()
        self.engine = engine
        self.seen: Counter[str] = Counter()

    def __call__(self, op: Any, *args: Any) -> None:
        super().__call__(op, *args)
        name, call = op.__name__, self.seen[op.__name__]
        self.seen[name] += 1
        for fault in self.engine.ops:
            if (fault.op, fault.call, fault.pos) == (name, call, self.engine.length):
                spoil(args[fault.argument])


def spoil(array: np.ndarray) -> None:
    """Move every element by 1 ULP or step; ids change places instead, to stay ids."""
    if array.dtype == np.int32:
        array[...] = np.roll(array, 1)
    elif array.dtype == np.int8:
        array[...] = np.where(array > 0, array - 1, array + 1)
    else:
        array.view(np.uint32)[...] += np.uint32(1)


class Planted(Engine):
    """``keys`` and ``ops``: what is wrong; tests may set them on the open engine too."""

    options = ("keys", "ops")

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        told = [settings.options.get(name, "") for name in self.options]
        keys, ops = ([part for part in text.split("+") if part] for text in told)
        self.keys = frozenset(map(Key.parse, keys))
        self.ops = tuple(map(OpFault.parse, ops))

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._decoder.call = _Calls(self)

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        self._decoder.call.seen.clear()  # type: ignore[attr-defined]
        if plan is not None:
            told = {one.name: getattr(plan, one.name) for one in fields(plan)}
            plan = ManyMoved(**told, moved=self.keys)
        return super()._forward(tokens, plan)
