"""Tokenizers of folders and GGUF files against what transformers made of the same texts.

tests/fixtures/make_hf_tokenizers.py made the fixtures.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from parity.errors import InputError, NotRunError
from parity.model.folder import open_folder
from parity.model.model import synthetic
from parity.model.tokenizer import count_ids, read_tokenizer, real_ids, tokenizer_of
from tests.hf_folders import config_of, tensors_of, write_folder, write_model

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hf_tokenizers"
KINDS = ("qwen2", "qwen35")
NORMAL, CONTROL, USER, PADDING = 1, 3, 4, 5
OWN = "give --tokenizer FOLDER with a tokenizer.json"
HERE = Path("m.gguf")


def oracle(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / kind / "oracle.json").read_text())
    assert len(found["texts"]) == len(found["ids"]) >= 12
    return found


def values_of(kind: str, padding: int = 3) -> dict[str, Any]:
    """The values that llama.cpp's converter writes for a fixture, and some unused ids."""
    body = json.loads((FIXTURES / kind / "tokenizer.json").read_text())
    by_id = {at: (token, NORMAL) for token, at in body["model"]["vocab"].items()}
    for one in body["added_tokens"]:
        by_id[one["id"]] = (one["content"], CONTROL if one["special"] else USER)
    by_id |= {at: (f"[PAD{at}]", PADDING) for at in range(len(by_id), len(by_id) + padding)}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.ggml.tokens": [by_id[at][0] for at in range(len(by_id))],
        "tokenizer.ggml.token_type": [by_id[at][1] for at in range(len(by_id))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in body["model"]["merges"]],
    }


def refused(values: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        tokenizer_of(HERE, values)
    assert caught.value.next_step == OWN
    return caught.value.message


# --- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_gives_the_ids_of_transformers(kind: str) -> None:
    wanted, read = oracle(kind), read_tokenizer(FIXTURES / kind)
    assert [read.encode(text) for text in wanted["texts"]] == wanted["ids"]
    assert read.real_ids == wanted["length"] == count_ids(FIXTURES / kind / "tokenizer.json")
    assert read_tokenizer(FIXTURES / kind / "tokenizer.json").digest == read.digest


@pytest.mark.parametrize("kind", KINDS)
def test_a_gguf_file_gives_them_too(tmp_path: Path, kind: str) -> None:
    """Read from a real file, written by the gguf package."""
    path, values = tmp_path / "m.gguf", values_of(kind)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_tokenizer_model(values["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(kind)
    writer.add_token_list(values["tokenizer.ggml.tokens"])
    writer.add_token_types(values["tokenizer.ggml.token_type"])
    writer.add_token_merges(values["tokenizer.ggml.merges"])
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wanted, read = oracle(kind), read_tokenizer(path)
    assert [read.encode(text) for text in wanted["texts"]] == wanted["ids"]
    assert read.real_ids == wanted["length"]
    assert read_tokenizer(path.rename(tmp_path / "M.GGUF")).digest == read.digest


def test_red_the_other_cut() -> None:
    """The two rules part at combining marks alone, and only merges of the second span them."""
    wanted = oracle("qwen35")
    wrong = tokenizer_of(HERE, {**values_of("qwen35"), "tokenizer.ggml.pre": "qwen2"})
    pairs = zip(wanted["texts"], wanted["ids"], strict=True)
    assert [text for text, ids in pairs if wrong.encode(text) != ids] == ["हिन्दी में पाठ"]


def test_red_special_tokens_taken_for_text() -> None:
    values = values_of("qwen2")
    values["tokenizer.ggml.token_type"] = [
        NORMAL if kind in (CONTROL, USER) else kind for kind in values["tokenizer.ggml.token_type"]
    ]
    wanted, wrong = oracle("qwen2"), tokenizer_of(HERE, values)
    pairs = zip(wanted["texts"], wanted["ids"], strict=True)
    assert sum(wrong.encode(text) != ids for text, ids in pairs) == 2


def test_digests_tell_tokenizers_apart() -> None:
    texts = [read_tokenizer(FIXTURES / kind).digest for kind in KINDS]
    rebuilt = [tokenizer_of(HERE, values_of(kind)).digest for kind in KINDS]
    other = values_of("qwen2")
    other["tokenizer.ggml.merges"] = other["tokenizer.ggml.merges"][:-1]
    assert len({*texts, *rebuilt, tokenizer_of(HERE, other).digest}) == 5


# --- ids that are real ------------------------------------------------------------------------


def test_only_the_trailing_run_is_padding() -> None:
    assert real_ids([5, 1, 5, 1, 5, 5]) == 4
    assert real_ids([1, 1]) == 2
    assert real_ids([5, 5]) == 0


def test_a_folder_knows_which_ids_are_real(tmp_path: Path) -> None:
    """dense-tiny has 512 rows, the tokenizer 405 ids; without a tokenizer every id is real."""
    model = synthetic("dense-tiny", 7, "f32")
    folder = write_model(tmp_path / "m", model, "Qwen3ForCausalLM")
    assert open_folder(folder).config.real_ids == 0
    shutil.copy(FIXTURES / "qwen2" / "tokenizer.json", folder)
    assert open_folder(folder).config.real_ids == open_folder(folder).config.ids == 405


@pytest.mark.parametrize(("vocab", "real"), [(405, 0), (404, None)])
def test_a_vocabulary_of_just_the_ids_or_fewer(
    tmp_path: Path, vocab: int, real: int | None
) -> None:
    model = synthetic("dense-tiny", 7, "f32")
    config = config_of(model.config, "Qwen3ForCausalLM") | {"vocab_size": vocab}
    tensors = tensors_of(model, "Qwen3ForCausalLM")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][:vocab]
    folder = write_folder(tmp_path / "m", config, tensors)
    shutil.copy(FIXTURES / "qwen2" / "tokenizer.json", folder)
    if real is not None:
        assert open_folder(folder).config.real_ids == real
    else:
        with pytest.raises(InputError, match=r"tokenizer\.json has 405 ids, the vocabulary 404$"):
            open_folder(folder)


# --- what is refused --------------------------------------------------------------------------


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_tokenizer(tmp_path)
    assert caught.value.message == f"{tmp_path}: no tokenizer.json"
    assert caught.value.next_step == OWN
    with pytest.raises(InputError) as caught:
        read_tokenizer(tmp_path / "none")
    assert caught.value.message == f"{tmp_path / 'none'}: no such folder"
    assert caught.value.next_step == OWN
    assert refused({"tokenizer.ggml.model": "none"}) == "m.gguf: no tokenizer"
    assert refused({}) == "m.gguf: no tokenizer"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": "llama"},
            "m.gguf: tokenizer 'llama', pre 'qwen2': known is gpt2, qwen2, qwen35",
        ),
        (
            {"pre": "llama-bpe"},
            "m.gguf: tokenizer 'gpt2', pre 'llama-bpe': known is gpt2, qwen2, qwen35",
        ),
        ({"pre": None}, "m.gguf: tokenizer 'gpt2', pre None: known is gpt2, qwen2, qwen35"),
        ({"merges": None}, "m.gguf: tokenizer.ggml.merges is missing"),
        ({"merges": ["a b c"]}, "m.gguf: tokenizer.ggml.merges has 'a b c', which is no pair"),
        ({"merges": [1, "a b"]}, "m.gguf: tokenizer.ggml.merges is not of one kind"),
        ({"token_type": [1]}, "m.gguf: tokenizer.ggml.tokens and token_type do not fit together"),
        (
            {"add_bos_token": True},
            "m.gguf: tokenizer.ggml.add_bos_token is set, which is not supported",
        ),
    ],
)
def test_values_that_cannot_be_rebuilt(changes: dict[str, Any], message: str) -> None:
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    assert refused({**values_of("qwen2"), **changed}) == message


def test_merges_of_tokens_that_are_not_there() -> None:
    values = values_of("qwen2")
    values["tokenizer.ggml.merges"] = ["zzzz yyyy", *values["tokenizer.ggml.merges"]]
    assert refused(values).startswith("m.gguf: tokens and merges do not fit together: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "model.vocab is missing"),
        ('{"model": {"vocab": {"a": 0, "b": 2}}}', "the ids are not 0 to 1"),
        ('{"model": {"vocab": {"a": "0"}}}', "the ids are not 0 to 0"),
        ('{"model": {"vocab": {"a": 0}}, "added_tokens": [{}]}', "the ids are not 0 to 1"),
        ('{"model": {"vocab": {"a": 0}}}', "not a tokenizer: "),
        ("[", "the file is not JSON: "),
    ],
)
def test_files_that_are_no_tokenizer(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_tokenizer(tmp_path)
    assert caught.value.message.startswith(f"{path}: {message}")
    assert "\n" not in caught.value.message


def test_prompts_that_are_no_text() -> None:
    read = read_tokenizer(FIXTURES / "qwen2")
    with pytest.raises(InputError, match=r"^the prompt has no tokens$"):
        read.encode("")
    with pytest.raises(InputError, match=r"^the prompt is not valid UTF-8$"):
        read.encode("a\udcffb")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(NotRunError) as caught:
        read_tokenizer(FIXTURES / "qwen2")
    assert caught.value.next_step == "run: pip install 'parity-harness[models]'"
    assert count_ids(FIXTURES / "qwen2" / "tokenizer.json") == 405
