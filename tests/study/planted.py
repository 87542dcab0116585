"""Engines with one fault in them, and the places at which a fault can sit.

A fault depends on the position, the layer and the op call alone, never on how often something ran:
so the reruns of a comparison meet it again, as they would meet a bug.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step
from parity_cpu.calls import Calls
from parity_cpu.engine import Engine
from parity_cuda.backend import Backend
from parity_cuda.emu import EmuModule
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine

SPARE = 1  # KV rows past the run's last: an off-by-one position writes or reads them
Run_ = Callable[..., None]


class Fault:
    """Nothing wrong. A subclass overrides the place where its fault sits.

    ``pos``, ``rows``: first position and count of rows of the forward that runs. ``seen``: op calls
    in it so far.
    """

    def __init__(self) -> None:
        self.pos, self.rows = -1, 1
        self.seen: Counter[str] = Counter()

    def load(self, tensors: dict[str, np.ndarray]) -> None:
        """The weights are loaded."""

    def before(self, state: Any) -> None:
        """A forward begins on ``state``."""

    def place(self) -> int:
        """The position at which the forward computes."""
        return self.pos

    def value(self, key: Key, buffer: np.ndarray) -> None:
        """A value is made: it is neither hashed nor used yet."""

    def op(self, call: Calls, name: str, run: Run_, args: tuple[Any, ...]) -> None:
        """An op is called."""
        run(*args)

    def steps(self, steps: list[Step]) -> list[Step]:
        """A forward ends and gives ``steps``."""
        return steps

    def rollback(self, state: Any, length: int, back: Callable[[], None]) -> int | None:
        """The engine is to go back; a length that it keeps instead of the marked one, or None."""
        back()
        return None

    def begin(self, pos: int, rows: int) -> None:
        """Note where the forward stands."""
        self.pos, self.rows = pos, rows
        self.seen.clear()

    def nth(self, name: str) -> int:
        """How many calls of ``name`` came before in this forward; counts this one."""
        self.seen[name] += 1
        return self.seen[name] - 1


class _Ops(Calls):
    """The decoder's ``call`` with the fault in between."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def __call__(self, op: Any, *args: Any) -> None:
        def run(*given: Any) -> None:
            super(_Ops, self).__call__(op, *given)

        self.fault.op(self, op.__name__, run, args)


class _Around:
    """A decoder whose forward begins and ends with the fault."""

    def __init__(self, decoder: Any, engine: Any) -> None:
        self._decoder, self._engine = decoder, engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, tokens: Sequence[int], pos: int, state: Any, tap: Any, *rest: Any) -> Any:
        """The decoder's own, where and on what the fault says."""
        fault = self._engine.fault
        self._engine.forwards += 1
        fault.begin(pos, len(tokens))
        fault.before(state)
        moved = fault.place() - pos

        def show(at: int, layer: int | None, field: str, buffer: Any) -> None:
            fault.value(Key(at - moved, layer, field), buffer)
            tap(at - moved, layer, field, buffer)

        return self._decoder.forward(tokens, pos + moved, state, show, *rest)


class _AroundDevice(_Around):
    """The same of a device, which reads tokens and position from its own memory: none is moved."""

    def forward(self, count: int, pos: int, state: Any, tap: Any, *rest: Any) -> Any:  # type: ignore[override]
        """The decoder's own, on what the fault says."""
        fault = self._engine.fault
        self._engine.forwards += 1
        fault.begin(pos, count)
        fault.before(state)
        assert fault.place() == pos
        return self._decoder.forward(count, pos, state, tap, *rest)


class Planted(Engine):
    """``cpu`` with one fault. ``forwards``: how many it ran."""

    def __init__(self, fault: Fault, settings: EngineSettings | None = None) -> None:
        super().__init__(settings or EngineSettings())
        self.fault, self.forwards = fault, 0

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions + SPARE)
        self._decoder.call = _Ops(self.fault)
        self.fault.load(self._tensors)
        self._decoder = _Around(self._decoder, self)  # type: ignore[assignment]

    def rollback(self) -> None:
        kept = self.fault.rollback(self._state, self.length, super().rollback)
        self.length = self.length if kept is None else kept

    def _forward(self, tokens: Sequence[int], plan: Plan | None) -> list[Step]:
        return self.fault.steps(super()._forward(tokens, plan))


class TwoBuilds(EmuBackend):
    """``emu`` whose kernels come from another build where ``fault.other`` says so."""

    fault: Any = None
    module: EmuModule | None = None

    def launch(
        self, kernel: str, grid: Any, block: Any, args: Sequence[Any], shared: int = 0,
        *, overlap: bool = False,
    ) -> None:  # fmt: skip
        own = self._module
        if self.fault is not None and self.module is not None and self.fault.other(kernel):
            self._module = self.module
        try:
            super().launch(kernel, grid, block, args, shared)
        finally:
            self._module = own


class Emulated(EmuEngine):
    """``emu`` with one launch taken from another build: ``fault.other``, ``fault.build``."""

    def __init__(self, fault: Any, settings: EngineSettings | None = None) -> None:
        super().__init__(settings or EngineSettings())
        self.fault, self.forwards = fault, 0

    def open(self, settings: EngineSettings) -> Backend:
        return TwoBuilds(settings)

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions + SPARE)
        backend: Any = self.backend
        backend.fault, backend.module = self.fault, self.fault.build()
        backend.fuse = False  # a fault is one op's
        self._decoder = _AroundDevice(self._decoder, self)  # type: ignore[assignment]
