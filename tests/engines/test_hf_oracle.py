"""An oracle that is not ours: logits and experts of Hugging Face transformers on the same weights.

tests/fixtures/make_hf_logits.py made the fixtures. On f32 weights a right engine and the library
differ by rounding alone, so the bound is 1e-5 of the largest logit (measured: 9e-7); planted
mistakes in reading a model are all outside it, most of them by four orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.model import Model, SyntheticModel, synthetic
from parity.model.rope import inv_freq
from parity.protocol import EngineSettings, Plan
from parity_cpu import Engine as CpuEngine
from parity_cuda import CudaEngine, EmuEngine
from tests.fixtures.make_hf_logits import POSITIONS, PRESETS, SEED, weights_digest

FIXTURES = Path(__file__).parents[1] / "fixtures"
ENGINES = [CpuEngine, EmuEngine, pytest.param(CudaEngine, marks=pytest.mark.gpu)]
WAYS = ("prefill", "cached")
BOUND = 1e-5
LEAST_SPREAD = 0.5

Array = np.ndarray[Any, np.dtype[Any]]
Fixture = Mapping[str, Array]


@dataclass(frozen=True)
class Ran:
    """What an engine gave: logits f32[positions, vocab], experts int32[layers, positions, k]."""

    logits: Array
    topk: Array | None


def fixture(preset: str) -> Fixture:
    with np.load(FIXTURES / f"hf_{preset}.npz") as stored:
        return dict(stored)


def run(engine: Any, model: Model, tokens: Array) -> Ran:
    """All positions through one engine, as its own prefill does it."""
    layers, moe = range(model.config.layers), model.config.family == "moe"
    keys = [[Key(pos, layer, "topk") for pos in range(POSITIONS)] for layer in layers if moe]
    side = engine(EngineSettings())
    side.load(model, POSITIONS)
    plan = Plan((), tensors=frozenset(key for row in keys for key in row))
    steps = side.prefill([int(token) for token in tokens], plan)
    chosen = [[steps[key.pos].tensors[key] for key in row] for row in keys]
    return Ran(np.stack([step.logits for step in steps]), np.array(chosen) if moe else None)


def difference(ref: Array, dut: Array) -> float:
    """max |difference| over max |ref logit|."""
    return float(np.abs(dut.astype(np.float64) - ref).max() / np.abs(ref).max())


def problems(stored: Fixture, ran: Ran, way: str) -> list[str]:
    """Every way in which a run is not the library's."""
    found, ref = [], stored[way]
    if ran.logits.shape != ref.shape:
        return [f"shape {ran.logits.shape}, not {ref.shape}"]
    spread = np.minimum(ref.std(), ran.logits.std())
    # Written with not, so that NaN does not pass.
    if not difference(ref, ran.logits) <= BOUND:
        found.append(f"logits differ by {difference(ref, ran.logits):.2e}")
    if not spread >= LEAST_SPREAD:
        found.append(f"logits have a standard deviation of {spread:.3f}")
    if ran.topk is not None:
        other = (stored[f"{way}_topk"] != ran.topk).any(axis=-1)
        found += [f"other experts at layer {la} position {po}" for la, po in np.argwhere(other)]
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("engine", ENGINES)
def test_logits_and_experts_are_the_librarys(
    engine: Any, preset: str, record_property: Callable[[str, object], None]
) -> None:
    """Prefill and cached decode of the library against one run of ours."""
    stored, model = fixture(preset), synthetic(preset, SEED, "f32")
    assert weights_digest(model) == str(stored["weights"])
    ran = run(engine, model, stored["tokens"])
    for way in WAYS:
        measured = difference(stored[way], ran.logits)
        record_property(f"{way} difference", measured)
        print(f"{engine.name} {preset} {way}: {measured:.2e} of the largest logit")
        assert problems(stored, ran, way) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_fixtures_are_what_they_say(preset: str) -> None:
    """Shapes, dtypes, versions; experts wherever the model has them."""
    stored, config = fixture(preset), synthetic(preset, SEED, "f32").config
    for way in WAYS:
        assert stored[way].shape == (POSITIONS, config.vocab)
        assert stored[way].dtype == np.float32
        if config.family == "moe":
            assert stored[f"{way}_topk"].shape == (config.layers, POSITIONS, config.top_k)
    assert ("prefill_topk" in stored) == (config.family == "moe")
    assert str(stored["made_with"]).startswith("transformers 5.")


# --- planted mistakes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistaken:
    """A model whose reader made one mistake: other tensors, or another configuration."""

    model: SyntheticModel
    config: ModelConfig
    changed: Mapping[str, Array] = field(default_factory=dict)
    label: str = "mistaken"

    def names(self) -> Iterator[str]:
        return self.model.names()

    def tensor(self, name: str) -> Array:
        return self.changed[name] if name in self.changed else self.model.tensor(name)


def every(model: SyntheticModel, end: str, change: Callable[[Array], Array]) -> dict[str, Array]:
    """The tensors whose name ends so, each changed."""
    names = [name for name in model.names() if name.endswith(end)]
    assert names, end
    return {name: np.ascontiguousarray(change(model.tensor(name))) for name in names}


def swapped(model: SyntheticModel, left: str, right: str) -> dict[str, Array]:
    """Two tensors of each layer change places."""
    names = [name for name in model.names() if name.endswith(left)]
    assert names, left
    others = [name.removesuffix(left) + right for name in names]
    pairs = [*zip(names, others, strict=True), *zip(others, names, strict=True)]
    return {name: model.tensor(other) for name, other in pairs}


def pairs_side_by_side(model: SyntheticModel) -> dict[str, Array]:
    """RoPE on elements (2i, 2i + 1): the halves of a head whose rows stand in that order."""
    hd = model.config.head_dim
    order = np.concatenate([np.arange(0, hd, 2), np.arange(1, hd, 2)])

    def rows(w: Array) -> Array:
        return w.reshape(-1, hd, w.shape[1])[:, order].reshape(w.shape)

    changed = {**every(model, "q_proj", rows), **every(model, "k_proj", rows)}
    for name in ("q_norm", "k_norm"):
        changed |= every(model, name, lambda w: w[order])
    return changed


def heads_reversed(model: SyntheticModel) -> dict[str, Array]:
    """Query heads meet the other KV heads."""
    hd = model.config.head_dim

    def rows(w: Array) -> Array:
        return w.reshape(-1, hd, w.shape[1])[::-1].reshape(w.shape)

    return {**every(model, "k_proj", rows), **every(model, "v_proj", rows)}


MISTAKES: dict[str, Callable[[SyntheticModel], Mapping[str, Array]]] = {
    "theta 1e4": lambda model: {"inv_freq": inv_freq(1e4, model.config.rot_dim)},
    "rotated the other way": lambda model: every(model, "inv_freq", lambda w: -w),
    "neighbouring pairs rotate": pairs_side_by_side,
    "no weight in the FFN's norm": lambda model: every(model, "ffn_norm", np.ones_like),
    "no weight in the query's norm": lambda model: every(model, "q_norm", np.ones_like),
    "no weight in the last norm": lambda model: every(model, "final_norm", np.ones_like),
    "norm weight stored as an offset": lambda model: every(model, "attn_norm", lambda w: 1 + w),
    "KV heads reversed": heads_reversed,
    "head tied to the embedding": lambda model: {"lm_head": model.tensor("embed")},
    "gate and up swapped": lambda model: swapped(model, ".gate", ".up"),
}


def expect_red(stored: Fixture, wrong: Model) -> None:
    ran = run(CpuEngine, wrong, stored["tokens"])
    for way in WAYS:
        found = problems(stored, ran, way)
        assert found, way
        print(f"{way}: {difference(stored[way], ran.logits):.2e}, {len(found)} problems")


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("preset", ["dense-tiny", "moe-tiny"])
def test_red_mistake_in_reading_the_model(preset: str, mistake: str) -> None:
    model = synthetic(preset, SEED, "f32")
    expect_red(fixture(preset), Mistaken(model, model.config, MISTAKES[mistake](model)))


@pytest.mark.parametrize(
    "changes",
    [{"norm_topk_prob": False}, {"eps": 1e-5}, {"top_k": 2}],
    ids=lambda changes: next(iter(changes)),
)
def test_red_other_constants(changes: dict[str, Any]) -> None:
    model, stored = synthetic("moe-tiny", SEED, "f32"), dict(fixture("moe-tiny"))
    # Two of the library's three: the ids alone would agree, the logits must not.
    for way in WAYS:
        stored[f"{way}_topk"] = stored[f"{way}_topk"][:, :, : changes.get("top_k")]
    expect_red(stored, Mistaken(model, replace(model.config, **changes)))


def test_red_one_expert_of_one_position() -> None:
    stored = fixture("moe-tiny")
    topk = stored["prefill_topk"].astype(np.int32)
    ran = Ran(stored["prefill"], topk.copy())
    assert problems(stored, ran, "prefill") == []
    assert ran.topk is not None
    ran.topk[2, 11, 1] = (set(range(8)) - set(topk[2, 11])).pop()
    assert problems(stored, ran, "prefill") == ["other experts at layer 2 position 11"]


def test_red_logits_that_prove_nothing() -> None:
    """Small logits, NaN, another shape and a difference just above the bound."""
    stored = fixture("dense-tiny")
    small = {**stored, "prefill": stored["prefill"] * np.float32(0.1)}
    assert problems(small, Ran(small["prefill"], None), "prefill") == [
        "logits have a standard deviation of 0.079"
    ]
    holed = stored["prefill"].copy()
    holed[3, 5] = np.nan
    assert len(problems(stored, Ran(holed, None), "prefill")) == 2
    assert problems(stored, Ran(holed[1:], None), "prefill") == ["shape (15, 512), not (16, 512)"]
    moved = stored["prefill"].copy()
    moved[3, 5] += np.float32(1.1 * BOUND * np.abs(moved).max())
    assert problems(stored, Ran(moved, None), "prefill") == ["logits differ by 1.10e-05"]


def test_red_other_weights() -> None:
    assert weights_digest(synthetic("moe-tiny", 8, "f32")) != str(fixture("moe-tiny")["weights"])
