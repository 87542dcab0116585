"""The hybrid presets: layer kinds, fields and their types, counted keys and bytes, tensors.

What a synthetic hybrid does is held to what a real one does: activations of size 1, decays spread
between forgetting and keeping, a state that neither dies nor grows (measured figures: pytest -s).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity import families
from parity.dump import TensorType
from parity.families import count_keys, dumped_fields, field_type, layer_fields
from parity.fnv import fnv1a64_array, hex16
from parity.keys import Key
from parity.model.config import ModelConfig, preset
from parity.model.generator import prompt_tokens
from parity.model.model import Model, SyntheticModel, synthetic
from parity.protocol import EngineSettings, Plan
from parity_cpu import Engine, gdn_layer
from tests.golden import regold

Array = np.ndarray[Any, np.dtype[Any]]
SEED = 7
HYBRIDS = ("hybrid-tiny", "hybrid-64", "qwen3.5-27b")
SMALL = ("hybrid-tiny", "hybrid-64")

# Contract 3.1 and 3.2.
FULL = ("nrm", "kraw", "knorm", "k", "v", "qrope", "attn", "gated", "ores", "x")
LINEAR = (
    *("nrm", "qkv", "z", "conv", "hist", "qn", "kn", "beta", "g", "o", "gn"),
    *("ores", "x"),
)
FFN = ("fnrm", "gate", "up", "act", "down")
# Of hybrid-tiny: 160 wide, 4 query heads and 2 KV heads of 96, 2 key heads and 6 value heads of 96.
TYPES = {
    **dict.fromkeys(("nrm", "ores", "x", "final_normed", "fnrm", "down"), "f32[160]"),
    **dict.fromkeys(("kraw", "knorm", "k", "v"), "f32[2,96]"),
    **dict.fromkeys(("qrope", "attn", "gated"), "f32[4,96]"),
    **dict.fromkeys(("qkv", "conv"), "f32[960]"),
    **dict.fromkeys(("z", "o", "gn"), "f32[6,96]"),
    **dict.fromkeys(("qn", "kn"), "f32[2,96]"),
    **dict.fromkeys(("beta", "g"), "f32[6]"),
    **dict.fromkeys(("gate", "up", "act"), "f32[224]"),
    "hist": "f32[3,960]",
    "s": "f32[6,96,96]",
    "logits": "f32[512]",
}


# --- layers and fields ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", HYBRIDS)
def test_every_fourth_layer_has_full_attention(name: str) -> None:
    config = preset(name)
    full = [layer for layer in range(config.layers) if not config.is_gdn(layer)]
    assert full == list(range(3, config.layers, 4))
    assert len(full) == {"hybrid-tiny": 2}.get(name, 16)


def test_layers_of_one_kind() -> None:
    assert all(map(preset("hybrid-tiny", only="gdn").is_gdn, range(8)))
    assert not any(map(preset("hybrid-tiny", only="attn").is_gdn, range(8)))
    assert not any(map(preset("dense-tiny").is_gdn, range(4)))


@pytest.mark.parametrize("name", HYBRIDS)
def test_each_kind_of_layer_has_the_contracts_fields(name: str) -> None:
    """The order of a dump is the engine's: tests/engines/test_hybrid_oracle.py."""
    config = preset(name)
    fields = dumped_fields(config)
    assert sorted(layer_fields(config, 0, fields)) == sorted(LINEAR)
    assert sorted(layer_fields(config, 3, fields)) == sorted(FULL)
    assert fields[-2:] == ("final_normed", "logits")


def test_optional_fields_are_known_to_the_layers_that_have_them() -> None:
    config = preset("hybrid-tiny")
    fields = dumped_fields(config, ("s", "ffn"))
    assert sorted(layer_fields(config, 0, fields)) == sorted((*LINEAR, "s", *FFN))
    assert sorted(layer_fields(config, 3, fields)) == sorted((*FULL, *FFN))


@pytest.mark.parametrize("weights", ["q4", "f32"])
def test_types_are_the_contracts(weights: str) -> None:
    """K and V are f32 whatever the matrices are stored as (contract 1.0)."""
    config = preset("hybrid-tiny", weights)
    assert config.kv == "f32"
    fields = dumped_fields(config, ("s", "ffn"))
    assert {field: str(field_type(config, field)) for field in fields} == TYPES


# --- counted --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "asked", "keys"),
    [
        ("hybrid-64", (), 786),
        ("hybrid-64", ("s",), 786 + 48),
        ("hybrid-64", ("ffn",), 786 + 64 * 5),
        ("qwen3.5-27b", (), 786),
        ("hybrid-tiny", (), 6 * 13 + 2 * 10 + 2),
    ],
)
def test_keys_of_a_token(name: str, asked: tuple[str, ...], keys: int) -> None:
    config = preset(name)
    assert count_keys(config, dumped_fields(config, asked)) == keys


def test_red_other_layers_or_fields_count_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("hybrid-64")
    fields = dumped_fields(config)
    assert count_keys(replace(config, interval=8), fields) == 56 * 13 + 8 * 10 + 2
    monkeypatch.setattr(families, "_GDN", tuple(f for f in families._GDN if f != "hist"))
    assert count_keys(config, dumped_fields(config)) == 786 - 48
    assert sorted(layer_fields(config, 0, dumped_fields(config))) != sorted(LINEAR)


def state_bytes(config: ModelConfig) -> int:
    """Bytes of S and hist by the types of their fields."""
    linear = sum(map(config.is_gdn, range(config.layers)))
    kinds = [field_type(config, field) for field in ("s", "hist")]
    return 4 * linear * sum(int(np.prod(kind.shape)) for kind in kinds)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("qwen3.5-27b", 156_893_184),
        ("hybrid-64", 48 * 4 * (4 * 32 * 32 + 3 * 256)),
        ("hybrid-tiny", 6 * 4 * (6 * 96 * 96 + 3 * 960)),
        ("dense-tiny", 0),
    ],
)
def test_bytes_of_the_recurrent_state(name: str, size: int) -> None:
    config = preset(name)
    assert config.recurrent_bytes == size
    if config.family == "hybrid":
        assert state_bytes(config) == size


def test_s_of_the_largest_preset() -> None:
    """151 MB a token with --fields +s (contract 3.2)."""
    kind = field_type(preset("qwen3.5-27b"), "s")
    assert (kind, 48 * 4 * int(np.prod(kind.shape))) == (
        TensorType("f32", (48, 128, 128)),
        150_994_944,
    )


@pytest.mark.parametrize("name", SMALL)
def test_an_engine_holds_that_many_bytes(name: str) -> None:
    model = synthetic(name, SEED)
    engine = Engine(EngineSettings())
    engine.load(model, 1)
    parts = {part: a for part, a in engine.read_state().items() if part.endswith(("_s", "_hist"))}
    assert sum(array.nbytes for array in parts.values()) == model.config.recurrent_bytes
    assert all(not array.any() and not np.signbit(array).any() for array in parts.values())


@pytest.mark.parametrize(
    "changes", [{"interval": 2}, {"gdn": (16, 48, 128, 64)}, {"layers": 60}], ids=str
)
def test_red_other_sizes_have_other_bytes(changes: dict[str, Any]) -> None:
    assert replace(preset("qwen3.5-27b"), **changes).recurrent_bytes != 156_893_184


# --- tensors --------------------------------------------------------------------------------------

# Over name, type and digest of every tensor; the configuration is not part of it.
GOLDEN = {
    ("hybrid-tiny", "q4"): "38b91853bf81dd93",
    ("hybrid-tiny", "f32"): "01277cd3f76568f7",
    ("hybrid-64", "q4"): "05a5046eeab590b0",
}


def tensors_digest(model: SyntheticModel) -> str:
    found = regold.digests(model).items()
    text = "".join(f"{name} {kind} {hex16(value)}\n" for name, (kind, value) in found)
    return hex16(fnv1a64_array(np.frombuffer(text.encode(), np.uint8)))


@pytest.mark.parametrize(("name", "weights"), GOLDEN)
def test_tensors_have_their_golden_digest(name: str, weights: str) -> None:
    """A change here changes what every stored dump of a hybrid means."""
    assert tensors_digest(synthetic(name, SEED, weights)) == GOLDEN[name, weights]


def test_red_another_seed_or_another_kind_of_layer() -> None:
    others = [synthetic("hybrid-tiny", 8), synthetic("hybrid-tiny", SEED, only="gdn")]
    assert GOLDEN["hybrid-tiny", "q4"] not in map(tensors_digest, others)


def test_shapes_of_both_kinds_of_layer() -> None:
    model = synthetic("hybrid-tiny", SEED, "f32")
    shapes = {name: model.tensor(name).shape for name in model.names()}
    linear = {
        **{"attn_norm": (160,), "qkv_proj": (960, 160), "z_proj": (576, 160)},
        **{"a_proj": (6, 160), "b_proj": (6, 160), "conv": (960, 4), "a_log": (6,)},
        **{"dt_bias": (6,), "gdn_norm": (96,), "out_proj": (160, 576), "ffn_norm": (160,)},
    }
    full = {
        **{"attn_norm": (160,), "q_proj": (768, 160), "k_proj": (192, 160)},
        **{"v_proj": (192, 160), "q_norm": (96,), "k_norm": (96,), "o_proj": (160, 384)},
        **{"ffn_norm": (160,)},
    }
    ffn = {"mlp.gate": (224, 160), "mlp.up": (224, 160), "mlp.down": (160, 224)}
    wanted = {"embed": (512, 160), "final_norm": (160,), "lm_head": (512, 160), "inv_freq": (12,)}
    for layer in range(8):
        own = full if layer in (3, 7) else linear
        wanted |= {f"layers.{layer}.{name}": shape for name, shape in {**own, **ffn}.items()}
    assert shapes == wanted


# --- realism --------------------------------------------------------------------------------------

TOKENS = 36
ACTIVATIONS = ("x", "ores", "act", "conv", "z", "gn", "attn", "gated")
RUNS = [("hybrid-tiny", "q4", 7), ("hybrid-tiny", "q4", 1), ("hybrid-tiny", "f32", 7)]
RUNS += [("hybrid-64", "q4", 7)]
RMS = (0.05, 50.0)
# S: the largest element, and the last third of the tokens against the third before it.
LARGEST_S = 20.0
GROWTH = 2.0
# g: the share of each layer's decays inside these bounds, and how far they lie apart.
DECAYS = (0.01, 0.99)
LEAST_SHARE = 0.5
LEAST_RANGE = 0.5
LOGITS_STD = (0.5, 3.0)

Figures = dict[str, Array]


def measure(model: Model) -> Figures:
    """Every field asked for over 36 tokens, f64[tokens, layers that have it, elements]."""
    config, names = model.config, (*ACTIVATIONS, "g", "s")
    engine = Engine(EngineSettings())
    engine.load(model, TOKENS)
    found: dict[str, list[Array]] = {name: [] for name in (*names, "logits")}
    for pos, token in enumerate(prompt_tokens(SEED, TOKENS, config.vocab)):
        layers = range(config.layers)
        keys = [Key(pos, at, name) for at in layers for name in layer_fields(config, at, names)]
        step = engine.step(token, Plan((), tensors=frozenset(keys)))
        for name in names:
            rows = [step.tensors[key].reshape(-1) for key in keys if key.field == name]
            found[name].append(np.stack(rows))
        found["logits"].append(step.logits[None])
    return {name: np.array(rows, np.float64) for name, rows in found.items()}


@cache
def figures(name: str, weights: str, seed: int) -> Figures:
    """Measured once a process."""
    return measure(synthetic(name, seed, weights))


def rms(values: Array, axis: tuple[int, ...] = (0, 2)) -> Array:
    """By layer, over tokens and elements."""
    return np.asarray(np.sqrt(np.mean(np.square(values), axis=axis)))


def outside(name: str, values: Array, low: float, high: float) -> list[str]:
    """Said where a value is outside; written so that NaN is."""
    inside = bool((values >= low).all() and (values <= high).all())
    return [] if inside else [f"{name}: {values.min():.3g} to {values.max():.3g}"]


def problems(found: Figures) -> list[str]:
    """Every way in which a run is not a real model's."""
    said = []
    for name in ACTIVATIONS:
        said += outside(f"rms of {name}", rms(found[name]), *RMS)
    s, g, third = found["s"], found["g"], TOKENS // 3
    said += outside("largest S", np.abs(s).max(axis=(1, 2)), 0.1, LARGEST_S)
    growth = rms(s[-third:]) / rms(s[third:-third])
    said += outside("growth of S", growth, 1 / GROWTH, GROWTH)
    inside = ((g > DECAYS[0]) & (g < DECAYS[1])).mean(axis=(0, 2))
    said += outside("share of g", inside, LEAST_SHARE, 1.0)
    said += outside("range of g", np.ptp(g, axis=(0, 2)), LEAST_RANGE, 1.0)
    return said + outside("spread of logits", found["logits"].std(axis=2), *LOGITS_STD)


@pytest.mark.parametrize(("name", "weights", "seed"), RUNS)
def test_a_synthetic_hybrid_behaves_like_a_real_one(name: str, weights: str, seed: int) -> None:
    found = figures(name, weights, seed)
    label = f"{name} {weights} {seed}"
    for field in (*ACTIVATIONS, "s"):
        layers = rms(found[field])
        print(f"{label}: {field} rms {layers.min():.3f} to {layers.max():.3f}")
    spread = np.quantile(found["g"], [0.05, 0.5, 0.95])
    print(f"{label}: g {spread[0]:.3f}, {spread[1]:.3f}, {spread[2]:.3f} (5 %, median, 95 %)")
    print(f"{label}: largest S {np.abs(found['s']).max():.2f}")
    assert problems(found) == []


@dataclass(frozen=True)
class Planted:
    """A model with some tensors changed, by the end of their names."""

    base: SyntheticModel
    changes: Mapping[str, Callable[[Array], Array]]
    label: str = "planted"

    @property
    def config(self) -> ModelConfig:
        """The base's."""
        return self.base.config

    def names(self) -> Iterator[str]:
        """The base's."""
        return self.base.names()

    def tensor(self, name: str) -> Array:
        """Changed where the name ends so."""
        array = self.base.tensor(name)
        for end, change in self.changes.items():
            if name.endswith(end):
                return change(array).astype(np.float32)
        return array


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"out_proj": lambda w: 500 * w}, "rms of x"),
        ({"mlp.up": lambda w: w / 50}, "rms of act"),
        ({"conv": lambda w: w / 30}, "rms of conv"),
        ({"z_proj": lambda w: w / 100}, "rms of gn"),
        ({"qkv_proj": lambda w: 64 * w}, "largest S"),
        ({"a_log": lambda w: w + 6}, "share of g"),
        ({"a_log": lambda w: w - 9}, "share of g"),
        ({"a_proj": np.zeros_like, "dt_bias": np.zeros_like, "a_log": np.zeros_like}, "range of g"),
        ({"lm_head": lambda w: w / 8}, "spread of logits"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_red_unreal_models(changes: dict[str, Callable[[Array], Array]], said: str) -> None:
    found = problems(measure(Planted(synthetic("hybrid-tiny", SEED, "f32"), changes)))
    assert any(text.startswith(said) for text in found), found


def test_red_a_state_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the norm of k the delta rule overshoots, more at every token."""

    def unnormed(out: Array, x: Array, scale: np.float32) -> None:
        out[...] = x

    monkeypatch.setattr(gdn_layer, "l2norm", unnormed)
    found = problems(measure(synthetic("hybrid-tiny", SEED, "f32")))
    assert any(text.startswith("growth of S") for text in found), found
