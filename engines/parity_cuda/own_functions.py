"""The elementary functions of a device engine, as its kernels call them: by its variants' mask."""

from __future__ import annotations

import numpy as np

from parity_cuda.backend import Backend

THREADS = 64
MOST_BLOCKS = 1024  # the kernels stride over what is left
# No variant swaps logf (contract 5): its kernel takes no mask.
PLAIN = {"logf": "map_logf"}


def own_values(backend: Backend, function: str, x: np.ndarray, variants: int) -> np.ndarray:
    """``function`` of parity.protocol.ELEMENTARY of x, float32[n] to float32[n]."""
    if not x.size:
        return np.empty_like(x)
    given, out = backend.upload(x), backend.empty(x.shape, np.float32)
    blocks = min(-(-x.size // THREADS), MOST_BLOCKS)
    mask = [] if function in PLAIN else [np.int32(variants)]
    kernel = PLAIN.get(function, f"map_own_{function}")
    backend.launch(kernel, (blocks,), THREADS, [out, given, *mask, np.int64(x.size)])
    return backend.download(out)
