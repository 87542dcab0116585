"""Launches of the ops: names and arguments are those of the CPU twins, outputs first.

Shapes are read from the buffers; a launch shape never changes a bit (each kernel's head says why).
"""

from __future__ import annotations

import numpy as np

from parity.errors import ParityBug
from parity_cuda.backend import Backend, Buffer

THREADS = 64  # per block, for kernels where one thread owns one chain
NORM_THREADS = 32
TILE = 32  # attention_int8.cu


def _blocks(count: int) -> int:
    return -(-count // THREADS)


def _int(value: int) -> np.int32:
    return np.int32(value)


class Ops:
    """The exact tier's ops on one backend. Leading axis: M rows."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def embed(self, out: Buffer, d: Buffer, qs: Buffer, tokens: Buffer) -> None:
        """Contract 1.0."""
        nb = d.shape[1]
        grid = (_blocks(nb * 16), tokens.shape[0])
        self.backend.launch("embed", grid, THREADS, [out, d, qs, tokens, _int(nb)])

    def rmsnorm(self, out: Buffer, x: Buffer, w: Buffer, eps: np.float32) -> None:
        """Contract 1.1."""
        rows, d = x.shape
        args = [out, x, w, eps, _int(d)]
        self.backend.launch("rmsnorm", (rows,), NORM_THREADS, args, shared=4 * (d // 8 + 1))

    def headnorm(self, out: Buffer, x: Buffer, w: Buffer, eps: np.float32) -> None:
        """Contract 1.2."""
        rows, heads, hd = x.shape
        self.backend.launch("headnorm", (heads, rows), NORM_THREADS, [out, x, w, eps, _int(hd)])

    def q4_matvec(self, out: Buffer, d: Buffer, qs: Buffer, x: Buffer) -> None:
        """Contract 1.3."""
        rows, nb = d.shape
        args = [out, d, qs, x, _int(rows), _int(nb)]
        self.backend.launch("q4_matvec", (_blocks(rows), x.shape[0]), THREADS, args)

    def f32_matvec(self, out: Buffer, w: Buffer, x: Buffer) -> None:
        """Contract 1.5."""
        rows, cols = w.shape
        args = [out, w, x, _int(rows), _int(cols)]
        self.backend.launch("f32_matvec", (_blocks(rows), x.shape[0]), THREADS, args)

    def rope(self, out: Buffer, x: Buffer, inv_freq: Buffer, pos: int) -> None:
        """Contract 1.7."""
        rows, heads, hd = x.shape
        half = inv_freq.shape[0]
        args = [out, x, inv_freq, _int(pos), _int(half), _int(hd)]
        self.backend.launch("rope", (heads, rows), NORM_THREADS, args)

    def quant8(self, q: Buffer, scale: Buffer, x: Buffer) -> None:
        """Contract 1.6."""
        rows, heads, hd = x.shape
        args = [q, scale, x, _int(heads), _int(hd)]
        self.backend.launch("quant8", (_blocks(heads), rows), THREADS, args)

    def quant16(self, q: Buffer, scale: Buffer, x: Buffer) -> None:
        """Contract 1.4."""
        blocks = x.shape[0] * scale.shape[1]
        args = [q, scale, x, _int(blocks)]
        self.backend.launch("quant16", (_blocks(blocks),), THREADS, args)

    def attention_int8(
        self,
        out: Buffer,
        q: Buffer,
        q_scale: Buffer,
        k: Buffer,
        k_scale: Buffer,
        v: Buffer,
        v_scale: Buffer,
        sm_scale: np.float32,
        pos: int,
    ) -> None:
        """Contract 1.8."""
        rows, heads, hd = q.shape
        n_kv = k.shape[1]
        if heads % n_kv:
            raise ParityBug(f"attention_int8: {heads} query heads over {n_kv} KV heads")
        args = [out, q, q_scale, k, k_scale, v, v_scale, sm_scale, _int(pos), _int(n_kv), _int(hd)]
        self.backend.launch("attention_int8", (heads, rows), TILE, args, shared=4 * hd)

    def add(self, out: Buffer, a: Buffer, b: Buffer) -> None:
        """Contract 2, the residual."""
        n = a.shape[0] * a.shape[1]
        self.backend.launch("add", (_blocks(n),), THREADS, [out, a, b, _int(n)])

    def swiglu(self, out: Buffer, gate: Buffer, up: Buffer) -> None:
        """Contract 1.9."""
        n = gate.shape[0] * gate.shape[1]
        self.backend.launch("swiglu", (_blocks(n),), THREADS, [out, gate, up, _int(n)])

    def router_topk(self, ids: Buffer, probs: Buffer, logits: Buffer, norm: bool) -> None:
        """Contract 2, FFN."""
        rows, experts = logits.shape
        args = [ids, probs, logits, _int(norm), _int(experts), _int(ids.shape[1])]
        self.backend.launch("router_topk", (rows,), 1, args, shared=4 * experts)

    def expert_matvec(
        self, out: Buffer, d: Buffer, qs: Buffer, ids: Buffer, q: Buffer, s_a: Buffer
    ) -> None:
        """Contract 1.4."""
        _, rows, nb = d.shape
        tokens, ranks = ids.shape
        args = [out, d, qs, ids, q, s_a, _int(rows), _int(nb), _int(q.shape[1])]
        self.backend.launch("expert_matvec", (_blocks(rows), ranks, tokens), THREADS, args)

    def combine(self, out: Buffer, ores: Buffer, down: Buffer, probs: Buffer) -> None:
        """Contract 2, FFN."""
        rows, hidden = ores.shape
        args = [out, ores, down, probs, _int(hidden), _int(probs.shape[1])]
        self.backend.launch("combine", (_blocks(hidden), rows), THREADS, args)
