"""Making a model's tensors on several threads, in order, a few ahead of the one that is taken."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from parity.dump import TensorType
from parity.model.checks import check_finite, check_shape, wanted_tensors
from parity.model.model import Model

# NumPy lets go of the interpreter in its loops: the generator is bound by memory and arithmetic.
MOST_THREADS = 16


def load_tensors(model: Model) -> Iterator[tuple[str, np.ndarray]]:
    """(name, C-contiguous array) of every tensor, in the order of the digest.

    Raises InputError, naming the tensor, for one that is missing or has another dtype or shape than
    the configuration says, and for non-finite weights (contract 1.10).
    """
    threads = max(1, min(MOST_THREADS, os.cpu_count() or 1))
    waiting: deque[tuple[str, Future[np.ndarray]]] = deque()
    names = list(model.names())
    wanted = wanted_tensors(model.config, frozenset(names))
    with ThreadPoolExecutor(threads) as pool:
        for name in names:
            waiting.append((name, pool.submit(_checked, model, name, wanted.get(name))))
            if len(waiting) > 2 * threads:
                ready, future = waiting.popleft()
                yield ready, future.result()
        for ready, future in waiting:
            yield ready, future.result()


def _checked(model: Model, name: str, wanted: TensorType | None) -> np.ndarray:
    array = np.ascontiguousarray(model.tensor(name))
    check_shape(name, array, wanted)
    check_finite(name, array)
    return array
