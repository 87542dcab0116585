"""Generic fields: every module's output under its path, whatever form the output has."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers  # noqa: E402

from parity.comparison.elements import compare_tensors  # noqa: E402
from parity.families import dumped_fields  # noqa: E402
from parity.keys import FINAL_FIELDS, LAYER_FIELDS, Key  # noqa: E402
from parity.protocol import EngineSettings, Injection, Plan  # noqa: E402
from parity_torch.engine import HfEngine  # noqa: E402
from parity_torch.generic import Layout, layout_of  # noqa: E402
from parity_torch.taps import Taps  # noqa: E402
from tests.engines.torch.tiny import Fed, hooks_of, of_forward, plan_of, prints  # noqa: E402

nn: Any = torch.nn
WIDTH = 6


class Turned(nn.Module):
    """A view that is not contiguous: [B, 3, T, 2]."""

    def forward(self, x: Any) -> Any:
        return x.view(*x.shape[:2], 3, 2).transpose(1, 2)


class Several(nn.Module):
    """A tuple with None, a mapping, booleans, integers and a number that is no tensor."""

    def forward(self, x: Any) -> Any:
        return x + 1, None, {"sign": x > 0, "ids": x.argmax(-1)}, 7


class Nothing(nn.Module):
    """No output."""

    def forward(self, x: Any) -> None:
        return None


class Table(nn.Module):
    """No dimension is the tokens: the same for any input."""

    def forward(self, x: Any) -> Any:
        return x.new_ones(4, 4)


class Pairs(nn.Module):
    """Two dimensions are the tokens: scores, of which no row is comparable between forwards."""

    def forward(self, x: Any) -> Any:
        return x @ x.transpose(1, 2)


class Block(nn.Module):
    """One layer: a module called twice, one that works in place, and names of the contract."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(WIDTH, WIDTH)
        self.turned, self.several, self.nothing = Turned(), Several(), Nothing()
        self.table, self.pairs = Table(), Pairs()
        self.clip = nn.ReLU(inplace=True)
        self.twice = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(x)
        turned = self.turned(x).transpose(1, 2).flatten(2)
        made, _, named, _ = self.several(turned)
        self.nothing(x)
        made = made * self.table(x)[0, 0] + self.pairs(x).sum() * 0
        hidden = self.clip(self.twice(made))
        return self.twice(hidden) + named["sign"] + x


class Odd(nn.Module):
    """Two layers between an embedding of flat rows and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.logits = nn.Linear(WIDTH, 11)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids.flatten()).view(*ids.shape, WIDTH)
        for block in self.blocks:
            x = block(x)
        return self.logits(x)


@pytest.fixture
def odd() -> Any:
    """The model, its weights drawn anew for each test."""
    torch.manual_seed(2)
    return Odd().eval()


INNER = (
    *("m.attn", "turned", "several.0", "several.2.sign", "several.2.ids"),
    *("twice", "clip", "twice-2", "output"),
)


def test_every_tensor_that_has_rows_is_a_field_in_call_order(odd: Any) -> None:
    taps = Taps(odd)
    assert not taps.mapped
    inner = [(layer, field) for layer in (0, 1) for field in INNER]
    assert taps.keys() == ((-1, "embed"), *inner, (-1, "logits"))
    why = "not one dimension is the tokens of the forward"
    assert taps.left_out == {"table": why, "pairs": why, "m.logits": "the tensor of logits"}
    ours = {*LAYER_FIELDS, *FINAL_FIELDS} - {"logits"}
    assert not ours & {field for _, field in taps.keys()}  # noqa: SIM118


def test_rows_are_what_the_modules_gave(odd: Any) -> None:
    taps, tokens = Taps(odd), [3, 1, 10, 0]
    found = of_forward(Fed(odd, taps).all(tokens))
    with torch.no_grad():
        x = odd.embed(torch.tensor(tokens))
        block = odd.blocks[0]
        wanted = {(-1, "embed"): x, (0, "m.attn"): block.attn(x)}
        x = x + found[0, "m.attn"]
        wanted[0, "turned"] = x.view(4, 3, 2)
        wanted[0, "several.0"] = x + 1
        wanted[0, "several.2.sign"] = x > 0
        wanted[0, "several.2.ids"] = x.argmax(-1)
        wanted[0, "twice"] = block.twice(found[0, "several.0"])  # before clip works in place
        wanted[0, "clip"] = wanted[0, "twice"].relu()
        wanted[0, "twice-2"] = block.twice(found[0, "clip"])
        wanted[0, "output"] = wanted[0, "twice-2"] + found[0, "several.2.sign"] + x
    for place, value in wanted.items():
        assert (found[place].dtype, found[place].shape) == (value.dtype, value.shape), place
        assert found[place].numpy().tobytes() == value.contiguous().numpy().tobytes(), place
    steps = Fed(odd, taps).all(tokens)
    types = {entry.key.tag: str(entry.type) for entry in steps[2].entries}
    assert types["t2_l0_several.2.sign"] == "bool[6]"
    assert types["t2_l1_several.2.ids"] == "int64[]"
    assert types["t2_l1_turned"] == "f32[3,2]"


def test_hooks_leave_every_bit_and_none_remains(odd: Any) -> None:
    taps, tokens = Taps(odd), [3, 1, 10, 0]
    without = odd(torch.tensor([tokens]))
    steps = Fed(odd, taps).all(tokens)
    for at, step in enumerate(steps):
        assert step.logits.tobytes() == without[0, at].detach().numpy().tobytes()
    assert hooks_of(odd) == 0
    same = Fed(odd, taps)
    plan = plan_of(taps, range(4), replace=lambda key, made: made())
    assert prints(same.feed(tokens, plan)) == prints(steps)


@pytest.mark.parametrize("field", INNER)
def test_a_moved_element_is_the_first_key_that_changes(odd: Any, field: str) -> None:
    taps, key = Taps(odd), Key(1, 1, field)
    plain = Fed(odd, taps).all([3, 1, 10])

    def changed(inject: Injection) -> list[str]:
        moved = Fed(odd, taps).feed([3, 1, 10], plan_of(taps, range(3), inject=inject))
        pairs = zip(prints(plain), prints(moved), strict=True)
        elements = compare_tensors(key.tag, plain[1].tensors[key], moved[1].tensors[key])
        assert elements.differ == (1 if inject.change is None else elements.total)
        return [one[0] for one, other in pairs if one != other]

    # An output that works in place, or is a view, is its input too: that was hashed before.
    assert changed(Injection(key))[0] == key.tag
    tags = changed(Injection(key, change=lambda made: ~made if made.dtype == bool else made + 1))
    assert tags[0] == key.tag
    assert ("t1_logits" in tags) == (field != "several.2.ids")  # which nothing reads


@pytest.mark.parametrize(
    ("one", "other", "layout"),
    [
        ((2, 3, 7), (1, 5, 7), Layout(1, "own")),
        ((6, 7), (5, 7), Layout(0, "flat")),
        ((1, 3, 7), (1, 5, 7), Layout(1, "shared")),
        ((3, 7), (5, 7), Layout(0, "none")),
        ((2, 4, 3, 7), (1, 4, 5, 7), Layout(2, "own")),
        ((2, 4, 3, 3), (1, 4, 5, 5), None),
        ((2, 4, 3, 3), (1, 4, 5, 9), None),
        ((2, 3, 3), (1, 5, 9), None),
        ((6, 3), (5, 9), None),
        ((2, 7), (1, 7), None),
        ((4, 4), (4, 4), None),
        ((2, 3), (1, 5, 1), None),
    ],
)
def test_where_the_tokens_stand(
    one: tuple[int, ...], other: tuple[int, ...], layout: Layout | None
) -> None:
    assert layout_of(one, other) == layout


def test_an_architecture_without_a_map_gets_fields_by_module_path() -> None:
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=31, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    module: Any = transformers.GPT2LMHeadModel(config).eval()
    taps = Taps(module)
    fed = Fed(module, taps)
    block, (step,) = fed.all([1, 2, 3, 4]), fed.all([5])
    keys = {(-1 if e.key.layer is None else e.key.layer, e.key.field) for e in step.entries}
    assert keys == set(taps.keys())
    assert [entry.key._replace(pos=4) for entry in block[0].entries] == [
        entry.key for entry in step.entries
    ]
    assert {field for _, field in taps.keys()} >= {"mlp.c_proj", "attn.c_proj"}  # noqa: SIM118
    for again in ("mlp", "mlp.dropout"):  # dropout hands its input on
        assert taps.left_out[again] == "the tensor of mlp.c_proj"
    hashes = [entry.digest for entry in step.entries]
    assert len(set(hashes)) == len(hashes)
    found = of_forward(block)
    with torch.no_grad():
        wanted = module.transformer.h[1].mlp.c_fc(found[1, "ln_2"])
        logits = module(torch.tensor([[1, 2, 3, 4]])).logits[0]
    assert found[1, "mlp.c_fc"].numpy().tobytes() == wanted.numpy().tobytes()
    assert found[-1, "logits"].numpy().tobytes() == logits.numpy().tobytes()
    assert np.array([s.logits for s in block]).tobytes() == logits.numpy().tobytes()


class Notes:
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        """Keep one."""
        self.lines.append(text)


def test_a_model_without_a_map_says_so(tmp_path: Path) -> None:
    sizes = {"vocab_size": 31, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    body = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **sizes}
    (tmp_path / "config.json").write_text(json.dumps(body), encoding="utf-8")
    notes = Notes()
    settings = EngineSettings("library", notes=notes)

    def loaded(text: str) -> HfEngine:
        engine = HfEngine(settings)
        engine.load(HfEngine.open_model(text, seed=1, weights="f32", options={}), 8)
        return engine

    assert loaded("dense-tiny").describe()["map"] == "published for Qwen3ForCausalLM"
    assert notes.lines == []
    engine = loaded(str(tmp_path))
    text = "none for GPT2LMHeadModel: fields are named after its modules"
    assert engine.describe()["map"] == text
    assert notes.lines == [f"hf: map {text}"]
    step = engine.step(3, Plan(dumped_fields(engine.model.config)))
    assert [entry.key for entry in step.entries] == [
        Key(0, None if layer < 0 else layer, field)
        for layer, field in engine.taps.keys()  # noqa: SIM118
    ]
