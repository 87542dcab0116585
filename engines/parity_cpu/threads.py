"""How many threads an op gets. Rows are shared out, never a chain: the bits do not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba

from parity.model.config import ModelConfig

# Below this many weights in a layer's largest matrix, waking threads costs more than they save:
# moe-48 takes 0.4 s for 32 tokens with one thread, 2 s and more with two on a busy 2-core machine.
WORTHWHILE = 1 << 20


def useful_threads(config: ModelConfig) -> int:
    """One thread for small models, else all that Numba was given."""
    chosen = max(config.top_k, 1) * config.inter
    wide = max(config.n_q * config.head_dim, chosen, config.shared_inter, config.dense_inter)
    if wide * config.hidden < WORTHWHILE:
        return 1
    return int(numba.get_num_threads())


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run ops on ``count`` threads and put Numba's setting back."""
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)
