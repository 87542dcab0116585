"""Values put in the place of what an op made: one element moved, or the whole value replaced."""

from __future__ import annotations

import numpy as np

from parity.dtypes import FLOATS, dtype_name
from parity.dump import TensorType
from parity.errors import ParityBug
from parity.keys import Key


def move_element(array: np.ndarray, index: int) -> None:
    """Change flat element ``index`` of a C-contiguous array in place.

    A float: one ULP of its own format away from zero (the largest finite value: towards zero).
    Integers: one step towards zero, from 0 to 1, so that ids and quanta stay in range; booleans
    turn over.
    """
    form = FLOATS.get(dtype_name(array.dtype))
    if form is not None:
        bits = array.reshape(-1).view(f"u{array.itemsize}")
        sign = int(bits[index]) >> (form.bits - 1) << (form.bits - 1)
        magnitude = int(bits[index]) - sign
        bits[index] = sign + magnitude + (-1 if magnitude >= form.infinity - 1 else 1)
    else:
        flat = array.reshape(-1)
        value = int(flat[index])
        flat[index] = value - 1 if value > 0 else value + 1


def check_replacement(key: Key, made: TensorType, given: TensorType) -> None:
    """ParityBug unless a replacement has the dtype and shape of the value it stands for."""
    if made != given:
        raise ParityBug(f"{key}: a replacement of {given} for a value of {made}")
