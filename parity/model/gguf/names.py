"""Where each weight of a model lies in a GGUF file: tensor, rows and columns (contract 1.11).

Both ways are made of the same ``Part``: reading takes rows and columns out of the file's order,
writing puts them back into it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from parity.model.config import ModelConfig
from parity.model.model import weight_shapes

# The architectures by the name in the file, and the family of each.
FAMILIES = {
    **{"qwen3": "dense", "qwen3moe": "moe"},
    **{"qwen35": "hybrid", "qwen35moe": "hybrid", "qwen3next": "hybrid"},
}
WITH_EXPERTS = ("qwen3moe", "qwen35moe", "qwen3next")
TILED = ("qwen35", "qwen35moe")  # value heads stand tiled over the key heads

_MODEL = {
    "embed": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "lm_head": "output.weight",
}
_LAYER = {
    "attn_norm": "attn_norm.weight",
    "q_proj": "attn_q.weight",
    "k_proj": "attn_k.weight",
    "v_proj": "attn_v.weight",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "o_proj": "attn_output.weight",
    "qkv_proj": "attn_qkv.weight",
    "z_proj": "attn_gate.weight",
    "a_proj": "ssm_alpha.weight",
    "b_proj": "ssm_beta.weight",
    "conv": "ssm_conv1d.weight",
    "rates": "ssm_a",
    "dt_bias": "ssm_dt.bias",
    "gdn_norm": "ssm_norm.weight",
    "out_proj": "ssm_out.weight",
    "router": "ffn_gate_inp.weight",
    "shared_gate": "ffn_gate_inp_shexp.weight",
    **{f"mlp.{part}": f"ffn_{part}.weight" for part in ("gate", "up", "down")},
    **{f"experts.{part}": f"ffn_{part}_exps.weight" for part in ("gate", "up", "down")},
    **{f"shared.{part}": f"ffn_{part}_shexp.weight" for part in ("gate", "up", "down")},
}
# What stands in the order of the value heads, beside the columns of out_proj.
_MOVED = ("qkv_proj", "z_proj", "a_proj", "b_proj", "conv", "rates", "dt_bias")
_BA, _IN, _GATE_UP = "ssm_ba.weight", "ssm_in.weight", "ffn_gate_up_exps.weight"


@dataclass(frozen=True)
class Part:
    """Where one weight lies: ``shape`` is the file tensor's, in C order.

    ``rows`` makes the file's row for each of ours, and is None where they are the same rows in the
    same order. ``heads`` makes the file's run of columns for each of ours, each ``width`` columns.
    Both are made when they are needed: only then are the sizes known to be those of the tensors.
    """

    tensor: str
    shape: tuple[int, ...]
    rows: Callable[[], np.ndarray] | None = None
    heads: Callable[[], np.ndarray] | None = None
    width: int = 0


def parts(architecture: str, config: ModelConfig, present: Collection[str]) -> dict[str, Part]:
    """The part of every weight, by our name, in the order of the digest.

    ``present``: the names of the file's tensors, where older and newer files differ; what a file
    written now has, where none are given.
    """
    find = _Parts(architecture, config, present)
    found: dict[str, Part] = {}
    for name, weight in weight_shapes(config).items():
        if name == "inv_freq":
            continue
        layer, _, own = name.removeprefix("layers.").partition(".")
        if own:
            own = "rates" if own == "a_log" else own  # the format stores nA
            found[f"layers.{layer}.{own}"] = find.part(f"blk.{layer}.", own, weight.shape)
        else:
            found[name] = Part(_MODEL[name], weight.shape)
    return found


def tiled(config: ModelConfig) -> np.ndarray:
    """The file's head for each loaded value head h: (h mod r) * kh + h / r, int[vh]."""
    key_heads, value_heads, _, _ = config.gdn
    ratio = value_heads // key_heads
    head = np.arange(value_heads)
    return (head % ratio) * key_heads + head // ratio


@dataclass(frozen=True)
class _Parts:
    """Finds the parts of one model's layers. ``block``: the prefix of a layer in the file; ``own``:
    a weight's name in its layer."""

    architecture: str
    config: ModelConfig
    present: Collection[str]

    def part(self, block: str, own: str, shape: tuple[int, ...]) -> Part:
        """The part of one weight."""
        if own in ("experts.gate", "experts.up") and block + _GATE_UP in self.present:
            return self._gate_up(block, own, shape)
        if self.architecture == "qwen3next" and own in ("a_proj", "b_proj"):
            return self._beta_alpha(block, own)
        if own in ("qkv_proj", "z_proj") and self._is_old(block):
            return self._interleaved(block, own)
        name = block + self._name(own)
        if self.architecture in TILED and own == "out_proj":
            heads = partial(tiled, self.config)
            return Part(name, shape, heads=heads, width=self.config.gdn[3])
        if self.architecture in TILED and own in _MOVED:
            return Part(name, shape, partial(self._tiled_rows, own))
        return Part(name, shape)

    def _name(self, own: str) -> str:
        if own == "ffn_norm":
            hybrid = self.config.family == "hybrid"
            return "post_attention_norm.weight" if hybrid else "ffn_norm.weight"
        return _LAYER[own]

    def _tiled_rows(self, own: str) -> np.ndarray:
        """Rows of a tensor with one or ``vd`` rows a value head, and the V rows below Q and K."""
        key_heads, _, key_width, value_width = self.config.gdn
        heads = tiled(self.config)
        if own not in ("qkv_proj", "conv"):
            return _runs(heads, value_width if own == "z_proj" else 1)
        above = 2 * key_heads * key_width
        return np.concatenate((np.arange(above), above + _runs(heads, value_width)))

    def _gate_up(self, block: str, own: str, shape: tuple[int, ...]) -> Part:
        """Gate rows first."""
        experts, inter, hidden = shape
        start = inter if own == "experts.up" else 0
        return Part(
            block + _GATE_UP,
            (experts, 2 * inter, hidden),
            partial(np.arange, start, start + inter),
        )

    def _beta_alpha(self, block: str, own: str) -> Part:
        """Per key head [b(r), a(r)]."""
        key_heads, value_heads, _, _ = self.config.gdn
        ratio = value_heads // key_heads
        place = 1 if own == "a_proj" else 0
        rows = partial(_by_key_head, key_heads, [ratio, ratio], [place])
        return Part(block + _BA, (2 * value_heads, self.config.hidden), rows)

    def _is_old(self, block: str) -> bool:
        return self.architecture == "qwen3next" and block + _IN in self.present

    def _interleaved(self, block: str, own: str) -> Part:
        """An older qwen3next file: per key head [q, k, v(r), z(r)]."""
        key_heads, value_heads, key_width, value_width = self.config.gdn
        values = value_heads // key_heads * value_width
        counts = [key_width, key_width, values, values]
        rows = partial(_by_key_head, key_heads, counts, [3] if own == "z_proj" else [0, 1, 2])
        return Part(block + _IN, (key_heads * sum(counts), self.config.hidden), rows)


def _by_key_head(key_heads: int, counts: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """Rows of some of the parts that stand together per key head, ``counts`` rows each: all heads
    of the part at the first of ``places``, then of the next one."""
    head = np.arange(key_heads)[:, np.newaxis] * sum(counts)
    found = [head + sum(counts[:place]) + np.arange(counts[place]) for place in places]
    return np.concatenate([rows.ravel() for rows in found])


def _runs(heads: np.ndarray, width: int) -> np.ndarray:
    """Every element of runs of ``width``, the runs numbered by ``heads``."""
    return (heads[:, np.newaxis] * width + np.arange(width)).ravel()
