"""The published map: the contract's fields mean the same on the library's side and on the CPU's."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity.families import every_field, layer_fields  # noqa: E402
from parity.keys import LAYER_FIELDS, Key  # noqa: E402
from parity.protocol import EngineSettings, Plan  # noqa: E402
from parity_cpu import Engine  # noqa: E402
from parity_torch import maps  # noqa: E402
from parity_torch.engine import HfEngine  # noqa: E402
from parity_torch.maps import blocks_of, fields_of  # noqa: E402
from parity_torch.taps import Row, Taps  # noqa: E402
from tests.engines.torch.tiny import ARCHITECTURES, tiny  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "torch.md"
PRESETS = ("dense-tiny", "moe-tiny", "hybrid-tiny", "next-tiny")
PROMPT, STEPS = [3, 400, 77, 12, 9], [250, 8]
NEAR = 1e-4  # of the largest value


def both_sides(preset: str) -> tuple[HfEngine, Engine]:
    """The library and the CPU engine with one preset's f32 weights."""
    settings = EngineSettings()
    model = HfEngine.open_model(preset, seed=1, weights="f32", options={})
    sides = (HfEngine(replace(settings, tier="library")), Engine(settings))
    for side in sides:
        side.load(model, 16)
    return sides


def apart(preset: str) -> Iterator[str]:
    """Tags whose values on the two sides are not near, in the order of the ref's dump; fed are
    the same tokens: a prompt, of which the last token is looked at, then single steps."""
    library, ours = both_sides(preset)
    fields = every_field(ours.model.config)
    keys = {(layer, field) for layer, field in library.taps.keys()}  # noqa: SIM118
    assert keys == {
        *(
            (at, f)
            for at in range(ours.model.config.layers)
            for f in layer_fields(ours.model.config, at, fields)
        ),
        *((-1, "final_normed"), (-1, "logits")),
    }
    for tokens in (PROMPT, *([token] for token in STEPS)):
        start = ours.length
        wanted = [
            Key(pos, None if layer < 0 else layer, field)
            for pos in range(start, start + len(tokens))
            for layer, field in keys
        ]
        plan = Plan(fields, tensors=frozenset(wanted))
        refs, duts = (side.prefill(tokens, plan) for side in (library, ours))
        assert [e.key for e in refs[-1].entries] == [e.key for e in duts[-1].entries]
        for ref, dut in zip(refs, duts, strict=True):
            for entry in ref.entries:
                if not near(ref.tensors[entry.key], dut.tensors[entry.key]):
                    yield entry.key.tag


def near(ref: np.ndarray, dut: np.ndarray) -> bool:
    """Whether dtype and shape are the same and no element differs by more than NEAR."""
    if (ref.dtype, ref.shape) != (dut.dtype, dut.shape):
        return False
    if ref.dtype.kind == "i":
        return ref.tobytes() == dut.tobytes()
    return bool(np.abs(ref - dut).max() <= NEAR * np.abs(ref).max())


@pytest.mark.parametrize("preset", PRESETS)
def test_fields_mean_what_they_mean_to_the_cpu_engine(preset: str) -> None:
    assert list(apart(preset)) == []


def test_a_wrong_map_entry_is_seen_against_the_cpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = [hook for hook in maps.HOOKS["attention"] if hook.field != "v"]
    wrong = maps.Hook("v", "self_attn.k_proj", shape="head")
    monkeypatch.setitem(maps.HOOKS, "attention", (*hooks, wrong))
    found = list(apart("dense-tiny"))
    assert found == [f"t{pos}_l{layer}_v" for pos in range(7) for layer in range(4)]


# --- the page -----------------------------------------------------------------------------------


def table_of(name: str) -> list[tuple[str, str]]:
    """(field, where) of the lines of the page's table that hold for an architecture."""
    section = PAGE.read_text(encoding="utf-8").split("### The map\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| ([a-z_]+) \| (.+) \| (.+) \|$", section, re.MULTILINE)
    return [
        (field, where)
        for field, where, which in rows
        if which == "all" or name in which.split(", ")
    ]


def published(module: Any) -> list[tuple[str, str]]:
    """What the code's map says of a model's layers, in dataflow order."""
    found: dict[str, str] = {}
    for layer in module.model.layers:
        found |= fields_of(blocks_of(layer))
    inner = [(field, found[field]) for field in LAYER_FIELDS if field in found]
    return [*inner, *maps.OUTER.items()]


HEADINGS = {
    "Qwen3": "Qwen3ForCausalLM",
    "Qwen3Moe": "Qwen3MoeForCausalLM",
    "Qwen3Next": "Qwen3NextForCausalLM",
    "Qwen3_5": "Qwen3_5ForCausalLM",
    "Qwen3_5Moe": "Qwen3_5MoeForCausalLM",
    "Llama": "LlamaForCausalLM",
}


def test_every_mapped_architecture_is_tested_and_published() -> None:
    assert set(maps.MAPPED) == set(ARCHITECTURES) == set(HEADINGS.values())


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_page_holds_the_map_of_the_code(heading: str) -> None:
    module = tiny(HEADINGS[heading])
    assert table_of(heading) == published(module)
    keys = Taps(module).keys()
    assert {field for field, _ in table_of(heading)} == {field for _, field in keys}


def test_another_entry_than_the_code_s_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (maps.Hook("sh", "mlp.experts", flat=True),)
    monkeypatch.setitem(maps.HOOKS, "shared", wrong)
    page, code = table_of("Qwen3Next"), published(tiny("Qwen3NextForCausalLM"))
    assert set(page) ^ set(code) == {
        ("sh", "output of `mlp.shared_expert`"),
        ("sh", "output of `mlp.experts`"),
    }


def test_what_is_left_out_is_named() -> None:
    kv = {"ks": "K is not quantised", "vs": "V is not quantised"}
    assert Taps(tiny("Qwen3ForCausalLM")).left_out == kv
    assert Taps(tiny("LlamaForCausalLM")).left_out == {**kv, "knorm": "K is not normed"}
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{field}`: {why}" in text for field, why in maps.LEFT_OUT.items())


def test_values_that_an_implementation_does_not_make_are_left_out() -> None:
    """Experts in one piece: no product to be halved, so none of the four values is there."""
    module = tiny("Qwen3MoeForCausalLM")
    for layer in module.model.layers:
        layer.mlp.experts.forward = lambda hidden, ids, weights: hidden * weights.sum()
    notes: list[str] = []
    taps = Taps(module, notes.append)
    missing = {"gate", "up", "act", "down"}
    assert not missing & {field for _, field in taps.keys()}  # noqa: SIM118
    why = "this implementation makes no such value"
    left = taps.left_out
    assert {field: left[field] for field in missing} == dict.fromkeys(missing, why)
    plan = Plan(("x", "gate", "up", "act", "down"))
    for _ in range(2):
        with torch.no_grad(), taps.watching(plan, [Row(0, 0, 0)]) as seen:
            module(torch.tensor([[5]]))
        tags = [entry.key.tag for entry in seen.step(0, np.empty(0, np.float32)).entries]
        assert tags == ["t0_l0_x", "t0_l1_x"]
    assert notes == [f"hf: left out: gate, up, act, down: {why}"]
