"""Qwen3-MoE in plain NumPy: float32 throughout, sums in NumPy's own order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from parity.dtypes import dtype_name
from parity.dump import Entry, TensorType
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.model.checks import check_tokens
from parity.model.model import Model
from parity.protocol import EngineSettings, Plan, Step

STORED = {"float32": "f32", "uint16": "f16", "uint8": "u8"}


class Engine:
    """One sequence at a time; the KV cache holds int8 rows, as the model's header says."""

    name: ClassVar[str] = "toy"
    version: ClassVar[str] = "0.1.0"
    tiers: ClassVar[tuple[str, ...]] = ("exact",)
    variants: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[frozenset[str]] = frozenset({"capture"})

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def describe(self) -> Mapping[str, str]:
        """Header values of a dump."""
        told = {"device": "CPU", "driver": "none", "compiler": f"NumPy {np.__version__}"}
        return {**told, "options": "none", "kernels": "none", "emulated": "no"}

    def load(self, model: Model, positions: int) -> None:
        """Keep the stored tensors for their digests, and every matrix widened to float32."""
        self.config = model.config
        self.stored = {name: model.tensor(name) for name in model.names()}
        if self.config.family != "moe" or "embed.d" not in self.stored:
            raise InputError("toy runs the MoE family with Q4_0 matrices", "choose another model")
        self.w = {name: array for name, array in self.stored.items() if array.dtype == np.float32}
        for name in (n.removesuffix(".d") for n in self.stored if n.endswith(".d")):
            self.w[name] = widened(self.stored[f"{name}.d"], self.stored[f"{name}.qs"])
        rows = (self.config.layers, positions, self.config.n_kv)
        self.k, self.v = (np.zeros((*rows, self.config.head_dim), np.int8) for _ in range(2))
        self.ks, self.vs = (np.zeros(rows, np.float32) for _ in range(2))
        self.positions = positions
        self.reset()

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        """Type and digest of every stored tensor."""
        return {
            name: (TensorType(STORED[array.dtype.name], array.shape), fnv1a64_array(array))
            for name, array in self.stored.items()
        }

    def reset(self) -> None:
        """Back to position 0."""
        self.length = 0

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """Single steps, after all tokens were looked at."""
        check_tokens(self.config, tokens, self.length, self.positions)
        steps = [self.step(token, plan) for token in tokens]
        return steps if plan is not None else steps[-1:]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """One token at the next position."""
        check_tokens(self.config, [token], self.length, self.positions)
        tap = Tap(plan, self.length)
        x = self.w["embed"][token]
        for layer in range(self.config.layers):
            x = self._ffn(layer, self._attention(layer, x, tap), tap)
            tap(layer, "x", x)
        normed = norm(x, self.w["final_norm"], self.config.eps)
        tap(None, "final_normed", normed)
        logits = self.w["lm_head"] @ normed
        tap(None, "logits", logits)
        self.length += 1
        return Step(logits, tap.entries, tap.tensors)

    def _attention(self, layer: int, x: np.ndarray, tap: Tap) -> np.ndarray:
        config, pos, at = self.config, self.length, f"layers.{layer}"
        nrm = norm(x, self.w[f"{at}.attn_norm"], config.eps)
        tap(layer, "nrm", nrm)
        kraw = (self.w[f"{at}.k_proj"] @ nrm).reshape(config.n_kv, -1)
        tap(layer, "kraw", kraw)
        knorm = norm(kraw, self.w[f"{at}.k_norm"], config.eps)
        tap(layer, "knorm", knorm)
        k, ks = self.k[layer], self.ks[layer]
        k[pos], ks[pos] = int8_rows(self._turned(knorm))
        tap(layer, "k", k[pos])
        tap(layer, "ks", ks[pos])
        v, vs = self.v[layer], self.vs[layer]
        v[pos], vs[pos] = int8_rows((self.w[f"{at}.v_proj"] @ nrm).reshape(config.n_kv, -1))
        tap(layer, "v", v[pos])
        tap(layer, "vs", vs[pos])
        qraw = (self.w[f"{at}.q_proj"] @ nrm).reshape(config.n_q, -1)
        query = self._turned(norm(qraw, self.w[f"{at}.q_norm"], config.eps))
        tap(layer, "qrope", query)
        group = config.n_q // config.n_kv
        keys, values = (
            np.repeat(rows[: pos + 1] * scales[: pos + 1, :, None], group, axis=1)
            for rows, scales in ((k, ks), (v, vs))
        )
        scores = np.einsum("hd,thd->ht", query, keys) * np.float32(config.sm_scale)
        attn = np.einsum("ht,thd->hd", softmax(scores), values)
        tap(layer, "attn", attn)
        ores = x + self.w[f"{at}.o_proj"] @ attn.reshape(-1)
        tap(layer, "ores", ores)
        return ores

    def _turned(self, heads: np.ndarray) -> np.ndarray:
        """RoPE over pairs (i, i + hd/2)."""
        angle = np.float32(self.length) * self.w["inv_freq"]
        c, s = np.cos(angle), np.sin(angle)
        one, two = np.split(heads, 2, axis=1)
        return np.concatenate([one * c - two * s, two * c + one * s], axis=1)

    def _ffn(self, layer: int, ores: np.ndarray, tap: Tap) -> np.ndarray:
        at = f"layers.{layer}"
        fnrm = norm(ores, self.w[f"{at}.ffn_norm"], self.config.eps)
        tap(layer, "fnrm", fnrm)
        rlogits = self.w[f"{at}.router"] @ fnrm
        tap(layer, "rlogits", rlogits)
        probs = softmax(rlogits)
        ids = np.argsort(-probs, kind="stable")[: self.config.top_k].astype(np.int32)
        topp = probs[ids]
        if self.config.norm_topk_prob:
            topp = topp / topp.sum()
        tap(layer, "topk", ids)
        tap(layer, "topp", topp)
        gate = self.w[f"{at}.experts.gate"][ids] @ fnrm
        tap(layer, "gate", gate)
        up = self.w[f"{at}.experts.up"][ids] @ fnrm
        tap(layer, "up", up)
        act = gate / (1 + np.exp(-gate)) * up
        tap(layer, "act", act)
        down = np.einsum("khi,ki->kh", self.w[f"{at}.experts.down"][ids], act)
        tap(layer, "down", down)
        return ores + topp @ down


class Tap:
    """Hashes what the plan asks for, and keeps the tensors."""

    def __init__(self, plan: Plan | None, pos: int) -> None:
        self.plan, self.pos = plan, pos
        self.entries: list[Entry] = []
        self.tensors: dict[Key, np.ndarray] = {}

    def __call__(self, layer: int | None, field: str, array: np.ndarray) -> None:
        """Offer one value, before anything changes it."""
        key = Key(self.pos, layer, field)
        if self.plan is not None and self.plan.wants(key):
            self.entries.append(entry(key, array, self.plan.basis))
        if self.plan is not None and key in self.plan.tensors:
            self.tensors[key] = array.copy()


def entry(key: Key, array: np.ndarray, basis: int = BASES["fnv1a64"]) -> Entry:
    """The dump line of one value."""
    bad = np.flatnonzero(~np.isfinite(array))
    nonfinite = (bad.size, int(bad[0])) if bad.size else None
    kind = TensorType(dtype_name(array.dtype), array.shape)
    return Entry(key, fnv1a64_array(array, basis), kind, nonfinite)


def widened(d: np.ndarray, qs: np.ndarray) -> np.ndarray:
    """Q4_0 as float32: d uint16[..., nb], qs uint8[..., nb * 16] to float32[..., nb * 32]."""
    packed = qs.reshape(*d.shape, 16)
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32) - np.float32(8)
    return (codes * d.view(np.float16).astype(np.float32)[..., None]).reshape(*d.shape[:-1], -1)


def norm(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    """RMS norm over the last axis."""
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean + np.float32(eps)) * w


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def int8_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32[heads, hd] as int8 with one scale a head."""
    scale = np.abs(x).max(axis=1) / np.float32(127)
    safe = np.where(scale == 0, np.float32(1), scale)
    codes = np.clip(np.rint(x / safe[:, None]), -127, 127)
    return codes.astype(np.int8), scale
