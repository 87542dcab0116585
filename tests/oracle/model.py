"""One MoE decode step after another with the scalar ops: every dumped field (contract 2)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from tests.oracle import scalar

Array = np.ndarray[Any, np.dtype[Any]]
Fields = OrderedDict[str, Array]


class MoeConfig(Protocol):
    """The numbers of a MoE model; any object with these attributes will do."""

    layers: int
    hidden: int
    n_q: int
    n_kv: int
    head_dim: int
    rot_dim: int
    inter: int
    experts: int
    top_k: int
    vocab: int
    theta: float
    eps: float
    norm_topk_prob: bool


def softmax_scale(head_dim: int) -> np.float32:
    """1/sqrt(head_dim) in binary64, then rounded to binary32 once (contract, preamble)."""
    return np.float32(1.0 / math.sqrt(head_dim))


class OracleModel:
    """Runs the MoE family token by token on an int8 KV cache.

    tensors maps names (`embed.d`, `layers.0.q_proj.qs`, `layers.0.router`, ...) to arrays in
    the storage the scalar ops take.
    """

    def __init__(self, config: MoeConfig, tensors: Mapping[str, Array]) -> None:
        self.config = config
        self.tensors = tensors
        self.eps = np.float32(config.eps)
        self.sm_scale = softmax_scale(config.head_dim)
        self.pos = 0
        self.cache: list[dict[str, list[Array]]] = [
            {name: [] for name in ("k", "ks", "v", "vs")} for _ in range(config.layers)
        ]

    def step(self, token: int) -> Fields:
        """Feed one token; returns key -> array, in dump order, optional FFN fields included."""
        ids = np.array([token], np.int32)
        x = scalar.embed(self.tensors["embed.d"], self.tensors["embed.qs"], ids)
        out: Fields = OrderedDict()
        for layer in range(self.config.layers):
            fields, x = self._layer(layer, x)
            for name, value in fields.items():
                out[f"t{self.pos}_l{layer}_{name}"] = value
        normed = scalar.rmsnorm(x, self.tensors["final_norm"], self.eps)
        out[f"t{self.pos}_final_normed"] = normed[0]
        out[f"t{self.pos}_logits"] = self._q4("lm_head", normed)[0]
        self.pos += 1
        return out

    def _q4(self, name: str, x: Array) -> Array:
        return scalar.q4_matvec(self.tensors[f"{name}.d"], self.tensors[f"{name}.qs"], x)

    def _layer(self, layer: int, x: Array) -> tuple[Fields, Array]:
        fields: Fields = OrderedDict()
        attn = self._attention(layer, x, fields)
        projected = self._q4(f"layers.{layer}.o_proj", attn)
        ores = scalar.add(x, projected)
        fields["ores"] = ores[0]
        x = self._ffn(layer, ores, fields)
        fields["x"] = x[0]
        return fields, x

    def _attention(self, layer: int, x: Array, fields: Fields) -> Array:
        """K's chain, V, then Q's chain and the attention itself; f32[1, n_q * head_dim]."""
        config, prefix = self.config, f"layers.{layer}"
        nrm = scalar.rmsnorm(x, self.tensors[f"{prefix}.attn_norm"], self.eps)
        fields["nrm"] = nrm[0]
        kv_shape = (1, config.n_kv, config.head_dim)
        kraw = self._q4(f"{prefix}.k_proj", nrm).reshape(kv_shape)
        knorm = scalar.headnorm(kraw, self.tensors[f"{prefix}.k_norm"], self.eps)
        k, ks = scalar.quant8(scalar.rope(knorm, self.tensors["inv_freq"], self.pos))
        v, vs = scalar.quant8(self._q4(f"{prefix}.v_proj", nrm).reshape(kv_shape))
        for name, value in (("kraw", kraw), ("knorm", knorm), ("k", k), ("ks", ks)):
            fields[name] = value[0]
        for name, value in (("v", v), ("vs", vs)):
            fields[name] = value[0]
        for name, rows in self.cache[layer].items():
            rows.append(fields[name])
        qraw = self._q4(f"{prefix}.q_proj", nrm).reshape(1, config.n_q, config.head_dim)
        qnorm = scalar.headnorm(qraw, self.tensors[f"{prefix}.q_norm"], self.eps)
        qrope = scalar.rope(qnorm, self.tensors["inv_freq"], self.pos)
        fields["qrope"] = qrope[0]
        attn = self._attend(layer, qrope)
        fields["attn"] = attn[0]
        return attn.reshape(1, config.n_q * config.head_dim)

    def _attend(self, layer: int, qrope: Array) -> Array:
        q, q_scale = scalar.quant8(qrope)
        kv = {name: np.stack(rows) for name, rows in self.cache[layer].items()}
        return scalar.attention_int8(
            q, q_scale, kv["k"], kv["ks"], kv["v"], kv["vs"], self.sm_scale, self.pos
        )

    def _expert(self, name: str, ids: Array, q: Array, s_a: Array) -> Array:
        return scalar.expert_matvec(
            self.tensors[f"{name}.d"], self.tensors[f"{name}.qs"], ids, q, s_a
        )

    def _ffn(self, layer: int, ores: Array, fields: Fields) -> Array:
        """The chosen experts on 1.1(ores); returns x = ores + ffn, f32[1, hidden]."""
        config, prefix = self.config, f"layers.{layer}"
        fnrm = scalar.rmsnorm(ores, self.tensors[f"{prefix}.ffn_norm"], self.eps)
        rlogits = scalar.f32_matvec(self.tensors[f"{prefix}.router"], fnrm)
        ids, topp = scalar.router_topk(rlogits, config.top_k, config.norm_topk_prob)
        q, s_a = scalar.quant16(fnrm)
        # One input for all ranks: G = 1.
        gate = self._expert(f"{prefix}.experts.gate", ids, q[:, None], s_a[:, None])
        up = self._expert(f"{prefix}.experts.up", ids, q[:, None], s_a[:, None])
        act = scalar.swiglu(gate, up)
        # One input per rank: G = k.
        q, s_a = scalar.quant16(act[0])
        down = self._expert(f"{prefix}.experts.down", ids, q[None], s_a[None])
        for name, value in (("fnrm", fnrm), ("rlogits", rlogits), ("topk", ids), ("topp", topp)):
            fields[name] = value[0]
        for name, value in (("gate", gate), ("up", up), ("act", act), ("down", down)):
            fields[name] = value[0]
        return scalar.combine(ores, down, topp)
