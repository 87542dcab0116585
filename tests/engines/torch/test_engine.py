"""HfEngine: it computes what the library computes, with our weights where they were put in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from parity.comparison.states import differing_weights
from parity.errors import InputError
from parity.model.model import synthetic
from parity.promises.conformance import NOT_OFFERED
from parity.protocol import EngineSettings, Plan
from parity.registry import engine_class
from parity.testing import promise_outcomes
from parity_torch import HfEngine, building
from parity_torch.cache import cache_argument
from parity_torch.requirements import quiet
from tests.engines.torch.engines import POSITIONS, engine, everything, folder, same_bits

PRESETS = ("dense-tiny", "moe-tiny", "hybrid-tiny", "next-tiny")
FIXTURES = Path(__file__).parents[2] / "fixtures" / "hf"
TOKENS = (5, 9, 3, 40, 17, 31, 8)


def cpu_weights(preset: str) -> Any:
    """What the cpu engine holds of a preset with f32 weights."""
    cpu = engine_class("cpu")(EngineSettings("exact"))  # type: ignore[call-arg]
    cpu.load(synthetic(preset, 7, "f32"), POSITIONS)
    return cpu.weights()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_holds_our_weights(preset: str) -> None:
    wanted, found = cpu_weights(preset), engine(preset).weights()
    assert list(found) == list(wanted)
    assert differing_weights(wanted, found) == []


def _no_offset(buffer: np.ndarray, made: Any, values: np.ndarray) -> None:
    _WRITE(buffer, building.Made(made.pieces), values)


def _swapped_parts(buffer: np.ndarray, made: Any, values: np.ndarray) -> None:
    pieces = made.pieces
    _WRITE(buffer, building.Made((*pieces[1::-1], *pieces[2:]), made.offset), values)


def _reversed_taps(buffer: np.ndarray, made: Any, values: np.ndarray) -> None:
    turned = values[..., ::-1] if values.shape[-1] == 4 else values
    _WRITE(buffer, made, np.ascontiguousarray(turned))


_WRITE = building._write


@pytest.mark.parametrize(
    ("preset", "fault", "names", "count"),
    [
        ("hybrid-tiny", _no_offset, ["layers.0.attn_norm", "layers.0.ffn_norm"], 21),
        ("next-tiny", _swapped_parts, ["layers.0.qkv_proj", "layers.1.qkv_proj"], 6),
        ("hybrid-tiny", _reversed_taps, ["layers.0.conv", "layers.1.conv"], 6),
    ],
)
def test_weights_put_in_wrong_are_told(
    monkeypatch: pytest.MonkeyPatch, preset: str, fault: Any, names: list[str], count: int
) -> None:
    monkeypatch.setattr(building, "_write", fault)
    found = differing_weights(cpu_weights(preset), engine(preset).weights())
    assert (found[:2], len(found)) == (names, count)


def plain_library(path: Path, blocks: list[tuple[int, ...]], **options: Any) -> np.ndarray:
    """Logits f32[tokens, vocab] of transformers alone, block by block on its cache."""
    kind, rows = transformers.AutoModelForCausalLM, []
    with quiet(), torch.no_grad():
        module = kind.from_pretrained(path, **options).eval()
        name = cache_argument(module)
        past: Any = None
        for block in blocks:
            given = {} if past is None else {name: past}
            out = module(input_ids=torch.tensor([block]), use_cache=True, **given)
            past = out[name]
            rows.append(out.logits[0].float().numpy())
    return np.concatenate(rows)


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Qwen3_5ForConditionalGeneration"])
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_a_folder_gives_the_librarys_own_bits(name: str, attn: str) -> None:
    blocks = [TOKENS[:4], TOKENS[4:5], TOKENS[5:]]
    made = engine(FIXTURES / name, attn=attn)
    steps = made.prefill(blocks[0], everything(made))
    steps += [made.step(blocks[1][0]), *made.step_rows(blocks[2])]
    wanted = plain_library(FIXTURES / name, blocks, dtype=torch.float32, attn_implementation=attn)
    assert same_bits(np.stack([step.logits for step in steps]), wanted)
    moved = plain_library(  # the comparison sees another split of the same tokens
        FIXTURES / name, [TOKENS[:3], TOKENS[3:]], dtype=torch.float32, attn_implementation=attn
    )
    assert not same_bits(wanted, moved)


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_half_precision_is_the_librarys_and_its_dump_keeps_the_dtype(
    dtype: str, kind: torch.dtype, tmp_path: Path
) -> None:
    path = folder(tmp_path / "llama", "Llama")
    made = engine(path, dtype=dtype)
    step = made.prefill(TOKENS, everything(made))[-1]
    assert same_bits(step.logits, plain_library(path, [TOKENS], dtype=kind)[-1])
    assert {entry.type.dtype for entry in step.entries} == {dtype}
    assert {kind.dtype for kind, _ in made.weights().values()} == {dtype}


def test_a_prompt_without_a_plan_gives_the_last_step() -> None:
    made = engine("dense-tiny")
    wanted = made.prefill(TOKENS, Plan(()))
    made.reset()
    (last,) = made.prefill(TOKENS)
    assert len(wanted) == len(TOKENS)
    assert same_bits(last.logits, wanted[-1].logits)


def test_prefill_by_steps_has_the_bits_of_steps() -> None:
    single, whole = engine("dense-tiny", prefill="steps"), engine("dense-tiny")
    steps = [single.step(token) for token in TOKENS]
    single.reset()
    assert same_bits(single.prefill(TOKENS)[-1].logits, steps[-1].logits)
    assert not same_bits(whole.prefill(TOKENS)[-1].logits, steps[-1].logits)


def test_counters_show_that_rows_are_computed_together() -> None:
    made = engine("dense-tiny")
    made.step_rows(TOKENS[:4])
    rows = made.counters()
    assert rows["lm_head"] == 1
    assert rows["model.layers.self_attn.q_proj"] == 4  # one a layer
    for token in TOKENS[4:7]:
        made.step(token)
    assert made.counters() == {name: 4 * count for name, count in rows.items()}


def test_nothing_of_torch_is_left_changed() -> None:
    before = torch.get_num_threads(), torch.is_grad_enabled(), torch.random.get_rng_state().sum()
    made = engine("dense-tiny", threads="2", invariant="on")
    seen: list[Any] = []
    made.module.register_forward_hook(
        lambda *_: seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
    )
    made.step(3)
    assert seen == [(1, False)]  # invariant=on has one thread, after threads=2
    told = torch.get_num_threads(), torch.is_grad_enabled(), torch.random.get_rng_state().sum()
    assert told == before


def test_a_failed_forward_forgets_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine("dense-tiny")
    first = made.step(TOKENS[0]).logits
    made.step(TOKENS[1])
    head = made.module.lm_head
    with monkeypatch.context() as patch:
        patch.setattr(head, "forward", _raise)
        with pytest.raises(RuntimeError, match="planted"):
            made.step(TOKENS[2])
    assert same_bits(made.step(TOKENS[0]).logits, first)


def _raise(*_: Any) -> None:
    raise RuntimeError("planted")


def test_headers_tell_versions_and_what_bits_hang_on() -> None:
    facts = engine("dense-tiny", attn="eager").describe()
    assert facts["options"] == "dtype=f32 device=cpu attn=eager invariant=off prefill=whole"
    assert f"torch={torch.__version__}" in facts["packages"].split(" ")
    assert f"transformers={transformers.__version__}" in facts["packages"].split(" ")
    assert (facts["emulated"], facts["threads"]) == ("no", "1")
    assert facts["kernels"].startswith("BLAS ")
    assert "attn=sdpa" in engine("dense-tiny").describe()["options"]
    assert facts["kv"] == "f32"
    assert engine("dense-tiny", dtype="bf16").describe()["kv"] == "bf16"


def test_unrelated_sequences_leave_the_engine_reset() -> None:
    made = engine("dense-tiny")
    first = made.step(TOKENS[0]).logits
    batch = made.step_batch([TOKENS[:3], TOKENS], decode=1)
    assert [len(steps) for steps in batch] == [3, len(TOKENS)]
    assert same_bits(made.step(TOKENS[0]).logits, first)


def test_the_class_offers_what_its_members_are() -> None:
    assert engine_class("hf") is HfEngine
    assert HfEngine.order == "library"
    assert HfEngine.tiers == ("library",)


def test_the_promises_that_another_order_of_adding_does_not_keep() -> None:
    outcomes = list(promise_outcomes("hf:dense-tiny,threads=1"))
    broken = [outcome.promise for outcome in outcomes if outcome.error]
    assert broken == ["prefill_equals_steps", "rows_equal_steps"]
    lacking = [one.text for one in outcomes if one.state == NOT_OFFERED]
    assert lacking == ["elementary", "borrow"]


def test_promises_need_the_contracts_fields(tmp_path: Path) -> None:
    path = folder(tmp_path / "llama", "Llama")
    with pytest.raises(InputError, match=r"llama \(LlamaForCausalLM\) has fields of its own"):
        list(promise_outcomes(f"hf:{path}"))
