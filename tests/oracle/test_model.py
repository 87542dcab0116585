"""The oracle model's wiring (contract 2): every field derived again from the fields it reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.oracle import scalar, twin
from tests.oracle.model import Fields, OracleModel, softmax_scale
from tests.oracle.values import normal, random_nibbles, random_scales

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = Mapping[str, Array]
CONFIG = SimpleNamespace(
    layers=2,
    hidden=64,
    n_q=4,
    n_kv=2,
    head_dim=32,
    rot_dim=24,
    inter=32,
    experts=5,
    top_k=3,
    vocab=40,
    theta=1e6,
    eps=1e-6,
    norm_topk_prob=True,
)
TOKENS = (7, 39, 7)
BEFORE_FFN = ["nrm", "kraw", "knorm", "k", "ks", "v", "vs", "qrope", "attn", "ores"]
FFN = ["fnrm", "rlogits", "topk", "topp", "gate", "up", "act", "down"]
LAYER_FIELDS = [*BEFORE_FFN, *FFN, "x"]


def _matrix(tensors: dict[str, Array], name: str, *shape: int) -> None:
    """Q4_0 of shape [..., cols]."""
    *outer, cols = shape
    tensors[f"{name}.d"] = random_scales(name, *outer, cols // 32)
    tensors[f"{name}.qs"] = random_nibbles(name, *outer, cols // 32)


def make_tensors() -> dict[str, Array]:
    """Seeded random weights under the model's names."""
    c = CONFIG
    tensors = {
        "inv_freq": scalar.inv_freq(c.theta, c.rot_dim),
        "final_norm": normal("final_norm", c.hidden),
    }
    _matrix(tensors, "embed", c.vocab, c.hidden)
    _matrix(tensors, "lm_head", c.vocab, c.hidden)
    for layer in range(c.layers):
        p = f"layers.{layer}"
        for name, size in (("attn", c.hidden), ("ffn", c.hidden), ("q", 32), ("k", 32)):
            tensors[f"{p}.{name}_norm"] = normal(f"{p}.{name}_norm", size)
        tensors[f"{p}.router"] = normal(f"{p}.router", c.experts, c.hidden, size=0.1)
        _matrix(tensors, f"{p}.q_proj", c.n_q * c.head_dim, c.hidden)
        _matrix(tensors, f"{p}.k_proj", c.n_kv * c.head_dim, c.hidden)
        _matrix(tensors, f"{p}.v_proj", c.n_kv * c.head_dim, c.hidden)
        _matrix(tensors, f"{p}.o_proj", c.hidden, c.n_q * c.head_dim)
        _matrix(tensors, f"{p}.experts.gate", c.experts, c.inter, c.hidden)
        _matrix(tensors, f"{p}.experts.up", c.experts, c.inter, c.hidden)
        _matrix(tensors, f"{p}.experts.down", c.experts, c.hidden, c.inter)
    return tensors


TENSORS = make_tensors()


def run_model(model: OracleModel) -> Fields:
    """All keys of all positions, in order."""
    out: Fields = OrderedDict()
    for token in TOKENS:
        out.update(model.step(token))
    return out


def _op(name: str, *args: Any) -> Array:
    return np.asarray(twin.run(name, args)[0])


def _q4(tensors: Tensors, name: str, x: Array) -> Array:
    return _op("q4_matvec", tensors[f"{name}.d"], tensors[f"{name}.qs"], x.reshape(1, -1))[0]


class Derivation:
    """Each field of one layer at one position, from recorded fields and the weights only."""

    def __init__(self, recorded: Fields, tensors: Tensors, pos: int, layer: int) -> None:
        self.recorded, self.tensors, self.pos, self.layer = recorded, tensors, pos, layer
        self.eps = np.float32(1e-6)

    def read(self, field: str, pos: int | None = None) -> Array:
        """A recorded field of this layer."""
        return self.recorded[f"t{self.pos if pos is None else pos}_l{self.layer}_{field}"]

    def weight(self, name: str) -> Array:
        """A tensor of this layer."""
        return self.tensors[f"layers.{self.layer}.{name}"]

    def product(self, name: str, x: Array) -> Array:
        """A Q4_0 projection of this layer."""
        return _q4(self.tensors, f"layers.{self.layer}.{name}", x)

    def input(self) -> Array:
        """The stream that enters this layer."""
        if self.layer > 0:
            return self.recorded[f"t{self.pos}_l{self.layer - 1}_x"]
        token = np.array([TOKENS[self.pos]], np.int32)
        return _op("embed", self.tensors["embed.d"], self.tensors["embed.qs"], token)[0]

    def norm(self, x: Array, name: str) -> Array:
        """1.1 of one row."""
        return _op("rmsnorm", x[None], self.weight(name), self.eps)[0]

    def turned(self, heads: Array) -> Array:
        """1.7 of one position's heads."""
        return _op("rope", heads[None], self.tensors["inv_freq"], self.pos)[0]

    def head_norm(self, x: Array, name: str) -> Array:
        """1.2 of one position's heads."""
        return _op("headnorm", x.reshape(1, -1, 32), self.weight(name), self.eps)[0]

    def attention(self) -> Array:
        """1.8 from the recorded cache rows and the recorded query."""
        q, q_scale = twin.run("quant8", (self.read("qrope")[None],))
        rows = [
            np.stack([self.read(field, pos) for pos in range(self.pos + 1)])
            for field in ("k", "ks", "v", "vs")
        ]
        return _op("attention_int8", q, q_scale, *rows, softmax_scale(32), self.pos)[0]

    def expert(self, name: str, x: Array) -> Array:
        """1.4 of x f32[G, n] for the recorded experts."""
        q, s_a = twin.run("quant16", (x,))
        d, qs = self.weight(f"experts.{name}.d"), self.weight(f"experts.{name}.qs")
        return _op("expert_matvec", d, qs, self.read("topk")[None], q[None], s_a[None])[0]

    def fields(self) -> dict[str, Array]:
        """All of section 2's fields."""
        nrm, fnrm = self.read("nrm"), self.read("fnrm")
        kraw = self.product("k_proj", nrm).reshape(2, 32)
        k, ks = twin.run("quant8", (self.turned(self.read("knorm"))[None],))
        v, vs = twin.run("quant8", (self.product("v_proj", nrm).reshape(1, 2, 32),))
        query = self.head_norm(self.product("q_proj", nrm), "q_norm")
        projected = self.product("o_proj", self.read("attn"))
        ids, topp = twin.run("router_topk", (self.read("rlogits")[None], 3, True))
        sums = (self.read("ores")[None], self.read("down")[None], self.read("topp")[None])
        return {
            "nrm": self.norm(self.input(), "attn_norm"),
            "kraw": kraw,
            "knorm": self.head_norm(self.read("kraw"), "k_norm"),
            "k": k[0],
            "ks": ks[0],
            "v": v[0],
            "vs": vs[0],
            "qrope": self.turned(query),
            "attn": self.attention(),
            "ores": self.input() + projected,
            "fnrm": self.norm(self.read("ores"), "ffn_norm"),
            "rlogits": _op("f32_matvec", self.weight("router"), fnrm[None])[0],
            "topk": ids[0],
            "topp": topp[0],
            "gate": self.expert("gate", fnrm[None]),
            "up": self.expert("up", fnrm[None]),
            "act": _op("swiglu", self.read("gate"), self.read("up")),
            "down": self.expert("down", self.read("act")),
            "x": _op("combine", *sums)[0],
        }


def derive(recorded: Fields, tensors: Tensors) -> Fields:
    """Every key again, each from recorded fields alone."""
    out: Fields = OrderedDict()
    eps = np.float32(1e-6)
    for pos in range(len(TOKENS)):
        for layer in range(CONFIG.layers):
            for name, value in Derivation(recorded, tensors, pos, layer).fields().items():
                out[f"t{pos}_l{layer}_{name}"] = value
        last = recorded[f"t{pos}_l{CONFIG.layers - 1}_x"]
        normed = _op("rmsnorm", last[None], tensors["final_norm"], eps)[0]
        out[f"t{pos}_final_normed"] = normed
        out[f"t{pos}_logits"] = _q4(tensors, "lm_head", recorded[f"t{pos}_final_normed"])
    return out


def first_difference(ref: Fields, dut: Fields) -> str | None:
    """The first key whose dtype, shape or bytes differ; keys and their order must agree."""
    assert list(ref) == list(dut)
    for key, value in ref.items():
        other = dut[key]
        same = (value.dtype, value.shape) == (other.dtype, other.shape)
        if not same or value.tobytes() != other.tobytes():
            return key
    return None


@pytest.fixture(scope="module", name="recorded")
def _recorded() -> Fields:
    return run_model(OracleModel(CONFIG, TENSORS))


def test_keys_stand_in_dump_order(recorded: Fields) -> None:
    """Layer by layer, K's chain before Q's, the FFN's fields between ores and x."""
    wanted = []
    for pos in range(len(TOKENS)):
        for layer in range(CONFIG.layers):
            wanted += [f"t{pos}_l{layer}_{field}" for field in LAYER_FIELDS]
        wanted += [f"t{pos}_final_normed", f"t{pos}_logits"]
    assert list(recorded) == wanted


def test_shapes_and_dtypes(recorded: Fields) -> None:
    """The table of section 2, at position 1 and layer 1."""
    f32, i8 = np.float32, np.int8
    table = (
        ("nrm ores fnrm x", f32, (64,)),
        ("kraw knorm", f32, (2, 32)),
        ("k v", i8, (2, 32)),
        ("ks vs", f32, (2,)),
        ("qrope attn", f32, (4, 32)),
        ("rlogits", f32, (5,)),
        ("topk", np.int32, (3,)),
        ("topp", f32, (3,)),
        ("gate up act", f32, (3, 32)),
        ("down", f32, (3, 64)),
    )
    named = [(field, dtype, shape) for fields, dtype, shape in table for field in fields.split()]
    assert sorted(field for field, _, _ in named) == sorted(LAYER_FIELDS)
    for field, dtype, shape in named:
        value = recorded[f"t1_l1_{field}"]
        assert (value.dtype, value.shape) == (np.dtype(dtype), shape), field
    assert recorded["t1_final_normed"].shape == (64,)
    assert recorded["t1_logits"].shape == (40,)


def test_every_field_follows_from_the_fields_it_reads(recorded: Fields) -> None:
    """The second writing, wired from the text of section 2, gives the same bytes."""
    assert first_difference(recorded, derive(recorded, TENSORS)) is None


@pytest.mark.parametrize(
    ("left", "right", "key"),
    [
        ("embed.d", "lm_head.d", "t0_l0_nrm"),
        ("layers.0.attn_norm", "layers.0.ffn_norm", "t0_l0_nrm"),
        ("layers.0.k_proj.qs", "layers.0.v_proj.qs", "t0_l0_kraw"),
        ("layers.0.q_norm", "layers.0.k_norm", "t0_l0_knorm"),
        ("layers.0.q_proj.qs", "layers.1.q_proj.qs", "t0_l0_qrope"),
        ("layers.0.o_proj.d", "layers.1.o_proj.d", "t0_l0_ores"),
        ("layers.0.router", "layers.1.router", "t0_l0_rlogits"),
        ("layers.0.experts.gate.d", "layers.0.experts.up.d", "t0_l0_gate"),
        ("layers.0.experts.down.qs", "layers.1.experts.down.qs", "t0_l0_down"),
        ("final_norm", "layers.1.ffn_norm", "t0_l1_fnrm"),
    ],
)
def test_swapped_weights_show_at_their_key(
    recorded: Fields, left: str, right: str, key: str
) -> None:
    """Planted: two tensors of one shape change places, and the first key to see it is named."""
    swapped = {**TENSORS, left: TENSORS[right], right: TENSORS[left]}
    assert first_difference(recorded, derive(recorded, swapped)) == key


class StaleCache(OracleModel):
    """Attention that misses the row just written, from the second position on."""

    def _attend(self, layer: int, qrope: Array) -> Array:
        kept = self.cache[layer]
        self.cache[layer] = {name: (rows[:-1] or rows) * 2 for name, rows in kept.items()}
        out = super()._attend(layer, qrope)
        self.cache[layer] = kept
        return out


class FfnOfInput(OracleModel):
    """An FFN that reads the layer's input instead of ores."""

    def _layer(self, layer: int, x: Array) -> tuple[Fields, Array]:
        fields, _ = super()._layer(layer, x)
        return fields, self.ffn(layer, x, fields)


@pytest.mark.parametrize(("wrong", "key"), [(StaleCache, "t1_l0_attn"), (FfnOfInput, "t0_l0_fnrm")])
def test_wrong_wiring_shows_at_its_key(wrong: type[OracleModel], key: str) -> None:
    """Planted: a model wired wrongly, and the first key that does not follow."""
    recorded = run_model(wrong(CONFIG, TENSORS))
    assert first_difference(recorded, derive(recorded, TENSORS)) == key
