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

    config: ModelConfig

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


@dataclass(frozen=True)
class SyntheticModel:
    """A preset with synthetic weights (contract section 8)."""

    config: ModelConfig
    seed: int

    @property
    def label(self) -> str:
        """Preset and seed."""
        return f"{self.config.name} seed {self.seed}"

    def names(self) -> Iterator[str]:
        """Names of all tensors, in the order of the digest."""
        return iter(_recipes(self.config))

    def tensor(self, name: str) -> np.ndarray:
        """Make one tensor: float32, uint16 (f16 bits of ``.d``) or uint8 (``.qs``)."""
        return _recipes(self.config)[name](self.seed)


def synthetic(name: str, seed: int) -> SyntheticModel:
    """The preset ``name`` with the weights of ``seed`` (0 .. 2^64 - 1)."""
    if not 0 <= seed < 1 << 64:
        raise InputError(f"seed {seed} is out of range", "give a seed of 0 to 2^64 - 1")
    return SyntheticModel(preset(name), seed)


def model_digest(config: ModelConfig, digests: Mapping[str, tuple[TensorType, int]]) -> int:
    """FNV-1a-64 over the configuration and one line per tensor: name, type, digest."""
    lines = [config.text()]
    lines += [f"{name} {kind} {value:016x}" for name, (kind, value) in digests.items()]
    return fnv1a64("\n".join(lines).encode())


def weight_bytes(config: ModelConfig) -> int:
    """Bytes the stored tensors of a model take on one side."""
    q4_rows = (2 * config.vocab) * config.hidden
    attention = 2 * (config.n_q + config.n_kv) * config.head_dim * config.hidden
    experts = 3 * config.experts * config.inter * config.hidden
    floats = config.layers * (config.experts + 2) * config.hidden
    return (q4_rows + config.layers * (attention + experts)) * 18 // BLOCK + 4 * floats


_Recipe = Callable[[int], np.ndarray]


@lru_cache(maxsize=8)
def _recipes(config: ModelConfig) -> dict[str, _Recipe]:
    """How each tensor is made from a seed, by name, in the order of the digest."""
    made: dict[str, _Recipe] = {}
    # Embedding rows are not a product: size 1 or so without the gain rule.
    _add_q4(made, "embed", (config.vocab, config.hidden), exponent=-3)
    for layer in range(config.layers):
        _add_layer(made, config, f"layers.{layer}")
    _add_norm(made, "final_norm", config.hidden)
    _add_q4(made, "lm_head", (config.vocab, config.hidden))
    made["inv_freq"] = lambda seed: inv_freq(config.theta, config.rot_dim)
    return made


def _add_layer(made: dict[str, _Recipe], config: ModelConfig, at: str) -> None:
    hidden, wide = config.hidden, config.n_q * config.head_dim
    narrow = config.n_kv * config.head_dim
    drop = 2 if config.small_out else 0
    _add_norm(made, f"{at}.attn_norm", hidden)
    for name, rows in (("q_proj", wide), ("k_proj", narrow), ("v_proj", narrow)):
        _add_q4(made, f"{at}.{name}", (rows, hidden))
    _add_norm(made, f"{at}.q_norm", config.head_dim)
    _add_norm(made, f"{at}.k_norm", config.head_dim)
    _add_q4(made, f"{at}.o_proj", (hidden, wide), drop=drop)
    _add_norm(made, f"{at}.ffn_norm", hidden)
    _add_router(made, f"{at}.router", config.experts, hidden)
    stack = (config.experts, config.inter, hidden)
    _add_q4(made, f"{at}.experts.gate", stack)
    _add_q4(made, f"{at}.experts.up", stack)
    _add_q4(made, f"{at}.experts.down", (config.experts, hidden, config.inter), drop=drop)


def _add_q4(
    made: dict[str, _Recipe],
    name: str,
    shape: tuple[int, ...],
    *,
    exponent: int | None = None,
    drop: int = 0,
) -> None:
    columns = shape[-1]
    if columns % BLOCK:
        raise InputError(f"{name}: row length {columns} is not a multiple of {BLOCK}", "use f32")
    power = (generator.q4_exponent(columns) if exponent is None else exponent) - drop
    grid = (*shape[:-1], columns // BLOCK)
    blocks = int(np.prod(grid))
    flat = (*grid[:-1], grid[-1] * 16)
    made[f"{name}.d"] = lambda seed: generator.scale_bits(seed, name, blocks, power).reshape(grid)
    made[f"{name}.qs"] = lambda seed: generator.nibble_bytes(seed, name, blocks).reshape(flat)


def _add_norm(made: dict[str, _Recipe], name: str, count: int) -> None:
    made[name] = lambda seed: generator.norm_weights(seed, name, count)


def _add_router(made: dict[str, _Recipe], name: str, rows: int, columns: int) -> None:
    power = generator.router_exponent(columns)
    count = rows * columns
    made[name] = lambda seed: generator.signed_f32(seed, name, count, power).reshape(rows, columns)
