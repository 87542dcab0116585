"""State, mark and rollback of HfEngine: the library's cache by name, cropped or put back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import cache_utils

from parity.errors import InputError, NotRunError
from parity.model.model import synthetic
from parity.protocol import EngineSettings
from parity.registry import engine_class
from parity_torch import HfEngine, cache
from tests.cli_runner import run_cli
from tests.engines.torch.engines import (
    POSITIONS,
    engine,
    everything,
    first_other,
    folder,
    opened,
    same_bits,
)

PROMPT, DRAFT, AFTER = (5, 9, 3, 40, 17), (31, 8, 2), (11, 7)
HYBRID = {
    **{"num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 12},
}


def same_states(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Names in order, dtypes, shapes and bytes."""
    return list(one) == list(other) and all(same_bits(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a tiny hybrid."""
    return folder(tmp_path_factory.mktemp("models") / "hybrid", "Qwen3_5Text", **HYBRID)


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model whose layers see the last four tokens."""
    return folder(tmp_path_factory.mktemp("models") / "sliding", "Mistral", sliding_window=4)


@pytest.mark.parametrize("preset", ["dense-tiny", "hybrid-tiny"])
@pytest.mark.parametrize("tokens", [(), (5,), PROMPT])
def test_parts_have_the_names_and_shapes_of_the_contract(
    preset: str, tokens: tuple[int, ...]
) -> None:
    cpu: Any = engine_class("cpu")(EngineSettings("exact"))  # type: ignore[call-arg]
    cpu.load(synthetic(preset, 7, "f32"), POSITIONS)
    made = engine(preset)
    for side in (cpu, made):
        if tokens:
            side.prefill(tokens)
    wanted, found = cpu.read_state(), made.read_state()
    shapes = [(name, part.dtype.name, part.shape) for name, part in found.items()]
    assert shapes == [(name, part.dtype.name, part.shape) for name, part in wanted.items()]
    # The layout is the contract's: the values are those of another summing order.
    near = {name: np.abs(wanted[name] - found[name]).max(initial=0) for name in wanted}
    assert max(near.values()) < 1e-4
    assert not any(tokens) or max(near.values()) > 0


@pytest.mark.parametrize("tokens", [(), (5,), PROMPT])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_state_goes_on_in_another_engine(
    hybrid: Path, tokens: tuple[int, ...], dtype: str
) -> None:
    made, other = engine(hybrid, dtype=dtype), engine(hybrid, dtype=dtype)
    if tokens:
        made.prefill(tokens)
    other.prefill(DRAFT)
    state = made.read_state()
    kept = {name: part.copy() for name, part in state.items()}
    other.write_state(state)
    assert same_states(other.read_state(), kept)
    for token in AFTER:
        assert same_bits(other.step(token).logits, made.step(token).logits)
    assert same_states(state, kept)  # copies: steps write into neither
    assert same_states(other.read_state(), made.read_state())


@pytest.mark.parametrize("kind", ["hybrid", "sliding", "dense-tiny"])
@pytest.mark.parametrize("rows", [True, False])
def test_after_a_rollback_every_key_is_that_of_the_undrafted_run(
    kind: str, rows: bool, request: pytest.FixtureRequest
) -> None:
    path = kind if kind == "dense-tiny" else request.getfixturevalue(kind)
    made, other = engine(path), engine(path)
    plan = everything(made)
    for side in (made, other):
        side.prefill(PROMPT)
    before = made.read_state()
    made.mark()
    if rows:
        made.step_rows(DRAFT)
    else:
        for token in DRAFT:
            made.step(token)
    made.rollback()
    assert same_states(made.read_state(), before)
    for token in AFTER:
        ref, dut = other.step(token, plan), made.step(token, plan)
        assert (first_other(ref, dut), same_bits(ref.logits, dut.logits)) == ("", True)
    assert same_states(made.read_state(), other.read_state())


def _forgets_recurrent(copy: Any, layer: Any) -> None:
    copy.recurrent = {}
    _PUT_BACK(copy, layer)


def _forgets_window(copy: Any, layer: Any) -> None:
    copy.attributes = {}
    _PUT_BACK(copy, layer)


def _keeps_rows(_layer: Any, _count: int) -> None:
    """A crop that drops nothing."""


_PUT_BACK = cache._Copy.put_back


@pytest.mark.parametrize(
    ("kind", "target", "name", "fault", "first", "part"),
    [
        ("hybrid", cache._Copy, "put_back", _forgets_recurrent, "t5_l0_conv", "l0_s"),
        ("sliding", cache._Copy, "put_back", _forgets_window, "t5_model.rotary_emb.0", "l0_k"),
        ("dense-tiny", cache, "crop", _keeps_rows, "t5_l0_k", "l0_k"),
    ],
)
def test_what_a_rollback_forgets_is_seen_at_its_key(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    kind: str,
    target: Any,
    name: str,
    fault: Any,
    first: str,
    part: str,
) -> None:
    path = kind if kind == "dense-tiny" else request.getfixturevalue(kind)
    made, other = engine(path), engine(path)
    plan = everything(made)
    for side in (made, other):
        side.prefill(PROMPT)
    before = made.read_state()
    monkeypatch.setattr(target, name, fault)
    made.mark()
    made.step_rows(DRAFT)
    made.rollback()
    found = made.read_state()
    assert next(key for key in before if not same_bits(before[key], found[key])) == part
    assert first_other(other.step(AFTER[0], plan), made.step(AFTER[0], plan)) == first


def test_a_mark_is_used_once_and_the_last_one_counts() -> None:
    made = engine("dense-tiny")
    with pytest.raises(InputError, match="rollback without a mark"):
        made.rollback()
    made.mark()  # at position 0
    made.prefill(PROMPT)
    made.rollback()
    assert made.read_state()["lengths"].tolist() == [0]
    made.prefill(PROMPT)
    made.mark()
    made.step(DRAFT[0])
    made.mark()
    made.step(DRAFT[1])
    made.rollback()
    assert made.read_state()["lengths"].tolist() == [len(PROMPT) + 1]
    with pytest.raises(InputError, match="rollback without a mark"):
        made.rollback()
    made.mark()
    made.reset()
    with pytest.raises(InputError, match="rollback without a mark"):
        made.rollback()


def test_a_cache_of_an_unknown_kind_has_no_state_and_no_rollback_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Packed(cache_utils.DynamicLayer):
        """A layer that parity knows nothing of."""

    monkeypatch.setitem(cache_utils.DYNAMIC_LAYER_TYPE_MAPPING, "full_attention", Packed)
    made = engine("dense-tiny")
    assert HfEngine.capabilities - made.capabilities == {"state", "rollback"}
    assert made.describe()["lacks"] == (
        "state (layer 0 has a Packed); rollback (layer 0 has a Packed)"
    )
    before = made.step(5).logits
    for call, what in (
        (made.mark, "rollback"),
        (made.rollback, "rollback"),
        (made.read_state, "state"),
    ):
        with pytest.raises(NotRunError) as told:
            call()
        assert told.value.message == (
            f"hf: dense-tiny f32 seed 7 lacks the capability '{what}': layer 0 has a Packed"
        )
    made.reset()
    assert same_bits(made.step(5).logits, before)


def test_a_model_without_a_cache_is_fed_its_whole_sequence(tmp_path: Path) -> None:
    path = folder(tmp_path / "rwkv", "Rwkv")
    made, other = engine(path), engine(path)
    assert made.lacks == {"state": "RwkvForCausalLM takes no cache of transformers"}
    other.prefill((*PROMPT, AFTER[0]))
    made.prefill(PROMPT)
    made.mark()
    made.step(DRAFT[0])
    made.rollback()
    made.step(AFTER[0])
    plan = everything(made)
    assert first_other(other.step(AFTER[1], plan), made.step(AFTER[1], plan)) == ""


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    made = engine("dense-tiny")
    made.prefill(PROMPT)
    before = made.read_state()
    with pytest.raises(InputError, match="a state of 65 positions does not fit a KV cache of 64"):
        made.write_state({**before, "lengths": np.array([65], np.int32)})
    assert same_states(made.read_state(), before)


def test_a_state_of_another_model_is_refused() -> None:
    made, other = engine("dense-tiny"), engine("hybrid-tiny")
    other.prefill(PROMPT)
    state = other.read_state()
    with pytest.raises(
        InputError, match="hf: layer 0 cannot take over this state: its parts are s"
    ):
        made.write_state(state)
    assert opened("dense-tiny").label == "dense-tiny f32 seed 7"


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Mamba"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_an_unmapped_state_has_its_parts_before_any_token(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    """Or a state of another form would be taken over, and the next step fails in the library."""
    made = engine(folder(tmp_path / "one", kind), dtype=dtype)
    before = made.read_state()
    made.step(PROMPT[0])
    after = made.read_state()
    form = {name: (part.dtype, part.shape[name[-1] in "kv" :]) for name, part in after.items()}
    assert len(form) > 1
    assert {n: (p.dtype, p.shape[n[-1] in "kv" :]) for n, p in before.items()} == form
    assert not any(part.any() for part in before.values())
    made.write_state(before)
    again = engine(tmp_path / "one", dtype=dtype)
    assert same_bits(made.step(PROMPT[1]).logits, again.step(PROMPT[1]).logits)


def test_red_two_dtypes_of_an_unmapped_model_are_compared_as_far_as_they_can_be(
    tmp_path: Path,
) -> None:
    path = folder(tmp_path / "one", "Llama")
    sides = ("--ref", f"hf:{path}", "--dut", f"hf:{path},dtype=bf16", "--n", "1")
    result = run_cli("diff", *sides)
    first = "DIVERGED  contaminated start, first at l0_k row 0 (position 0)"
    assert (result.status, result.stdout.splitlines()[0]) == (1, first)
    said = " ".join(result.stdout.split())
    assert "l0_k: ref float32[32, 2, 8], dut bfloat16[32, 2, 8]" in said
    problem = f"hf:{path},dtype=bf16 cannot take over the ref's state: l0_k: ref float32[32, 2, 8]"
    assert f"decoding from the ref's state was not tried: {problem}" in said
