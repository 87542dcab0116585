"""Which elementary calls of a key a variant changes, counted by the scalar oracle.

The inputs are the ref's own values, captured in its run. The oracle's op is done on them with its
functions logged; each argument is then put to the oracle's function and to the platform's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.tree import FunctionDiff
from parity_cpu.ops.q4_matvec import q4_matvec
from tests.engines.elementary_log import Log, oracle_log
from tests.oracle import elementary, hybrid_scalar, platform_math, scalar
from tests.oracle.elementary import bits32

F = np.float32
Function = Callable[[np.float32], np.float32]


def _inverse_root(x: np.float32) -> np.float32:
    return F(F(1.0) / F(np.sqrt(x)))


EXACT: dict[str, Function] = {
    "rsqrt": _inverse_root,
    "expf": elementary.expf,
    "cosf": elementary.cosf,
    "sinf": elementary.sinf,
    "logf": elementary.logf,
}
SWAPPED: dict[str, dict[str, Function]] = {
    "rsqrt": {"rsqrt": platform_math.reciprocal_root},
    "libm_exp": {"expf": platform_math.expf},
    "exp_via_double": {"expf": platform_math.exp_via_double},
    "libm_sincos": {"cosf": platform_math.cosf, "sinf": platform_math.sinf},
}


@dataclass
class Seen:
    """One step of the ref, fed ``token``: its values, and its state before and after."""

    model: Model
    token: int
    tensors: Mapping[Key, np.ndarray]
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]

    def count(self, key: Key, variant: str) -> list[FunctionDiff]:
        """The functions of ``key`` that ``variant`` changes, in the order they are called."""
        log, found = self.calls(key), []
        for name in dict.fromkeys(name for name, _ in log):
            given = [x for called, x in log if called == name]
            other = SWAPPED[variant].get(name, EXACT[name])
            pairs = [(x, EXACT[name](x), other(x)) for x in given]
            apart = [(x, ref, dut) for x, ref, dut in pairs if bits32(ref) != bits32(dut)]
            if apart:
                found.append(_counted(name, len(given), apart))
        return found

    def calls(self, key: Key) -> Log:
        """Every elementary call of the ops between the value before ``key`` and it."""
        layer = _Layer(self, key)
        makes = {
            **{"k": layer.turned_keys, "ks": layer.turned_keys, "qrope": layer.turned_queries},
            **{"conv": layer.convolution, "beta": layer.gates, "g": layer.gates},
            **{"nrm": layer.norm, "final_normed": layer.norm, "attn": layer.attention},
        }
        return makes.get(key.field, lambda: layer.plain(key.field))()


def _counted(
    name: str, calls: int, apart: list[tuple[np.float32, np.float32, np.float32]]
) -> FunctionDiff:
    """Values here are finite and keep their sign: bit patterns stand in the order of values."""
    assert all(np.isfinite(ref) and ref * dut > 0.0 for _, ref, dut in apart)
    x, ref, dut = (f"{bits32(value):08x}" for value in apart[0])
    largest = max(abs(bits32(ref) - bits32(dut)) for _, ref, dut in apart)
    return FunctionDiff(name, calls, len(apart), x, ref, dut, largest)


@dataclass
class _Layer:
    """The ops of one layer that make ``key``."""

    seen: Seen
    key: Key

    def get(self, name: str) -> Any:
        """A value of the same layer, as one row."""
        return self.seen.tensors[Key(self.key.pos, self.key.layer, name)][None]

    def weight(self, name: str) -> Any:
        return self.seen.model.tensor(f"layers.{self.key.layer}.{name}")

    @property
    def eps(self) -> np.float32:
        return F(self.seen.model.config.eps)

    def plain(self, field: str) -> Log:
        """Ops that read dumped values alone."""
        if field == "fnrm":
            return oracle_log("rmsnorm", (self.get("ores"), self.weight("ffn_norm"), self.eps))
        if field == "knorm":
            return oracle_log("headnorm", (self.get("kraw"), self.weight("k_norm"), self.eps))
        if field == "act":
            return oracle_log("swiglu", (self.get("gate")[0], self.get("up")[0]))
        if field in ("topk", "topp"):
            config = self.seen.model.config
            given = (self.get("rlogits"), config.top_k, config.norm_topk_prob)
            return oracle_log("router_topk", given)
        if field == "gated":
            attn, gate = self.get("attn"), self.projected()[1]
            return oracle_log("sigmoid_gate", (attn, gate))
        assert field == "gn", field
        o, z = self.get("o"), self.get("z")
        roots = oracle_log("headnorm", (o, self.weight("gdn_norm"), self.eps))
        return [*roots, *oracle_log("silu_gate", (o, z))]

    def norm(self) -> Log:
        """Of the x of the layer before, or of the token's embedding."""
        model, layer = self.seen.model, self.key.layer
        weight = model.tensor("final_norm") if layer is None else self.weight("attn_norm")
        before = (model.config.layers if layer is None else layer) - 1
        if before < 0:
            d, qs = model.tensor("embed.d"), model.tensor("embed.qs")
            x = scalar.embed(d, qs, np.array([self.seen.token]))
        else:
            x = self.seen.tensors[Key(self.key.pos, before, "x")][None]
        return oracle_log("rmsnorm", (x, weight, self.eps))

    def turned_keys(self) -> Log:
        return oracle_log("rope", (self.get("knorm"), self._frequencies(), self.key.pos))

    def turned_queries(self) -> Log:
        heads, weight = self.projected()[0], self.weight("q_norm")
        roots = oracle_log("headnorm", (heads, weight, self.eps))
        normed = scalar.headnorm(heads, weight, self.eps)
        return [*roots, *oracle_log("rope", (normed, self._frequencies(), self.key.pos))]

    def projected(self) -> tuple[Any, Any]:
        """The query (1, n_q, hd) before its norm and, in a hybrid, its gate."""
        config = self.seen.model.config
        d, qs = self.weight("q_proj.d"), self.weight("q_proj.qs")
        out = np.empty((1, d.shape[0]), F)
        q4_matvec(out, d, qs, self.get("nrm"), 0)
        heads = out.reshape(1, config.n_q, -1)
        return hybrid_scalar.split_gate(heads) if config.family == "hybrid" else (heads, None)

    def attention(self) -> Log:
        rows = {
            name: self.seen.after[f"l{self.key.layer}_{name}"]
            for name in ("k", "ks", "v", "vs")
            if f"l{self.key.layer}_{name}" in self.seen.after
        }
        last = (F(self.seen.model.config.sm_scale), self.key.pos)
        if "ks" not in rows:
            return oracle_log("attention_f32", (self.get("qrope"), *rows.values(), *last))
        return oracle_log(
            "attention_int8", (*scalar.quant8(self.get("qrope")), *rows.values(), *last)
        )

    def convolution(self) -> Log:
        hist = self.seen.before[f"l{self.key.layer}_hist"]
        return oracle_log("conv_step", (hist, self.get("qkv")[0], self.weight("conv")))

    def gates(self) -> Log:
        """beta calls expf once a head; g makes the other calls."""
        a, b = (scalar.f32_matvec(self.weight(f"{n}_proj"), self.get("nrm")) for n in "ab")
        rates = hybrid_scalar.decay_rates(self.weight("a_log"))
        log = oracle_log("delta_gates", (a, b, rates, self.weight("dt_bias")))
        sigmoids = {bits32(F(-x)) for x in b.reshape(-1)}
        beta = [(name, x) for name, x in log if name == "expf" and bits32(x) in sigmoids]
        assert len(beta) == b.size
        return beta if self.key.field == "beta" else [call for call in log if call not in beta]

    def _frequencies(self) -> Any:
        return self.seen.model.tensor("inv_freq")
