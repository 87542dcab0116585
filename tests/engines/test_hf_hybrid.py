"""The hybrid family against Hugging Face transformers on the same f32 weights.

tests/fixtures/make_hf_hybrid_logits.py made the fixtures: Qwen3.5's text model and Qwen3-Next, fed
as one prefill and token by token. A right engine and the library differ by rounding alone; the
bound is 1e-5 of the largest logit for both ways. Measured, of the largest logit: prefill 2.4e-6
(Qwen3.5), 3.0e-6 (Qwen3-Next) and, over 64 layers, 3.3e-6; token by token 3.1e-6, 3.1e-6, 3.0e-6.
The library's prefill solves the delta rule by chunks, which is another order of sums than the
recurrence of contract 3.2; at 16 tokens it is no further away than the library's own recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.model.model import Model, SyntheticModel, synthetic
from parity.model.rope import inv_freq
from parity.protocol import Plan, Step
from parity_cpu import Engine as CpuEngine
from parity_cpu import gdn_layer
from parity_cuda import CudaEngine, EmuEngine
from tests.engines.test_hf_oracle import (
    BOUND,
    WAYS,
    Array,
    Fixture,
    Mistaken,
    difference,
    every,
    problems,
    run,
    swapped,
)
from tests.fixtures.make_hf_hybrid_logits import MADE, fixture_name
from tests.fixtures.make_hf_logits import POSITIONS, SEED, weights_digest

FIXTURES = Path(__file__).parents[1] / "fixtures"
ENGINES = [CpuEngine, EmuEngine, pytest.param(CudaEngine, marks=pytest.mark.gpu)]
TINY = synthetic("hybrid-tiny", SEED, "f32")


def fixture(preset: str, kind: str) -> Fixture:
    with np.load(FIXTURES / fixture_name(preset, kind)) as stored:
        return dict(stored)


@pytest.mark.parametrize(("preset", "kind"), MADE)
@pytest.mark.parametrize("engine", ENGINES)
def test_logits_are_the_librarys(
    engine: Any, preset: str, kind: str, record_property: Callable[[str, object], None]
) -> None:
    """Prefill and cached decode of the library against one run of ours."""
    stored, model = fixture(preset, kind), synthetic(preset, SEED, "f32")
    assert weights_digest(model) == str(stored["weights"])
    ran = run(engine, model, stored["tokens"])
    for way in WAYS:
        measured = difference(stored[way], ran.logits)
        record_property(f"{way} difference", measured)
        print(f"{engine.name} {preset} {kind} {way}: {measured:.2e} of the largest logit")
        assert problems(stored, ran, way) == []


@pytest.mark.parametrize(("preset", "kind"), MADE)
def test_fixtures_are_what_they_say(preset: str, kind: str) -> None:
    """Shapes, dtypes, versions; chunks and recurrence are two computations."""
    stored, config = fixture(preset, kind), synthetic(preset, SEED, "f32").config
    for way in WAYS:
        assert stored[way].shape == (POSITIONS, config.vocab)
        assert stored[way].dtype == np.float32
    assert stored["prefill"].tobytes() != stored["cached"].tobytes()
    assert str(stored["made_with"]).startswith("transformers 5.")


def test_both_classes_read_the_same_model() -> None:
    """Interleaved and plain projections: the library against itself."""
    one, other = (fixture("hybrid-tiny", kind) for kind in ("qwen3_5", "qwen3_next"))
    for way in WAYS:
        assert difference(one[way], other[way]) <= BOUND


# --- planted mistakes -----------------------------------------------------------------------------


def rows_of(model: SyntheticModel, end: str, order: Array) -> dict[str, Array]:
    """Tensors whose leading rows are taken in another order."""
    return every(model, end, lambda w: w[order])


def heads_tiled(model: SyntheticModel) -> dict[str, Array]:
    """Value heads taken for tiled ones: head h meets key head h mod kh (contract 1.11)."""
    key_heads, value_heads, key_width, width = model.config.gdn
    h = np.arange(value_heads)
    share = value_heads // key_heads
    heads = (h % share) * key_heads + h // share
    rows = (heads[:, None] * width + np.arange(width)).reshape(-1)
    before = 2 * key_heads * key_width
    channels = np.concatenate([np.arange(before), before + rows])
    changed = every(model, "out_proj", lambda w: w[:, rows])
    for end, order in (("qkv_proj", channels), ("conv", channels), ("z_proj", rows)):
        changed |= rows_of(model, end, order)
    for end in ("a_proj", "b_proj", "a_log", "dt_bias"):
        changed |= rows_of(model, end, heads)
    return changed


def by_halves(change: Callable[[Array], Array]) -> Callable[[SyntheticModel], dict[str, Array]]:
    """q_proj seen as [heads, query or gate, hd, hidden], changed; layers of full attention only."""

    def changed(model: SyntheticModel) -> dict[str, Array]:
        shape = (model.config.n_q, 2, model.config.head_dim, model.config.hidden)
        return every(model, "q_proj", lambda w: change(w.reshape(shape)).reshape(w.shape))

    return changed


def without_gate(model: SyntheticModel) -> dict[str, Array]:
    """sigmoid(0) is exactly a half, and the doubled O takes it out again."""
    silent = by_halves(lambda w: w * np.array([1, 0], np.float32)[None, :, None, None])
    return {**silent(model), **every(model, "o_proj", lambda w: 2 * w)}


def keys_before_queries(model: SyntheticModel) -> dict[str, Array]:
    """[K | Q | V] instead of [Q | K | V]."""
    rows = model.config.gdn[0] * model.config.gdn[2]
    order = np.concatenate([np.roll(np.arange(2 * rows), rows), np.arange(2 * rows, 5 * rows)])
    return {**rows_of(model, "qkv_proj", order), **rows_of(model, "conv", order)}


def every_norm(change: Callable[[Array], Array]) -> Callable[[SyntheticModel], dict[str, Array]]:
    """The norms that Hugging Face stores as an offset."""

    def changed(model: SyntheticModel) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for end in ("attn_norm", "ffn_norm", "q_norm", "k_norm", "final_norm"):
            found |= every(model, end, change)
        return found

    return changed


MISTAKES: dict[str, Callable[[SyntheticModel], Mapping[str, Array]]] = {
    "gate missing": without_gate,
    "gate before query": by_halves(lambda w: w[:, ::-1]),
    "queries before gates in the whole row": by_halves(
        lambda w: w.reshape(2, -1, *w.shape[2:]).swapaxes(0, 1)
    ),
    "norm weights without their 1": every_norm(lambda w: w - 1),
    "1 added to the gated norm": lambda model: every(model, "gdn_norm", lambda w: w + 1),
    "no weight in the query's norm": lambda model: every(model, "q_norm", np.ones_like),
    "value heads tiled": heads_tiled,
    "keys before queries": keys_before_queries,
    "taps descending": lambda model: every(model, "conv", lambda w: w[:, ::-1]),
    "a and b swapped": lambda model: swapped(model, "a_proj", "b_proj"),
    "dt_bias left out": lambda model: every(model, "dt_bias", np.zeros_like),
    "A_log left out": lambda model: every(model, "a_log", np.zeros_like),
    "rotated the other way": lambda model: every(model, "inv_freq", lambda w: -w),
    "theta 1e6": lambda model: {"inv_freq": inv_freq(1e6, model.config.rot_dim)},
}


def expect_red(engine: Any, wrong: Model, kind: str = "qwen3_5") -> None:
    stored = fixture("hybrid-tiny", kind)
    ran = run(engine, wrong, stored["tokens"])
    for way in WAYS:
        found = difference(stored[way], ran.logits)
        print(f"{way}: {found:.2e}")
        assert found > 10 * BOUND, way
        assert problems(stored, ran, way) != [], way


@pytest.mark.parametrize("mistake", MISTAKES)
def test_red_mistake_in_reading_the_model(mistake: str) -> None:
    expect_red(CpuEngine, Mistaken(TINY, TINY.config, MISTAKES[mistake](TINY)))


@pytest.mark.parametrize("rot", [12, 48, 96])
def test_red_wrong_rot_dim(rot: int) -> None:
    config = replace(TINY.config, rot=rot)
    expect_red(CpuEngine, Mistaken(TINY, config, {"inv_freq": inv_freq(config.theta, rot)}))


def test_red_tiled_heads_against_the_other_class() -> None:
    expect_red(CpuEngine, Mistaken(TINY, TINY.config, heads_tiled(TINY)), "qwen3_next")


class Forgets(CpuEngine):
    """Loses one part of the recurrent state after each token."""

    part = ""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        state = self.read_state()
        lost = [name for name in state if name.endswith(f"_{self.part}")]
        assert lost
        self.write_state({**state, **{name: np.zeros_like(state[name]) for name in lost}})
        return step


class ForgetsS(Forgets):
    part = "s"


class ForgetsHist(Forgets):
    part = "hist"


@pytest.mark.parametrize("engine", [ForgetsS, ForgetsHist])
def test_red_engine_that_forgets(engine: type[Forgets]) -> None:
    expect_red(engine, TINY)


def test_red_query_without_its_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The norm after the delta rule does not take 1/sqrt(kd) out again: its eps is no smaller."""
    monkeypatch.setattr(gdn_layer, "sqrt", lambda width: 1.0)
    expect_red(CpuEngine, TINY)


def test_red_an_engine_that_is_off_by_little() -> None:
    """Twice the bound in one logit of one position."""
    stored = fixture("hybrid-tiny", "qwen3_5")
    ran = run(CpuEngine, TINY, stored["tokens"])
    ran.logits[11, 300] += np.float32(2 * BOUND * np.abs(stored["cached"]).max())
    for way in WAYS:
        assert [text[:16] for text in problems(stored, ran, way)] == ["logits differ by"]
