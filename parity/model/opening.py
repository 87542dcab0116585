"""Opening a model by what was typed: a preset, a GGUF file or a Hugging Face folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from parity.dump import CONTROL
from parity.errors import InputError
from parity.model.config import PRESETS
from parity.model.file_model import CONFIG, GGUF, MAGIC, FileModel, Source
from parity.model.model import Model, SyntheticModel, check_seed, synthetic

Opened = SyntheticModel | FileModel

FOLDER_WEIGHTS = ("f32", "q4")  # the first one unless another is asked for
FILES = "a model is a .gguf file, or a folder with config.json and .safetensors"


def open_model(text: str, *, seed: int, weights: str | None = None, only: str = "") -> Opened:
    """The preset called ``text``, or the model in the file or folder there; nothing large is read.

    ``seed``: of a preset's weights, and of the prompts that are drawn for any model. ``weights``:
    how a preset (by default q4) or a folder (f32) holds its matrices. ``only``: "gdn" or "attn",
    presets alone. Raises InputError for a name that is none of these and for a file that cannot
    be read, NotRunError where a package that reads it is missing.
    """
    if text in PRESETS or not _names_file(text):
        return synthetic(text, seed, weights or "q4", only)
    if CONTROL.search(os.path.basename(text.rstrip(os.sep))):
        raise InputError(
            f"--model {text!r}: a line break or control character in its name",
            "give it another name",
        )
    if only:
        raise InputError(
            f"--synthetic {only}: {text} is a file, whose layers are as they are",
            "give --model hybrid-tiny or hybrid-64",
        )
    return replace(_open_file(text, Path(text), weights), seed=check_seed(seed))


def models_of(
    text: str, seeds: Iterable[int], *, weights: str | None = None, only: str = ""
) -> tuple[Model, ...]:
    """One model a seed: of a preset each has other weights, of a file they differ in the prompts
    alone, and the file is opened once."""
    first, *others = seeds
    opened = open_model(text, seed=first, weights=weights, only=only)
    if isinstance(opened, SyntheticModel):
        return (opened, *(synthetic(text, seed, weights or "q4", only) for seed in others))
    return (opened, *(replace(opened, seed=check_seed(seed)) for seed in others))


def source_of(model: Model) -> Source | None:
    """Where a model was read from; None for a preset and for a model made in Python."""
    return getattr(model, "source", None)


def weights_of(model: Model) -> str | None:
    """What ``weights`` must be to open a folder's model again; None for any other."""
    source = source_of(model)
    if source is None or source.format != "safetensors":
        return None
    return "q4" if any(name.endswith(".qs") for name in model.names()) else "f32"


def path_of(model: Model) -> Path | None:
    """The absolute path of the file or folder that a model was opened from, else None."""
    source = source_of(model)
    path = getattr(model, "path", None) if source is None else source.path
    return None if path is None else Path(os.path.abspath(path))


def _names_file(text: str) -> bool:
    return os.path.exists(text) or os.sep in text or text.lower().endswith((GGUF, ".safetensors"))


def _open_file(text: str, path: Path, weights: str | None) -> FileModel:
    if os.path.isdir(path):  # pathlib raises for a name that no file can have
        return _open_folder(text, path, weights)
    if not os.path.exists(path):
        raise InputError(f"--model {text}: no such file or folder", FILES)
    if path.suffix.lower() == ".safetensors":
        raise InputError(
            f"--model {text}: one file of a folder", f"give its folder: --model {path.parent}"
        )
    if path.suffix.lower() != GGUF:
        renamed = f"it begins as a GGUF file does: give it a name that ends in {GGUF}"
        hint = renamed if _begins_as_gguf(path) else FILES
        raise InputError(f"--model {text}: not a model file", hint)
    if weights is not None:
        raise InputError(
            f"--weights {weights}: the matrices of {text} stay as they are stored",
            "leave --weights out",
        )
    from parity.model.gguf import open_gguf

    return open_gguf(path)


def _begins_as_gguf(path: Path) -> bool:
    """Whether a file has the first bytes of a GGUF file."""
    with suppress(OSError), path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC
    return False


def _open_folder(text: str, path: Path, weights: str | None) -> FileModel:
    if not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"--model {text}: cannot be read: Permission denied", "check the path")
    if not (path / CONFIG).is_file():
        files = sorted(path.glob(f"*{GGUF}"))
        hint = f"give one of its files: --model {files[0]}" if files else FILES
        raise InputError(f"--model {text}: a folder without {CONFIG}", hint)
    from parity.model.folder import open_folder

    return open_folder(path, weights or FOLDER_WEIGHTS[0])
