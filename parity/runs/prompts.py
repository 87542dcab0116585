"""The prompt of a run: token ids as given, or made of a text by the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.errors import InputError
from parity.model.model import Model
from parity.model.opening import path_of

IDS = "token ids with --tokens"


@dataclass(frozen=True)
class Prompt:
    """``ids``: what is fed. ``tokenizer``: digest of what made them of a text, "" for given ids."""

    ids: tuple[int, ...]
    tokenizer: str = ""


def read_prompt(
    model: Model,
    *,
    tokens: Sequence[int] | None = None,
    text: str | None = None,
    file: Path | None = None,
    tokenizer: Path | None = None,
) -> Prompt | None:
    """The prompt that was given, None where none was. ``file``: holds the text, in UTF-8; it is
    taken as it stands, with a line end at its end.

    ``tokenizer``: a folder or file in the place of the model's own. Raises InputError where two
    prompts are given, and for a text that no tokenizer is at hand for.
    """
    given = {"--tokens": tokens, "--prompt": text, "--prompt-file": file}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"{named[0]} with {named[1]}: both are the prompt", "give one of them")
    if not named or named[0] == "--tokens":
        if tokenizer is not None:
            raise InputError(
                f"--tokenizer {tokenizer}: there is no text to encode",
                "give --prompt TEXT, or leave it out",
            )
        return None if tokens is None else Prompt(tuple(tokens))
    read = _read_text(file) if file is not None else text or ""
    return _encoded(model, named[0], read, tokenizer)


def _encoded(model: Model, option: str, text: str, tokenizer: Path | None) -> Prompt:
    path = tokenizer or path_of(model)
    if path is None:
        raise InputError(
            f"{option}: {model.label} has no tokenizer", f"give --tokenizer FOLDER, or {IDS}"
        )
    from parity.model.tokenizer import read_tokenizer

    found = read_tokenizer(path)
    return Prompt(tuple(found.encode(text)), found.digest)


def _read_text(path: Path) -> str:
    problem = ""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        problem = error.strerror or str(error)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is no UTF-8"
    raise InputError(f"--prompt-file {path}: {problem}", "give a text file in UTF-8")
