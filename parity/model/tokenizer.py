"""Tokenizers of model files: text to token ids, and how many ids are real.

The ``tokenizers`` package does the work. A folder brings its tokenizer.json; the byte-level BPE of
a GGUF file is rebuilt where its ``pre`` says which one it is (``_SPLITS``).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from parity.dumps.safetensors import parse_object
from parity.errors import InputError, NotRunError
from parity.model.file_model import GGUF, MISSING_PACKAGE
from parity.model.mapping import read_file

JSON = "tokenizer.json"
OWN = "give --tokenizer FOLDER with a tokenizer.json"

_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
_MARKS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
)
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
# How text is cut before the BPE, by tokenizer.ggml.pre: the rules of Hugging Face's Qwen2Tokenizer
# and Qwen3_5Tokenizer, which the files were converted from.
_SPLITS = {"qwen2": _LETTERS + _SPACES, "qwen35": _MARKS + _SPACES}
# tokenizer.ggml.token_type: 3 and 4 are matched in the text before the BPE sees it, 5 is padding.
_CONTROL, _USER, PADDING = 3, 4, 5


@dataclass(frozen=True)
class Tokenizer:
    """``real_ids``: len(tokenizer), ids from there on are padding (contract 7). ``digest``: hex, of
    the file or the values it was made of, for a dump's header."""

    real_ids: int
    digest: str
    path: Path
    _inner: Any

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``; InputError where there are none, or for bytes that are no text."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError("the prompt is not valid UTF-8", "give it as UTF-8 text") from error
        ids = [int(one) for one in self._inner.encode(text).ids]
        if not ids:
            raise InputError("the prompt has no tokens", "give a text that is not empty")
        return ids


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a folder, of a tokenizer.json or of a GGUF file.

    Raises InputError for files that have none or a malformed one, and where a GGUF file's cannot be
    rebuilt exactly; NotRunError without the ``tokenizers`` package.
    """
    if os.path.isdir(path):  # pathlib raises for a name that no file can have
        path = path / JSON
        if not os.path.isfile(path):
            raise InputError(f"{path.parent}: no {JSON}", OWN)
    elif not os.path.exists(path):
        raise InputError(f"{path}: no such folder", OWN)
    if path.suffix.lower() == GGUF:
        from parity.model.gguf.reading import read_gguf

        return tokenizer_of(path, read_gguf(path).values)
    return _of_json(path)


def count_ids(path: Path) -> int:
    """len(tokenizer) of a tokenizer.json, without the ``tokenizers`` package.

    Raises InputError when its ids are not 0 .. n-1: then no count tells which ids are real.
    """
    return _count_ids(path, read_file(path))


def _count_ids(path: Path, text: bytes) -> int:
    body = parse_object(path, text, "the file")
    model, added = body.get("model"), body.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, dict):
        raise InputError(f"{path}: model.vocab is missing", OWN)
    ids = {*vocab.values(), *(one.get("id") for one in added or () if isinstance(one, dict))}
    if any(type(one) is not int for one in ids) or ids != set(range(len(ids))):
        raise InputError(f"{path}: the ids are not 0 to {len(ids) - 1}", OWN)
    return len(ids)


def tokenizer_of(path: Path, values: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file's values, by key (``tokenizer.ggml.*``)."""
    kind, pre = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre")
    if kind is None or kind == "none":
        raise InputError(f"{path}: no tokenizer", OWN)
    if kind != "gpt2" or pre not in _SPLITS:
        known = ", ".join(_SPLITS)
        raise InputError(f"{path}: tokenizer {kind!r}, pre {pre!r}: known is gpt2, {known}", OWN)
    for key in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        if values.get(f"tokenizer.ggml.{key}"):
            _refuse(path, f"{key} is set, which is not supported")
    tokens, types, merges = (_list(path, values, key) for key in ("tokens", "token_type", "merges"))
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        _refuse(path, "tokens and token_type do not fit together")
    real = real_ids(types)
    made = json.dumps([pre, tokens, types, merges], ensure_ascii=False)
    inner = _byte_level(path, pre, dict(zip(tokens[:real], range(real), strict=True)), merges)
    package = _package()
    for at in range(real):
        if types[at] in (_CONTROL, _USER):
            special = types[at] == _CONTROL
            one = package.AddedToken(tokens[at], special=special, normalized=False)
            (inner.add_special_tokens if special else inner.add_tokens)([one])
    return Tokenizer(real, hashlib.sha256(made.encode()).hexdigest(), path, inner)


def real_ids(types: list[int]) -> int:
    """Ids before the trailing run of padding tokens (contract 7)."""
    count = len(types)
    while count and types[count - 1] == PADDING:
        count -= 1
    return count


def _byte_level(path: Path, pre: str, vocab: dict[str, int], merges: list[str]) -> Any:
    """Qwen's byte-level BPE over a vocabulary; ``merges``: pairs, each with one space between."""
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    pairs: list[tuple[str, str]] = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            _refuse(path, f"merges has {merge!r}, which is no pair")
        pairs.append((left, right))
    try:
        made = _package().Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    except Exception as error:  # the package raises nothing narrower
        raise InputError(f"{path}: tokens and merges do not fit together: {error}", OWN) from error
    made.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated", invert=False)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([cut, level])
    made.decoder = decoders.ByteLevel()
    return made


def _of_json(path: Path) -> Tokenizer:
    text = read_file(path)
    real = _count_ids(path, text)
    try:
        inner = _package().Tokenizer.from_str(text.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8", OWN) from error
    except Exception as error:  # the package raises nothing narrower
        if isinstance(error, NotRunError):
            raise
        raise InputError(f"{path}: not a tokenizer: {error}", OWN) from error
    return Tokenizer(real, hashlib.sha256(text).hexdigest(), path, inner)


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise NotRunError("text prompts need the tokenizers package", MISSING_PACKAGE) from error
    return tokenizers


def _list(path: Path, values: Mapping[str, Any], key: str) -> list[Any]:
    found = values.get(f"tokenizer.ggml.{key}")
    if not isinstance(found, list) or not found:
        _refuse(path, f"{key} is missing")
    if len({type(one) for one in found}) != 1:
        _refuse(path, f"{key} is not of one kind")
    return found


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(f"{path}: tokenizer.ggml.{what}", OWN)
