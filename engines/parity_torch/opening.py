"""Opening ``hf:MODEL``: a preset, or a folder as transformers writes it, with weights or without.

What parity's own opener reads is opened by it, so that every engine runs the same files; the
library alone runs the rest, under names of its own modules.
"""

from __future__ import annotations

import difflib
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from parity.errors import InputError
from parity.model.config import MODULES, PRESETS, SMALL_CONTEXT, ModelConfig
from parity.model.file_model import CONFIG, Source
from parity.model.folder.config import read_config as read_ours
from parity.model.folder.settings import Settings
from parity.model.model import Model, check_seed
from parity.model.opening import open_model as open_ours
from parity.model.tokenizer import JSON, count_ids
from parity_torch.loading import read_config, told
from parity_torch.models import ModulesModel, RandomModel
from parity_torch.requirements import quiet

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def open_model(text: str, seed: int, weights: str | None) -> Model:
    """The model that ``hf:text`` names; no weight is read. ``weights``: as typed, "f32" or None.

    Raises InputError for what is neither preset nor folder nor file, for a broken config.json, and
    for "q4"; NotRunError where a package that the model needs is missing.
    """
    if weights == "q4":
        raise InputError(
            f"--weights q4: transformers holds the matrices of {text} as floats",
            "leave --weights out, or give f32",
        )
    path = Path(text)
    if text in PRESETS:
        return open_ours(text, seed=seed, weights="f32")
    if not os.path.exists(path):
        raise InputError(
            f"hf:{text}: no such folder, and no preset",
            _meant(text),
        )
    if not os.path.isdir(path):
        return open_ours(text, seed=seed, weights=None)  # a GGUF file, or refused there
    if not (path / CONFIG).is_file() or not os.access(path, os.R_OK | os.X_OK):
        return open_ours(text, seed=seed, weights="f32")  # refused there, in one form
    return _folder(text, path, check_seed(seed))


def _meant(text: str) -> str:
    """What to write instead of a name that is none: what stands behind a model is no part of it."""
    found = re.fullmatch(r"(.+?)(?:([:+-])(\w+)|[,@](\w+))", text)
    if found is not None and (found[1] in PRESETS or os.path.isdir(found[1])):
        if found[4]:
            return f"give the option a value: hf:{found[1]},{found[4]}=VALUE"
        kind = "tiers" if found[2] == ":" else "variants"
        return f"write hf:{found[1]}; hf has no {kind} ({found[2]}{found[3]})"
    near = difflib.get_close_matches(text, PRESETS, 1)
    hint = f"did you mean hf:{near[0]}? " if near else ""
    return f"{hint}give a folder with config.json (nothing is fetched), or {', '.join(PRESETS)}"


def _folder(text: str, path: Path, seed: int) -> Model:
    """The model of a folder with config.json."""
    safe, other = (next(path.glob(pattern), None) is not None for pattern in _WEIGHTS)
    ours = _our_config(path)
    if ours is not None and safe:
        return open_ours(text, seed=seed, weights="f32")
    if ours is not None and not other:
        return RandomModel(replace(ours, weights="f32"), seed, path)
    found = _structure(path, os.stat(path / CONFIG).st_mtime_ns)
    stored = "in the library's layout" if safe or other else "no weights: drawn by the library"
    source = Source(path, "safetensors", found.stored, stored)
    sizes = found.parameters, 4 * found.elements
    return ModulesModel(found.config, path, *sizes, source, not (safe or other), seed)


def _our_config(path: Path) -> ModelConfig | None:
    """The configuration of a folder whose arithmetic the contract has, else None: the library
    runs more architectures, and more settings of these."""
    settings = Settings.read(path / CONFIG)
    try:
        return read_ours(settings)[1]
    except InputError:
        return None


@dataclass(frozen=True)
class _Structure:
    """What is known of a model of the library before a weight is read."""

    config: ModelConfig
    parameters: tuple[str, ...]
    elements: int
    stored: int


@lru_cache(maxsize=4)
def _structure(path: Path, changed: int) -> _Structure:  # changed: part of the key
    with told(str(path)), quiet():
        config = read_config(path)
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            module = transformers.AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, trust_remote_code=False
            ).eval()
        keys = _own_keys(module)
    named = dict(module.named_parameters())
    elements = sum(prod(one.shape) for one in named.values())
    files = [file for pattern in _WEIGHTS for file in path.glob(pattern)]
    return _Structure(
        replace(_sizes(module, path), own_keys=keys),
        tuple(named),
        elements,
        sum(file.stat().st_size for file in files),
    )


def _own_keys(module: nn.Module) -> tuple[tuple[int, str], ...]:
    """Every (layer, field) of one token, in dataflow order."""
    from parity_torch.taps import Taps

    return tuple(Taps(module).keys())


def _sizes(module: nn.Module, path: Path) -> ModelConfig:
    """The sizes that parity asks a model for; what a configuration lacks is 0."""
    config: Any = module.config
    text = config.get_text_config(decoder=True)

    def size(*names: str) -> int:
        found = (getattr(text, name, None) for name in names)
        return next((int(one) for one in found if isinstance(one, int)), 0)

    heads, hidden = size("num_attention_heads", "n_head"), size("hidden_size", "n_embd", "d_model")
    return ModelConfig(
        name=type(module).__name__,
        layers=size("num_hidden_layers", "n_layer"),
        hidden=hidden,
        n_q=heads,
        n_kv=size("num_key_value_heads") or heads,
        head_dim=size("head_dim") or (hidden // heads if heads else 0),
        inter=size("intermediate_size"),
        experts=0,
        top_k=0,
        vocab=size("vocab_size"),
        weights="f32",
        family=MODULES,
        context=size("max_position_embeddings", "n_positions") or SMALL_CONTEXT,
        real_ids=_real_ids(path, size("vocab_size")),
    )


def _real_ids(path: Path, vocab: int) -> int:
    """Number of the tokenizer's ids where fewer than the vocabulary, else 0."""
    if not (path / JSON).exists():
        return 0
    with suppress(InputError):
        count = count_ids(path / JSON)
        return count if count < vocab else 0
    return 0
