"""What a model is: sizes and constants, and the presets of contract section 8."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass, fields, replace
from math import sqrt

from parity.errors import InputError

# Positions a small preset's KV cache may hold; the published models state their own.
SMALL_CONTEXT = 2048


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of one model of contract sections 2 and 3.

    ``family``: "moe", "dense" (no experts) or "hybrid" (contract 3). ``weights``: storage of the
    matrices, "q4", "f32" or "file" (each matrix as its file holds it). ``inter``: width of one
    expert, or of the dense FFN of a model without experts (``experts`` 0). ``context``: the
    most positions a KV cache may hold. ``small_out``: wo, out and down have 2^-2 of the other
    matrices' scale (contract 8). Hybrid: ``rot`` rotated elements of a head; every
    ``interval``-th layer has full attention, or all of them with ``only`` "attn", none with
    "gdn"; ``gdn``: key heads, value heads, key width, value width of the Gated DeltaNet layers.

    What published models have beside that: ``shared_inter``: width of the shared expert of every
    layer with experts, 0 for none. ``dense_layers``: layers of a model with experts whose FFN is
    dense, ``dense_inter`` wide. ``full_layers``: a hybrid's layers with full attention, in the
    place of ``interval``. ``tied``: the head is the embedding's stored bytes, and no lm_head
    exists. ``real_ids``: ids from here on are padding, 0 for none (contract 7). ``kv_storage``:
    storage of K and V as the file's reader found it, "" for the rule of presets.

    ``family`` "modules" is a model that the contract has no arithmetic for: whichever library
    brings it runs it. ``own_keys``: (layer, field) of every value of one token that its engine
    tells, in dataflow order, layer -1 outside the layers.
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
    rot: int = 0
    interval: int = 4
    only: str = ""
    gdn: tuple[int, int, int, int] = (0, 0, 0, 0)
    shared_inter: int = 0
    dense_layers: tuple[int, ...] = ()
    dense_inter: int = 0
    full_layers: tuple[int, ...] | None = None
    tied: bool = False
    real_ids: int = 0
    kv_storage: str = ""
    own_keys: tuple[tuple[int, str], ...] = ()

    @property
    def kv(self) -> str:
        """Storage of K and V: f32 for the hybrid family and for a model without a Q4_0 matrix,
        else int8 (contract 1.0)."""
        by_rule = "f32" if self.weights == "f32" or self.family == "hybrid" else "int8"
        return self.kv_storage or by_rule

    @property
    def ids(self) -> int:
        """Number of real token ids: those from here to ``vocab`` are padding (contract 7)."""
        return self.real_ids or self.vocab

    def is_gdn(self, layer: int) -> bool:
        """Whether ``layer`` is a Gated DeltaNet layer (contract 1.11, 3)."""
        if self.family != "hybrid" or self.only == "attn":
            return False
        if self.only == "gdn":
            return True
        if self.full_layers is not None:
            return layer not in self.full_layers
        return (layer + 1) % self.interval != 0

    def has_experts(self, layer: int) -> bool:
        """Whether the FFN of ``layer`` has experts behind a router (contract 2)."""
        return self.experts > 0 and layer not in self.dense_layers

    def ffn_inter(self, layer: int) -> int:
        """Width of one expert of ``layer``, or of its dense FFN."""
        return self.dense_inter if layer in self.dense_layers else self.inter

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: Q, K and V side by side (contract 3.2)."""
        key_heads, value_heads, key_width, value_width = self.gdn
        return 2 * key_heads * key_width + value_heads * value_width

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of S and hist of all Gated DeltaNet layers."""
        _, value_heads, key_width, value_width = self.gdn
        layers = sum(map(self.is_gdn, range(self.layers)))
        return 4 * layers * (value_heads * key_width * value_width + 3 * self.conv_dim)

    @property
    def rot_dim(self) -> int:
        """Rotated elements of a head: the whole head unless ``rot`` says less (contract 1.7)."""
        return self.rot or self.head_dim

    @property
    def sm_scale(self) -> float:
        """1/sqrt(head_dim) in f64, to be rounded to f32 once (contract, head)."""
        return 1.0 / sqrt(self.head_dim)

    def text(self) -> str:
        """Canonical one-line JSON of every value; part of the model digest.

        A value added later is left out at its default: digests of older models stay.
        """
        values = asdict(self)
        for field in fields(self):
            if field.name in _ADDED and values[field.name] == field.default:
                del values[field.name]
        return json.dumps(values, sort_keys=True, separators=(",", ":"))


_ADDED = frozenset(
    (
        *("shared_inter", "dense_layers", "dense_inter", "full_layers", "tied", "real_ids"),
        *("kv_storage", "own_keys"),
    )
)


def _presets() -> dict[str, ModelConfig]:
    tiny = ModelConfig("moe-tiny", 4, 160, 4, 2, 96, 96, 8, 3, 512)
    deep = ModelConfig("moe-48", 48, 128, 4, 2, 32, 64, 16, 4, 1003, small_out=True)
    dense = ModelConfig("dense-tiny", 4, 128, 4, 2, 32, 256, 0, 0, 512, family="dense")
    hybrid = ModelConfig(
        *("hybrid-tiny", 8, 160, 4, 2, 96, 224, 0, 0, 512, 1e7),
        family="hybrid",
        rot=24,
        gdn=(2, 6, 96, 96),
    )
    hybrid_deep = ModelConfig(
        *("hybrid-64", 64, 128, 4, 2, 32, 256, 0, 0, 1003, 1e7),
        family="hybrid",
        small_out=True,
        rot=8,
        gdn=(2, 4, 32, 32),
    )
    hybrid_large = ModelConfig(
        *("qwen3.5-27b", 64, 5120, 24, 4, 256, 17_408, 0, 0, 248_320, 1e7),
        family="hybrid",
        context=262_144,
        small_out=True,
        rot=64,
        gdn=(16, 48, 128, 128),
    )
    # Experts, a shared expert and both kinds of attention; no size is a power of two.
    hybrid_experts = ModelConfig(
        *("next-tiny", 8, 160, 4, 2, 96, 96, 8, 3, 511, 1e7),
        family="hybrid",
        rot=24,
        gdn=(2, 6, 96, 96),
        shared_inter=224,
    )
    large = ModelConfig(
        *("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 128, 8, 151_936),
        context=40_960,
        small_out=True,
    )
    every = (tiny, deep, dense, large, hybrid, hybrid_deep, hybrid_large, hybrid_experts)
    return {config.name: config for config in every}


PRESETS = _presets()
DEFAULT_PRESET = "moe-tiny"
MODULES = "modules"  # family of a model that the contract has no arithmetic for
OUTSIDE = -1  # layer of the values outside the layers, in ``own_keys``


WEIGHTS = ("q4", "f32")


def preset(name: str, weights: str = "q4", only: str = "") -> ModelConfig:
    """The preset called ``name``, its matrices stored as ``weights``.

    ``only``: "gdn" or "attn" makes every layer of a hybrid that kind. Raises InputError that
    suggests the nearest name.
    """
    if name in PRESETS:
        found = replace(PRESETS[name], weights=weights, only=only)
        if only and found.family != "hybrid":
            raise InputError(
                f"--synthetic {only}: {name} is no hybrid", "give --model hybrid-tiny or hybrid-64"
            )
        return found
    near = difflib.get_close_matches(name, PRESETS, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(
        f"unknown model {name!r}",
        f"{hint}presets: {', '.join(PRESETS)}; or a .gguf file, or a folder with config.json",
    )
