"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from parity.errors import InputError

if TYPE_CHECKING:
    from parity.run import Run

Command = TypeVar("Command", bound=Callable[..., Any])
PROMPT_LENGTH = 32
_TOKEN = re.compile("[0-9]{1,18}")

MODEL = click.option(
    "--model", default="moe-tiny", show_default=True, help="Preset with synthetic weights."
)
_RUN_INPUT = (
    MODEL,
    click.option(
        "--weights",
        type=click.Choice(["q4", "f32"]),
        default="q4",
        show_default=True,
        help="Storage of the matrices; with f32 the KV cache is f32 too.",
    ),
    click.option("--seed", default=7, show_default=True, help="Seed of weights and prompt."),
    click.option("--tokens", help="Prompt as token ids: 1,2,3 (default: 32 ids from the seed)."),
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
    click.option("--html", "html_path", metavar="FILE", help="Write the report as one HTML file."),
    click.option(
        "--junit", "junit_path", metavar="FILE", help="Write JUnit XML, one case a layer."
    ),
    click.option("-q", "--quiet", is_flag=True, help="One line."),
)
PROBE_OPTIONS = (
    click.option("--engine", default="cpu", show_default=True, help="Engine under test."),
    click.option(
        "--model", default="", help="Preset (default: moe-tiny; hybrid with --synthetic)."
    ),
    click.option(
        "--synthetic",
        "synthetic_kind",
        type=click.Choice(["gdn", "attn"]),
        default=None,
        callback=lambda _context, _option, value: value or "",
        help="Make every layer of a hybrid that kind.",
    ),
    click.option(
        "--weights",
        type=click.Choice(["q4", "f32"]),
        default="q4",
        show_default=True,
        help="Storage of the matrices.",
    ),
    click.option("--seed", default=7, show_default=True, help="First seed."),
    click.option("--seeds", default=1, show_default=True, help="How many seeds."),
    click.option(
        "--pos",
        "positions",
        default="33:38",
        show_default=True,
        help="First positions of a block.",
    ),
    click.option(
        "--json", "json_path", metavar="FILE", help="Write the result as JSON (- is stdout)."
    ),
    click.option("-q", "--quiet", is_flag=True, help="One line."),
)


def with_options(options: tuple[Any, ...]) -> Callable[[Command], Command]:
    """A decorator that adds several options in order."""
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


def make_run(
    *,
    model: str,
    weights: str,
    seed: int,
    tokens: str | None,
    n: int,
    fields: str,
    dump_prefill: bool,
    hash_name: str,
    prefill: str = "own",
    tokens_from: str = "ref",
) -> Run:
    """Settings of a run from the options; refuses what cannot be run before anything is."""
    from parity.model.checks import check_tokens
    from parity.model.generator import prompt_tokens
    from parity.model.model import synthetic
    from parity.run import Run

    if dump_prefill and prefill == "ref":
        raise InputError(
            "--dump-prefill with --prefill ref: the dut takes over the ref's state and has no "
            "keys of the prompt",
            "leave one of the two out",
        )
    made = synthetic(model, seed, weights)
    if n < 1:
        raise InputError(f"--n {n}: nothing to decode", "give --n 1 or more")
    if tokens is None:
        prompt = prompt_tokens(seed, PROMPT_LENGTH, made.config.vocab)
    else:
        prompt = parse_tokens(tokens)
    check_tokens(made.config, prompt, 0, made.config.context)
    check_tokens(made.config, (), len(prompt) + n, made.config.context)
    run = Run(
        model=made,
        prompt=tuple(prompt),
        n=n,
        prefill=prefill,
        dump_prefill=dump_prefill,
        tokens_from=tokens_from,
        extra_fields=parse_fields(fields),
        hash_name=hash_name,
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
