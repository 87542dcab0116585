"""The MoE and dense families on the device: the order of the launches in one forward.

Contract section 2.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.model.config import ModelConfig
from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.cache import KVCache
from parity_cuda.ops import Ops
from parity_cuda.products import FOLD_P, Products, folds
from parity_cuda.scratch import Scratch
from parity_cuda.tap import Tap
from parity_cuda.weights import Layer, layer, matrix

NORM_TREE = variant_mask(["norm_tree"])
ROUTER_TREE = variant_mask(["router_tree"])


class Decoder:
    """Forward passes over uploaded tensors. Buffers have a leading axis of M rows; here M = 1.

    ``variants``: mask of ``parity.variants.variant_mask``; 0 is the exact tier.
    """

    def __init__(
        self,
        backend: Backend,
        config: ModelConfig,
        tensors: Mapping[str, Buffer],
        positions: int,
        variants: int,
    ) -> None:
        self.backend, self.config, self.variants = backend, config, variants
        self.ops = Ops(backend)
        self.products = Products(self.ops)
        self.scratch = Scratch(backend, config, positions, variants)
        self.eps = np.float32(config.eps)
        self.sm_scale = np.float32(config.sm_scale)
        self.inv_freq = tensors["inv_freq"]
        self.embed = matrix(tensors, "embed")
        self.layers = [layer(tensors, number) for number in range(config.layers)]
        self.final_norm = tensors["final_norm"]
        self.lm_head = matrix(tensors, "lm_head")

    def forward(self, token: int, pos: int, cache: KVCache, tap: Tap, logits: Buffer) -> None:
        """One token at ``pos``; writes row ``pos`` of ``cache`` and logits (1, vocab)."""
        s = self.scratch
        self.backend.write(s.token, np.array([token], np.int32))
        self.products.embedding(s.x, self.embed, s.token)
        for number, weights in enumerate(self.layers):
            self._attention(number, weights, pos, cache, tap)
            self._ffn(number, weights, pos, tap)
            tap(pos, number, "x", s.x)
        self._norm(s.nrm, s.x, self.final_norm)
        tap(pos, None, "final_normed", s.nrm)
        self.products.matvec(logits, self.lm_head, s.nrm, self.variants)
        tap(pos, None, "logits", logits)

    def _norm(self, out: Buffer, x: Buffer, w: Buffer) -> None:
        op = self.ops.norm_tree if self.variants & NORM_TREE else self.ops.rmsnorm
        op(out, x, w, self.eps, self.variants)

    def _headnorm(self, out: Buffer, x: Buffer, w: Buffer) -> None:
        if self.variants & NORM_TREE:
            heads = (out.reshape(-1, x.shape[2]), x.reshape(-1, x.shape[2]))
            self.ops.norm_tree(*heads, w, self.eps, self.variants)
        else:
            self.ops.headnorm(out, x, w, self.eps, self.variants)

    def _attention(self, number: int, weights: Layer, pos: int, cache: KVCache, tap: Tap) -> None:
        """nrm .. ores of one layer, from x to ores."""
        s, ops, matvec = self.scratch, self.ops, self.products.matvec
        self._norm(s.nrm, s.x, weights.attn_norm)
        tap(pos, number, "nrm", s.nrm)
        self._keys(number, weights, pos, cache, tap)
        # V's chain: projection, then the cache's rows.
        matvec(s.value.reshape(1, -1), weights.v_proj, s.nrm, self.variants)
        self._store(number, "v", s.value, pos, cache, tap)
        # Q's chain: projection, head norm, RoPE.
        matvec(s.query.reshape(1, -1), weights.q_proj, s.nrm, self.variants)
        self._headnorm(s.qnorm, s.query, weights.q_norm)
        ops.rope(s.qturned, s.qnorm, self.inv_freq, pos, self.variants)
        tap(pos, number, "qrope", s.qturned)
        self._attend(number, pos, cache)
        tap(pos, number, "attn", s.attn)
        matvec(s.out, weights.o_proj, s.attn.reshape(1, -1), self.variants)
        ops.add(s.ores, s.x, s.out)
        tap(pos, number, "ores", s.ores)

    def _keys(self, number: int, weights: Layer, pos: int, cache: KVCache, tap: Tap) -> None:
        """K's chain: projection, head norm, RoPE, then the cache's rows."""
        s = self.scratch
        self.products.matvec(s.kraw.reshape(1, -1), weights.k_proj, s.nrm, self.variants)
        tap(pos, number, "kraw", s.kraw)
        self._headnorm(s.knorm, s.kraw, weights.k_norm)
        tap(pos, number, "knorm", s.knorm)
        self.ops.rope(s.kturned, s.knorm, self.inv_freq, pos, self.variants)
        self._store(number, "k", s.kturned, pos, cache, tap)

    def _store(self, number: int, part: str, x: Buffer, pos: int, cache: KVCache, tap: Tap) -> None:
        """Write row ``pos`` of K or V: int8 with its scale, or f32 as it is (contract 1.6)."""
        rows = getattr(cache, part)[number]
        if not cache.int8:
            self.backend.copy(rows[pos], x)
            tap(pos, number, part, rows[pos])
            return
        scales = getattr(cache, f"{part}s")[number]
        self.ops.quant8(rows[pos : pos + 1], scales[pos : pos + 1], x, self.variants)
        tap(pos, number, part, rows[pos])
        tap(pos, number, f"{part}s", scales[pos])

    def _attend(self, number: int, pos: int, cache: KVCache) -> None:
        """Attention of the query over rows 0 .. pos of the cache (contract 1.8)."""
        s, variants = self.scratch, self.variants
        k, v = cache.k[number], cache.v[number]
        if not cache.int8:
            args = (s.attn, s.qturned, k, v, self.sm_scale, pos, variants, s.scores)
            self.ops.attention_f32(*args)
            return
        self.ops.quant8(s.q8, s.q_scale, s.qturned, variants)
        rows = (k, cache.ks[number], v, cache.vs[number])
        query = (s.attn, s.q8, s.q_scale)
        self.ops.attention_int8(*query, *rows, self.sm_scale, pos, variants, s.scores)

    def _ffn(self, number: int, weights: Layer, pos: int, tap: Tap) -> None:
        """The FFN and the residual: from ores to x."""
        s = self.scratch
        self._norm(s.fnrm, s.ores, weights.ffn_norm)
        tap(pos, number, "fnrm", s.fnrm)
        if weights.router is None:
            self._dense(number, weights, pos, tap)
        else:
            self._moe(number, weights, weights.router, pos, tap)

    def _dense(self, number: int, weights: Layer, pos: int, tap: Tap) -> None:
        """swiglu by storage."""
        s, matvec = self.scratch, self.products.matvec
        matvec(s.gate, weights.gate, s.fnrm, self.variants)
        tap(pos, number, "gate", s.gate)
        matvec(s.up, weights.up, s.fnrm, self.variants)
        tap(pos, number, "up", s.up)
        self.ops.swiglu(s.act, s.gate, s.up, self.variants)
        tap(pos, number, "act", s.act)
        matvec(s.down, weights.down, s.act, self.variants)
        tap(pos, number, "down", s.down)
        self.ops.add(s.x, s.ores, s.down)

    def _moe(self, number: int, weights: Layer, router: Buffer, pos: int, tap: Tap) -> None:
        """Router, chosen experts, combine."""
        s, ops, products, variants = self.scratch, self.ops, self.products, self.variants
        self._route(number, router, pos, tap)
        # The input is quantised once and shared by the chosen experts.
        products.quantise(s.given, weights.gate, variants)
        chosen = (s.ids, s.probs)
        products.experts(s.gate, weights.gate, *chosen, s.given, variants & ~FOLD_P)
        tap(pos, number, "gate", s.gate)
        products.experts(s.up, weights.up, *chosen, s.given, variants & ~FOLD_P)
        tap(pos, number, "up", s.up)
        ops.swiglu(s.act[0], s.gate[0], s.up[0], variants)
        tap(pos, number, "act", s.act)
        products.quantise(s.made, weights.down, variants)
        folded = folds(weights.down, variants)
        products.experts(s.down, weights.down, *chosen, s.made, folded)
        tap(pos, number, "down", s.down)
        ops.combine(s.x, s.ores, s.down, s.probs, folded)

    def _route(self, number: int, router: Buffer, pos: int, tap: Tap) -> None:
        """ids and probs of the chosen experts."""
        s, ops = self.scratch, self.ops
        if self.variants & ROUTER_TREE:
            ops.router_tree(s.rlogits, router, s.fnrm)
        else:
            ops.f32_matvec(s.rlogits, router, s.fnrm, self.variants)
        tap(pos, number, "rlogits", s.rlogits)
        ops.router_topk(s.ids, s.probs, s.rlogits, self.config.norm_topk_prob, self.variants)
        tap(pos, number, "topk", s.ids)
        tap(pos, number, "topp", s.probs)
