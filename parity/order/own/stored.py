"""Sums over stored integers: Q4_0 rows, int16 experts, an int8 V. See ``carried``.

Block scales are powers of two, so that d * s is exact: its rounding is no part of an order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from parity.order.adapters.called import Floats
from parity.order.own.asked import Array, Asked, Launch, unwritten
from parity.order.own.carried import CarriedOp, Carry, Ints
from parity.order.own.softmax import heads_of, keys_of

BLOCK = 32  # weights of a Q4_0 block
HALF = BLOCK // 2


def q4_matvec(asked: Asked, launch: Launch) -> CarriedOp:
    """Contract 1.3: every weight a term. A batch row carries one x."""
    asked.require(asked.K % BLOCK == 0, f"K is whole blocks of {BLOCK}")
    carriers = min(asked.M, asked.N)
    slots = asked.N // carriers
    scale = _scales(asked.K // BLOCK)
    spread, d = np.repeat(scale, BLOCK), _stored_scales(scale, asked.N)

    def carry(xs: Floats, w: Floats, places: Ints) -> Array:
        given = {
            "out": unwritten(asked.M, asked.N),
            "d": d,
            "qs": _rows_of(_nibbles(w), places, asked.N),
            "x": np.resize(xs / spread, (asked.M, asked.K)),
            "variants": asked.mask,
        }
        return _met(launch("q4_matvec", given)["out"], carriers, slots)

    return _carried(asked, (carriers, slots), carry, (-8, 7), asked.all_rows)


def expert_matvec(asked: Asked, launch: Launch) -> CarriedOp:
    """Contract 1.4: every block of 32 a term, the dot of its first elements, times the input's
    scale, which carries the probe. The expert is the second of two, chosen by every batch row."""
    carriers = min(asked.M, asked.N)
    slots = asked.N // carriers
    scale = _scales(asked.K)
    q = np.zeros((asked.M, 1, asked.K, BLOCK), np.int16)
    q[..., 0] = 1

    def carry(xs: Floats, w: Floats, places: Ints) -> Array:
        firsts = np.zeros((len(w), asked.K, BLOCK), np.float32)
        firsts[..., 0] = w
        qs = _rows_of(_nibbles(firsts.reshape(len(w), -1)), places, asked.N)
        given = {
            "out": unwritten(asked.M, 1, asked.N),
            "d": np.stack([_stored_scales(scale, asked.N)] * 2),
            "qs": np.stack([np.zeros_like(qs), qs]),
            "ids": np.ones((asked.M, 1), np.int32),
            "probs": np.ones((asked.M, 1), np.float32),
            "q": q.reshape(asked.M, 1, -1),
            "s_a": np.resize(xs / scale, (asked.M, 1, asked.K)),
            "variants": asked.mask,
        }
        return _met(launch("expert_matvec", given)["out"][:, 0], carriers, slots)

    return _carried(asked, (carriers, slots), carry, (-8, 7), asked.all_rows)


def attention_int8(asked: Asked, launch: Launch) -> CarriedOp:
    """Contract 1.8, int8: V's scale of a key carries the probe for all dimensions of a KV head. All
    scores are 0, so each p is 1 and l counts the keys."""
    heads, row, batch = keys_of(asked)
    width = asked.N // heads
    shape = (asked.K, heads, width)

    def carry(xs: Floats, w: Floats, places: Ints) -> Array:
        queries = (asked.M, 2 * heads)
        given = {
            "out": unwritten(*queries, width),
            "q": np.zeros((*queries, width), np.int8),
            "q_scale": np.ones(queries, np.float32),
            "k": np.zeros(shape, np.int8),
            "k_scale": np.ones(shape[:2], np.float32),
            "v": np.ascontiguousarray(w.astype(np.int8)[places].transpose(2, 0, 1)),
            "v_scale": np.ascontiguousarray(xs.T),
            "sm_scale": np.float32(1.0),
            "pos": asked.K - asked.M,
            "variants": asked.mask,
        }
        return heads_of(launch("attention_int8", given)["out"][row], asked)

    return _carried(asked, (heads, width), carry, (-127, 127), batch)


def _carried(
    asked: Asked,
    places: tuple[int, int],
    carry: Carry,
    levels: tuple[int, int],
    batch: str,
) -> CarriedOp:
    low, high = levels

    def holds(w: Floats) -> npt.NDArray[np.bool_]:
        held: npt.NDArray[np.bool_] = (w == np.rint(w)) & (w >= low) & (w <= high)
        return held

    whole = tuple(range(low, high + 1))
    told = asked.told(batch)
    return CarriedOp(asked.name, asked.K, *places, "products", carry, holds, whole, told)


def _scales(count: int) -> Floats:
    """A power of two for each block, so that the blocks differ: 2^-3 to 2^3."""
    return np.exp2(np.arange(count) % 7 - 3).astype(np.float32)


def _stored_scales(scale: Floats, rows: int) -> npt.NDArray[np.uint16]:
    """The scales of every row, as f16 bits: (rows, blocks)."""
    return np.tile(scale.astype(np.float16).view(np.uint16), (rows, 1))


def _rows_of(packed: Array, places: Ints, count: int) -> Array:
    """``count`` stored rows: those of the places, and rows that nobody looks at after them."""
    return np.ascontiguousarray(packed[np.resize(places, count)])


def _nibbles(w: Floats) -> npt.NDArray[np.uint8]:
    """(..., n) whole numbers -8 to 7 as Q4_0 stores them: (..., n / 2), low nibbles first."""
    blocks = (w.reshape(*w.shape[:-1], -1, 2, HALF) + 8).astype(np.uint8)
    packed = blocks[..., 0, :] | blocks[..., 1, :] << 4
    return np.ascontiguousarray(packed.reshape(*w.shape[:-1], -1), np.uint8)


def _met(out: Array, carriers: int, slots: int) -> Array:
    """(M, N) to (carriers, slots): carrier c has the weight rows from c * slots on. Batch rows
    beyond the carriers repeat their x; which repeat is read changes from slot to slot."""
    at = np.arange(carriers * slots)
    repeats = (out.shape[0] - 1 - at // slots) // carriers + 1
    rows = at // slots + carriers * (at % slots % repeats)
    sums: Array = out[rows, at].reshape(carriers, slots)
    return sums
