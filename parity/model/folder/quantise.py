"""Q4_0 from floats: ggml's reference quantiser, as contract 1.0 writes it.

Every operation is float32 and rounded, none is fused, as in the ``gguf`` package. C code that was
built with fused multiply-adds differs where x*id + 8.5 lies within a rounding of a whole number.
"""

from __future__ import annotations

import numpy as np

from parity.model.model import BLOCK

_HALF = np.float32(8.5)


def quantised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and nibbles of rows whose length is a multiple of 32.

    x: float32 [..., columns], finite. Returns d uint16 (f16 bits) [..., columns / 32] and qs uint8
    [..., columns / 2]: of a block the low nibbles are its elements 0..15, the high ones 16..31. A
    scale past f16 is the infinity that a model is refused for; a scale whose inverse is past f32
    counts as 0, as every value it stands for does.
    """
    rows, columns = x.shape[:-1], x.shape[-1]
    blocks = x.reshape(-1, BLOCK)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        first = np.abs(blocks).argmax(axis=1)
        d = np.take_along_axis(blocks, first[:, None], axis=1)[:, 0] / np.float32(-8)
        inverse = np.where(d != 0, np.float32(1) / d, np.float32(0))
        inverse[~np.isfinite(inverse)] = 0
        scaled = blocks * inverse[:, None]
        scaled += _HALF
        nibbles = np.minimum(scaled.astype(np.uint8), 15)
        bits = d.astype(np.float16).view(np.uint16)
    low, high = nibbles[:, : BLOCK // 2], nibbles[:, BLOCK // 2 :]
    qs = low | (high << np.uint8(4))
    return bits.reshape(*rows, columns // BLOCK), qs.reshape(*rows, columns // 2)
