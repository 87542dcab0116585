"""What a model is: sizes and constants, and the presets of contract section 8."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass, replace
from math import sqrt

from parity.errors import InputError

# Positions a small preset's KV cache may hold; the published models state their own.
SMALL_CONTEXT = 2048


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of one model of contract section 2.

    ``family``: "moe", or "dense" (no experts). ``weights``: storage of the matrices, "q4" or
    "f32". ``inter``: width of one expert or of the dense FFN. ``context``: the most positions a
    KV cache may hold. ``small_out``: wo, out and down have 2^-2 of the other matrices' scale
    (contract 8).
    """

    name: str
    layers: int
    hidden: int
    n_q: int
    n_kv: int
    head_dim: int
    inter: int
    experts: int
    top_k: int
    vocab: int
    theta: float = 1e6
    eps: float = 1e-6
    norm_topk_prob: bool = True
    weights: str = "q4"
    family: str = "moe"
    context: int = SMALL_CONTEXT
    small_out: bool = False

    @property
    def kv(self) -> str:
        """Storage of K and V: f32 for a model without a Q4_0 matrix, else int8 (contract 1.0)."""
        return "f32" if self.weights == "f32" else "int8"

    @property
    def rot_dim(self) -> int:
        """Rotated elements of a head; the whole head in this family (contract 1.7)."""
        return self.head_dim

    @property
    def sm_scale(self) -> float:
        """1/sqrt(head_dim) in f64, to be rounded to f32 once (contract, head)."""
        return 1.0 / sqrt(self.head_dim)

    def text(self) -> str:
        """Canonical one-line JSON of every value; part of the model digest."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def _presets() -> dict[str, ModelConfig]:
    tiny = ModelConfig("moe-tiny", 4, 160, 4, 2, 96, 96, 8, 3, 512)
    deep = ModelConfig("moe-48", 48, 128, 4, 2, 32, 64, 16, 4, 1003, small_out=True)
    dense = ModelConfig("dense-tiny", 4, 128, 4, 2, 32, 256, 0, 0, 512, family="dense")
    large = ModelConfig(
        *("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 128, 8, 151_936),
        context=40_960,
        small_out=True,
    )
    return {config.name: config for config in (tiny, deep, dense, large)}


PRESETS = _presets()
DEFAULT_PRESET = "moe-tiny"


WEIGHTS = ("q4", "f32")


def preset(name: str, weights: str = "q4") -> ModelConfig:
    """The preset called ``name``, its matrices stored as ``weights``.

    Raises InputError that suggests the nearest name.
    """
    if name in PRESETS:
        return replace(PRESETS[name], weights=weights)
    near = difflib.get_close_matches(name, PRESETS, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"unknown model {name!r}", f"{hint}presets: {', '.join(PRESETS)}")
