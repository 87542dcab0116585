"""Tensors as NumPy arrays and back, bit for bit; bf16 is NumPy's by ml_dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import torch

from parity.dtypes import dtype_name
from parity.dump import TensorType
from parity.fnv import BASES, fnv1a64_array

_SMALL = 1 << 14  # bytes together from which on the compiled hash is worth its compilation
_PRIME = 0x100000001B3
_NAMES: dict[Any, str] = {}


def host(tensor: Any) -> np.ndarray:
    """A copy of ``tensor`` in C order with its dtype; bf16 as ``ml_dtypes.bfloat16``."""
    plain = tensor.detach().to("cpu").contiguous()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
        halves: np.ndarray = plain.numpy().copy().view(ml_dtypes.bfloat16)
        return halves
    found: np.ndarray = plain.numpy().copy()
    return found


def device_tensor(array: np.ndarray, device: Any) -> Any:
    """The inverse of ``host``: a new tensor on ``device``."""
    own = np.array(array, order="C")  # a copy: torch takes no read-only memory
    if own.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(own).to(device)


def type_of(array: np.ndarray) -> TensorType:
    """dtype and shape as a dump states them."""
    name = _NAMES.get(array.dtype)  # NumPy builds a dtype's name anew each time
    if name is None:
        name = _NAMES[array.dtype] = dtype_name(array.dtype)
    return TensorType(name, array.shape)


def digests_of(arrays: Sequence[np.ndarray], basis: int = BASES["fnv1a64"]) -> list[int]:
    """FNV-1a-64 over the C-order bytes of each array."""
    if sum(array.nbytes for array in arrays) < _SMALL:
        return [fnv1a64_array(array, basis) for array in arrays]
    serial, start = _compiled(), np.uint64(basis)
    flat = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays)
    return [int(serial(each, start)) for each in flat]


@cache
def _compiled() -> Any:
    """The hash as machine code: 10 GB of weights take seconds, not minutes."""
    from numba import njit

    def serial(data: Any, value: Any) -> Any:
        for byte in data:
            value = (value ^ np.uint64(byte)) * np.uint64(_PRIME)
        return value

    return njit("uint64(uint8[::1], uint64)", nogil=True)(serial)
