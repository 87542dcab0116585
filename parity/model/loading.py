"""Making a model's tensors on several threads, in order, a few ahead of the one that is taken."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod

import numpy as np

from parity.dump import TensorType
from parity.errors import ParityBug
from parity.model.checks import check_finite, check_shape, wanted_tensors
from parity.model.memory import ITEM_BYTES
from parity.model.model import Around, Model

# NumPy lets go of the interpreter in its loops: the generator is bound by memory and arithmetic.
MOST_THREADS = 16
AHEAD = 1 << 30  # bytes of tensors that are made and not yet taken: what loading needs beside them


def load_tensors(model: Model) -> Iterator[tuple[str, np.ndarray]]:
    """(name, C-contiguous array) of every tensor, in the order of the digest.

    A tensor that a file holds as it is needed stays a view of it. Raises InputError, naming the
    tensor, for one that is missing or has another dtype or shape than the configuration says, and
    for non-finite weights (contract 1.10).
    """
    threads = max(1, min(MOST_THREADS, os.cpu_count() or 1))
    waiting: deque[tuple[str, Future[np.ndarray]]] = deque()
    names = list(model.names())
    wanted = wanted_tensors(model.config, frozenset(names))
    ahead = 0
    with ThreadPoolExecutor(threads) as pool:
        for name in names:
            size = _size(wanted.get(name))
            while waiting and (ahead + size > AHEAD or len(waiting) > 2 * threads):
                ready, future = waiting.popleft()
                ahead -= _size(wanted.get(ready))
                yield ready, future.result()
            waiting.append((name, pool.submit(_checked, model, name, wanted.get(name))))
            ahead += size
        while waiting:
            ready, future = waiting.popleft()
            yield ready, future.result()


class Ahead(Around):
    """``model`` for whoever asks for its tensors one by one in the order of the digest: they are
    made as by ``load_tensors``, before they are asked for. Each can be taken once."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._coming = load_tensors(model)
        self._made: dict[str, np.ndarray] = {}

    def tensor(self, name: str) -> np.ndarray:
        """One tensor; ParityBug for one that was taken."""
        while name not in self._made:
            ready, array = next(self._coming, ("", None))
            if array is None:
                raise ParityBug(f"{self.label}: tensor {name} was asked for twice")
            self._made[ready] = array
        return self._made.pop(name)


def _size(kind: TensorType | None) -> int:
    return 0 if kind is None else ITEM_BYTES[kind.dtype] * prod(kind.shape)


def _checked(model: Model, name: str, wanted: TensorType | None) -> np.ndarray:
    array = np.ascontiguousarray(model.tensor(name))
    check_shape(name, array, wanted)
    check_finite(name, array)
    return array
