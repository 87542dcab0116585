"""The MoE family on the device: the order of the launches in one forward. Contract section 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.model.config import ModelConfig
from parity_cuda.backend import Backend, Buffer
from parity_cuda.ops import Ops
from parity_cuda.tap import Tap
from parity_cuda.weights import Layer, layer, q4

STATE_FIELDS = ("k", "ks", "v", "vs")


@dataclass(frozen=True)
class KVCache:
    """int8 K and V of every layer, [layers, positions, n_kv, hd], and their f32 scales."""

    k: Buffer
    ks: Buffer
    v: Buffer
    vs: Buffer

    @classmethod
    def empty(cls, backend: Backend, config: ModelConfig, positions: int) -> KVCache:
        """Rows for ``positions`` positions; their content does not matter until written."""
        scales = (config.layers, positions, config.n_kv)
        rows = (*scales, config.head_dim)
        return cls(
            backend.empty(rows, np.int8),
            backend.empty(scales, np.float32),
            backend.empty(rows, np.int8),
            backend.empty(scales, np.float32),
        )


class Scratch:
    """Device buffers of one forward of one row, reused by every layer."""

    def __init__(self, backend: Backend, config: ModelConfig) -> None:
        def f32(*shape: int) -> Buffer:
            return backend.empty(shape, np.float32)

        hidden, hd, ranks, inter = config.hidden, config.head_dim, config.top_k, config.inter
        q_shape, kv_shape = (1, config.n_q, hd), (1, config.n_kv, hd)
        self.token = backend.empty((1,), np.int32)
        self.x, self.nrm, self.out, self.ores = (f32(1, hidden) for _ in range(4))
        self.kraw, self.knorm, self.kturned, self.value = (f32(*kv_shape) for _ in range(4))
        self.query, self.qnorm, self.qturned, self.attn = (f32(*q_shape) for _ in range(4))
        self.q8, self.q_scale = backend.empty(q_shape, np.int8), f32(1, config.n_q)
        self.fnrm, self.rlogits = f32(1, hidden), f32(1, config.experts)
        self.ids, self.probs = backend.empty((1, ranks), np.int32), f32(1, ranks)
        self.in16 = backend.empty((1, 1, hidden), np.int16)
        self.in16_scale = f32(1, 1, hidden // 32)
        self.gate, self.up, self.act = (f32(1, ranks, inter) for _ in range(3))
        self.act16 = backend.empty((1, ranks, inter), np.int16)
        self.act16_scale = f32(1, ranks, inter // 32)
        self.down = f32(1, ranks, hidden)


class Moe:
    """Forward passes over uploaded tensors. Buffers have a leading axis of M rows; here M = 1."""

    def __init__(
        self, backend: Backend, config: ModelConfig, tensors: Mapping[str, Buffer]
    ) -> None:
        self.backend, self.config = backend, config
        self.ops = Ops(backend)
        self.scratch = Scratch(backend, config)
        self.eps = np.float32(config.eps)
        self.sm_scale = np.float32(config.sm_scale)
        self.inv_freq = tensors["inv_freq"]
        self.embed = q4(tensors, "embed")
        self.layers = [layer(tensors, number) for number in range(config.layers)]
        self.final_norm = tensors["final_norm"]
        self.lm_head = q4(tensors, "lm_head")

    def forward(self, token: int, pos: int, cache: KVCache, tap: Tap, logits: Buffer) -> None:
        """One token at ``pos``; writes row ``pos`` of ``cache`` and logits (1, vocab)."""
        s, ops = self.scratch, self.ops
        self.backend.write(s.token, np.array([token], np.int32))
        ops.embed(s.x, self.embed.d, self.embed.qs, s.token)
        for number, weights in enumerate(self.layers):
            self._attention(number, weights, pos, cache, tap)
            self._ffn(number, weights, pos, tap)
            tap(pos, number, "x", s.x)
        ops.rmsnorm(s.nrm, s.x, self.final_norm, self.eps)
        tap(pos, None, "final_normed", s.nrm)
        ops.q4_matvec(logits, self.lm_head.d, self.lm_head.qs, s.nrm)
        tap(pos, None, "logits", logits)

    def _attention(self, number: int, weights: Layer, pos: int, cache: KVCache, tap: Tap) -> None:
        """nrm .. ores of one layer, from x to ores."""
        s, ops = self.scratch, self.ops
        ops.rmsnorm(s.nrm, s.x, weights.attn_norm, self.eps)
        tap(pos, number, "nrm", s.nrm)
        self._keys(number, weights, pos, cache, tap)
        # V's chain: projection, int8 rows.
        ops.q4_matvec(s.value.reshape(1, -1), weights.v_proj.d, weights.v_proj.qs, s.nrm)
        v, vs = cache.v[number], cache.vs[number]
        ops.quant8(v[pos : pos + 1], vs[pos : pos + 1], s.value)
        tap(pos, number, "v", v[pos])
        tap(pos, number, "vs", vs[pos])
        # Q's chain: projection, head norm, RoPE, int8.
        ops.q4_matvec(s.query.reshape(1, -1), weights.q_proj.d, weights.q_proj.qs, s.nrm)
        ops.headnorm(s.qnorm, s.query, weights.q_norm, self.eps)
        ops.rope(s.qturned, s.qnorm, self.inv_freq, pos)
        tap(pos, number, "qrope", s.qturned)
        ops.quant8(s.q8, s.q_scale, s.qturned)
        k, ks = cache.k[number], cache.ks[number]
        ops.attention_int8(s.attn, s.q8, s.q_scale, k, ks, v, vs, self.sm_scale, pos)
        tap(pos, number, "attn", s.attn)
        ops.q4_matvec(s.out, weights.o_proj.d, weights.o_proj.qs, s.attn.reshape(1, -1))
        ops.add(s.ores, s.x, s.out)
        tap(pos, number, "ores", s.ores)

    def _keys(self, number: int, weights: Layer, pos: int, cache: KVCache, tap: Tap) -> None:
        """K's chain: projection, head norm, RoPE, int8 rows into the cache."""
        s, ops = self.scratch, self.ops
        ops.q4_matvec(s.kraw.reshape(1, -1), weights.k_proj.d, weights.k_proj.qs, s.nrm)
        tap(pos, number, "kraw", s.kraw)
        ops.headnorm(s.knorm, s.kraw, weights.k_norm, self.eps)
        tap(pos, number, "knorm", s.knorm)
        ops.rope(s.kturned, s.knorm, self.inv_freq, pos)
        k, ks = cache.k[number], cache.ks[number]
        ops.quant8(k[pos : pos + 1], ks[pos : pos + 1], s.kturned)
        tap(pos, number, "k", k[pos])
        tap(pos, number, "ks", ks[pos])

    def _ffn(self, number: int, weights: Layer, pos: int, tap: Tap) -> None:
        """Router, chosen experts, combine: from ores to x."""
        s, ops = self.scratch, self.ops
        ops.rmsnorm(s.fnrm, s.ores, weights.ffn_norm, self.eps)
        tap(pos, number, "fnrm", s.fnrm)
        ops.f32_matvec(s.rlogits, weights.router, s.fnrm)
        tap(pos, number, "rlogits", s.rlogits)
        ops.router_topk(s.ids, s.probs, s.rlogits, self.config.norm_topk_prob)
        tap(pos, number, "topk", s.ids)
        tap(pos, number, "topp", s.probs)
        # The input is quantised once and shared by the chosen experts.
        ops.quant16(s.in16[0], s.in16_scale[0], s.fnrm)
        shared = (s.ids, s.in16, s.in16_scale)
        ops.expert_matvec(s.gate, weights.gate.d, weights.gate.qs, *shared)
        tap(pos, number, "gate", s.gate)
        ops.expert_matvec(s.up, weights.up.d, weights.up.qs, *shared)
        tap(pos, number, "up", s.up)
        ops.swiglu(s.act[0], s.gate[0], s.up[0])
        tap(pos, number, "act", s.act)
        ops.quant16(s.act16[0], s.act16_scale[0], s.act[0])
        chosen = (s.ids, s.act16, s.act16_scale)
        ops.expert_matvec(s.down, weights.down.d, weights.down.qs, *chosen)
        tap(pos, number, "down", s.down)
        ops.combine(s.x, s.ores, s.down, s.probs)
