"""The hybrid family with the scalar ops, one row after another: every field of contract 3.

``OPS`` names the ops; a test hands in a table with one of them replaced, or overrides a method, to
plant a mistake.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from parity.model.config import ModelConfig
from tests.oracle import hybrid_scalar, scalar, scalar_f32, scalar_shared
from tests.oracle.hybrid_scalar import query_scale
from tests.oracle.model import OracleModel, head_name, softmax_scale

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Fields = OrderedDict[str, Array]
Op = Callable[..., Any]

_SHARED = (
    *(scalar.embed, scalar.rmsnorm, scalar.headnorm, scalar.q4_matvec, scalar.f32_matvec),
    *(scalar.rope, scalar.add, scalar.swiglu, scalar_f32.embed_f32, scalar_f32.attention_f32),
)
_OWN = (
    *(hybrid_scalar.split_gate, hybrid_scalar.sigmoid_gate, hybrid_scalar.silu_gate),
    *(hybrid_scalar.decay_rates, hybrid_scalar.conv_step, hybrid_scalar.l2norm),
    *(hybrid_scalar.delta_gates, hybrid_scalar.delta_step),
)
_EXPERTS = (
    *(scalar.router_topk, scalar.quant16, scalar.expert_matvec, scalar_f32.expert_f32_matvec),
    *(scalar.combine, scalar_shared.shared_gate, scalar_shared.combine_shared),
)
OPS: Mapping[str, Op] = MappingProxyType({op.__name__: op for op in (*_SHARED, *_OWN, *_EXPERTS)})


class HybridModel:
    """Runs the hybrid family token by token, on tensors under the model's names.

    ``kv[layer]``: rows of k and v so far; ``hist[layer]``, ``s[layer]``: the recurrence.
    """

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Array], ops: Mapping[str, Op] = OPS
    ) -> None:
        self.config, self.tensors, self.ops = config, tensors, ops
        self.eps = F(config.eps)
        self.pos = 0
        # 3.3: the FFN is section 2's.
        self.section_2 = OracleModel(config, tensors, self._outputs)
        key_heads, value_heads, key_width, value_width = config.gdn
        self.key_rows = key_heads * key_width
        channels = 2 * self.key_rows + value_heads * value_width
        linear = [layer for layer in range(config.layers) if not self.is_full(layer)]
        self.hist = {layer: np.zeros((3, channels), F) for layer in linear}
        self.s = {layer: np.zeros((value_heads, key_width, value_width), F) for layer in linear}
        self.kv: dict[int, tuple[list[Array], list[Array]]] = {
            layer: ([], []) for layer in range(config.layers) if self.is_full(layer)
        }

    def is_full(self, layer: int) -> bool:
        """Full attention as listed, else when (i + 1) mod full_attention_interval = 0 (1.11)."""
        if self.config.full_layers is not None:
            return layer in self.config.full_layers
        return (layer + 1) % self.config.interval == 0

    def step(self, token: int) -> Fields:
        """Feed one token; key -> array in dump order, with ``s`` and the FFN's fields."""
        out: Fields = OrderedDict()
        x = self._embedding(token)
        for layer in range(self.config.layers):
            fields, x = self._layer(layer, x)
            for name, value in fields.items():
                out[f"t{self.pos}_l{layer}_{name}"] = value
        normed = self.op("rmsnorm", x, self.tensors["final_norm"], self.eps)
        out[f"t{self.pos}_final_normed"] = normed[0]
        out[f"t{self.pos}_logits"] = self.product(head_name(self.tensors), normed)[0]
        self.pos += 1
        return out

    def op(self, name: str, *args: Any) -> Any:
        """One op of the table."""
        return self.ops[name](*args)

    def _outputs(self, name: str, args: tuple[Any, ...]) -> tuple[Array, ...]:
        """The same, always as a tuple."""
        result = self.op(name, *args)
        return result if isinstance(result, tuple) else (result,)

    def product(self, name: str, x: Array) -> Array:
        """A matrix times x f32[1, cols], by the matrix's storage (contract 1.0)."""
        if name in self.tensors:
            return np.asarray(self.op("f32_matvec", self.tensors[name], x))
        d, qs = self.tensors[f"{name}.d"], self.tensors[f"{name}.qs"]
        return np.asarray(self.op("q4_matvec", d, qs, x))

    def _embedding(self, token: int) -> Array:
        ids = np.array([token], np.int32)
        if "embed" in self.tensors:
            return np.asarray(self.op("embed_f32", self.tensors["embed"], ids))
        return np.asarray(self.op("embed", self.tensors["embed.d"], self.tensors["embed.qs"], ids))

    def _layer(self, layer: int, x: Array) -> tuple[Fields, Array]:
        fields: Fields = OrderedDict()
        at = f"layers.{layer}"
        nrm = self.op("rmsnorm", x, self.tensors[f"{at}.attn_norm"], self.eps)
        fields["nrm"] = nrm[0]
        full = self.is_full(layer)
        mixed = (self._attention if full else self._delta)(layer, nrm, fields)
        projected = self.product(f"{at}.{'o_proj' if full else 'out_proj'}", mixed.reshape(1, -1))
        ores = self.op("add", x, projected)
        fields["ores"] = ores[0]
        x = self.section_2.ffn(layer, ores, fields)
        fields["x"] = x[0]
        return fields, x

    # --- 3.1 --------------------------------------------------------------------------------------

    def _attention(self, layer: int, nrm: Array, fields: Fields) -> Array:
        """K's chain, V, Q's chain, attention, gate; f32[n_q, hd]."""
        config, at = self.config, f"layers.{layer}"
        kraw = self.product(f"{at}.k_proj", nrm).reshape(1, config.n_kv, -1)
        knorm = self.op("headnorm", kraw, self.tensors[f"{at}.k_norm"], self.eps)
        k = self.rotated(knorm)
        v = self.product(f"{at}.v_proj", nrm).reshape(1, config.n_kv, -1)
        fields.update(kraw=kraw[0], knorm=knorm[0], k=k[0], v=v[0])
        self.kv[layer][0].append(k[0])
        self.kv[layer][1].append(v[0])
        both = self.product(f"{at}.q_proj", nrm).reshape(1, config.n_q, -1)
        query, gate = self.op("split_gate", both)
        qnorm = self.op("headnorm", query, self.tensors[f"{at}.q_norm"], self.eps)
        qrope = self.rotated(qnorm)
        attn, gated = self._attend(layer, qrope, gate)
        fields.update(qrope=qrope[0], attn=attn[0], gated=gated[0])
        return gated

    def rotated(self, heads: Array) -> Array:
        """1.7 on the first rot_dim elements of each head."""
        return np.asarray(self.op("rope", heads, self.tensors["inv_freq"], self.pos))

    def _attend(self, layer: int, qrope: Array, gate: Array) -> tuple[Array, Array]:
        k, v = (np.stack(rows) for rows in self.kv[layer])
        scale = softmax_scale(self.config.head_dim)
        attn = self.op("attention_f32", qrope, k, v, scale, self.pos)
        return attn, self.op("sigmoid_gate", attn, gate)

    # --- 3.2 --------------------------------------------------------------------------------------

    def _delta(self, layer: int, nrm: Array, fields: Fields) -> Array:
        """Projections, convolution, delta rule, gated norm; f32[vh, vd]."""
        at = f"layers.{layer}"
        _, value_heads, _, value_width = self.config.gdn
        shape = (value_heads, value_width)
        qkv = self.product(f"{at}.qkv_proj", nrm)[0]
        z = self.product(f"{at}.z_proj", nrm).reshape(shape)
        conv, hist = self.op("conv_step", self.hist[layer], qkv, self.tensors[f"{at}.conv"])
        self.hist[layer] = hist
        fields.update(qkv=qkv, z=z, conv=conv, hist=hist)
        q, k = self._unit(conv)
        beta, g = self._gates(at, nrm)
        v = conv[2 * self.key_rows :].reshape(shape)
        o, s = self.op("delta_step", self.s[layer], q, k, v, beta, g)
        self.s[layer] = s
        fields.update(qn=q, kn=k, beta=beta, g=g, s=s, o=o)
        weight = self.tensors[f"{at}.gdn_norm"]
        gn = self.op("silu_gate", self.op("headnorm", o[None], weight, self.eps)[0], z)
        fields["gn"] = gn
        return np.asarray(gn)

    def _unit(self, conv: Array) -> tuple[Array, Array]:
        """q and k of the convolution's row, laid [Q | K | V], each f32[kh, kd]."""
        key_heads, _, key_width, _ = self.config.gdn
        q, k = (
            conv[part * self.key_rows : (part + 1) * self.key_rows].reshape(1, key_heads, -1)
            for part in range(2)
        )
        return self.op("l2norm", q, query_scale(key_width))[0], self.op("l2norm", k, F(1.0))[0]

    def _gates(self, at: str, nrm: Array) -> tuple[Array, Array]:
        """beta and g, f32[vh]; in_proj_a and in_proj_b are f32 in every model."""
        a, b = (self.op("f32_matvec", self.tensors[f"{at}.{n}_proj"], nrm) for n in "ab")
        rates = self._rates(at)
        beta, g = self.op("delta_gates", a, b, rates, self.tensors[f"{at}.dt_bias"])
        return beta[0], g[0]

    def _rates(self, at: str) -> Array:
        """nA: made of A_log, or as a file holds it."""
        if f"{at}.rates" in self.tensors:
            return self.tensors[f"{at}.rates"]
        return np.asarray(self.op("decay_rates", self.tensors[f"{at}.a_log"]))
