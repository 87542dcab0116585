"""Which stored tensors each of our tensors is made of, by architecture.

Loaded order is Hugging Face's (contract 1.11), so most tensors are one stored tensor as it is. What
is not: norms that hold an offset from 1, the unit axis of the convolution, experts stored one by
one or with gate and up in one tensor, and Qwen3-Next's projections, whose rows go key head by key
head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.model.config import ModelConfig
from parity.model.folder.config import Architecture

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Piece:
    """One stored tensor, or a part of it. ``take``: the part, without copying; None: all of it."""

    name: str
    shape: tuple[int, ...]
    take: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class Made:
    """How one of our tensors is made: its pieces one after another in C order, widened to f32.

    ``offset``: 1 is added to every value, once, in f32 (contract 1.1).
    """

    pieces: tuple[Piece, ...]
    offset: bool = False


Named = Iterator[tuple[str, Made]]


def made_of(made: Architecture, config: ModelConfig, stored: Collection[str]) -> dict[str, Made]:
    """All tensors of a model by our name, inv_freq left out. ``stored``: the names in the files;
    they tell where the language model is and how experts are stored."""
    inner = "model.language_model."
    base = inner if any(name.startswith(inner) for name in stored) else "model."
    return dict(_Reader(made, config, stored, base).every())


@dataclass(frozen=True)
class _Reader:
    made: Architecture
    config: ModelConfig
    stored: Collection[str]
    base: str

    def every(self) -> Named:
        config, base = self.config, self.base
        yield "embed", _whole(f"{base}embed_tokens.weight", config.vocab, config.hidden)
        yield "final_norm", self._norm(f"{base}norm.weight", config.hidden)
        if not config.tied:
            yield "lm_head", _whole("lm_head.weight", config.vocab, config.hidden)
        for layer in range(config.layers):
            for name, made in self._layer(layer, f"{base}layers.{layer}"):
                yield f"layers.{layer}.{name}", made

    def _norm(self, name: str, count: int) -> Made:
        return Made((Piece(name, (count,)),), self.made.offset_norms)

    def _layer(self, layer: int, at: str) -> Named:
        hidden = self.config.hidden
        yield "attn_norm", self._norm(f"{at}.input_layernorm.weight", hidden)
        yield "ffn_norm", self._norm(f"{at}.post_attention_layernorm.weight", hidden)
        if self.config.is_gdn(layer):
            yield from self._delta(f"{at}.linear_attn")
        else:
            yield from self._attention(f"{at}.self_attn")
        if self.config.has_experts(layer):
            yield from self._experts(f"{at}.mlp")
        else:
            yield from _dense("mlp", f"{at}.mlp", hidden, self.config.ffn_inter(layer))

    def _attention(self, at: str) -> Named:
        config = self.config
        wide, narrow = config.n_q * config.head_dim, config.n_kv * config.head_dim
        gated = 2 if config.family == "hybrid" else 1  # q_proj gives [q, gate] per head
        for name, rows in (("q_proj", gated * wide), ("k_proj", narrow), ("v_proj", narrow)):
            yield name, _whole(f"{at}.{name}.weight", rows, config.hidden)
        for name in ("q_norm", "k_norm"):
            yield name, self._norm(f"{at}.{name}.weight", config.head_dim)
        yield "o_proj", _whole(f"{at}.o_proj.weight", config.hidden, wide)

    def _delta(self, at: str) -> Named:
        config = self.config
        _, value_heads, _, value_width = config.gdn
        wide = value_heads * value_width
        yield from self._interleaved(at) if self.made.interleaved else self._plain(at, wide)
        conv = Piece(f"{at}.conv1d.weight", (config.conv_dim, 1, 4), lambda w: w[:, 0])
        yield "conv", Made((conv,))
        yield "a_log", _whole(f"{at}.A_log", value_heads)
        yield "dt_bias", _whole(f"{at}.dt_bias", value_heads)
        yield "gdn_norm", _whole(f"{at}.norm.weight", value_width)  # plain in every file
        yield "out_proj", _whole(f"{at}.out_proj.weight", config.hidden, wide)

    def _plain(self, at: str, wide: int) -> Named:
        hidden, heads = self.config.hidden, self.config.gdn[1]
        rows = {"qkv": self.config.conv_dim, "z": wide, "a": heads, "b": heads}
        for name, count in rows.items():
            yield f"{name}_proj", _whole(f"{at}.in_proj_{name}.weight", count, hidden)

    def _interleaved(self, at: str) -> Named:
        """Per key head [q, k, v(r), z(r)] and [b(r), a(r)], r value heads a key head."""
        hidden = self.config.hidden
        key_heads, value_heads, key_width, value_width = self.config.gdn
        share = value_heads // key_heads
        widths = (key_width, key_width, share * value_width, share * value_width)
        qkvz = f"{at}.in_proj_qkvz.weight"
        query, key, value, gate = _shares(qkvz, key_heads, widths, hidden)
        yield "qkv_proj", Made((query, key, value))
        yield "z_proj", Made((gate,))
        b, a = _shares(f"{at}.in_proj_ba.weight", key_heads, (share, share), hidden)
        yield "a_proj", Made((a,))
        yield "b_proj", Made((b,))

    def _experts(self, at: str) -> Named:
        config = self.config
        hidden = config.hidden
        yield "router", _whole(f"{at}.gate.weight", config.experts, hidden)
        fused = f"{at}.experts.gate_up_proj"
        if fused in self.stored:
            yield from _fused_experts(fused, f"{at}.experts.down_proj", config)
        else:
            yield from _single_experts(f"{at}.experts", config)
        if config.shared_inter:
            yield "shared_gate", _whole(f"{at}.shared_expert_gate.weight", 1, hidden)
            yield from _dense("shared", f"{at}.shared_expert", hidden, config.shared_inter)


def _whole(name: str, *shape: int) -> Made:
    return Made((Piece(name, shape),))


def _dense(ours: str, at: str, hidden: int, inter: int) -> Named:
    yield f"{ours}.gate", _whole(f"{at}.gate_proj.weight", inter, hidden)
    yield f"{ours}.up", _whole(f"{at}.up_proj.weight", inter, hidden)
    yield f"{ours}.down", _whole(f"{at}.down_proj.weight", hidden, inter)


def _shares(name: str, heads: int, widths: tuple[int, ...], hidden: int) -> list[Piece]:
    """The parts of a matrix whose rows are, head by head, ``widths`` rows of each part."""
    each = sum(widths)

    def part(first: int, count: int) -> Callable[[Array], Array]:
        return lambda w: w.reshape(heads, each, hidden)[:, first : first + count]

    firsts = [sum(widths[:index]) for index in range(len(widths))]
    shape = (heads * each, hidden)
    return [Piece(name, shape, part(*at)) for at in zip(firsts, widths, strict=True)]


def _fused_experts(gate_up: str, down: str, config: ModelConfig) -> Named:
    """All experts in one tensor; gate rows stand before those of up (contract 1.11)."""
    inter = config.inter
    shape = (config.experts, 2 * inter, config.hidden)
    yield "experts.gate", Made((Piece(gate_up, shape, lambda w: w[:, :inter]),))
    yield "experts.up", Made((Piece(gate_up, shape, lambda w: w[:, inter:]),))
    yield "experts.down", _whole(down, config.experts, config.hidden, inter)


def _single_experts(at: str, config: ModelConfig) -> Named:
    """A tensor per expert."""
    hidden, inter = config.hidden, config.inter
    shapes = {"gate": (inter, hidden), "up": (inter, hidden), "down": (hidden, inter)}
    for name, shape in shapes.items():
        pieces = (Piece(f"{at}.{e}.{name}_proj.weight", shape) for e in range(config.experts))
        yield f"experts.{name}", Made(tuple(pieces))
