"""Each field of the map is the value that the contract says, in every mapped architecture."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity.keys import LAYER_FIELDS  # noqa: E402
from parity_torch import maps  # noqa: E402
from parity_torch.arrays import host  # noqa: E402
from parity_torch.between import Experts  # noqa: E402
from parity_torch.maps import Hook  # noqa: E402
from parity_torch.taps import Taps  # noqa: E402
from tests.engines.torch import recomputed  # noqa: E402
from tests.engines.torch.tiny import (  # noqa: E402
    ARCHITECTURES,
    DEVICES,
    Fed,
    device_of,
    of_forward,
    placed,
    tiny,
)

BLOCKS = ([5, 17, 5, 40, 3], [9], [60], [1, 2, 3])  # prefill, two steps, a block on the cache
NEAR = 1e-5  # of the largest value: sums of some 40 terms in f32


def wrong(module: Any) -> list[str]:
    """Fields whose tapped value is not what their op makes of the tapped values it reads, as
    ``block 0 l1 kraw``, in the order of the forwards."""
    return list(_wrong(module))


def _wrong(module: Any) -> Iterator[str]:
    taps = Taps(module)
    fed = Fed(module, taps)
    pasts, device = [recomputed.Past() for _ in module.model.layers], device_of(module)
    for number, tokens in enumerate(BLOCKS):
        pos = torch.arange(fed.pos, fed.pos + len(tokens), device=device)
        found = of_forward(fed.all(tokens), device)
        assert found.keys() == set(taps.keys())
        with torch.no_grad():
            x = module.model.embed_tokens(torch.tensor(tokens, device=device))
            for at, layer in enumerate(module.model.layers):
                seen = {field: value for (where, field), value in found.items() if where == at}
                wanted = recomputed.layer(layer, x, seen, pasts[at], pos)
                checked = {name: (value, exact) for name, value, exact in wanted}
                assert checked.keys() == seen.keys()
                for name in LAYER_FIELDS:
                    if name in seen and not same(seen[name], *checked[name]):
                        yield f"block {number} l{at} {name}"
                x = seen["x"]
            final = recomputed.norm(x, module.model.norm)
            logits = module.lm_head(found[-1, "final_normed"])
        for name, value in (("final_normed", final), ("logits", logits)):
            if not same(found[-1, name], value, recomputed.EXACT):
                yield f"block {number} {name}"


def same(seen: Any, wanted: Any, exact: bool) -> bool:
    """Whether dtype, shape and bytes agree, or the values within NEAR where not ``exact``."""
    if (seen.dtype, seen.shape) != (wanted.dtype, wanted.shape):
        return False
    if exact:
        return host(seen).tobytes() == host(wanted).tobytes()
    return bool((seen - wanted).abs().max() <= NEAR * wanted.abs().max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_field_is_recomputed(name: str, device: str) -> None:
    assert wrong(placed(tiny(name), device)) == []


@pytest.mark.parametrize("how", ["eager", "batched_mm"])
def test_fields_of_experts_are_those_of_every_implementation(how: str) -> None:
    module = tiny("Qwen3MoeForCausalLM", experts_implementation=how)
    assert module.config._experts_implementation == how
    assert wrong(module) == []


def test_sdpa_has_the_fields_of_eager_attention() -> None:
    assert wrong(tiny("Qwen3_5ForCausalLM", attn_implementation="sdpa")) == []


def test_a_swapped_map_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = (
        Hook("kraw", "self_attn.v_proj", shape="head"),
        Hook("v", "self_attn.k_proj", shape="head"),
    )
    monkeypatch.setitem(maps.HOOKS, "attention", swapped)
    found = wrong(tiny("Qwen3ForCausalLM"))
    first = ["block 0 l0 kraw", "block 0 l0 knorm", "block 0 l0 v", "block 0 l0 attn"]
    assert found[:4] == first
    assert len(found) == 4 * len(BLOCKS) * 2


def test_a_map_entry_of_the_wrong_side_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [hook for hook in maps.HOOKS["layer"] if hook.field != "ores"]
    moved = (*entries, Hook("ores", "input_layernorm", "in"))
    monkeypatch.setitem(maps.HOOKS, "layer", moved)
    found = wrong(tiny("LlamaForCausalLM"))
    assert found[:3] == ["block 0 l0 ores", "block 0 l0 fnrm", "block 0 l0 x"]


def test_a_value_between_modules_under_another_name_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give = Experts._give
    other: dict[str, str] = {"gate": "up", "up": "gate"}

    def swapped(self: Experts, field: str, rows: Any) -> None:
        give(self, other.get(field, field), rows)

    monkeypatch.setattr(Experts, "_give", swapped)
    found = wrong(tiny("Qwen3MoeForCausalLM"))
    assert found[:3] == ["block 0 l0 gate", "block 0 l0 up", "block 0 l0 act"]
