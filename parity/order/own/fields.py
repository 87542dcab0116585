"""Which sums make a field, as an engine of the contract runs them (contract 2, 3, 5).

Elementary functions, quantisation and RoPE are no sums. What cannot be probed is left out: the dot
of a query and a key, which is seen through an exponential alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from parity.model.config import ModelConfig
from parity.model.layers import Attention, Experts, Floats, Gdn, Layer, Matrix
from parity.order.own.asked import Asked, Launch
from parity.order.own.table import TAKES, make_own
from parity.order.sums import Ask, SumAsk

BLOCK = 32
KEYS = 64  # of an attention: few, and a power of two
_NORMS = {"nrm": "attn_norm", "fnrm": "ffn_norm", "final_normed": "final_norm"}


@dataclass(frozen=True)
class Made:
    """What an engine holds. ``layer``: the weights of the field's layer, None outside the layers;
    ``rows``: M of the forward; ``launch``: how it runs an op."""

    family: str
    key: Mapping[str, str]
    launch: Launch
    config: ModelConfig
    variants: frozenset[str]
    layer: Layer[Any] | None
    head: Matrix[Any]
    rows: int

    def sums(self, field: str) -> tuple[SumAsk, ...]:
        """The sums behind ``field``, in the order in which they run; none for one without."""
        return tuple(self._sums(field))

    def _sums(self, field: str) -> Iterator[SumAsk]:
        if field in _NORMS:
            yield self._norm(_NORMS[field], self.config.hidden, 1, "rmsnorm")
        elif field == "logits":
            yield self._matrix("lm_head", self.head)
        elif self.layer is not None:
            yield from self._mixer(field, self.layer)
            yield from self._ffn(field, self.layer.ffn)

    def _mixer(self, field: str, layer: Layer[Any]) -> Iterator[SumAsk]:
        mixer, config = layer.mixer, self.config
        if isinstance(mixer, Gdn):
            yield from self._recurrent(field, mixer)
        elif field in ("kraw", "v", "vs", "qrope"):
            name = {"kraw": "k_proj", "qrope": "q_proj"}.get(field, "v_proj")
            yield self._matrix(name, getattr(mixer, name))
            if field == "qrope":
                yield self._norm("q_norm", config.head_dim, config.n_q, "headnorm")
        elif field == "knorm":
            yield self._norm("k_norm", config.head_dim, config.n_kv, "headnorm")
        elif field == "attn":
            op = "attention_f32" if config.kv == "f32" else "attention_int8"
            yield self._own("values", op, KEYS, config.n_kv * config.head_dim)
            yield self._own("l", f"{op}_l", KEYS, config.n_kv)
        if field == "ores":
            name = "o_proj" if isinstance(mixer, Attention) else "out_proj"
            yield self._matrix(name, getattr(mixer, name))

    def _recurrent(self, field: str, mixer: Gdn[Any]) -> Iterator[SumAsk]:
        heads_of_keys, heads, key_width, value_width = self.config.gdn
        named = {"qkv": "qkv_proj", "z": "z_proj", "beta": "b_proj", "g": "a_proj"}
        if field in named:
            yield self._matrix(named[field], getattr(mixer, named[field]))
        elif field in ("o", "s"):
            columns = heads * value_width // 2 * 2
            yield self._own("mem", "delta_mem", key_width, columns, rows=1)
            if field == "o":
                yield self._own("o", "delta_o", key_width, columns, rows=1)
        elif field in ("qn", "kn"):
            yield self._own("l2norm", "l2norm", key_width, heads_of_keys)
        elif field == "gn":
            yield self._norm("gdn_norm", value_width, heads, "headnorm")

    def _ffn(self, field: str, ffn: Any) -> Iterator[SumAsk]:
        if field in ("gate", "up", "down"):
            stored = getattr(ffn, field)
            expert = isinstance(ffn, Experts)
            yield self._matrix(field, stored, expert=expert)
        if not isinstance(ffn, Experts):
            return
        if field == "rlogits":
            tree = "router_tree" in self.variants
            rows, columns = ffn.router.shape
            yield self._own("router", "router_tree" if tree else "f32_matvec", columns, rows)
        elif field == "topp":
            yield self._own("softmax", "router_softmax", ffn.router.shape[0], 1)
        elif field == "gs" and ffn.shared_gate is not None:
            yield self._own("shared_gate", "f32_matvec", self.config.hidden, 1)
        elif field == "sh" and ffn.shared is not None:
            for name in ("gate", "up", "down"):
                yield self._matrix(f"shared.{name}", getattr(ffn.shared, name))
        elif field == "x":
            op, more = ("combine", 1) if ffn.shared is None else ("combine_shared", 2)
            yield self._own("combine", op, self.config.top_k + more, self.config.hidden)

    def _matrix(self, name: str, matrix: Matrix[Any], *, expert: bool = False) -> SumAsk:
        """By storage (contract 1.0). A Q4_0 row of an expert is summed block by block."""
        if isinstance(matrix, Floats):
            rows, columns = matrix.w.shape[-2:]
            return self._own(name, "expert_f32_matvec" if expert else "f32_matvec", columns, rows)
        rows, blocks = matrix.d.shape[-2:]
        if expert:
            return self._own(name, "expert_matvec", blocks, rows)
        return self._own(name, "q4_matvec", blocks * BLOCK, rows)

    def _norm(self, name: str, width: int, heads: int, op: str) -> SumAsk:
        if "norm_tree" in self.variants:
            return self._own(name, "norm_tree", width, 1, rows=self.rows * heads)
        return self._own(name, op, width, heads)

    def _own(self, name: str, op: str, terms: int, outputs: int, rows: int = 0) -> SumAsk:
        taken = self.variants & TAKES[op]
        options = {"variants": "+".join(sorted(taken))} if taken else {}
        ask, count = Ask(f"{self.family}.{op}", terms, outputs, options=options), rows or self.rows
        asked = Asked(ask.op, terms, outputs, count, taken, self.key)
        return SumAsk(name, ask, count, lambda: make_own(asked, self.launch))
