"""The MoE family on the CPU: the order of the ops in one forward. Contract section 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.model.config import ModelConfig
from parity_cpu.ops.add import add
from parity_cpu.ops.attention_int8 import attention_int8
from parity_cpu.ops.combine import combine
from parity_cpu.ops.embed import embed
from parity_cpu.ops.expert_matvec import expert_matvec
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.headnorm import headnorm
from parity_cpu.ops.q4_matvec import q4_matvec
from parity_cpu.ops.quant8 import quant8
from parity_cpu.ops.quant16 import quant16
from parity_cpu.ops.rmsnorm import rmsnorm
from parity_cpu.ops.rope import rope
from parity_cpu.ops.router_topk import router_topk
from parity_cpu.ops.swiglu import swiglu
from parity_cpu.tap import Tap
from parity_cpu.weights import Layer, layer, q4

STATE_FIELDS = ("k", "ks", "v", "vs")


@dataclass(frozen=True)
class KVCache:
    """int8 K and V of every layer, [layers, positions, n_kv, hd], and their f32 scales."""

    k: np.ndarray
    ks: np.ndarray
    v: np.ndarray
    vs: np.ndarray

    @classmethod
    def empty(cls, config: ModelConfig, positions: int) -> KVCache:
        """Zeroed rows for ``positions`` positions."""
        scales = (config.layers, positions, config.n_kv)
        rows = (*scales, config.head_dim)
        return cls(
            np.zeros(rows, np.int8),
            np.zeros(scales, np.float32),
            np.zeros(rows, np.int8),
            np.zeros(scales, np.float32),
        )


def _f32(*shape: int) -> np.ndarray:
    return np.empty(shape, np.float32)


class Moe:
    """Forward passes over loaded tensors. Arrays have a leading axis of M rows; here M = 1."""

    def __init__(self, config: ModelConfig, tensors: dict[str, np.ndarray]) -> None:
        self.config = config
        self.eps = np.float32(config.eps)
        self.sm_scale = np.float32(config.sm_scale)
        self.inv_freq = tensors["inv_freq"]
        self.embed = q4(tensors, "embed")
        self.layers = [layer(tensors, number) for number in range(config.layers)]
        self.final_norm = tensors["final_norm"]
        self.lm_head = q4(tensors, "lm_head")

    def forward(self, token: int, pos: int, cache: KVCache, tap: Tap) -> np.ndarray:
        """One token at ``pos``; writes row ``pos`` of ``cache``. Returns logits (1, vocab)."""
        config = self.config
        x = _f32(1, config.hidden)
        embed(x, self.embed.d, self.embed.qs, np.array([token], np.int32))
        for number, weights in enumerate(self.layers):
            ores = self._attention(number, weights, x, pos, cache, tap)
            x = self._ffn(number, weights, ores, pos, tap)
            tap(pos, number, "x", x[0])
        normed = _f32(1, config.hidden)
        rmsnorm(normed, x, self.final_norm, self.eps)
        tap(pos, None, "final_normed", normed[0])
        logits = _f32(1, config.vocab)
        q4_matvec(logits, self.lm_head.d, self.lm_head.qs, normed)
        tap(pos, None, "logits", logits[0])
        return logits

    def _attention(
        self, number: int, weights: Layer, x: np.ndarray, pos: int, cache: KVCache, tap: Tap
    ) -> np.ndarray:
        """nrm .. ores of one layer; returns ores (1, hidden)."""
        config = self.config
        q_shape = (1, config.n_q, config.head_dim)
        kv_shape = (1, config.n_kv, config.head_dim)
        nrm = np.empty_like(x)
        rmsnorm(nrm, x, weights.attn_norm, self.eps)
        tap(pos, number, "nrm", nrm[0])
        self._keys(number, weights, nrm, pos, cache, tap)
        # V's chain: projection, int8 rows.
        value = _f32(*kv_shape)
        q4_matvec(value.reshape(1, -1), weights.v_proj.d, weights.v_proj.qs, nrm)
        v, vs = cache.v[number], cache.vs[number]
        quant8(v[pos : pos + 1], vs[pos : pos + 1], value)
        tap(pos, number, "v", v[pos])
        tap(pos, number, "vs", vs[pos])
        # Q's chain: projection, head norm, RoPE, int8.
        query = _f32(*q_shape)
        q4_matvec(query.reshape(1, -1), weights.q_proj.d, weights.q_proj.qs, nrm)
        normed, turned = _f32(*q_shape), _f32(*q_shape)
        headnorm(normed, query, weights.q_norm, self.eps)
        rope(turned, normed, self.inv_freq, pos)
        tap(pos, number, "qrope", turned[0])
        q8, q_scale = np.empty(q_shape, np.int8), _f32(1, config.n_q)
        quant8(q8, q_scale, turned)
        attn = _f32(*q_shape)
        k, ks = cache.k[number], cache.ks[number]
        attention_int8(attn, q8, q_scale, k, ks, v, vs, self.sm_scale, pos)
        tap(pos, number, "attn", attn[0])
        out, ores = np.empty_like(x), np.empty_like(x)
        q4_matvec(out, weights.o_proj.d, weights.o_proj.qs, attn.reshape(1, -1))
        add(ores, x, out)
        tap(pos, number, "ores", ores[0])
        return ores

    def _keys(
        self, number: int, weights: Layer, nrm: np.ndarray, pos: int, cache: KVCache, tap: Tap
    ) -> None:
        """K's chain: projection, head norm, RoPE, int8 rows into the cache."""
        shape = (1, self.config.n_kv, self.config.head_dim)
        kraw, knorm, turned = _f32(*shape), _f32(*shape), _f32(*shape)
        q4_matvec(kraw.reshape(1, -1), weights.k_proj.d, weights.k_proj.qs, nrm)
        tap(pos, number, "kraw", kraw[0])
        headnorm(knorm, kraw, weights.k_norm, self.eps)
        tap(pos, number, "knorm", knorm[0])
        rope(turned, knorm, self.inv_freq, pos)
        k, ks = cache.k[number], cache.ks[number]
        quant8(k[pos : pos + 1], ks[pos : pos + 1], turned)
        tap(pos, number, "k", k[pos])
        tap(pos, number, "ks", ks[pos])

    def _ffn(self, number: int, weights: Layer, ores: np.ndarray, pos: int, tap: Tap) -> np.ndarray:
        """Router, chosen experts, combine; returns x (1, hidden)."""
        config = self.config
        ranks, inter, hidden = config.top_k, config.inter, config.hidden
        fnrm, rlogits = np.empty_like(ores), _f32(1, config.experts)
        rmsnorm(fnrm, ores, weights.ffn_norm, self.eps)
        tap(pos, number, "fnrm", fnrm[0])
        f32_matvec(rlogits, weights.router, fnrm)
        tap(pos, number, "rlogits", rlogits[0])
        ids, probs = np.empty((1, ranks), np.int32), _f32(1, ranks)
        router_topk(ids, probs, rlogits, config.norm_topk_prob)
        tap(pos, number, "topk", ids[0])
        tap(pos, number, "topp", probs[0])
        # The input is quantised once and shared by the chosen experts.
        q, scale = np.empty((1, hidden), np.int16), _f32(1, hidden // 32)
        quant16(q, scale, fnrm)
        gate, up, act = (_f32(1, ranks, inter) for _ in range(3))
        shared = (ids, q.reshape(1, 1, -1), scale.reshape(1, 1, -1))
        expert_matvec(gate, weights.gate.d, weights.gate.qs, *shared)
        tap(pos, number, "gate", gate[0])
        expert_matvec(up, weights.up.d, weights.up.qs, *shared)
        tap(pos, number, "up", up[0])
        swiglu(act[0], gate[0], up[0])
        tap(pos, number, "act", act[0])
        q, scale = np.empty((1, ranks, inter), np.int16), _f32(1, ranks, inter // 32)
        quant16(q[0], scale[0], act[0])
        down = _f32(1, ranks, hidden)
        expert_matvec(down, weights.down.d, weights.down.qs, ids, q, scale)
        tap(pos, number, "down", down[0])
        x = np.empty_like(ores)
        combine(x, ores, down, probs)
        return x
