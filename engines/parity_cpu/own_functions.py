"""The elementary functions of an engine, as its ops call them: by the mask of its variants."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.protocol import ELEMENTARY
from parity_cpu.jit import jit
from parity_cpu.ops.elementary import ucrt_logf
from parity_cpu.ops.variants import any_cosf, any_expf, any_sinf, inverse_root


def own_values(function: str, x: np.ndarray, variants: int) -> np.ndarray:
    """``function`` of ELEMENTARY of x, float32[n] to float32[n]: contract 4, 1.1, and 5."""
    out = np.empty_like(x)
    _evaluate(out, x, ELEMENTARY.index(function), variants)
    return out


@jit
def _evaluate(out: Any, x: Any, which: int, variants: int) -> None:
    for i in range(x.shape[0]):
        if which == 0:
            out[i] = inverse_root(x[i], variants)
        elif which == 1:
            out[i] = any_expf(x[i], variants)
        elif which == 2:
            out[i] = any_cosf(x[i], variants)
        elif which == 3:
            out[i] = any_sinf(x[i], variants)
        else:
            out[i] = ucrt_logf(x[i])
