"""A second, vectorised writing of the row and element ops, with named faults to plant."""

from __future__ import annotations

import math

import numpy as np

from tests.oracle import platform_math
from tests.oracle.elementary import Float32Function, cosf, expf, sinf
from tests.oracle.twin_products import Array, F, Fault, flush, fused

_NORM_FAULTS = (
    "neighbouring pairs",
    "summed by tree",
    "summed in binary64",
    "reciprocal root by way of binary64",
    "weight times r first",
    "eps outside the root",
    "mean by reciprocal",
    "mean taken in binary64",
    "first row's scale for all",
    "squares flushed",
    "results flushed",
)
_TREE_FAULTS = tuple(fault for fault in _NORM_FAULTS if fault not in ("summed by tree",))
_QUANT_FAULTS = (
    "half away from zero",
    "half towards zero",
    "truncated",
    "clamped after conversion",
    "one more negative code",
    "not clamped above",
    "inverse scale",
    "zero guard on amax",
    "subnormals flushed",
    "amax of signed values",
    "neighbour's scale",
    "floor under the scale",
)
FAULTS = {
    "rmsnorm": ("strictly ascending", "tail joins the blocks", *_NORM_FAULTS),
    "headnorm": ("blocks of 8", *_NORM_FAULTS),
    "norm_tree": ("strictly ascending", "blocks of 8", "tree of neighbours", *_TREE_FAULTS),
    "quant8": _QUANT_FAULTS,
    "quant16": _QUANT_FAULTS,
    "rope": (
        "neighbouring pairs",
        "angle in binary64",
        "position 0 skipped",
        "halves of the whole head",
        "correctly rounded cosine and sine",
        "platform's cosine and sine",
        "fused",
        "one position for all rows",
        "rest set to zero",
        "rotated the other way",
    ),
    "add": ("subnormals flushed", "zero is skipped", "half away from zero"),
    "swiglu": (
        "x over 1 + exp",
        "exp over 1 + exp",
        "gate and up swapped",
        "gate times up first",
        "correctly rounded exp",
        "platform's exp",
        "subnormals flushed",
    ),
}


def each(function: Float32Function, x: Array) -> Array:
    """A scalar function of the oracle on every element."""
    values = [function(F(v)) for v in x.reshape(-1)]
    return np.array(values, F).reshape(x.shape)


def rounded_exp(x: np.float32) -> np.float32:
    """exp in binary64, rounded once: correctly rounded but for near-ties (ucrt section 9)."""
    wide = float(x)
    return F(math.exp(wide)) if wide < 709.0 else F(math.inf)


def exponential(fault: Fault) -> Float32Function:
    """The exponential a fault asks for."""
    if fault == "platform's exp":
        return platform_math.expf
    return rounded_exp if fault == "correctly rounded exp" else expf


# --- norms -----------------------------------------------------------------------------------


def _serial(squares: Array) -> Array:
    ss = np.zeros(squares.shape[0], F)
    for j in range(squares.shape[1]):
        ss = ss + squares[:, j]
    return ss


def _by_blocks(squares: Array, neighbours: bool) -> Array:
    """Whole blocks of 8, then the tail."""
    ss = np.zeros(squares.shape[0], F)
    whole = squares.shape[1] - squares.shape[1] % 8
    for start in range(0, whole, 8):
        s = squares[:, start : start + 8]
        if neighbours:
            four = [s[:, 2 * k] + s[:, 2 * k + 1] for k in range(4)]
        else:
            four = [s[:, k] + s[:, k + 4] for k in range(4)]
        ss = ss + ((four[0] + four[1]) + (four[2] + four[3]))
    for j in range(whole, squares.shape[1]):
        ss = ss + squares[:, j]
    return ss


def _padded(squares: Array, length: int) -> Array:
    return np.pad(squares, ((0, 0), (0, length - squares.shape[1])))


def _tree(squares: Array) -> Array:
    x = _padded(squares, 1 << (squares.shape[1] - 1).bit_length())
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = x[:, :half] + x[:, half:]
    return x[:, 0]


def _tree_of_neighbours(squares: Array) -> Array:
    x = _padded(squares, 1 << (squares.shape[1] - 1).bit_length())
    while x.shape[1] > 1:
        x = x[:, 0::2] + x[:, 1::2]
    return x[:, 0]


def _square_sum(x: Array, order: str, fault: Fault) -> Array:
    squares = flush(x * x) if fault == "squares flushed" else x * x
    if fault == "summed in binary64":
        return (x.astype(np.float64) ** 2).sum(axis=1).astype(F)
    if fault == "tail joins the blocks":
        return _by_blocks(_padded(squares, -(-x.shape[1] // 8) * 8), False)
    if fault == "neighbouring pairs":
        return _by_blocks(squares, True)
    if fault == "tree of neighbours":
        return _tree_of_neighbours(squares)
    order = fault if fault in ("strictly ascending", "blocks of 8", "summed by tree") else order
    if order == "blocks of 8":
        return _by_blocks(squares, False)
    return _tree(squares) if order == "summed by tree" else _serial(squares)


def _norm(x: Array, w: Array, eps: np.float32, order: str, fault: Fault) -> Array:
    d = F(x.shape[1])
    ss = _square_sum(x, order, fault)
    mean = ss * (F(1.0) / d) if fault == "mean by reciprocal" else ss / d
    if fault == "mean taken in binary64":
        mean = (x.astype(np.float64) ** 2).mean(axis=1).astype(F)
    r = F(1.0) / np.sqrt(mean + eps)
    if fault == "reciprocal root by way of binary64":
        r = (1.0 / np.sqrt((mean + eps).astype(np.float64))).astype(F)
    if fault == "eps outside the root":
        r = F(1.0) / (np.sqrt(mean) + eps)
    if fault == "first row's scale for all":
        r = np.broadcast_to(r[:1], r.shape)
    out = x * (r[:, None] * w) if fault == "weight times r first" else (x * r[:, None]) * w
    return flush(out) if fault == "results flushed" else out


def rmsnorm(x: Array, w: Array, eps: np.float32, fault: Fault = None) -> Array:
    """Contract 1.1."""
    return _norm(x, w, eps, "blocks of 8", fault)


def headnorm(x: Array, w: Array, eps: np.float32, fault: Fault = None) -> Array:
    """Contract 1.2."""
    rows = x.reshape(-1, x.shape[-1])
    return _norm(rows, w, eps, "strictly ascending", fault).reshape(x.shape)


def norm_tree(x: Array, w: Array, eps: np.float32, fault: Fault = None) -> Array:
    """Contract 5, rows f32[R, d]."""
    return _norm(x, w, eps, "summed by tree", fault)


# --- quantising ------------------------------------------------------------------------------


def _rounded(ratio: Array, fault: Fault) -> Array:
    size, sign = np.abs(ratio), np.copysign(F(1.0), ratio)
    if fault == "half away from zero":
        whole = np.trunc(size)
        return sign * np.where(size - whole >= F(0.5), whole + F(1.0), whole)
    if fault == "half towards zero":
        whole = np.trunc(size)
        return sign * np.where(size - whole > F(0.5), whole + F(1.0), whole)
    return np.trunc(ratio) if fault == "truncated" else np.rint(ratio)


def _ratio(x: Array, scale: Array, fault: Fault) -> tuple[Array, Array]:
    """x / scale, and where the codes are zero by rule."""
    if fault == "inverse scale":
        inverse = F(1.0) / scale
        return x * inverse, (scale == 0) | np.isinf(inverse)
    if fault == "zero guard on amax":
        return x / scale, np.abs(x).max(axis=-1, keepdims=True) == 0
    return x / scale, scale == 0


def _quantise(x: Array, limit: int, dtype: type, fault: Fault) -> tuple[Array, Array]:
    """Codes and scales of groups f32[..., n]."""
    if fault == "subnormals flushed":
        x = flush(x)
    amax = (x if fault == "amax of signed values" else np.abs(x)).max(axis=-1, keepdims=True)
    scale = np.abs(amax) / F(limit)
    if fault == "subnormals flushed":
        scale = flush(scale)
    if fault == "floor under the scale":
        scale = np.maximum(scale, F(1e-8))
    if fault == "neighbour's scale":
        scale = np.roll(scale, 1, axis=0)
    ratio, zero = _ratio(x, scale, fault)
    nearest = np.where(zero, F(0.0), _rounded(ratio, fault))
    low = -limit - 1 if fault == "one more negative code" else -limit
    high = np.inf if fault == "not clamped above" else limit
    if fault != "clamped after conversion":
        nearest = np.clip(nearest, low, high)
    wide = np.nan_to_num(nearest, posinf=2**31 - 1, neginf=-(2**31)).astype(np.int64)
    return wide.astype(dtype), scale[..., 0]


def quant8(x: Array, fault: Fault = None) -> tuple[Array, Array]:
    """Contract 1.6."""
    flat = x.reshape(-1, x.shape[-1])
    q, scale = _quantise(flat, 127, np.int8, fault)
    return q.reshape(x.shape), scale.reshape(x.shape[:2])


def quant16(x: Array, fault: Fault = None) -> tuple[Array, Array]:
    """Contract 1.4."""
    q, scale = _quantise(x.reshape(-1, 32), 32767, np.int16, fault)
    return q.reshape(x.shape), scale.reshape(x.shape[0], -1)


# --- RoPE ------------------------------------------------------------------------------------


def _angles(inv_freq: Array, pos: int, fault: Fault) -> Array:
    if fault == "angle in binary64":
        return (float(pos) * inv_freq.astype(np.float64)).astype(F)
    return F(pos) * inv_freq


def _cos_sin(angles: Array, fault: Fault) -> tuple[Array, Array]:
    if fault == "correctly rounded cosine and sine":
        # Good to the last bit but for near-ties, since libm's binary64 functions are.
        c = np.array([math.cos(float(a)) for a in angles], F)
        return c, np.array([math.sin(float(a)) for a in angles], F)
    if fault == "platform's cosine and sine":
        return each(platform_math.cosf, angles), each(platform_math.sinf, angles)
    c, s = each(cosf, angles), each(sinf, angles)
    return (c, -s) if fault == "rotated the other way" else (c, s)


def _rotate(x: Array, inv_freq: Array, pos: int, fault: Fault) -> Array:
    """x f32[heads, hd] at one position."""
    out = x.copy()
    half = inv_freq.shape[0]
    c, s = _cos_sin(_angles(inv_freq, pos, fault), fault)
    first, second = np.arange(half), np.arange(half) + half
    if fault == "neighbouring pairs":
        first, second = 2 * first, 2 * first + 1
    if fault == "halves of the whole head":
        second = first + x.shape[1] // 2
    x1, x2 = x[:, first], x[:, second]
    if fault == "fused":
        out[:, first] = fused(x1, c, -(x2 * s))
        out[:, second] = fused(x2, c, x1 * s)
    else:
        out[:, first] = x1 * c - x2 * s
        out[:, second] = x2 * c + x1 * s
    if fault == "rest set to zero":
        out[:, 2 * half :] = F(0.0)
    return out


def rope(x: Array, inv_freq: Array, pos: int, fault: Fault = None) -> Array:
    """Contract 1.7."""
    rows = []
    for m in range(x.shape[0]):
        at = pos if fault == "one position for all rows" else pos + m
        if fault == "position 0 skipped" and at == 0:
            rows.append(x[m])
        else:
            rows.append(_rotate(x[m], inv_freq, at, fault))
    return np.stack(rows)


# --- elements --------------------------------------------------------------------------------


def _ties_away(a: Array, b: Array) -> Array:
    """a + b with exact ties rounded away from zero (exponents within 29 of each other)."""
    exact = a.astype(np.float64) + b.astype(np.float64)
    near = exact.astype(F)
    away = np.nextafter(near, np.where(exact > 0, F(np.inf), F(-np.inf)))
    tie = np.abs(exact - near) == np.abs(exact - away.astype(np.float64))
    return np.where(tie & (np.abs(near) < np.abs(exact)), away, near)


def add(a: Array, b: Array, fault: Fault = None) -> Array:
    """Contract 2, the residual sum."""
    if fault == "subnormals flushed":
        return flush(flush(a) + flush(b))
    if fault == "zero is skipped":
        return np.where(b == 0, a, a + b)
    if fault == "half away from zero":
        return _ties_away(a, b)
    return a + b


def swiglu(gate: Array, up: Array, fault: Fault = None) -> Array:
    """Contract 1.9."""
    if fault == "gate and up swapped":
        gate, up = up, gate
    exp = exponential(fault)
    if fault == "exp over 1 + exp":
        e = each(exp, gate)
        return (gate * (e / (F(1.0) + e))) * up
    below = F(1.0) + each(exp, -gate)
    if fault == "x over 1 + exp":
        return (gate / below) * up
    sigmoid = F(1.0) / below
    if fault == "gate times up first":
        return (gate * up) * sigmoid
    out = (gate * sigmoid) * up
    return flush(out) if fault == "subnormals flushed" else out
