"""A device that computes nothing and answers at once: a step is what Python makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from parity.families import dumped_fields, field_type, layer_fields
from parity.keys import FINAL_FIELDS
from parity.model.config import PRESETS
from parity.protocol import Plan, Step
from parity_cuda.digests import RESULT, Table
from parity_cuda.graph import Captured, Graphs
from parity_cuda.tap import NUMPY_TYPES, Arena, Tap


class Idle:
    """A backend whose launches do nothing; its memory is the host's, its records are empty."""

    graph = fuse = True
    processors = 1

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def empty(self, shape: Sequence[int], dtype: type) -> np.ndarray:
        """Zeros."""
        return np.zeros(shape, dtype)

    def zero(self, target: np.ndarray) -> None:
        """Zeros again."""
        target[...] = 0

    def write(self, target: np.ndarray, array: np.ndarray) -> None:
        """A copy."""
        target[...] = array

    def download(self, buffer: np.ndarray) -> np.ndarray:
        """A copy."""
        return buffer.copy()

    def address(self, buffer: np.ndarray) -> int:
        """Where it lies on the host."""
        return int(buffer.__array_interface__["data"][0])

    def launch(self, kernel: str, *args: Any, **named: Any) -> None:
        """Nothing but the count."""
        self.counts[kernel] += 1

    def record(self, run: Callable[[], None]) -> None:
        """Let the tap see what there is; nothing is kept."""
        run()

    def replay(self, recorded: None) -> None:
        """Nothing."""


class IdleSteps:
    """Recorded steps of a preset's shape, ``rows`` rows each, whose digests a test or a bench says.

    ``offered``: the places of one row in the order in which the forward offers them.
    """

    def __init__(self, preset: str, rows: int = 1) -> None:
        config = PRESETS[preset]
        self.rows, self.plan = rows, Plan(dumped_fields(config))
        backend: Any = Idle()
        self.arena = Arena(backend, config)
        self.graphs = Graphs(backend, self.arena)
        inner = [field for field in self.plan.fields if field not in FINAL_FIELDS]
        self.offered: list[tuple[int | None, str]] = [
            (layer, field)
            for layer in range(config.layers)
            for field in layer_fields(config, layer, inner)
        ]
        self.offered += [(None, field) for field in FINAL_FIELDS]
        kinds = [field_type(config, field, layer) for layer, field in self.offered]
        self._buffers = [np.zeros((rows, *kind.shape), NUMPY_TYPES[kind.dtype]) for kind in kinds]
        for pos in (0, rows):  # launched, then recorded
            self.steps(pos)

    @property
    def table(self) -> Table:
        """The jobs of the recorded step."""
        (captured,) = (each for each in self.graphs._found.values() if isinstance(each, Captured))
        assert captured.table is not None
        return captured.table

    def steps(self, pos: int) -> list[Step]:
        """One forward at ``pos``: launched the first time, then recorded, then replayed."""

        def forward(tap: Tap) -> None:
            for (layer, field), buffer in zip(self.offered, self._buffers, strict=True):
                for m in range(self.rows):
                    tap(pos + m, layer, field, buffer[m])

        return self.graphs.steps(self.rows, self.plan, pos, forward)

    def answer(
        self, hashes: np.ndarray, nonfinite: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        """Let the device tell ``hashes`` uint64[rows * offered] from now on, value after value, the
        rows of one beside each other; by value (count, first) of what is not finite."""
        results = np.zeros(hashes.size, RESULT)
        results["hash"] = hashes
        for at, pair in (nonfinite or {}).items():
            results["nonfinite"][at], results["first"][at] = pair
        begin = self.arena.logits_bytes(self.rows)
        target = self.arena.answer[begin : begin + results.nbytes].view(RESULT)
        target[...] = results[self.table.order]
