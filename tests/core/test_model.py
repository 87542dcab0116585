"""Synthetic models: golden digests, names and shapes, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.errors import InputError
from parity.fnv import fnv1a64_array
from parity.model import generator
from parity.model.checks import check_finite, check_tokens
from parity.model.config import PRESETS, preset
from parity.model.memory import weight_bytes
from parity.model.model import SyntheticModel, model_digest, synthetic
from tests.golden import regold

TINY = synthetic("moe-tiny", 7)
SMALL = [(name, weights) for name, weights in regold.MODELS if name != "moe-48"]


# --- goldens --------------------------------------------------------------------------------------


def test_digests_are_the_golden_ones() -> None:
    """A change here changes what every stored dump means: python tests/golden/regold.py."""
    stored = regold.PATH.read_text(encoding="utf-8")
    assert regold.changes(stored, regold.written(regold.goldens())) == []


def test_goldens_name_every_tensor_and_model() -> None:
    stored = json.loads(regold.PATH.read_text(encoding="utf-8"))
    assert {name: stored[name] for name in regold.FORMAT} == regold.FORMAT
    assert list(stored[regold.DETAILED]) == list(TINY.names())
    assert len(stored["models"]) == len(regold.MODELS) == 7
    values = [value for model in stored["models"].values() for value in model.values()]
    assert len(set(values)) == 14


@pytest.mark.parametrize(
    ("what", "value"),
    [("_MIX1", np.uint64(3)), ("_GAMMA", np.uint64(1)), ("norm_weights", generator.signed_f32)],
)
def test_red_a_changed_generator(monkeypatch: pytest.MonkeyPatch, what: str, value: object) -> None:
    if what == "norm_weights":
        monkeypatch.setattr(generator, what, lambda *args: generator.signed_f32(*args, 0))
    else:
        monkeypatch.setattr(generator, what, value)
    monkeypatch.setattr(regold, "MODELS", (("moe-tiny", "q4"),))
    stored = regold.PATH.read_text(encoding="utf-8")
    found = regold.changes(stored, regold.written(regold.goldens()))
    assert any("layers.3.attn_norm" in line for line in found)


def test_regold_prints_what_changed_and_writes_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "digests.json"
    monkeypatch.setattr(regold, "PATH", path)
    monkeypatch.setattr(regold, "MODELS", (("moe-tiny", "q4"),))
    regold.main()
    assert "+ " in capsys.readouterr().out
    regold.main()
    assert capsys.readouterr().out == "nothing changed\n"
    text = path.read_text()
    path.write_text(text.replace('"inv_freq": "f32[48] ', '"inv_freq": "f32[48] f'))
    regold.main()
    out = capsys.readouterr().out.splitlines()
    assert len([line for line in out if line.startswith(("- ", "+ "))]) == 2
    assert path.read_text() == text


# --- names, shapes, sizes -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "weights"), SMALL)
def test_tensors_are_plain_and_finite(name: str, weights: str) -> None:
    model = synthetic(name, 3, weights)
    for tensor in model.names():
        array = model.tensor(tensor)
        assert array.flags.c_contiguous
        assert array.dtype in (np.float32, np.uint16, np.uint8)
        check_finite(tensor, array)
        assert array.tobytes() == model.tensor(tensor).tobytes()


def test_shapes_of_the_default_model() -> None:
    shapes = {name: TINY.tensor(name).shape for name in TINY.names()}
    assert shapes["embed.d"] == (512, 5)
    assert shapes["embed.qs"] == (512, 80)
    assert shapes["layers.3.q_proj.d"] == (384, 5)
    assert shapes["layers.0.k_proj.qs"] == (192, 80)
    assert shapes["layers.0.o_proj.d"] == (160, 12)
    assert shapes["layers.2.router"] == (8, 160)
    assert shapes["layers.1.experts.gate.d"] == (8, 96, 5)
    assert shapes["layers.1.experts.down.qs"] == (8, 160, 48)
    assert shapes["lm_head.d"] == (512, 5)
    assert shapes["inv_freq"] == (48,)
    assert len(shapes) == 2 + 4 * 19 + 1 + 2 + 1


@pytest.mark.parametrize(("name", "weights"), SMALL)
def test_weight_bytes_are_those_of_the_tensors(name: str, weights: str) -> None:
    model = synthetic(name, 7, weights)
    assert weight_bytes(model) == sum(model.tensor(tensor).nbytes for tensor in model.names())


def test_one_expert_is_a_slice_of_the_stack() -> None:
    """A shard of experts can be made by itself: block k is word k, whatever else is made."""
    config = TINY.config
    stack = TINY.tensor("layers.1.experts.up.d")
    blocks = config.inter * config.hidden // 32
    power = generator.q4_exponent(config.hidden)
    words = generator.words(7, "layers.1.experts.up.d", 5 * blocks, blocks)
    fifth = stack[5].reshape(-1)
    assert (fifth >> 15).tolist() == (words >> np.uint64(63)).tolist()
    assert (fifth & 0x3FF).tolist() == ((words >> np.uint64(53)) & np.uint64(0x3FF)).tolist()
    assert set((fifth >> 10 & 31).tolist()) == {power + 15}


# --- digests --------------------------------------------------------------------------------------


def digest(model: SyntheticModel, **changes: int) -> int:
    told = regold.digests(model)
    for name, value in changes.items():
        told[name] = (told[name][0], told[name][1] ^ value)
    return model_digest(model.config, told)


def test_every_part_of_a_model_is_in_its_digest() -> None:
    config = TINY.config
    others = [
        digest(TINY, inv_freq=1),
        digest(TINY, final_norm=1 << 63),
        digest(synthetic("moe-tiny", 8)),
        digest(SyntheticModel(replace(config, eps=1e-5), 7)),
        digest(SyntheticModel(replace(config, norm_topk_prob=False), 7)),
        digest(SyntheticModel(replace(config, theta=1e4), 7)),
    ]
    assert len({digest(TINY), *others}) == 7


def test_red_one_bit_of_one_tensor() -> None:
    array = TINY.tensor("layers.2.experts.down.qs")
    before = fnv1a64_array(array)
    array.reshape(-1)[4321] ^= 16
    assert fnv1a64_array(array) != before


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_seed_out_of_range(seed: int) -> None:
    with pytest.raises(InputError, match=f"seed {seed} is out of range"):
        synthetic("moe-tiny", seed)
    assert synthetic("moe-tiny", (1 << 64) - 1).label == f"moe-tiny seed {(1 << 64) - 1}"


def test_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown model 'moe-tiney'") as raised:
        preset("moe-tiney")
    assert raised.value.next_step.startswith("did you mean moe-tiny? ")


def test_a_row_that_is_no_multiple_of_a_block() -> None:
    config = replace(TINY.config, name="odd", hidden=150)
    with pytest.raises(InputError, match="row length 150 is not a multiple of 32"):
        list(SyntheticModel(config, 7).names())


def test_presets_are_consistent() -> None:
    for name, config in PRESETS.items():
        assert config.name == name
        assert config.n_q % config.n_kv == 0
        assert config.top_k <= config.experts
        assert config.rot_dim % 2 == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_red_a_weight_that_is_not_finite(bad: float) -> None:
    array = np.ones((2, 3), np.float32)
    array[1, 1] = bad
    with pytest.raises(InputError, match="weight w holds 1 non-finite values, first at element 4"):
        check_finite("w", array)


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E01])
def test_red_a_scale_that_is_not_finite(bits: int) -> None:
    array = np.array([0x3C00, bits, 0x7BFF], np.uint16)
    with pytest.raises(InputError, match="holds 1 non-finite values, first at element 1"):
        check_finite("w.d", array)
    check_finite("w.d", array[::2].copy())


@pytest.mark.parametrize(
    ("tokens", "pos", "said"),
    [
        ((1, 512), 5, "token 512 at position 6 is outside the vocabulary of moe-tiny"),
        ((-1,), 0, "token -1 at position 0 is outside"),
        ((1, 2, 3), 6, r"position 8 is past the KV cache of moe-tiny \(8 positions\)"),
    ],
)
def test_red_tokens_that_cannot_be_fed(tokens: tuple[int, ...], pos: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_tokens(TINY.config, tokens, pos, 8)
    check_tokens(TINY.config, (0, 511), 6, 8)
