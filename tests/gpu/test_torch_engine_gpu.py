"""``hf:...,device=cuda``: weights, state and rollback on a device, and its memory when it ends."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity.comparison.states import differing_weights  # noqa: E402
from parity.errors import NotRunError  # noqa: E402
from parity.model.memory import DEVICE  # noqa: E402
from parity.protocol import EngineSettings  # noqa: E402
from parity_torch import HfEngine  # noqa: E402
from tests.engines.torch.engines import (  # noqa: E402
    engine,
    everything,
    first_other,
    opened,
    same_bits,
)

pytestmark = pytest.mark.gpu

PROMPT, DRAFT, AFTER = (5, 9, 3, 40, 17), (31, 8, 2), (11, 7)
PRESETS = ("dense-tiny", "moe-tiny", "hybrid-tiny", "next-tiny")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_device_holds_the_weights_of_the_host(preset: str) -> None:
    host, device = engine(preset), engine(preset, device="cuda")
    assert next(device.module.parameters()).is_cuda
    assert differing_weights(host.weights(), device.weights()) == []


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_after_a_rollback_every_key_is_that_of_the_undrafted_run(preset: str, dtype: str) -> None:
    made, other = (engine(preset, device="cuda", dtype=dtype) for _ in range(2))
    plan = everything(made)
    for side in (made, other):
        side.prefill(PROMPT)
    made.mark()
    made.step_rows(DRAFT)
    made.rollback()
    for token in AFTER:
        ref, dut = other.step(token, plan), made.step(token, plan)
        assert (first_other(ref, dut), same_bits(ref.logits, dut.logits)) == ("", True)
    again = engine(preset, device="cuda", dtype=dtype)
    again.write_state(made.read_state())
    assert same_bits(again.step(AFTER[0]).logits, made.step(AFTER[0]).logits)


def test_the_header_names_the_device() -> None:
    facts = engine("dense-tiny", device="cuda").describe()
    assert facts["device"] == torch.cuda.get_device_name()
    assert facts["driver"] == f"CUDA {torch.version.cuda}"
    assert "device=cuda" in facts["options"]


@pytest.fixture
def no_memory() -> Any:
    """A device on which this process may take next to nothing more."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    yield lambda more: torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + more) / total
    )
    torch.cuda.set_per_process_memory_fraction(1.0)


def _take_all(blocks: list[Any]) -> None:
    """Take what the allocator holds in reserve, until it ends."""
    while True:
        blocks.append(torch.empty(1 << 16, dtype=torch.uint8, device="cuda"))


def test_memory_that_ends_says_what_would_fit(no_memory: Any) -> None:
    made = engine("dense-tiny", device="cuda")
    first = made.step(5).logits
    no_memory(0)
    blocks: list[Any] = []
    with pytest.raises(torch.OutOfMemoryError):
        _take_all(blocks)
    with pytest.raises(NotRunError) as told:
        made.step_rows(tuple(range(50)))
    assert "50 tokens in one forward, 1 before them: out of device memory" in told.value.message
    assert "device=cpu" in told.value.next_step
    blocks.clear()
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert same_bits(made.step(5).logits, first)


def test_a_model_without_room_is_refused_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1000, 10**9))
    made = HfEngine(EngineSettings("library", options={"device": "cuda"}))
    with pytest.raises(NotRunError, match=f"hf: dense-tiny needs .* of {DEVICE}"):
        made.load(opened("dense-tiny"), 64)
