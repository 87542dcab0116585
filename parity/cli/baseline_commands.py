"""The group ``parity baseline``. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parity.cli.options import REPORT_OPTIONS, RUN_OPTIONS, command_line, with_options

STORE = click.option(
    "--store",
    type=Path,
    default=Path(".parity-store"),
    show_default=True,
    metavar="DIR",
    help="The store.",
)
TENSORS = click.option(
    "--tensors",
    multiple=True,
    metavar="WHICH",
    help="Values to keep: first (position), all, or a KEY (repeatable).",
)
RUNS = click.option("--runs", default=3, show_default=True, help="Runs that must be alike.")
REPORT = click.option(
    "--from", "report", type=Path, metavar="RUN.json", help="A green diff --json as evidence."
)
JSON = click.option("--json", "json_path", metavar="FILE", help="Write it as JSON (- is stdout).")
_RUN = {
    *("model", "weights", "seed", "tokens", "n", "fields", "dump_prefill", "hash_name"),
    *("prompt", "prompt_file", "tokenizer"),
}


@click.group(no_args_is_help=False)
def baseline() -> None:
    """Keep accepted results, and hold later runs to them. Nothing is ever overwritten."""


@baseline.command()
@click.argument("name")
@click.argument("side")
@click.option("--ref", metavar="SIDE", help="Refuse unless SIDE is the same as this one.")
@REPORT
@with_options(RUN_OPTIONS)
@TENSORS
@RUNS
@STORE
@click.pass_context
def save(context: click.Context, /, name: str, side: str, **options: Any) -> int:
    """Accept a run under a new name. SIDE is an engine, which is run, or a dump file."""
    from parity.cli.baseline import run_save
    from parity.cli.baseline_evidence import Trust

    run, rest = _split(options)
    store = rest.pop("store")
    typed = command_line(sys.argv[1:])
    return run_save(typed, name, side, store, Trust(**rest), run, _given(context, run))


@baseline.command()
@click.argument("name")
@click.option("--engine", metavar="SIDE", help="Side to check (default: the recorded engine).")
@click.option("--accepted", metavar="DIGEST", help="The entry that must be the last accepted.")
@with_options(RUN_OPTIONS)
@STORE
@with_options(REPORT_OPTIONS)
@click.pass_context
def check(context: click.Context, /, name: str, **options: Any) -> int:
    """Run it again and compare. Options of the run are recorded: one that is given must agree."""
    from parity.cli.baseline import run_check

    run, rest = _split(options)
    return run_check(command_line(sys.argv[1:]), name, given=_given(context, run), **rest)


@baseline.command()
@click.argument("name")
@click.option("--engine", metavar="SIDE", help="What to accept now (default: the recorded engine).")
@click.option("--ref", metavar="SIDE", required=True, help="The side it must be the same as.")
@with_options(RUN_OPTIONS)
@TENSORS
@RUNS
@STORE
@click.pass_context
def promote(
    context: click.Context, /, name: str, engine: str | None, store: Path, **options: Any
) -> int:
    """Accept another result in its place. It must be stable and the same as --ref. Options of the
    run are recorded: one that is given must agree."""
    from parity.cli.baseline import run_promote
    from parity.cli.baseline_evidence import Trust

    run, rest = _split(options)
    trust, typed = Trust(report=None, **rest), command_line(sys.argv[1:])
    return run_promote(typed, name, engine, store, trust, _given(context, run))


@baseline.command(name="list")
@STORE
@JSON
def list_baselines(store: Path, json_path: str | None) -> int:
    """List the baselines. Each one is verified."""
    from parity.cli.baseline_listing import run_list

    return run_list(store, json_path)


@baseline.command()
@click.argument("name")
@STORE
@JSON
def show(name: str, store: Path, json_path: str | None) -> int:
    """Show all that is recorded of one. With its history."""
    from parity.cli.baseline_listing import run_show

    return run_show(store, name, json_path)


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of the run, the others)."""
    run = {name: value for name, value in options.items() if name in _RUN}
    return run, {name: value for name, value in options.items() if name not in _RUN}


def _given(context: click.Context, run: dict[str, Any]) -> dict[str, Any]:
    """The options of the run that were typed."""
    typed = click.core.ParameterSource.COMMANDLINE
    return {n: value for n, value in run.items() if context.get_parameter_source(n) is typed}
