"""A model: its configuration and its tensors by name, made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from parity.dump import TensorType
from parity.errors import InputError
from parity.fnv import fnv1a64
from parity.model import generator
from parity.model.config import ModelConfig, preset
from parity.model.rope import inv_freq

BLOCK = 32  # weights of one Q4_0 block


class Model(Protocol):
    """What an engine loads. Every tensor is C-contiguous; names are those of ``tensor_names``."""

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants."""
        ...

    @property
    def label(self) -> str:
        """How the model is named in headers, e.g. ``moe-tiny seed 7``."""
        ...

    def names(self) -> Iterator[str]:
        """Names of all tensors, in the order of the digest."""
        ...

    def tensor(self, name: str) -> np.ndarray:
        """The stored values of one tensor."""
        ...


class Around:
    """Another way to the tensors of ``model``, which has its configuration, label and names."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants."""
        return self.model.config

    @property
    def label(self) -> str:
        """How the model is named."""
        return self.model.label

    def names(self) -> Iterator[str]:
        """Names of all tensors, in the order of the digest."""
        return self.model.names()


@dataclass(frozen=True)
class SyntheticModel:
    """A preset with synthetic weights (contract section 8)."""

    config: ModelConfig
    seed: int

    @property
    def label(self) -> str:
        """Preset, storage where it is not Q4_0, and seed."""
        config = self.config
        stored = "" if config.weights == "q4" else f" {config.weights}"
        kind = f" {config.only}" if config.only else ""
        return f"{config.name}{kind}{stored} seed {self.seed}"

    def names(self) -> Iterator[str]:
        """Names of all tensors, in the order of the digest."""
        return iter(_recipes(self.config))

    def tensor(self, name: str) -> np.ndarray:
        """Make one tensor: float32, uint16 (f16 bits of ``.d``) or uint8 (``.qs``)."""
        return _recipes(self.config)[name](self.seed)


def synthetic(name: str, seed: int, weights: str = "q4", only: str = "") -> SyntheticModel:
    """The preset ``name`` with the weights of ``seed`` (0 .. 2^64 - 1), stored as ``weights``."""
    return SyntheticModel(preset(name, weights, only), check_seed(seed))


def check_seed(seed: int) -> int:
    """``seed``; InputError for one that is no unsigned 64-bit number."""
    if not 0 <= seed < 1 << 64:
        raise InputError(f"seed {seed} is out of range", "give a seed of 0 to 2^64 - 1")
    return seed


def model_digest(config: ModelConfig, digests: Mapping[str, tuple[TensorType, int]]) -> int:
    """FNV-1a-64 over the configuration and one line per tensor: name, type, digest."""
    lines = [config.text()]
    lines += [f"{name} {kind} {value:016x}" for name, (kind, value) in digests.items()]
    return fnv1a64("\n".join(lines).encode())


@dataclass(frozen=True)
class WeightShape:
    """Shape of one weight. ``matrix``: held as f32 or as Q4_0 (contract 1.0), else as f32."""

    shape: tuple[int, ...]
    matrix: bool


_Recipe = Callable[[int], np.ndarray]


@lru_cache(maxsize=8)
def _recipes(config: ModelConfig) -> dict[str, _Recipe]:
    """How each tensor is made from a seed, by name, in the order of the digest."""
    add = _Recipes(config)
    _add_model(add, config)
    add.made["inv_freq"] = lambda seed: inv_freq(config.theta, config.rot_dim)
    return add.made


@lru_cache(maxsize=8)
def weight_shapes(config: ModelConfig) -> dict[str, WeightShape]:
    """Every weight of a model by name, a matrix once however it is held.

    A file may hold ``rates`` (nA) in the place of ``a_log`` (contract 3.2), with its shape.
    """
    add = _Shapes()
    _add_model(add, config)
    add.norm("inv_freq", config.rot_dim // 2)
    return add.found


class _Add(Protocol):
    """What collects the weights of a model."""

    def norm(self, name: str, count: int) -> None:
        """Norm weights, always f32."""
        ...

    def floats(self, name: str, shape: tuple[int, ...], exponent: int) -> None:
        """A tensor that is always f32."""
        ...

    def narrow(self, name: str, shape: tuple[int, ...], exponent: int) -> None:
        """A matrix that synthetic models hold as f32, and others as they please."""
        ...

    def matrix(
        self, name: str, shape: tuple[int, ...], *, exponent: int | None = None, drop: int = 0
    ) -> None:
        """A matrix in the model's storage, of gain 1 or so unless ``exponent`` is given."""
        ...


def _add_model(add: _Add, config: ModelConfig) -> None:
    # Embedding rows are not a product: size 1 or so without the gain rule.
    power = -3 if config.weights == "q4" else 0
    add.matrix("embed", (config.vocab, config.hidden), exponent=power)
    for layer in range(config.layers):
        _add_layer(add, config, layer)
    add.norm("final_norm", config.hidden)
    if not config.tied:
        add.matrix("lm_head", (config.vocab, config.hidden))


def _add_layer(add: _Add, config: ModelConfig, layer: int) -> None:
    at, drop = f"layers.{layer}", 2 if config.small_out else 0
    add.norm(f"{at}.attn_norm", config.hidden)
    if config.is_gdn(layer):
        _add_gdn(add, config, at, drop)
    else:
        _add_attention(add, config, at, drop)
    add.norm(f"{at}.ffn_norm", config.hidden)
    if config.has_experts(layer):
        _add_experts(add, config, at, drop)
    else:
        _add_ffn(add, f"{at}.mlp", config.ffn_inter(layer), config.hidden, drop=drop)


def _add_attention(add: _Add, config: ModelConfig, at: str, drop: int) -> None:
    wide, narrow = config.n_q * config.head_dim, config.n_kv * config.head_dim
    gated = 2 if config.family == "hybrid" else 1  # q_proj gives [q, gate] per head
    for name, rows in (("q_proj", gated * wide), ("k_proj", narrow), ("v_proj", narrow)):
        add.matrix(f"{at}.{name}", (rows, config.hidden))
    add.norm(f"{at}.q_norm", config.head_dim)
    add.norm(f"{at}.k_norm", config.head_dim)
    add.matrix(f"{at}.o_proj", (config.hidden, wide), drop=drop)


def _add_gdn(add: _Add, config: ModelConfig, at: str, drop: int) -> None:
    _, value_heads, _, value_width = config.gdn
    hidden = config.hidden
    add.matrix(f"{at}.qkv_proj", (config.conv_dim, hidden))
    add.matrix(f"{at}.z_proj", (value_heads * value_width, hidden))
    for name in ("a_proj", "b_proj"):
        add.narrow(f"{at}.{name}", (value_heads, hidden), generator.matrix_exponent(hidden))
    add.floats(f"{at}.conv", (config.conv_dim, 4), 0)
    # Decays of exp(-0.1) to exp(-5) a step or so.
    add.floats(f"{at}.a_log", (value_heads,), 1)
    add.floats(f"{at}.dt_bias", (value_heads,), 0)
    add.norm(f"{at}.gdn_norm", value_width)
    add.matrix(f"{at}.out_proj", (hidden, value_heads * value_width), drop=drop)


def _add_experts(add: _Add, config: ModelConfig, at: str, drop: int) -> None:
    hidden, power = config.hidden, generator.router_exponent(config.hidden)
    add.floats(f"{at}.router", (config.experts, hidden), power)
    _add_ffn(add, f"{at}.experts", config.inter, hidden, (config.experts,), drop)
    if config.shared_inter:
        add.floats(f"{at}.shared_gate", (1, hidden), power)
        _add_ffn(add, f"{at}.shared", config.shared_inter, hidden, drop=drop)


def _add_ffn(
    add: _Add, ffn: str, inter: int, hidden: int, stack: tuple[int, ...] = (), drop: int = 0
) -> None:
    add.matrix(f"{ffn}.gate", (*stack, inter, hidden))
    add.matrix(f"{ffn}.up", (*stack, inter, hidden))
    add.matrix(f"{ffn}.down", (*stack, hidden, inter), drop=drop)


class _Recipes:
    """Collects the recipes of one model."""

    def __init__(self, config: ModelConfig) -> None:
        self.made: dict[str, _Recipe] = {}
        self.q4 = config.weights == "q4"

    def norm(self, name: str, count: int) -> None:
        """Norm weights, always f32."""
        self.made[name] = lambda seed: generator.norm_weights(seed, name, count)

    def floats(self, name: str, shape: tuple[int, ...], exponent: int) -> None:
        """An f32 matrix."""
        count = int(np.prod(shape))
        self.made[name] = lambda seed: generator.signed_f32(seed, name, count, exponent).reshape(
            shape
        )

    narrow = floats

    def matrix(
        self, name: str, shape: tuple[int, ...], *, exponent: int | None = None, drop: int = 0
    ) -> None:
        """A matrix in the model's storage, of gain 1 or so unless ``exponent`` is given."""
        columns = shape[-1]
        rule = generator.q4_exponent if self.q4 else generator.matrix_exponent
        power = (rule(columns) if exponent is None else exponent) - drop
        if self.q4:
            self._q4(name, shape, power)
        else:
            self.floats(name, shape, power)

    def _q4(self, name: str, shape: tuple[int, ...], power: int) -> None:
        if shape[-1] % BLOCK:
            raise InputError(
                f"{name}: row length {shape[-1]} is not a multiple of {BLOCK}", "use --weights f32"
            )
        grid = (*shape[:-1], shape[-1] // BLOCK)
        flat = (*grid[:-1], grid[-1] * 16)
        blocks = int(np.prod(grid))
        made = self.made
        made[f"{name}.d"] = lambda seed: generator.scale_bits(seed, name, blocks, power).reshape(
            grid
        )
        made[f"{name}.qs"] = lambda seed: generator.nibble_bytes(seed, name, blocks).reshape(flat)


class _Shapes:
    """Collects the shapes of one model's weights."""

    def __init__(self) -> None:
        self.found: dict[str, WeightShape] = {}

    def norm(self, name: str, count: int) -> None:
        """A vector."""
        self.found[name] = WeightShape((count,), matrix=False)

    def floats(self, name: str, shape: tuple[int, ...], exponent: int) -> None:
        """A tensor that is always f32."""
        self.found[name] = WeightShape(shape, matrix=False)

    def narrow(self, name: str, shape: tuple[int, ...], exponent: int) -> None:
        """A matrix."""
        self.found[name] = WeightShape(shape, matrix=True)

    def matrix(
        self, name: str, shape: tuple[int, ...], *, exponent: int | None = None, drop: int = 0
    ) -> None:
        """A matrix."""
        self.found[name] = WeightShape(shape, matrix=True)
