"""Launches of the ops: names and arguments are those of the CPU twins, outputs first.

Shapes are read from the buffers; a launch shape never changes a bit (each kernel's head says why).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.errors import ParityBug
from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.many_shapes import LAUNCH_ROWS
from parity_cuda.row_shapes import fits_row
from parity_cuda.tuning import EXPERT_THREADS, Tuning

THREADS = 64  # per block, for kernels where one thread owns one element
NORM_THREADS = 256
WARP = 32
DIMS, TILE_KEYS, GROUPS, MAKERS = 32, 128, 3, 12  # attention.cuh
KEY_ROW = 3 * (TILE_KEYS + 4) + 4  # floats of a KeyRow
MOST_CHAINS, MOST_PARTS = 8, 2  # threads and shared memory of a block
APART, APART_WARPS = 1, 16  # of a block with so few chains: makers leave every fourth warp
SCORE_KEYS, SCORE_WARPS, SCORE_ROWS = 32, 8, 8  # attention_scores.cuh
SCORE_BLOCKS = 256  # of one KV head: more keys are taken in turn
PART_KEYS, PART_WARPS = 128, (8, 16)  # attention_parts.cuh; warps of a block: parts at once
ALONE = 78 * 1024  # bytes beside a block of parts', so that no second one fits a processor
COLUMNS = 16  # delta_step.cu
SPLIT_KEYS = variant_mask(["split_keys"])


def _blocks(count: int) -> int:
    return -(-count // THREADS)


def size(buffer: Buffer) -> int:
    """Elements of a buffer, whatever its shape."""
    return int(np.prod(buffer.shape))


def padded(count: int) -> int:
    """The smallest power of two that is not below ``count``."""
    return 1 << (count - 1).bit_length()


def _int(value: int) -> np.int32:
    return np.int32(value)


class Ops:
    """The ops on one backend. Leading axis: M rows; ``variants``: mask, 0 is the exact tier."""

    def __init__(self, backend: Backend, tuning: Tuning | None = None) -> None:
        self.backend = backend
        self.tuning = Tuning(processors=backend.processors) if tuning is None else tuning

    def embed(self, out: Buffer, d: Buffer, qs: Buffer, tokens: Buffer) -> None:
        """Contract 1.0."""
        nb = d.shape[1]
        grid = (_blocks(nb * 16), tokens.shape[0])
        self.backend.launch("embed", grid, THREADS, [out, d, qs, tokens, _int(nb)])

    def rmsnorm(self, out: Buffer, x: Buffer, w: Buffer, eps: np.float32, variants: int) -> None:
        """Contract 1.1."""
        rows, d = x.shape
        args = [out, x, w, eps, _int(variants), _int(d)]
        self.backend.launch("rmsnorm", (rows,), NORM_THREADS, args, shared=4 * (d // 8 + 4))

    def headnorm(self, out: Buffer, x: Buffer, w: Buffer, eps: np.float32, variants: int) -> None:
        """Contract 1.2."""
        rows, heads, hd = x.shape
        args = [out, x, w, eps, _int(variants), _int(hd)]
        self.backend.launch("headnorm", (heads, rows), WARP, args, shared=4 * hd)

    def norm_tree(self, out: Buffer, x: Buffer, w: Buffer, eps: np.float32, variants: int) -> None:
        """Contract 5, norms by tree."""
        rows, d = x.shape
        args = [out, x, w, eps, _int(variants), _int(d)]
        self.backend.launch("norm_tree", (rows,), NORM_THREADS, args, shared=4 * padded(d))

    def q4_matvec(self, out: Buffer, d: Buffer, qs: Buffer, x: Buffer, variants: int) -> None:
        """Contract 1.3. More than one row, or more columns than one launch takes:
        ``q4_matvec_rows``."""
        rows, nb = d.shape
        args = [out, d, qs, x, _int(variants), _int(rows), _int(nb)]
        if x.shape[0] == 1 and fits_row(nb):
            one = self.tuning.row(rows, nb, variants)
            args += [_int(one.tile), _int(one.kept), _int(one.across)]
            self.backend.launch("q4_matvec", (one.blocks,), one.threads, args, shared=one.shared)
            return
        shape = self.tuning.q4(rows, nb, x.shape[0], variants)
        grid = (shape.blocks, -(-x.shape[0] // LAUNCH_ROWS))
        args += [_int(n) for n in (shape.m, shape.tile, shape.stock, x.shape[0])]
        self.backend.launch("q4_matvec_rows", grid, shape.threads, args, shared=shape.shared)

    def f32_matvec(self, out: Buffer, w: Buffer, x: Buffer, variants: int) -> None:
        """Contract 1.5. More than one row: ``f32_matvec_rows``."""
        rows, cols = w.shape
        last = [_int(variants), _int(rows), _int(cols)]
        if x.shape[0] == 1:
            one, block = self.tuning.f32(rows, cols, 1), (WARP, 2)
            args = [out, w, x, *last]
            self.backend.launch("f32_matvec", (one.blocks,), block, args, shared=one.shared)
            return
        for m in range(0, x.shape[0], LAUNCH_ROWS):
            part, given = out[m : m + LAUNCH_ROWS], x[m : m + LAUNCH_ROWS]
            count = given.shape[0]
            many = self.tuning.f32_many(rows, cols, count)
            args = [part, w, given, *last, _int(count)]
            grid = (many.blocks,)
            self.backend.launch("f32_matvec_rows", grid, many.threads, args, shared=many.shared)

    def router_tree(self, out: Buffer, w: Buffer, x: Buffer) -> None:
        """Contract 5, the router's products by tree."""
        rows, cols = w.shape
        args = [out, w, x, _int(rows), _int(cols)]
        grid = (rows, x.shape[0])
        self.backend.launch("router_tree", grid, NORM_THREADS, args, shared=4 * padded(cols))

    def embed_f32(self, out: Buffer, w: Buffer, tokens: Buffer) -> None:
        """Contract 1.0."""
        rows, hidden = out.shape
        args = [out, w, tokens, _int(hidden)]
        self.backend.launch("embed_f32", (_blocks(hidden), rows), THREADS, args)

    def rope(self, out: Buffer, x: Buffer, inv_freq: Buffer, pos: Buffer, variants: int) -> None:
        """Contract 1.7. pos: int32[1] on the device."""
        rows, heads, hd = x.shape
        half = inv_freq.shape[0]
        args = [out, x, inv_freq, pos, _int(variants), _int(half), _int(hd)]
        self.backend.launch("rope", (heads, rows), WARP, args)

    def quant8(self, q: Buffer, scale: Buffer, x: Buffer, variants: int) -> None:
        """Contract 1.6."""
        rows, heads, hd = x.shape
        args = [q, scale, x, _int(variants), _int(heads), _int(hd)]
        self.backend.launch("quant8", (heads, rows), WARP, args)

    def quant16(self, q: Buffer, scale: Buffer, x: Buffer, variants: int) -> None:
        """Contract 1.4."""
        blocks = size(scale)
        args = [q, scale, x, _int(variants), _int(blocks)]
        self.backend.launch("quant16", (_blocks(WARP * blocks),), THREADS, args)

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
        pos: Buffer,
        variants: int,
        scratch: Buffer,
    ) -> None:
        """Contract 1.8. scratch: (M, n_q, at least scratch_width(pos + M)) f32."""
        hd, given = q.shape[2], [scratch, q, q_scale, k, k_scale, sm_scale, pos]
        self._scores("attention_int8_scores", given, q, k, scratch, hd + 16, hd)
        if variants & SPLIT_KEYS:
            values = [v, v_scale, pos, _int(variants)]
            self._parts("attention_int8_split_keys", out, values, k, scratch)
            return
        cached = [q, q_scale, k, k_scale, v, v_scale, sm_scale, pos, _int(variants)]
        self._chains("attention_int8", out, cached, k, scratch, 1)

    def attention_f32(
        self,
        out: Buffer,
        q: Buffer,
        k: Buffer,
        v: Buffer,
        sm_scale: np.float32,
        pos: Buffer,
        variants: int,
        scratch: Buffer,
    ) -> None:
        """Contract 1.8, f32 form. scratch as above."""
        hd, given = q.shape[2], [scratch, q, k, sm_scale, pos]
        self._scores("attention_f32_scores", given, q, k, scratch, 4 * (hd + 7), 4 * hd)
        if variants & SPLIT_KEYS:
            values = [v, pos, _int(variants)]
            self._parts("attention_f32_split_keys", out, values, k, scratch)
            return
        self._chains("attention_f32", out, [q, k, v, sm_scale, pos, _int(variants)], k, scratch, 4)

    def _scores(
        self,
        kernel: str,
        given: list[Any],
        q: Buffer,
        k: Buffer,
        scratch: Buffer,
        key_bytes: int,
        query_bytes: int,
    ) -> None:
        """The scores of all keys, K read once; the grid is made for as many as scratch can hold."""
        rows, heads, hd = q.shape
        n_kv, wide = _groups(heads, k), scratch.shape[2]
        room = wide * SCORE_KEYS // (SCORE_KEYS + 1)
        blocks = min(_over(room, SCORE_KEYS), SCORE_BLOCKS)
        grid = (blocks, n_kv, _over(rows, SCORE_ROWS))
        sizes = [_int(rows), _int(wide), _int(heads), _int(hd)]
        queries = min(rows, SCORE_ROWS) * heads // n_kv
        shared = score_memory(queries, key_bytes, query_bytes)
        block = (WARP, SCORE_WARPS)
        self.backend.launch(kernel, grid, block, [*given, *sizes], shared=shared, overlap=True)

    def _chains(
        self, kernel: str, out: Buffer, given: list[Any], k: Buffer, scratch: Buffer, width: int
    ) -> None:
        """Maxima, weights and sums over the scores of the launch before. width: bytes of a value
        of V."""
        rows, heads, hd = out.shape
        deal, every = chains(rows, heads, _over(hd, DIMS), self.tuning.processors)
        grid = (_over(_over(hd, DIMS), every), heads, _over(rows, deal))
        warps = deal * every + 1 + MAKERS if deal * every > APART else APART_WARPS
        sizes = [_int(rows), _int(scratch.shape[2]), _int(_groups(heads, k)), _int(hd)]
        args = [out, *given, scratch, *sizes]
        shared = chain_memory(deal, every, width)
        self.backend.launch(kernel, grid, WARP * warps, args, shared=shared, overlap=True)

    def _parts(
        self, kernel: str, out: Buffer, given: list[Any], k: Buffer, scratch: Buffer
    ) -> None:
        """Weights and sums of each part, then of the parts, over the scores of that launch."""
        (rows, heads, hd), wide = out.shape, scratch.shape[2]
        grid, (few, most) = (_over(hd, DIMS), heads, rows), PART_WARPS
        warps = few if wide <= few * PART_KEYS else most
        shared = ALONE if int(np.prod(grid)) <= self.tuning.processors else 0
        args = [out, *given, scratch, _int(wide), _int(_groups(heads, k)), _int(hd)]
        self.backend.launch(kernel, grid, WARP * warps, args, shared=shared, overlap=True)

    def add(self, out: Buffer, a: Buffer, b: Buffer) -> None:
        """Contract 2, the residual."""
        n = size(a)
        self.backend.launch("add", (_blocks(n),), THREADS, [out, a, b, _int(n)])

    def swiglu(self, out: Buffer, gate: Buffer, up: Buffer, variants: int) -> None:
        """Contract 1.9."""
        n = size(gate)
        args = [out, gate, up, _int(variants), _int(n)]
        self.backend.launch("swiglu", (_blocks(n),), THREADS, args)

    def router_topk(
        self, ids: Buffer, probs: Buffer, logits: Buffer, norm: bool, variants: int
    ) -> None:
        """Contract 2, FFN."""
        rows, experts = logits.shape
        last = [_int(norm), _int(variants), _int(experts), _int(ids.shape[1])]
        args = [ids, probs, logits, *last]
        self.backend.launch("router_topk", (rows,), WARP, args, shared=4 * experts)

    def expert_matvec(
        self,
        out: Buffer,
        d: Buffer,
        qs: Buffer,
        ids: Buffer,
        probs: Buffer,
        q: Buffer,
        s_a: Buffer,
        variants: int,
    ) -> None:
        """Contract 1.4."""
        _, rows, nb = d.shape
        tokens, ranks = ids.shape
        last = [_int(variants), _int(rows), _int(nb), _int(q.shape[1])]
        args = [out, d, qs, ids, probs, q, s_a, *last]
        shape = self.tuning.expert(rows, nb, tokens, ranks)
        grid = (shape.blocks, ranks, tokens)
        self.backend.launch("expert_matvec", grid, EXPERT_THREADS, args, shared=shape.shared)

    def expert_f32_matvec(
        self, out: Buffer, w: Buffer, ids: Buffer, x: Buffer, variants: int
    ) -> None:
        """Contract 1.5."""
        _, rows, cols = w.shape
        tokens, ranks = ids.shape
        args = [out, w, ids, x, _int(variants), _int(rows), _int(cols), _int(x.shape[1])]
        shape = self.tuning.f32(rows, cols, 1)
        grid = (shape.blocks, ranks, tokens)
        self.backend.launch("expert_f32_matvec", grid, (WARP, 2), args, shared=shape.shared)

    def combine(
        self, out: Buffer, ores: Buffer, down: Buffer, probs: Buffer, variants: int
    ) -> None:
        """Contract 2, FFN."""
        rows, hidden = ores.shape
        args = [out, ores, down, probs, _int(variants), _int(hidden), _int(probs.shape[1])]
        self.backend.launch("combine", (_blocks(hidden), rows), THREADS, args)

    def shared_gate(self, out: Buffer, x: Buffer, variants: int) -> None:
        """Contract 1.9, the gate of the shared expert."""
        n = size(x)
        self.backend.launch(
            "shared_gate", (_blocks(n),), THREADS, [out, x, _int(variants), _int(n)]
        )

    def combine_shared(
        self,
        out: Buffer,
        ores: Buffer,
        down: Buffer,
        probs: Buffer,
        gs: Buffer,
        sh: Buffer,
        variants: int,
    ) -> None:
        """Contract 2, FFN with a shared expert."""
        rows, hidden = ores.shape
        last = [_int(variants), _int(hidden), _int(probs.shape[1])]
        args = [out, ores, down, probs, gs, sh, *last]
        self.backend.launch("combine_shared", (_blocks(hidden), rows), THREADS, args)

    def split_gate(self, query: Buffer, gate: Buffer, both: Buffer) -> None:
        """Contract 3.1."""
        rows, heads, hd = query.shape
        args = [query, gate, both, _int(heads), _int(hd)]
        self.backend.launch("split_gate", (_blocks(heads * hd), rows), THREADS, args)

    def sigmoid_gate(self, out: Buffer, x: Buffer, gate: Buffer, variants: int) -> None:
        """Contract 3.1. gate is not of the launch just before this one."""
        n = size(x)
        args = [out, x, gate, _int(variants), _int(n)]
        self.backend.launch("sigmoid_gate", (_blocks(n),), THREADS, args, overlap=True)

    def silu_gate(self, out: Buffer, x: Buffer, z: Buffer, variants: int) -> None:
        """Contract 3.2."""
        n = size(x)
        args = [out, x, z, _int(variants), _int(n)]
        self.backend.launch("silu_gate", (_blocks(n),), THREADS, args)

    def decay_rates(self, out: Buffer, a_log: Buffer) -> None:
        """Contract 3.2."""
        n = a_log.shape[0]
        self.backend.launch("decay_rates", (_blocks(n),), THREADS, [out, a_log, _int(n)])

    def conv_step(self, out: Buffer, hist: Buffer, qkv: Buffer, w: Buffer, variants: int) -> None:
        """Contract 3.2, one row."""
        n = qkv.shape[0]
        args = [out, hist, qkv, w, _int(variants), _int(n)]
        self.backend.launch("conv_step", (_blocks(n),), THREADS, args)

    def l2norm(self, out: Buffer, x: Buffer, scale: np.float32, stride: int) -> None:
        """Contract 3.2. x: floats; the heads of row m stand side by side from m * stride."""
        rows, heads, width = out.shape
        args = [out, x, scale, _int(stride), _int(width)]
        self.backend.launch("l2norm", (heads, rows), WARP, args, shared=4 * width)

    def delta_gates(
        self,
        beta: Buffer,
        g: Buffer,
        a: Buffer,
        b: Buffer,
        rates: Buffer,
        dt_bias: Buffer,
        variants: int,
    ) -> None:
        """Contract 3.2."""
        rows, heads = a.shape
        args = [beta, g, a, b, rates, dt_bias, _int(variants), _int(heads)]
        self.backend.launch("delta_gates", (_blocks(heads), rows), THREADS, args)

    def delta_step(
        self,
        o: Buffer,
        s: Buffer,
        q: Buffer,
        k: Buffer,
        v: Buffer,
        beta: Buffer,
        g: Buffer,
    ) -> None:
        """Contract 3.2, one row."""
        value_heads, key_width, value_width = s.shape
        sizes = [_int(q.shape[0]), _int(key_width), _int(value_width)]
        grid = (-(-value_width // COLUMNS), value_heads)
        args = [o, s, q, k, v, beta, g, *sizes]
        block, shared = (COLUMNS, 16), 4 * 2 * key_width * COLUMNS
        self.backend.launch("delta_step", grid, block, args, shared=shared)


def _groups(heads: int, k: Buffer) -> int:
    """KV heads of a cache; the query heads must be a multiple (contract 1.8)."""
    n_kv = int(k.shape[1])
    if heads % n_kv:
        raise ParityBug(f"attention: {heads} query heads over {n_kv} KV heads")
    return n_kv


def scratch_width(keys: int) -> int:
    """Floats of scratch for the scores of ``keys`` keys: each, and a maximum for each 32."""
    return keys + _over(keys, SCORE_KEYS)


def score_memory(queries: int, key_bytes: int, query_bytes: int) -> int:
    """Bytes of shared memory of a block of scores."""
    return SCORE_KEYS * key_bytes + 16 * (_over(queries * query_bytes, 16) + _over(queries, 4))


def chains(rows: int, heads: int, parts: int, processors: int) -> tuple[int, int]:
    """Rows and parts (32 dimensions) of a block of chains. Rows share values, parts share weights;
    parts are put together only where a device could not run all blocks at once."""
    deal, every = _over(rows, _over(rows, MOST_CHAINS)), 1
    blocks = _over(rows, deal) * heads
    while every < min(parts, MOST_PARTS) and blocks * _over(parts, every) > processors:
        if deal * (every + 1) > MOST_CHAINS:
            break
        every += 1
    return deal, every


def chain_memory(rows: int, parts: int, width: int) -> int:
    """Bytes of shared memory of a block of chains: tiles, sums, and what its makers ask for. width:
    bytes of a value of V."""
    tile = parts * TILE_KEYS * DIMS + rows * KEY_ROW
    inbox = WARP * (1 + 2 * rows) + parts * WARP * DIMS * width // 4
    return 4 * (GROUPS * tile + MOST_CHAINS + MAKERS * inbox)


def _over(count: int, by: int) -> int:
    """Rounded up."""
    return -(-count // by)
