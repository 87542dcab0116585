"""One decode step after another with the scalar ops: every dumped field (contract 2).

Both families and both storages: what a matrix is made of decides which op multiplies (contract
1.0), a layer without a router is dense, and a model without a Q4_0 matrix has an f32 KV cache.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tests.oracle.check import oracle

Array = np.ndarray[Any, np.dtype[Any]]
Fields = OrderedDict[str, Array]
Ops = Callable[[str, tuple[Any, ...]], tuple[Array, ...]]


class Config(Protocol):
    """The numbers of a model; any object with these attributes will do."""

    layers: int
    hidden: int
    n_q: int
    n_kv: int
    head_dim: int
    top_k: int
    eps: float
    norm_topk_prob: bool


def softmax_scale(head_dim: int) -> np.float32:
    """1/sqrt(head_dim) in binary64, then rounded to binary32 once (contract, preamble)."""
    return np.float32(1.0 / math.sqrt(head_dim))


def head_name(tensors: Mapping[str, Array]) -> str:
    """The output matrix: a tied head has none of its own (contract 1.0)."""
    own = any(name.partition(".")[0] == "lm_head" for name in tensors)
    return "lm_head" if own else "embed"


class OracleModel:
    """Runs a model token by token, row after row of the KV cache.

    tensors maps names (`embed.d`, `layers.0.q_proj.qs` or `layers.0.q_proj`,
    `layers.0.router`, ...) to arrays in the storage the scalar ops take. ops(name, inputs) gives
    an op's outputs: the scalar oracle's, unless a test plants others.
    """

    def __init__(self, config: Config, tensors: Mapping[str, Array], ops: Ops = oracle) -> None:
        self.config = config
        self.tensors = tensors
        self.ops = ops
        self.eps = np.float32(config.eps)
        self.sm_scale = softmax_scale(config.head_dim)
        self.pos = 0
        self.int8 = any(name.endswith(".qs") for name in tensors)
        parts = ("k", "ks", "v", "vs") if self.int8 else ("k", "v")
        self.cache: list[dict[str, list[Array]]] = [
            {name: [] for name in parts} for _ in range(config.layers)
        ]

    def step(self, token: int) -> Fields:
        """Feed one token; returns key -> array, in dump order, optional FFN fields included."""
        x = self._embed(np.array([token], np.int32))
        out: Fields = OrderedDict()
        for layer in range(self.config.layers):
            fields, x = self._layer(layer, x)
            for name, value in fields.items():
                out[f"t{self.pos}_l{layer}_{name}"] = value
        normed = self._norm(x, "final_norm")
        out[f"t{self.pos}_final_normed"] = normed[0]
        out[f"t{self.pos}_logits"] = self._product(head_name(self.tensors), normed)[0]
        self.pos += 1
        return out

    def _op(self, name: str, *args: Any) -> Array:
        """The only output of an op."""
        (out,) = self.ops(name, args)
        return out

    def _stored(self, name: str) -> tuple[Array, ...]:
        """The arrays of a matrix: f32, or scales and nibbles."""
        if name in self.tensors:
            return (self.tensors[name],)
        return self.tensors[f"{name}.d"], self.tensors[f"{name}.qs"]

    def _embed(self, ids: Array) -> Array:
        stored = self._stored("embed")
        return self._op("embed_f32" if len(stored) == 1 else "embed", *stored, ids)

    def _product(self, name: str, x: Array) -> Array:
        stored = self._stored(name)
        return self._op("f32_matvec" if len(stored) == 1 else "q4_matvec", *stored, x)

    def _norm(self, x: Array, name: str) -> Array:
        return self._op("rmsnorm", x, self.tensors[name], self.eps)

    def _head_norm(self, heads: Array, name: str) -> Array:
        return self._op("headnorm", heads, self.tensors[name], self.eps)

    def _router(self, layer: int, x: Array) -> Array:
        return self._op("f32_matvec", self.tensors[f"layers.{layer}.router"], x)

    def _layer(self, layer: int, x: Array) -> tuple[Fields, Array]:
        fields: Fields = OrderedDict()
        attn = self._attention(layer, x, fields)
        projected = self._product(f"layers.{layer}.o_proj", attn)
        ores = self._op("add", x, projected)
        fields["ores"] = ores[0]
        x = self.ffn(layer, ores, fields)
        fields["x"] = x[0]
        return fields, x

    def _attention(self, layer: int, x: Array, fields: Fields) -> Array:
        """K's chain, V, then Q's chain and the attention itself; f32[1, n_q * head_dim]."""
        config, prefix = self.config, f"layers.{layer}"
        nrm = self._norm(x, f"{prefix}.attn_norm")
        fields["nrm"] = nrm[0]
        kraw = self._product(f"{prefix}.k_proj", nrm).reshape(1, config.n_kv, config.head_dim)
        fields["kraw"] = kraw[0]
        knorm = self._head_norm(kraw, f"{prefix}.k_norm")
        fields["knorm"] = knorm[0]
        self._keep(layer, "k", self._turned(knorm), fields)
        self._keep(layer, "v", self._product(f"{prefix}.v_proj", nrm).reshape(kraw.shape), fields)
        qraw = self._product(f"{prefix}.q_proj", nrm).reshape(1, config.n_q, config.head_dim)
        qrope = self._turned(self._head_norm(qraw, f"{prefix}.q_norm"))
        fields["qrope"] = qrope[0]
        attn = self._attend(layer, qrope)
        fields["attn"] = attn[0]
        return attn.reshape(1, config.n_q * config.head_dim)

    def _turned(self, heads: Array) -> Array:
        return self._op("rope", heads, self.tensors["inv_freq"], self.pos)

    def _keep(self, layer: int, part: str, heads: Array, fields: Fields) -> None:
        """Append a row of K or V to the cache: int8 with its scales, or as it is (1.0, 1.6)."""
        names = (part, f"{part}s") if self.int8 else (part,)
        rows = self.ops("quant8", (heads,)) if self.int8 else (heads,)
        for name, value in zip(names, rows, strict=True):
            fields[name] = value[0]
            self.cache[layer][name].append(value[0])

    def _attend(self, layer: int, qrope: Array) -> Array:
        kv = {name: np.stack(rows) for name, rows in self.cache[layer].items()}
        if not self.int8:
            return self._op("attention_f32", qrope, kv["k"], kv["v"], self.sm_scale, self.pos)
        query = self.ops("quant8", (qrope,))
        rows = (kv["k"], kv["ks"], kv["v"], kv["vs"])
        return self._op("attention_int8", *query, *rows, self.sm_scale, self.pos)

    def ffn(self, layer: int, ores: Array, fields: Fields) -> Array:
        """Dense or experts, on 1.1(ores); returns x = ores + ffn, f32[1, hidden]."""
        fnrm = self._norm(ores, f"layers.{layer}.ffn_norm")
        fields["fnrm"] = fnrm[0]
        dense = f"layers.{layer}.router" not in self.tensors
        return (self._dense if dense else self._moe)(layer, ores, fnrm, fields)

    def _dense(self, layer: int, ores: Array, fnrm: Array, fields: Fields) -> Array:
        prefix = f"layers.{layer}.mlp"
        gate, up = (self._product(f"{prefix}.{name}", fnrm) for name in ("gate", "up"))
        act = self._op("swiglu", gate, up)
        down = self._product(f"{prefix}.down", act)
        for name, value in (("gate", gate), ("up", up), ("act", act), ("down", down)):
            fields[name] = value[0]
        return self._op("add", ores, down)

    def _moe(self, layer: int, ores: Array, fnrm: Array, fields: Fields) -> Array:
        config, prefix = self.config, f"layers.{layer}"
        rlogits = self._router(layer, fnrm)
        ids, topp = self.ops("router_topk", (rlogits, config.top_k, config.norm_topk_prob))
        for name, value in (("rlogits", rlogits), ("topk", ids), ("topp", topp)):
            fields[name] = value[0]
        # One input for all ranks: G = 1.
        gate = self._experts(f"{prefix}.experts.gate", ids, topp, fnrm[:, None])
        up = self._experts(f"{prefix}.experts.up", ids, topp, fnrm[:, None])
        act = self._op("swiglu", gate[0], up[0])[None]
        # One input per rank: G = k.
        down = self._experts(f"{prefix}.experts.down", ids, topp, act)
        for name, value in (("gate", gate), ("up", up), ("act", act), ("down", down)):
            fields[name] = value[0]
        if f"{prefix}.shared_gate" not in self.tensors:
            return self._op("combine", ores, down, topp)
        gs, sh = self._shared(prefix, fnrm)
        fields["gs"], fields["sh"] = gs[0], sh[0]
        return self._op("combine_shared", ores, down, topp, gs, sh)

    def _shared(self, prefix: str, fnrm: Array) -> tuple[Array, Array]:
        """The shared expert's gate f32[1, 1] by 1.5, and what it gives f32[1, hidden] by 1.3 (1.5
        where its matrices are f32)."""
        weight = self.tensors[f"{prefix}.shared_gate"]
        gs = self._op("shared_gate", self._op("f32_matvec", weight, fnrm))
        gate, up = (self._product(f"{prefix}.shared.{name}", fnrm) for name in ("gate", "up"))
        return gs, self._product(f"{prefix}.shared.down", self._op("swiglu", gate, up))

    def _experts(self, name: str, ids: Array, topp: Array, x: Array) -> Array:
        """Chosen experts times x f32[1, G, n]: by 1.4 in int16, or by 1.5 as it is.

        ``topp`` is for variants; the exact tier weighs in the sum (``combine``).
        """
        stored = self._stored(name)
        if len(stored) == 1:
            return self._op("expert_f32_matvec", *stored, ids, x)
        q, s_a = self.ops("quant16", (x[0],))
        return self._op("expert_matvec", *stored, ids, q[None], s_a[None])
