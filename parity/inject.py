"""Values put in the place of what an op made: one element moved, or the whole value replaced."""

from __future__ import annotations

import numpy as np

from parity.dump import TensorType
from parity.errors import ParityBug
from parity.keys import Key

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


def check_replacement(key: Key, made: TensorType, given: TensorType) -> None:
    """ParityBug unless a replacement has the dtype and shape of the value it stands for."""
    if made != given:
        raise ParityBug(f"{key}: a replacement of {given} for a value of {made}")
