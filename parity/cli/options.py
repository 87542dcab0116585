"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from parity.errors import InputError
from parity.model.config import DEFAULT_PRESET

if TYPE_CHECKING:
    from parity.runs.run import Run
    from parity.spec import Spec

Command = TypeVar("Command", bound=Callable[..., Any])

MODEL_METAVAR = "PRESET|FILE.gguf|FOLDER"
_MODEL_HELP = "Preset with synthetic weights, GGUF file, or Hugging Face folder"
MODEL = click.option(
    "--model",
    metavar=MODEL_METAVAR,
    default=DEFAULT_PRESET,
    show_default=True,
    help=f"{_MODEL_HELP}.",
)
# Of a command whose sides may name the model themselves (hf:MODEL): "" where none was typed.
SIDE_MODEL = click.option(
    "--model",
    metavar=MODEL_METAVAR,
    default="",
    help=f"{_MODEL_HELP}. [default: a side's own, else {DEFAULT_PRESET}]",
)
WEIGHTS = click.option(
    "--weights",
    type=click.Choice(["q4", "f32"]),
    help="Storage of the matrices of a preset (default: q4) or a folder (default: f32); a GGUF "
    "file has its own. With f32 the KV cache is f32 too.",
)
TEXT_PROMPT = (
    click.option("--prompt", metavar="TEXT", help="Prompt as text, for the model's tokenizer."),
    click.option(
        "--prompt-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The same, in a file (UTF-8, taken as it stands).",
    ),
    click.option(
        "--tokenizer",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Another tokenizer for it: a folder with tokenizer.json.",
    ),
)
PROMPT = (
    click.option("--tokens", help="Prompt as token ids: 1,2,3 (default: 32 ids from the seed)."),
    *TEXT_PROMPT,
)
_RUN_INPUT = (
    SIDE_MODEL,
    WEIGHTS,
    click.option(
        "--seed", default=7, show_default=True, help="Seed of a preset's weights and of the prompt."
    ),
    *PROMPT,
)
_RUN_DUMPED = (
    click.option("--fields", default="", help="Optional fields to dump too: +ffn, +gate, ..."),
    click.option("--dump-prefill", is_flag=True, help="Dump the prompt's positions as well."),
    click.option(
        "--hash",
        "hash_name",
        type=click.Choice(["fnv1a64", "kestrel-fnv"]),
        default="fnv1a64",
        show_default=True,
        help="Digest; kestrel-fnv has the offset basis the Kestrel articles print.",
    ),
)
RUN_OPTIONS = (
    *_RUN_INPUT,
    click.option("--n", default=4, show_default=True, help="Tokens decoded and dumped."),
    *_RUN_DUMPED,
)
REPEAT_OPTIONS = (
    *_RUN_INPUT,
    click.option("--steps", default=4, show_default=True, help="Tokens decoded and dumped a run."),
    *_RUN_DUMPED,
)
GITHUB = click.option(
    "--github", is_flag=True, help="Print a GitHub annotation on stderr; changes no exit status."
)
HTML = click.option(
    "--html", "html_path", metavar="FILE", help="Write the report as one HTML file."
)
MARKDOWN = click.option(
    "--markdown",
    "markdown_path",
    metavar="FILE",
    help="Write Markdown, for a pull request's comment.",
)
REPORT_OPTIONS = (
    click.option(
        "--json",
        "json_path",
        metavar="FILE",
        help="Write the divergence tree as JSON (- is stdout).",
    ),
    click.option(
        "--csv", "csv_path", metavar="FILE", help="Write one row a key as CSV (- is stdout)."
    ),
    HTML,
    click.option(
        "--junit", "junit_path", metavar="FILE", help="Write JUnit XML, one case a layer."
    ),
    MARKDOWN,
    GITHUB,
    click.option("-q", "--quiet", is_flag=True, help="One line."),
)
# The reports of probes and promises, which have no tree.
CHECK_REPORT_OPTIONS = (
    click.option(
        "--json", "json_path", metavar="FILE", help="Write the result as JSON (- is stdout)."
    ),
    HTML,
    click.option("--junit", "junit_path", metavar="FILE", help="Write JUnit XML."),
    MARKDOWN,
    GITHUB,
    click.option("-q", "--quiet", is_flag=True, help="One line."),
)
PROBE_OPTIONS = (
    click.option("--engine", default="cpu", show_default=True, help="Engine under test."),
    click.option(
        "--model",
        metavar=MODEL_METAVAR,
        default="",
        help="Preset, GGUF file or folder (default: the engine's own, else moe-tiny; hybrid with "
        "--synthetic).",
    ),
    click.option(
        "--synthetic",
        "synthetic_kind",
        type=click.Choice(["gdn", "attn"]),
        default=None,
        callback=lambda _context, _option, value: value or "",
        help="Make every layer of a hybrid that kind.",
    ),
    WEIGHTS,
    click.option("--seed", default=7, show_default=True, help="First seed."),
    click.option(
        "--seeds", default=1, show_default=True, help="How many seeds; of a file, prompts alone."
    ),
    click.option("--tokens", help="First token ids, 1,2,3 (default, and after them: drawn)."),
    *TEXT_PROMPT,
    click.option(
        "--pos",
        "positions",
        default="33:38",
        show_default=True,
        help="First positions of a block.",
    ),
    *CHECK_REPORT_OPTIONS,
)


def with_options(options: tuple[Any, ...]) -> Callable[[Command], Command]:
    """A decorator that adds several options in order."""
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


def make_run(*, tokens: str | None, fields: str, **options: Any) -> Run:
    """Settings of a run from the options; ``options``: as ``parity.runs.settings.run_settings``."""
    from parity.runs.settings import parse_tokens, run_settings

    prompt = None if tokens is None else parse_tokens(tokens)
    return run_settings(tokens=prompt, fields=parse_fields(fields), **options)


def name_model(options: dict[str, Any], *sides: Spec) -> None:
    """Put the run's model into ``options``: that of a side, or as typed, or the default."""
    from parity.runs.carried import model_text

    options["model"] = model_text(sides, options["model"])


def parse_fields(text: str) -> tuple[str, ...]:
    """``+ffn,+gate`` as field or group names."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    bad = next((part for part in parts if not part.startswith("+")), None)
    if bad is not None:
        raise InputError(f"--fields: {bad!r} does not start with +", "write --fields +ffn")
    return tuple(part.removeprefix("+") for part in parts)


def command_line(words: list[str]) -> str:
    """The command as typed, quoted for a shell."""
    return shlex.join(["parity", *words])


def input_files(model: str = "", prompt_file: Path | None = None, **_: object) -> list[Path]:
    """Files that a run of these options reads: no report may be written over one."""
    files = [Path(model), *([prompt_file] if prompt_file is not None else [])]
    with suppress(OSError):
        files += Path(model).iterdir() if model and os.path.isdir(model) else []
    return [path for path in files if os.path.isfile(path)]
