"""The MoE and dense families on the CPU: the order of the ops in one forward. Contract section 2."""

from __future__ import annotations

import numpy as np

from parity.model.config import ModelConfig
from parity_cpu.cache import KVCache
from parity_cpu.ops.add import add
from parity_cpu.ops.attention_f32 import attention_f32
from parity_cpu.ops.attention_int8 import attention_int8
from parity_cpu.ops.combine import combine
from parity_cpu.ops.f32_matvec import f32_matvec
from parity_cpu.ops.headnorm import headnorm
from parity_cpu.ops.norm_tree import norm_tree
from parity_cpu.ops.quant8 import quant8
from parity_cpu.ops.rmsnorm import rmsnorm
from parity_cpu.ops.rope import rope
from parity_cpu.ops.router_topk import router_topk
from parity_cpu.ops.router_tree import router_tree
from parity_cpu.ops.swiglu import swiglu
from parity_cpu.products import ExpertInput, embedding, experts, folds, matvec
from parity_cpu.tap import Tap
from parity_cpu.variants import FOLD_P, NORM_TREE, ROUTER_TREE
from parity_cpu.weights import Layer, layer, matrix


def _f32(*shape: int) -> np.ndarray:
    return np.empty(shape, np.float32)


class Decoder:
    """Forward passes over loaded tensors. Arrays have a leading axis of M rows; here M = 1.

    ``variants``: mask of ``parity.variants.variant_mask``; 0 is the exact tier.
    """

    def __init__(self, config: ModelConfig, tensors: dict[str, np.ndarray], variants: int) -> None:
        self.config, self.variants = config, variants
        self.eps = np.float32(config.eps)
        self.sm_scale = np.float32(config.sm_scale)
        self.inv_freq = tensors["inv_freq"]
        self.embed = matrix(tensors, "embed")
        self.layers = [layer(tensors, number) for number in range(config.layers)]
        self.final_norm = tensors["final_norm"]
        self.lm_head = matrix(tensors, "lm_head")

    def forward(self, token: int, pos: int, cache: KVCache, tap: Tap) -> np.ndarray:
        """One token at ``pos``; writes row ``pos`` of ``cache``. Returns logits (1, vocab)."""
        config = self.config
        x = _f32(1, config.hidden)
        embedding(x, self.embed, np.array([token], np.int32))
        for number, weights in enumerate(self.layers):
            ores = self._attention(number, weights, x, pos, cache, tap)
            x = self._ffn(number, weights, ores, pos, tap)
            tap(pos, number, "x", x[0])
        normed = self._norm(x, self.final_norm)
        tap(pos, None, "final_normed", normed[0])
        logits = _f32(1, config.vocab)
        matvec(logits, self.lm_head, normed, self.variants)
        tap(pos, None, "logits", logits[0])
        return logits

    def _norm(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        (norm_tree if self.variants & NORM_TREE else rmsnorm)(out, x, w, self.eps, self.variants)
        return out

    def _headnorm(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        if self.variants & NORM_TREE:
            heads = (out.reshape(-1, x.shape[2]), x.reshape(-1, x.shape[2]))
            norm_tree(*heads, w, self.eps, self.variants)
        else:
            headnorm(out, x, w, self.eps, self.variants)
        return out

    def _attention(
        self, number: int, weights: Layer, x: np.ndarray, pos: int, cache: KVCache, tap: Tap
    ) -> np.ndarray:
        """nrm .. ores of one layer; returns ores (1, hidden)."""
        nrm = self._norm(x, weights.attn_norm)
        tap(pos, number, "nrm", nrm[0])
        self._keys(number, weights, nrm, pos, cache, tap)
        # V's chain: projection, then the cache's rows.
        value = _f32(1, self.config.n_kv, self.config.head_dim)
        matvec(value.reshape(1, -1), weights.v_proj, nrm, self.variants)
        self._store(number, "v", value, pos, cache, tap)
        # Q's chain: projection, head norm, RoPE.
        query = _f32(1, self.config.n_q, self.config.head_dim)
        matvec(query.reshape(1, -1), weights.q_proj, nrm, self.variants)
        turned = np.empty_like(query)
        normed = self._headnorm(query, weights.q_norm)
        rope(turned, normed, self.inv_freq, pos, self.variants)
        tap(pos, number, "qrope", turned[0])
        attn = self._attend(number, turned, pos, cache)
        tap(pos, number, "attn", attn[0])
        out, ores = np.empty_like(x), np.empty_like(x)
        matvec(out, weights.o_proj, attn.reshape(1, -1), self.variants)
        add(ores, x, out)
        tap(pos, number, "ores", ores[0])
        return ores

    def _keys(
        self, number: int, weights: Layer, nrm: np.ndarray, pos: int, cache: KVCache, tap: Tap
    ) -> None:
        """K's chain: projection, head norm, RoPE, then the cache's rows."""
        kraw = _f32(1, self.config.n_kv, self.config.head_dim)
        matvec(kraw.reshape(1, -1), weights.k_proj, nrm, self.variants)
        tap(pos, number, "kraw", kraw[0])
        knorm = self._headnorm(kraw, weights.k_norm)
        tap(pos, number, "knorm", knorm[0])
        turned = np.empty_like(knorm)
        rope(turned, knorm, self.inv_freq, pos, self.variants)
        self._store(number, "k", turned, pos, cache, tap)

    def _store(
        self, number: int, part: str, x: np.ndarray, pos: int, cache: KVCache, tap: Tap
    ) -> None:
        """Write row ``pos`` of K or V: int8 with its scale, or f32 as it is (contract 1.6)."""
        rows = getattr(cache, part)[number]
        if not cache.int8:
            rows[pos] = x[0]
            tap(pos, number, part, rows[pos])
            return
        scales = getattr(cache, f"{part}s")[number]
        quant8(rows[pos : pos + 1], scales[pos : pos + 1], x, self.variants)
        tap(pos, number, part, rows[pos])
        tap(pos, number, f"{part}s", scales[pos])

    def _attend(self, number: int, q: np.ndarray, pos: int, cache: KVCache) -> np.ndarray:
        """Attention of the query over rows 0 .. pos of the cache (contract 1.8)."""
        out = np.empty_like(q)
        k, v = cache.k[number], cache.v[number]
        if not cache.int8:
            attention_f32(out, q, k, v, self.sm_scale, pos, self.variants)
            return out
        q8, q_scale = np.empty(q.shape, np.int8), _f32(1, self.config.n_q)
        quant8(q8, q_scale, q, self.variants)
        ks, vs = cache.ks[number], cache.vs[number]
        attention_int8(out, q8, q_scale, k, ks, v, vs, self.sm_scale, pos, self.variants)
        return out

    def _ffn(self, number: int, weights: Layer, ores: np.ndarray, pos: int, tap: Tap) -> np.ndarray:
        """The FFN and the residual; returns x (1, hidden)."""
        fnrm = self._norm(ores, weights.ffn_norm)
        tap(pos, number, "fnrm", fnrm[0])
        if weights.router is None:
            return self._dense(number, weights, ores, fnrm, pos, tap)
        return self._moe(number, weights, weights.router, ores, fnrm, pos, tap)

    def _dense(
        self, number: int, weights: Layer, ores: np.ndarray, fnrm: np.ndarray, pos: int, tap: Tap
    ) -> np.ndarray:
        """swiglu by storage."""
        gate, up, act = (_f32(1, self.config.inter) for _ in range(3))
        matvec(gate, weights.gate, fnrm, self.variants)
        tap(pos, number, "gate", gate[0])
        matvec(up, weights.up, fnrm, self.variants)
        tap(pos, number, "up", up[0])
        swiglu(act, gate, up, self.variants)
        tap(pos, number, "act", act[0])
        down, x = np.empty_like(ores), np.empty_like(ores)
        matvec(down, weights.down, act, self.variants)
        tap(pos, number, "down", down[0])
        add(x, ores, down)
        return x

    def _moe(
        self,
        number: int,
        weights: Layer,
        router: np.ndarray,
        ores: np.ndarray,
        fnrm: np.ndarray,
        pos: int,
        tap: Tap,
    ) -> np.ndarray:
        """Router, chosen experts, combine."""
        config, variants = self.config, self.variants
        ids, probs = self._route(number, router, fnrm, pos, tap)
        gate, up, act = (_f32(1, config.top_k, config.inter) for _ in range(3))
        given = ExpertInput(fnrm.reshape(1, 1, -1), variants)
        experts(gate, weights.gate, ids, probs, given, variants & ~FOLD_P)
        tap(pos, number, "gate", gate[0])
        experts(up, weights.up, ids, probs, given, variants & ~FOLD_P)
        tap(pos, number, "up", up[0])
        swiglu(act[0], gate[0], up[0], variants)
        tap(pos, number, "act", act[0])
        down, x = _f32(1, config.top_k, config.hidden), np.empty_like(ores)
        folded = folds(weights.down, variants)
        experts(down, weights.down, ids, probs, ExpertInput(act, variants), folded)
        tap(pos, number, "down", down[0])
        combine(x, ores, down, probs, folded)
        return x

    def _route(
        self, number: int, router: np.ndarray, fnrm: np.ndarray, pos: int, tap: Tap
    ) -> tuple[np.ndarray, np.ndarray]:
        """ids (1, k) int32 and probs (1, k) f32 of the chosen experts."""
        config = self.config
        rlogits = _f32(1, config.experts)
        if self.variants & ROUTER_TREE:
            router_tree(rlogits, router, fnrm)
        else:
            f32_matvec(rlogits, router, fnrm, self.variants)
        tap(pos, number, "rlogits", rlogits[0])
        ids, probs = np.empty((1, config.top_k), np.int32), _f32(1, config.top_k)
        router_topk(ids, probs, rlogits, config.norm_topk_prob, self.variants)
        tap(pos, number, "topk", ids[0])
        tap(pos, number, "topp", probs[0])
        return ids, probs
