"""Settings of a run from a model, a seed and a prompt: refused before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import InputError

if TYPE_CHECKING:
    from parity.model.model import Model
    from parity.runs.run import Run
    from parity.spec import Spec

PROMPT_LENGTH = 32
_TOKEN = re.compile("[0-9]{1,18}")


def run_settings(
    *,
    model: str | Model,
    weights: str | None = None,
    seed: int = 7,
    tokens: Sequence[int] | None = None,
    prompt: str | None = None,
    prompt_file: Path | None = None,
    tokenizer: Path | None = None,
    n: int = 4,
    fields: Sequence[str] = (),
    dump_prefill: bool = False,
    hash_name: str = "fnv1a64",
    prefill: str = "own",
    tokens_from: str = "ref",
    sides: Sequence[Spec] = (),
) -> Run:
    """Settings of a run; refuses what cannot be run before anything is.

    ``model``: a preset's name, a .gguf file or a model folder (``weights`` says how its matrices
    are held), or a model that is taken as it is. ``tokens``: the prompt, by default PROMPT_LENGTH
    ids from the seed; ``prompt`` or ``prompt_file``: its text, read by the model's tokenizer or by
    the one in ``tokenizer``. ``fields``: optional fields or groups, ``ffn``. ``sides``: those that
    run it; an engine that opens models by itself opens it.
    """
    from parity.model.checks import check_tokens
    from parity.model.generator import prompt_tokens
    from parity.runs.carried import open_for
    from parity.runs.prompts import Prompt, read_prompt
    from parity.runs.run import Run

    if dump_prefill and prefill == "ref":
        raise InputError(
            "--dump-prefill with --prefill ref: the dut takes over the ref's state and has no "
            "keys of the prompt",
            "leave one of the two out",
        )
    made = open_for(sides, model, seed=seed, weights=weights) if isinstance(model, str) else model
    if n < 1:
        raise InputError(f"--n {n}: nothing to decode", "give --n 1 or more")
    read = read_prompt(made, tokens=tokens, text=prompt, file=prompt_file, tokenizer=tokenizer)
    fed = read or Prompt(tuple(prompt_tokens(seed, PROMPT_LENGTH, made.config.ids)))
    check_tokens(made.config, fed.ids, 0, made.config.context)
    check_tokens(made.config, (), len(fed.ids) + n, made.config.context)
    run = Run(
        model=made,
        prompt=fed.ids,
        n=n,
        prefill=prefill,
        dump_prefill=dump_prefill,
        tokens_from=tokens_from,
        extra_fields=tuple(fields),
        hash_name=hash_name,
        tokenizer=fed.tokenizer,
    )
    _ = run.fields  # an unknown field is refused here
    return run


def parse_tokens(text: str) -> list[int]:
    """``1,2,3`` as token ids; raises InputError that shows the part that is no id."""
    parts = [part.strip() for part in text.split(",")]
    bad = next((part for part in parts if _TOKEN.fullmatch(part) is None), None)
    if bad is not None:
        raise InputError(f"--tokens: {bad!r} is not a token id", "write --tokens 1,2,3")
    return [int(part) for part in parts]
