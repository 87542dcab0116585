"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from parity.errors import InputError

if TYPE_CHECKING:
    from parity.runs.run import Run

Command = TypeVar("Command", bound=Callable[..., Any])

MODEL = click.option(
    "--model", default="moe-tiny", show_default=True, help="Preset with synthetic weights."
)
WEIGHTS = click.option(
    "--weights",
    type=click.Choice(["q4", "f32"]),
    default="q4",
    show_default=True,
    help="Storage of the matrices; with f32 the KV cache is f32 too.",
)
_RUN_INPUT = (
    MODEL,
    WEIGHTS,
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
GITHUB = click.option(
    "--github", is_flag=True, help="Print a GitHub annotation on stderr; changes no exit status."
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
    GITHUB,
    click.option("-q", "--quiet", is_flag=True, help="One line."),
)
# The reports of probes and promises, which have no tree.
CHECK_REPORT_OPTIONS = (
    click.option(
        "--json", "json_path", metavar="FILE", help="Write the result as JSON (- is stdout)."
    ),
    click.option("--junit", "junit_path", metavar="FILE", help="Write JUnit XML."),
    GITHUB,
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
    WEIGHTS,
    click.option("--seed", default=7, show_default=True, help="First seed."),
    click.option("--seeds", default=1, show_default=True, help="How many seeds."),
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
