"""Moving one element by the smallest step: the planted fault of the control."""

from __future__ import annotations

import numpy as np

LARGEST_FINITE = 0x7F7FFFFF


def move_element(array: np.ndarray, index: int) -> None:
    """Change flat element ``index`` of a C-contiguous array in place.

    float32: one ULP away from zero (the largest finite value: towards zero). Integers: one step
    towards zero, from 0 to 1, so that ids and quanta stay in range.
    """
    if array.dtype == np.float32:
        bits = array.reshape(-1).view(np.uint32)
        magnitude = int(bits[index]) & 0x7FFFFFFF
        bits[index] += np.uint32(1) if magnitude != LARGEST_FINITE else np.uint32(0xFFFFFFFF)
    else:
        flat = array.reshape(-1)
        value = int(flat[index])
        flat[index] = value - 1 if value > 0 else value + 1
