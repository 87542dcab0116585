"""Launches of the fused heads for the stress tests, beside what the ops make of the same values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.fused.heads import Heads, heads_f32, heads_int8
from parity_cuda.ops import Ops
from parity_cuda.state import append_rows
from tests.oracle.values import generator

Arrays = tuple[np.ndarray[Any, np.dtype[Any]], ...]
F = np.float32
NORM_TREE = variant_mask(["norm_tree"])
# Query heads, KV heads, width, rotated width: less than a warp, odd, padded, of real models.
SHAPES = (
    (1, 1, 1, 0),
    (2, 1, 6, 4),
    (3, 3, 33, 10),
    (4, 2, 96, 24),
    (6, 2, 128, 128),
    (2, 1, 256, 64),
)
POSITIONS, PLACE = 6, 4


class Drawn:
    """Inputs of one launch on a backend, and room for outputs full of ``garbage``. ``hard``: zeros
    of both signs, subnormals, infinities and NaNs among them."""

    def __init__(self, backend: Backend, shape: tuple[int, ...], mask: int, gated: bool, hard: bool,
                 garbage: int) -> None:  # fmt: skip
        self.backend, self.garbage = backend, garbage
        self.n_q, self.n_kv, self.hd, rot = shape
        rng = generator(f"heads {shape} {gated} {hard}")
        wide = self.n_q * self.hd * (2 if gated else 1)

        def floats(*of: int) -> Buffer:
            drawn = (rng.standard_normal(of) * rng.choice([1e-3, 1.0, 30.0], of)).astype(F)
            if hard:
                bits = rng.choice([0, 1 << 31, 1, 0x7F800000, 0x7FFFFFFF, 0x00800000], of)
                drawn = np.where(rng.random(of) < 0.1, bits.astype(np.uint32).view(F), drawn)
            return backend.upload(drawn)

        narrow = self.n_kv * self.hd
        inputs = (floats(1, narrow), floats(1, narrow), floats(1, wide), floats(self.hd))
        freq = backend.upload((10.0 ** -np.arange(max(1, rot // 2))).astype(F)[: rot // 2])
        place = backend.upload(np.array([PLACE], np.int32))
        self.given = Heads(*inputs, floats(self.hd), freq, place, F(1e-6), mask)

    def room(self, *shape: int, dtype: type = F, fill: int | None = None) -> Buffer:
        """An output."""
        buffer = self.backend.empty(shape, dtype)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        held = np.full(size, self.garbage if fill is None else fill, np.uint8)
        self.backend.write(buffer, held.view(dtype).reshape(shape))
        return buffer

    def heads(self, count: int, dtype: type = F) -> Buffer:
        """Room for ``count`` heads."""
        return self.room(1, count, self.hd, dtype=dtype)

    def pair(self, count: int) -> tuple[Buffer, Buffer]:
        """Room for their int8 form and its scales."""
        return self.heads(count, np.int8), self.room(1, count)

    def parts(self, int8: bool) -> dict[str, Buffer]:
        """A cache, whose other rows nothing may touch."""
        kind, sizes = np.int8 if int8 else F, (POSITIONS, self.n_kv)
        found = {part: self.room(*sizes, self.hd, dtype=kind, fill=7) for part in ("k", "v")}
        if int8:
            found |= {part: self.room(*sizes, fill=7) for part in ("ks", "vs")}
        return found


def fused_int8(drawn: Drawn) -> Arrays:
    """knorm, k, v, qrope, q and the cache."""
    knorm, qrope = drawn.heads(drawn.n_kv), drawn.heads(drawn.n_q)
    k, v, q = (drawn.pair(count) for count in (drawn.n_kv, drawn.n_kv, drawn.n_q))
    parts = drawn.parts(int8=True)
    heads_int8(Ops(drawn.backend), knorm, k, v, qrope, q, parts, drawn.given)
    return _down(drawn, knorm, *k, *v, qrope, *q, *parts.values())


def op_by_op_int8(drawn: Drawn) -> Arrays:
    """The same by the ops."""
    given, ops, mask = drawn.given, Ops(drawn.backend), drawn.given.variants
    knorm, turned, qrope = _turned(drawn, given)
    k, v, q = (drawn.pair(count) for count in (drawn.n_kv, drawn.n_kv, drawn.n_q))
    value = given.value.reshape(1, drawn.n_kv, drawn.hd)
    for made, x in ((k, turned), (v, value), (q, qrope)):
        ops.quant8(*made, x, mask)
    parts = drawn.parts(int8=True)
    for part, rows in zip(("k", "ks", "v", "vs"), (*k, *v), strict=True):
        append_rows(drawn.backend, parts[part], rows, given.place)
    return _down(drawn, knorm, *k, *v, qrope, *q, *parts.values())


def fused_f32(drawn: Drawn) -> Arrays:
    """knorm, k, qrope, the gate and the cache."""
    knorm, k, qrope = drawn.heads(drawn.n_kv), drawn.heads(drawn.n_kv), drawn.heads(drawn.n_q)
    gated = drawn.given.query.shape[1] > drawn.n_q * drawn.hd
    gate = drawn.heads(drawn.n_q) if gated else None
    parts = drawn.parts(int8=False)
    heads_f32(Ops(drawn.backend), knorm, k, qrope, gate, parts, drawn.given)
    gates = () if gate is None else (gate,)
    return _down(drawn, knorm, k, qrope, *gates, *parts.values())


def op_by_op_f32(drawn: Drawn) -> Arrays:
    """The same by the ops."""
    given, gates, shape = drawn.given, (), (1, drawn.n_q, drawn.hd)
    if given.query.shape[1] > drawn.n_q * drawn.hd:
        query, gate = drawn.heads(drawn.n_q), drawn.heads(drawn.n_q)
        Ops(drawn.backend).split_gate(query, gate, given.query.reshape(1, drawn.n_q, -1))
        given, gates = replace(given, query=query.reshape(1, -1)), (gate,)
    knorm, turned, qrope = _turned(drawn, given)
    parts = drawn.parts(int8=False)
    append_rows(drawn.backend, parts["k"], turned, given.place)
    append_rows(drawn.backend, parts["v"], given.value, given.place)
    return _down(drawn, knorm, turned, qrope.reshape(shape), *gates, *parts.values())


def _turned(drawn: Drawn, given: Heads) -> tuple[Buffer, Buffer, Buffer]:
    """knorm, k and q after the rotation."""
    ops, made = Ops(drawn.backend), []
    for x, count, w in (
        (given.kraw, drawn.n_kv, given.k_norm),
        (given.query, drawn.n_q, given.q_norm),
    ):
        normed, turned = drawn.heads(count), drawn.heads(count)
        rows = x.reshape(1, count, drawn.hd)
        if given.variants & NORM_TREE:
            flat = (normed.reshape(count, -1), rows.reshape(count, -1))
            ops.norm_tree(*flat, w, given.eps, given.variants)
        else:
            ops.headnorm(normed, rows, w, given.eps, given.variants)
        ops.rope(turned, normed, given.freq, given.place, given.variants)
        made += [normed, turned]
    return made[0], made[1], made[3]


def _down(drawn: Drawn, *buffers: Buffer) -> Arrays:
    return tuple(drawn.backend.download(buffer) for buffer in buffers)


FORMS = {  # kernel: its launch, the ops, whether the query has a gate
    "fused_heads_int8": (fused_int8, op_by_op_int8, (False,)),
    "fused_heads_f32": (fused_f32, op_by_op_f32, (False, True)),
}


def cases(kernel: str, masks: tuple[int, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Label, the launch and the ops, each a function of a backend and a garbage byte."""
    fused, by_ops, gates = FORMS[kernel]
    for mask in masks:
        for shape in SHAPES if mask == 0 else SHAPES[2:4]:
            for gated in gates:
                for hard in (False, True):
                    given = (shape, mask, gated, hard)
                    words = ("gated" if gated else "", "hard" if hard else "", f"{mask:#x}")
                    label = " ".join([str(shape), *filter(None, words)])
                    yield label, _run(fused, given), _run(by_ops, given)


def _run(form: Any, given: tuple[Any, ...]) -> Any:
    return lambda backend, garbage: form(Drawn(backend, *given, garbage))
