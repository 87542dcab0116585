"""Opening ``hf:MODEL``: which folder becomes which model, and what is refused, in one line."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from safetensors.numpy import load_file, save_file

from parity.errors import InputError, ParityBug, ParityError
from parity.families import count_keys, dumped_fields, layer_fields
from parity.model.file_model import FileModel
from parity.model.memory import weight_bytes
from parity.model.opening import path_of
from parity.protocol import EngineSettings
from parity_torch import HfEngine
from parity_torch.models import ModulesModel, RandomModel
from tests.engines.torch.engines import engine, everything, folder, opened, same_bits

TOKENS = (5, 9, 3)
BERT = {
    **{"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2},
    **{"num_attention_heads": 4},
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks the network fails the test."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


def test_a_folder_that_parity_reads_is_opened_by_parity(tmp_path: Path) -> None:
    found = opened(str(folder(tmp_path / "mine", "Qwen3")))
    assert isinstance(found, FileModel)
    assert (found.label, found.config.family) == ("mine f32", "dense")


def test_without_weights_our_own_of_the_seed_stand_in(tmp_path: Path) -> None:
    path = folder(tmp_path / "bare", "Qwen3", weights=False)
    found = opened(str(path), seed=9)
    assert isinstance(found, RandomModel)
    assert found.label == "bare random f32 seed 9"
    assert found.config.name == "Qwen3ForCausalLM"
    one, same, other = (engine(path, seed=seed) for seed in (9, 9, 10))
    assert one.weights() == same.weights()
    differing = [name for name, told in one.weights().items() if told != other.weights()[name]]
    assert "embed" in differing
    assert "inv_freq" not in differing


def test_another_architecture_has_keys_of_its_own(tmp_path: Path) -> None:
    path = folder(tmp_path / "gemma", "Gemma3Text", sliding_window=4)
    found = opened(str(path))
    assert isinstance(found, ModulesModel)
    assert (found.label, found.config.family) == ("gemma (Gemma3ForCausalLM)", "modules")
    assert path_of(found) == path
    made = engine(path)
    (step,) = made.prefill(TOKENS[:1], everything(made))
    told = [(-1 if e.key.layer is None else e.key.layer, e.key.field) for e in step.entries]
    assert tuple(told) == found.config.own_keys
    fields = dumped_fields(found.config)
    assert count_keys(found.config, fields) == len(told)
    assert layer_fields(found.config, 1, fields) == tuple(name for at, name in told if at == 1)
    assert weight_bytes(found) == sum(p.nbytes for p in made.module.parameters())
    with pytest.raises(ParityBug, match="asked for outside transformers"):
        found.tensor("lm_head.weight")
    with pytest.raises(InputError, match="unknown field 'ffn': Gemma3ForCausalLM has names of its"):
        dumped_fields(found.config, ("ffn",))


def test_random_weights_of_the_library_hang_on_the_seed_alone(tmp_path: Path) -> None:
    path = folder(tmp_path / "llama", "Llama", weights=False)
    state = torch.random.get_rng_state()
    assert opened(str(path), seed=3).label == "llama (LlamaForCausalLM) random seed 3"
    one = engine(path, seed=3)
    torch.rand(5)
    same, other = engine(path, seed=3), engine(path, seed=4)
    assert one.weights() == same.weights()
    assert one.weights() != other.weights()
    half = engine(path, seed=3, dtype="bf16").module.lm_head.weight
    assert torch.equal(half, one.module.lm_head.weight.to(torch.bfloat16))
    torch.random.set_rng_state(state)


def test_a_folder_without_weights_disturbs_no_generator(tmp_path: Path) -> None:
    path = folder(tmp_path / "llama", "Llama", weights=False)
    before = torch.random.get_rng_state()
    engine(path, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_setting_that_the_contract_lacks_is_the_librarys_alone(tmp_path: Path) -> None:
    path = folder(
        tmp_path / "scaled",
        "Qwen3",
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
    )
    found = opened(str(path))
    assert isinstance(found, ModulesModel)
    made = engine(path)
    assert len(made.prefill(TOKENS, everything(made))[-1].entries) == len(found.config.own_keys)


def _write(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "config.json").write_text(text)
    return path


def _remote(path: Path) -> Path:
    auto = {"AutoConfig": "configuration_my.My", "AutoModelForCausalLM": "modeling_my.My"}
    body = {"architectures": ["MyModel"], "model_type": "mymodel", "auto_map": auto}
    _write(path, json.dumps(body))
    for name in ("configuration_my.py", "modeling_my.py"):
        (path / name).write_text("raise AssertionError('code of a checkpoint was run')\n")
    return path


def _unknown(path: Path) -> Path:
    return _write(path, '{"architectures": ["NopeForCausalLM"], "model_type": "nope"}')


def _cut(path: Path) -> Path:
    return _write(path, "{")


def _short_weights(path: Path) -> Path:
    folder(path, "Llama")
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    return path


def _lacking(path: Path) -> Path:
    folder(path, "Llama")
    file = path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    save_file(tensors, file)
    return path


def _encoder(path: Path) -> Path:
    return _write(path, json.dumps({"model_type": "bert", **BERT}))


def _no_decoder(path: Path) -> Path:
    return _write(path, '{"architectures": ["T5Model"], "model_type": "t5"}')


def _nothing(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_remote, "hf: {path}: it needs code of its own (auto_map), which parity does not run"),
        (_unknown, "hf: {path}: The checkpoint you are trying to load has model type `nope` but"),
        (_cut, "{path}/config.json: the file is not JSON"),
        (_short_weights, "hf: bad (LlamaForCausalLM): "),
        (_lacking, "hf: {path}: 1 tensors missing, first model.layers.1.self_attn.k_proj.weight"),
        (_encoder, "hf: BertLMHeadModel is no decoder: it was asked for a cache and keeps none"),
        (
            _no_decoder,
            "hf: {path}: transformers has no model for causal language modelling with a T5Config",
        ),
        (_nothing, "--model {path}: a folder without config.json"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    path = make(tmp_path / "bad")
    with pytest.raises(ParityError) as told:
        engine(path)
    assert told.value.message.startswith(said.format(path=path))
    assert "\n" not in told.value.message + told.value.next_step
    assert (told.value.exit_status, bool(told.value.next_step)) == (2, True)


def test_an_encoder_that_is_configured_as_a_decoder_runs(tmp_path: Path) -> None:
    body = {"model_type": "bert", "is_decoder": True, **BERT}
    made = engine(_write(tmp_path / "decoder", json.dumps(body)))
    assert len(made.prefill(TOKENS, everything(made))[-1].entries) > 1


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("dens-tiny", "did you mean hf:dense-tiny? give a folder with config.json"),
        ("someone/a-model", "give a folder with config.json (nothing is fetched), or moe-tiny,"),
    ],
)
def test_what_is_no_folder_is_not_looked_for_elsewhere(text: str, next_step: str) -> None:
    with pytest.raises(InputError) as told:
        opened(text)
    assert told.value.message == f"hf:{text}: no such folder, and no preset"
    assert told.value.next_step.startswith(next_step)


def test_quantised_matrices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="--weights q4: transformers holds the matrices of dense-t"
    ):
        opened("dense-tiny", weights="q4")
    from parity.model.model import synthetic

    made = HfEngine(EngineSettings("library"))
    with pytest.raises(InputError, match="hf: moe-tiny seed 7 holds its matrices as Q4_0"):
        made.load(synthetic("moe-tiny", 7), 8)


def test_a_folder_that_moved_is_read_where_it_lies(tmp_path: Path) -> None:
    path = folder(tmp_path / "one", "Llama")
    moved = Path(shutil.move(path, tmp_path / "two"))
    assert same_bits(engine(moved).step(3).logits, engine(moved).step(3).logits)
    assert opened(str(moved)).label == "two (LlamaForCausalLM)"
