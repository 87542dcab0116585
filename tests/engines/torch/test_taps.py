"""Taps change no bit unless asked to, and then exactly what was asked."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity.comparison.elements import compare_tensors  # noqa: E402
from parity.dtypes import FLOATS  # noqa: E402
from parity.errors import InputError, ParityBug  # noqa: E402
from parity.keys import Key  # noqa: E402
from parity.protocol import Injection, Plan, Step  # noqa: E402
from parity_torch.taps import Row, Taps  # noqa: E402
from parity_torch.values import Value  # noqa: E402
from parity_torch.watch import Watch  # noqa: E402
from tests.engines.torch.tiny import (  # noqa: E402
    ARCHITECTURES,
    DEVICES,
    Fed,
    hooks_of,
    placed,
    plan_of,
    prints,
    tiny,
)

PROMPT = [5, 17, 5, 40, 3]


def after_prompt(module: Any) -> Fed:
    """A sequence whose prompt is fed, without taps."""
    fed = Fed(module, Taps(module))
    fed.feed(PROMPT, None)
    return fed


def stepped(module: Any, **more: Any) -> Step:
    """The step after the prompt, with every field, under a plan with ``more``."""
    fed = after_prompt(module)
    return fed.feed([9], plan_of(fed.taps, [fed.pos], **more))[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_any_set_of_hooks_leaves_every_bit(name: str, device: str) -> None:
    module = placed(tiny(name), device)
    taps = Taps(module)
    keys = taps.keys()
    fields = sorted({field for _, field in keys})
    blocks = (PROMPT, [9], [1, 2])

    def run(chosen: list[str] | None) -> list[tuple[str, str]]:
        fed = Fed(module, taps)
        plan = None if chosen is None else Plan(tuple(chosen))
        return [line for block in blocks for line in prints(fed.feed(block, plan))]

    everything = run(fields)
    logits = [line for line in everything if line[0] == "logits"]
    assert len(everything) > 50
    assert run(None) == logits
    dice = random.Random(1)
    for _ in range(4):
        some = dice.sample(fields, dice.randint(1, len(fields) - 1))
        kept = [line for line in everything if line[0].rpartition("_")[2] in some]
        final = [line for line in everything if line[0].endswith("final_normed")]
        kept += final if "final_normed" in some else []
        wanted = [line for line in everything if line in kept or line in logits]
        assert run(some) == wanted


@pytest.mark.parametrize("name", ["Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"])
def test_an_element_moved_is_the_first_key_that_changes(name: str) -> None:
    module = tiny(name)
    plain = stepped(module)
    keys = [key for key in Taps(module).keys() if key[0] in (-1, 0, 3)]  # noqa: SIM118
    for layer, field in keys:
        key = Key(5, None if layer < 0 else layer, field)
        moved = stepped(module, inject=Injection(key, 1 if field not in ("gs", "beta") else 0))
        at = next(
            at
            for at, (one, other) in enumerate(zip(plain.entries, moved.entries, strict=True))
            if one != other
        )
        changed = plain.entries[at].key
        assert changed == key
        wanted = plain.tensors[key].copy()
        found = compare_tensors(key.tag, wanted, moved.tensors[key])
        assert (found.differ, found.max_ulp) == (1, 1)


def test_a_moved_residual_reaches_everything_that_reads_it() -> None:
    module = tiny("Qwen3ForCausalLM")
    plain = stepped(module)
    large = stepped(module, inject=Injection(Key(5, 0, "ores"), change=lambda made: made + 1))
    changed = {
        one.key.tag for one, other in zip(plain.entries, large.entries, strict=True) if one != other
    }
    before = [entry.key.tag for entry in plain.entries if entry.key.layer == 0]
    later = before[before.index("t5_l0_ores") :]
    assert changed == {*later, *(e.key.tag for e in plain.entries if e.key.layer != 0)}
    difference = large.tensors[Key(5, 0, "x")] - plain.tensors[Key(5, 0, "x")]
    difference -= large.tensors[Key(5, 0, "down")] - plain.tensors[Key(5, 0, "down")]
    assert np.allclose(difference, 1, atol=1e-5)  # the sum of residual and FFN reads it too


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_replacing_by_the_same_changes_nothing_and_asks_for_every_key(name: str) -> None:
    module = tiny(name)
    plain = stepped(module)
    asked: list[Key] = []

    def same(key: Key, made: Any) -> np.ndarray:
        asked.append(key)
        found: np.ndarray = made()
        return found

    again = stepped(module, replace=same)
    assert prints([again]) == prints([plain])
    assert len(asked) == len(plain.entries)
    assert set(asked) == {entry.key for entry in plain.entries}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_is_replaced_is_reported_as_made_and_read_as_given(name: str) -> None:
    """A step on another token becomes the first one, if all that it reads is put in its place."""
    module = tiny(name)
    plain = stepped(module)
    fed = after_prompt(module)
    firsts = {key for key in plain.tensors if key.layer == 0 and key.field == "nrm"}
    firsts |= {key for key in plain.tensors if key.layer == 0 and key.field == "ores"}

    def put(key: Key, made: Any) -> np.ndarray | None:
        return plain.tensors[key] if key in firsts else None

    found = fed.feed([44], plan_of(fed.taps, [5], replace=put))[0]
    ours = {entry.key.tag for entry in found.entries if entry not in plain.entries}
    assert ours == {"t5_l0_nrm", "t5_l0_ores"}
    assert found.logits.tobytes() == plain.logits.tobytes()


@pytest.mark.parametrize("field", ["hist", "s", "k"])
def test_a_replaced_state_is_what_the_next_step_reads(field: str) -> None:
    module = tiny("Qwen3NextForCausalLM")

    def next_step(plan: dict[str, Any]) -> Step:
        fed = after_prompt(module)
        fed.feed([9], plan_of(fed.taps, [5], **plan))
        return fed.all([11])[0]

    plain, layer = next_step({}), 3 if field == "k" else 0
    change = Injection(Key(5, layer, field), change=lambda made: made * 2)
    first = next(
        one.key.tag
        for one, other in zip(plain.entries, next_step({"inject": change}).entries, strict=True)
        if one != other
    )
    assert first == {"hist": "t6_l0_conv", "s": "t6_l0_s", "k": "t6_l3_attn"}[field] or (
        field == "k" and first.startswith("t6_l0")
    )


def test_a_value_that_nothing_keeps_cannot_be_changed() -> None:
    module = tiny("Qwen3NextForCausalLM")
    fed = Fed(module, Taps(module))
    plan = plan_of(fed.taps, range(5), inject=Injection(Key(2, 0, "hist")))
    with pytest.raises(InputError) as raised:
        fed.feed(PROMPT, plan)
    assert raised.value.message == (
        "t2_l0_hist: this value cannot be changed in the forward that makes it"
    )
    assert raised.value.next_step == (
        "choose a key that docs/torch.md does not call read only, or feed single tokens"
    )
    assert hooks_of(module) == 0


def test_no_hook_remains() -> None:
    module = tiny("Qwen3ForCausalLM")
    taps = Taps(module)
    standing: list[int] = []

    @contextmanager
    def broken() -> Iterator[None]:
        handle = module.lm_head.register_forward_pre_hook(fail)
        yield
        handle.remove()

    def fail(*_: Any) -> None:
        standing.append(hooks_of(module))
        raise ArithmeticError("in the middle")

    ids = torch.tensor([[1, 2]])
    rows = [Row(0, 0, 0), Row(1, 0, 1)]
    with broken(), pytest.raises(ArithmeticError), taps.watching(Plan(("x",)), rows):
        module(ids)
    with broken(), pytest.raises(ArithmeticError), taps.watching(None, rows):
        module(ids)
    assert standing[0] > 20
    assert standing[1] == 1  # without a plan: the test's own
    assert hooks_of(module) == 0
    assert not torch.overrides._get_current_function_mode_stack()


def test_a_field_offered_twice_is_a_bug_and_said() -> None:
    module = tiny("Qwen3ForCausalLM")
    with Taps(module).watching(Plan(("nrm",)), [Row(0, 0, 0)]):
        module(torch.tensor([[1]]))
        with pytest.raises(ParityBug, match="layer 0: nrm was offered twice in one forward"):
            module(torch.tensor([[1]]))


def test_only_the_places_asked_for_are_reported() -> None:
    module = tiny("Qwen3ForCausalLM")
    fed = Fed(module, Taps(module))
    plan = Plan(("x", "attn", "logits"), places=frozenset({(1, 0), (3, None)}))
    steps = fed.feed(PROMPT, plan)
    assert [entry.key.tag for step in steps for entry in step.entries] == [
        *("t1_l0_attn", "t1_l0_x", "t3_logits")
    ]


def test_a_trace_names_what_ran_for_a_key() -> None:
    module = tiny("Qwen3ForCausalLM")
    keys = frozenset({Key(5, 0, "kraw"), Key(5, 0, "act"), Key(5, 1, "attn")})
    step = stepped(module, trace=keys)
    ran = {key.field: [call.op for call in calls] for key, calls in step.calls.items()}
    assert ran.keys() == {"kraw", "act", "attn"}
    assert ran["kraw"][-1] == "linear"
    assert ran["act"] == ["mul"]
    assert "softmax" in ran["attn"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["Qwen3MoeForCausalLM", "Qwen3_5ForCausalLM"])
def test_short_formats_are_dumped_as_they_are(name: str, dtype: str) -> None:
    module = tiny(name, dtype=dtype)
    short = {"bfloat16": "bf16", "float16": "f16"}[dtype]
    plain = stepped(module)
    types = {entry.key.field: entry.type.dtype for entry in plain.entries if entry.type}
    wide = {"g", "qn", "kn", "s"} & types.keys()  # the delta rule runs in f32
    ids = {"topk"} & types.keys()
    assert types == {
        field: "f32" if field in wide else "int32" if field in ids else short for field in types
    }
    assert {field for field, name in types.items() if name == short} >= {"nrm", "v", "x", "logits"}
    key = Key(5, 1, "x") if "Moe" in name else Key(5, 1, "ores")
    moved = stepped(module, inject=Injection(key, 7))
    found = compare_tensors(key.tag, plain.tensors[key], moved.tensors[key])
    assert (found.ref_type, found.differ, found.max_ulp, found.unit) == (
        *(f"{short}[24]", 1, 1),
        "ULP",
    )
    bits = (step.tensors[key].view(np.uint16)[7].astype(int) for step in (plain, moved))
    assert abs(int.__sub__(*map(int, bits))) == 1
    assert FLOATS[short].bits == 16


def test_values_that_are_not_finite_are_counted() -> None:
    module = tiny("Qwen3ForCausalLM", dtype="bfloat16")

    def spoil(made: np.ndarray) -> np.ndarray:
        made[[2, 5]] = np.inf, np.nan
        return made

    step = stepped(module, inject=Injection(Key(5, 0, "nrm"), change=spoil))
    lines = {entry.key.tag: entry.nonfinite for entry in step.entries}
    assert lines["t5_l0_nrm"] == (2, 2)
    assert lines["t5_l0_kraw"] == (32, 0)


def test_rows_of_a_batch_are_its_own_tokens() -> None:
    """The second of two sequences, two tokens shorter, in the last rows of a padded forward."""
    module = tiny("Qwen3ForCausalLM")
    taps = Taps(module)
    ids = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 3]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    places = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 1]])
    plan = plan_of(taps, range(4))
    rows = [Row(0, 1, 2), Row(1, 1, 3)]
    with torch.no_grad(), taps.watching(plan, rows) as seen:
        out = module(ids, attention_mask=mask, position_ids=places)
    steps = [seen.step(at, out.logits[1, 2 + at].numpy()) for at in range(2)]
    alone = Fed(module, taps).all([9, 3])
    for step, single in zip(steps, alone, strict=True):
        assert step.tensors.keys() == single.tensors.keys()
        for key, value in step.tensors.items():
            assert np.abs(value - single.tensors[key]).max() < 1e-5


def test_a_tap_that_writes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module, take = tiny("LlamaForCausalLM"), Value.take
    plain = Fed(module, Taps(module)).feed(PROMPT, None)

    def heavy(self: Value, *where: Any) -> Any:
        self.views[0].mul_(1 + 2**-20)
        return take(self, *where)

    monkeypatch.setattr(Value, "take", heavy)
    assert prints(Fed(module, Taps(module)).feed(PROMPT, Plan(("nrm",))))[-1] != prints(plain)[-1]


def test_a_hook_that_stays_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny("LlamaForCausalLM")
    monkeypatch.setattr(Watch, "_keep", lambda self, handle: None)
    with Taps(module).watching(Plan(("nrm",)), [Row(0, 0, 0)]):
        module(torch.tensor([[1]]))
    assert hooks_of(module) > 20


def test_logits_of_the_last_token_alone_are_its_own() -> None:
    module = tiny("LlamaForCausalLM")
    taps = Taps(module)
    plan, rows = plan_of(taps, range(3)), [Row(at, 0, at) for at in range(3)]
    with torch.no_grad(), taps.watching(plan, rows) as seen:
        last = module(torch.tensor([[4, 5, 6]]), logits_to_keep=1).logits[0, 0].numpy()
    steps = [seen.step(at, last) for at in range(3)]
    assert [Key(at, None, "logits") in steps[at].tensors for at in range(3)] == [False, False, True]
    assert steps[2].tensors[Key(2, None, "logits")].tobytes() == last.tobytes()
