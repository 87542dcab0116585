"""Opening a Hugging Face folder: everything that can be wrong is found before a weight is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np

from parity.errors import InputError
from parity.model.config import WEIGHTS, ModelConfig
from parity.model.file_model import CONFIG, FileModel, Recipe, Source
from parity.model.folder.config import Architecture, read_config
from parity.model.folder.kept import Quantised
from parity.model.folder.names import Made, Piece, made_of
from parity.model.folder.settings import REMAKE, Settings
from parity.model.folder.shards import CARRIERS, FETCH_AGAIN, Shards, open_shards, widened
from parity.model.model import BLOCK, weight_shapes
from parity.model.rope import inv_freq
from parity.model.tokenizer import JSON, count_ids

# Matrices that stay f32 whatever the others are (contract 1.0).
_NARROW = (".a_proj", ".b_proj")
_HEAD = "lm_head.weight"
_STEP = 1 << 24  # bytes of a tied head compared at a time


def open_folder(path: Path, weights: str = "f32") -> FileModel:
    """The model of a folder with config.json and safetensors.

    ``weights``: "f32" widens every matrix exactly; "q4" quantises them to Q4_0 when they are loaded
    (contract 1.0). No weight is read, but for a tied head that is stored all the same: it must be
    the embedding's bytes. Raises InputError, naming file, key or tensor, for an
    architecture or setting that is not supported; for a tensor that is missing, unknown, of another
    shape or dtype; for a row length that Q4_0 does not have; for damaged files.
    """
    if weights not in WEIGHTS:
        raise InputError(
            f"--weights {weights}: a folder's matrices are held as {' or '.join(WEIGHTS)}",
            "give one of them",
        )
    made, config = read_config(Settings.read(path / CONFIG))
    shards = open_shards(path)
    _refuse_impossible(path, config, shards)
    recipes_of = made_of(made, config, shards.tensors.keys())
    _check_names(made, config, shards, recipes_of)
    config = replace(
        config,
        real_ids=_real_ids(path, config),
        kv_storage="f32" if weights == "f32" or config.family == "hybrid" else "int8",
    )
    return _Opened(path, config, shards, recipes_of).model(weights)


@dataclass(frozen=True)
class _Opened:
    """A checked folder, and how our tensors are made of its own."""

    path: Path
    config: ModelConfig
    shards: Shards
    made: Mapping[str, Made]

    def model(self, weights: str) -> FileModel:
        """The model, its matrices held as ``weights``."""
        recipes: dict[str, Recipe] = {}
        for name, weight in weight_shapes(self.config).items():
            narrow = not weight.matrix or name.endswith(_NARROW)
            if name == "inv_freq":
                recipes[name] = partial(inv_freq, self.config.theta, self.config.rot_dim)
            elif weights == "f32" or narrow:
                recipes[name] = partial(self.floats, name, weight.shape)
            else:
                matrix = self._quantised(name, weight.shape)
                recipes |= {f"{name}.d": matrix.d, f"{name}.qs": matrix.qs}
        label = f"{self.path.resolve().name} {weights}"
        return FileModel(self.config, label, recipes, self._source(weights))

    def floats(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """One of our tensors as float32: a view of the file where it stores just that."""
        made = self.made[name]
        if len(made.pieces) == 1:
            ((_, raw),) = self.parts(name)
            values = widened(raw).reshape(shape)
        else:
            values = np.empty(shape, np.float32)
            flat, at = values.reshape(-1), 0
            for _, raw in self.parts(name):
                flat[at : at + raw.size] = widened(raw).reshape(-1)
                at += raw.size
        if made.offset:
            values = values + np.float32(1)
        return np.require(values, np.float32, ["C", "A"])

    def parts(self, name: str) -> Iterator[tuple[str, np.ndarray]]:
        """Stored name and stored values of every piece of one of our tensors, views."""
        for piece in self.made[name].pieces:
            raw = self.shards.raw(piece.name)
            yield piece.name, raw if piece.take is None else piece.take(raw)

    def _quantised(self, name: str, shape: tuple[int, ...]) -> Quantised:
        if shape[-1] % BLOCK:
            stored = self.made[name].pieces[0].name
            raise InputError(
                f"{self.path}: {stored} has rows of {shape[-1]}, no multiple of {BLOCK}: "
                "it cannot be Q4_0",
                "use --weights f32",
            )
        return Quantised(shape, partial(self.parts, name))

    def _source(self, weights: str) -> Source:
        """What is read, in bytes and words."""
        names = {piece.name for made in self.made.values() for piece in made.pieces}
        tensors = [self.shards.tensors[name] for name in names]
        counts = Counter(tensor.dtype for tensor in tensors)
        stored = ", ".join(f"{counts[kind]} {kind}" for kind in CARRIERS if counts[kind])
        if weights == "q4":
            stored += "; matrices quantised to Q4_0"
        size = sum(tensor.end - tensor.begin for tensor in tensors)
        return Source(self.path, "safetensors", size, stored)


def _refuse_impossible(path: Path, config: ModelConfig, shards: Shards) -> None:
    """Counts that no such files can have: what follows lists a name per layer and expert."""
    for what, count in (("num_hidden_layers", config.layers), ("num_experts", config.experts)):
        if count > len(shards.tensors):
            raise InputError(
                f"{path / CONFIG}: {what} is {count}, but there are {len(shards.tensors)} tensors",
                FETCH_AGAIN,
            )


def _check_names(
    made: Architecture, config: ModelConfig, shards: Shards, wanted: Mapping[str, Made]
) -> None:
    """Every tensor that is read is there, in its shape and a dtype that widens exactly; every other
    one is of a part that is left out."""
    pieces = [piece for one in wanted.values() for piece in one.pieces]
    stored = shards.tensors
    missing = sorted({piece.name for piece in pieces} - stored.keys())
    if missing:
        tied = config.tied or missing != [_HEAD]
        hint = FETCH_AGAIN if tied else f"{CONFIG} says that the head is not tied"
        _refuse(shards, f"{_some(missing)} missing", hint)
    for piece in pieces:
        _check_piece(shards, piece)
    others = stored.keys() - {piece.name for piece in pieces}
    if config.tied and _HEAD in others:
        _check_tied_head(shards, wanted["embed"].pieces[0])
        others -= {_HEAD}
    unknown = sorted(name for name in others if not name.startswith(made.left_out))
    if unknown:
        left_out = ", ".join(f"{start}*" for start in made.left_out) or "nothing"
        hint = f"a {made.name} has no such tensor; left out: {left_out}"
        _refuse(shards, f"{_some(unknown)} unknown", hint)


def _check_piece(shards: Shards, piece: Piece) -> None:
    tensor = shards.tensors[piece.name]
    if tensor.dtype not in CARRIERS:
        _refuse(
            shards,
            f"{piece.name!r} is {tensor.dtype}, which is not supported",
            f"supported: {', '.join(CARRIERS)}",
        )
    if tensor.shape != piece.shape:
        found, needed = list(tensor.shape), list(piece.shape)
        _refuse(shards, f"{piece.name!r} is {found}, {CONFIG} says {needed}", REMAKE)


def _check_tied_head(shards: Shards, embedding: Piece) -> None:
    """A head that is stored and tied has the embedding's bytes, or the files contradict."""
    kinds = {shards.tensors[name].dtype for name in (_HEAD, embedding.name)}
    _check_piece(shards, Piece(_HEAD, embedding.shape))
    head, embed = (shards.raw(name).reshape(-1).view(np.uint8) for name in (_HEAD, embedding.name))
    steps = range(0, head.size, _STEP)
    if len(kinds) > 1 or any(
        head[at : at + _STEP].tobytes() != embed[at : at + _STEP].tobytes() for at in steps
    ):
        _refuse(
            shards,
            f"{_HEAD!r} is not {embedding.name!r}, but {CONFIG} ties them",
            "set tie_word_embeddings to what is meant",
        )


def _real_ids(path: Path, config: ModelConfig) -> int:
    """Number of the tokenizer's ids as ModelConfig has it: 0 where none is padding."""
    if not (path / JSON).exists():
        return 0
    count = count_ids(path / JSON)
    if count > config.vocab:
        raise InputError(
            f"{path}: {JSON} has {count:,} ids, the vocabulary {config.vocab:,}", REMAKE
        )
    return 0 if count == config.vocab else count


def _some(names: list[str]) -> str:
    """The first of some names, and how many more there are, with the verb."""
    more = f" and {len(names) - 1:,} more are" if names[1:] else " is"
    return f"{names[0]!r}{more}"


def _refuse(shards: Shards, what: str, next_step: str) -> NoReturn:
    raise InputError(f"{shards.folder}: {what}", next_step)
