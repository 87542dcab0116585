"""Synthetic models behave like real ones: sizes of activations, spread of logits and of experts.

A model in which nothing happens hides faults: logits that are all alike never flip, an expert that
is never chosen is never wrong. The bounds are wide; what is measured is printed (pytest -s).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from parity.keys import Key
from parity.model.generator import prompt_tokens
from parity.model.model import Model, SyntheticModel, synthetic
from parity.protocol import EngineSettings, Plan
from parity_cpu import Engine

TOKENS = 64
ACTIVATIONS = ("x", "ores", "act")
SEEDS = {"moe-tiny": (7, 1, 12345), "moe-48": (7, 1), "dense-tiny": (7, 1), "hybrid-tiny": (7, 1)}
# name, storage of the matrices, seed
RUNS = [(name, "q4", seed) for name, seeds in SEEDS.items() for seed in seeds]
RUNS += [("moe-tiny", "f32", 7), ("dense-tiny", "f32", 7)]
ROUTED = [run for run in RUNS if run[0].startswith("moe")]
INT8 = [run for run in RUNS if run[1] == "q4" and not run[0].startswith("hybrid")]

# Bounds: activations of size 1 within a factor of 20 and 50; a logit spread at which the greedy
# choice is neither fixed nor a lottery.
RMS = (0.05, 50.0)
LOGITS_STD = (0.5, 3.0)
# One element of a head row is 127 by construction (1/32 of it for 32 elements): more than 5 % would
# mean rows of one size.
SATURATED = 0.05
# Experts that each layer must use within TOKENS tokens, and how often one may be chosen. (Its share
# of all picks is at most 1/top_k whatever the router does, so the share of tokens is bounded.)
EXPERTS_USED = {"moe-tiny": 8, "moe-48": 12}
FAVOURITE = 0.95


@dataclass(frozen=True)
class Figures:
    """What 64 tokens gave. ``rms``: by activation, [tokens, layers]; ``picks``: [layers, E]."""

    rms: dict[str, np.ndarray]
    logits_std: np.ndarray
    saturated: dict[str, float]
    picks: np.ndarray
    choices: int


def measure(model: Model) -> Figures:
    """Run the reference engine over a synthetic prompt."""
    config = model.config
    engine = Engine(EngineSettings())
    engine.load(model, TOKENS)
    names = [*ACTIVATIONS, *(["k", "v"] if config.kv == "int8" else [])]
    names += ["topk"] if config.experts else []
    kept: dict[str, list[np.ndarray]] = {name: [] for name in names}
    logits = []
    for pos, token in enumerate(prompt_tokens(7, TOKENS, config.vocab)):
        keys = {name: [Key(pos, layer, name) for layer in range(config.layers)] for name in names}
        wanted = frozenset(key for group in keys.values() for key in group)
        step = engine.step(token, Plan((), tensors=wanted))
        logits.append(step.logits.astype(np.float64))
        for name, group in keys.items():
            kept[name].append(np.stack([step.tensors[key].reshape(-1) for key in group]))
    return Figures(
        {name: _rms(kept[name]) for name in ACTIVATIONS},
        np.std(logits, axis=1),
        {n: float(np.mean(np.abs(np.int32(kept[n])) == 127)) for n in ("k", "v")}
        if config.kv == "int8"
        else {},
        _picks(kept.get("topk", []), config.layers, config.experts),
        len({int(np.argmax(row)) for row in logits}),
    )


def _rms(values: Sequence[np.ndarray]) -> np.ndarray:
    return np.sqrt(np.mean(np.square(np.float64(values)), axis=-1))


def _picks(ids: Sequence[np.ndarray], layers: int, experts: int) -> np.ndarray:
    """How often each layer chose each expert, int[layers, experts]."""
    if not experts:
        return np.zeros((layers, 0), np.int64)
    per_layer = np.stack(ids).transpose(1, 0, 2).reshape(layers, -1)
    return np.stack([np.bincount(row, minlength=experts) for row in per_layer])


def router_problems(name: str, picks: np.ndarray) -> list[str]:
    """Layers whose router does not spread its choices."""
    used, most = (picks > 0).sum(axis=1), picks.max(axis=1) / TOKENS
    found = [
        f"layer {layer}: {count} of {picks.shape[1]} experts used"
        for layer, count in enumerate(used)
        if count < EXPERTS_USED[name]
    ]
    favourites = [(layer, share) for layer, share in enumerate(most) if share > FAVOURITE]
    return found + [f"layer {layer}: one expert for {share:.0%}" for layer, share in favourites]


@cache
def figures(name: str, weights: str, seed: int) -> Figures:
    """Measured once a process."""
    return measure(synthetic(name, seed, weights))


@pytest.mark.parametrize(("name", "weights", "seed"), RUNS)
def test_activations_stay_in_size(name: str, weights: str, seed: int) -> None:
    found = figures(name, weights, seed)
    for activation, rms in found.rms.items():
        print(f"{name} {weights} {seed}: {activation} rms {rms.min():.3f} to {rms.max():.3f}")
        assert RMS[0] <= rms.min(), activation
        assert rms.max() <= RMS[1], activation


@pytest.mark.parametrize(("name", "weights", "seed"), RUNS)
def test_logits_spread(name: str, weights: str, seed: int) -> None:
    found = figures(name, weights, seed)
    low, high = found.logits_std.min(), found.logits_std.max()
    print(f"{name} {weights} {seed}: logits std {low:.2f} to {high:.2f}, {found.choices} choices")
    assert LOGITS_STD[0] <= low
    assert high <= LOGITS_STD[1]
    assert found.choices > TOKENS // 4


@pytest.mark.parametrize(("name", "weights", "seed"), INT8)
def test_int8_rows_are_not_saturated(name: str, weights: str, seed: int) -> None:
    found = figures(name, weights, seed)
    head_dim = synthetic(name, seed, weights).config.head_dim
    for part, share in found.saturated.items():
        print(f"{name} {seed}: {part} {share:.2%} at 127")
        assert 1 / head_dim <= share < SATURATED
    assert len(found.saturated) == 2


@pytest.mark.parametrize(("name", "weights", "seed"), ROUTED)
def test_experts_are_used(name: str, weights: str, seed: int) -> None:
    picks = figures(name, weights, seed).picks
    config = synthetic(name, seed, weights).config
    assert picks.shape == (config.layers, config.experts)
    assert (picks.sum(axis=1) == TOKENS * config.top_k).all()
    used, most = (picks > 0).sum(axis=1), picks.max() / TOKENS
    print(f"{name} {weights} {seed}: {used.min()} experts or more, one for {most:.0%} of tokens")
    assert router_problems(name, picks) == []


# --- planted models -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """A model with some tensors scaled."""

    base: SyntheticModel
    part: str
    factor: float

    @property
    def config(self):  # type: ignore[no-untyped-def]
        """The base's."""
        return self.base.config

    @property
    def label(self) -> str:
        """Not a synthetic model."""
        return f"{self.base.label} planted"

    def names(self) -> Iterator[str]:
        """The base's."""
        return self.base.names()

    def tensor(self, name: str) -> np.ndarray:
        """Scaled where the name has the part in it."""
        array = self.base.tensor(name)
        if self.part not in name:
            return array
        if array.dtype == np.uint16:
            scaled = array.view(np.float16) * np.float16(self.factor)
            return scaled.astype(np.float16).view(np.uint16)
        return array * np.float32(self.factor) if array.dtype == np.float32 else array


def planted(part: str, factor: float) -> Figures:
    return measure(Planted(synthetic("moe-tiny", 7), part, factor))


def test_red_a_router_of_zeros() -> None:
    """All probabilities alike: ties go to the lowest ids, always the same three."""
    found = router_problems("moe-tiny", planted("router", 0.0).picks)
    assert "layer 0: 3 of 8 experts used" in found
    assert "layer 3: one expert for 100%" in found
    assert len(found) == 8


def test_red_matrices_too_large() -> None:
    assert planted("experts", 64.0).rms["x"].max() > RMS[1]


def test_red_matrices_too_small() -> None:
    assert planted("experts.up", 2.0**-6).rms["act"].min() < RMS[0]


def test_red_a_flat_head() -> None:
    assert planted("lm_head", 2.0**-3).logits_std.max() < LOGITS_STD[0]


def test_red_a_sharp_head() -> None:
    assert planted("lm_head", 8.0).logits_std.min() > LOGITS_STD[1]
