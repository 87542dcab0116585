"""The command ``parity gate`` and its options."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from parity.cli.options import (
    GITHUB,
    HTML,
    MARKDOWN,
    SIDE_MODEL,
    TEXT_PROMPT,
    WEIGHTS,
    command_line,
    with_options,
)

_SIDES = (
    click.option(
        "--fast",
        metavar="VARIANTS|ENGINE",
        help="Candidate: variants put onto the base (two_pass, +libm_exp,-two_pass) or an engine.",
    ),
    click.option(
        "--engine", "base", help="Base, today's default (cuda where a device works, else emu)."
    ),
)
_RUNS = (
    SIDE_MODEL,
    WEIGHTS,
    click.option("--seed", default=7, show_default=True, help="First seed, of weights and prompt."),
    click.option("--seeds", default=3, show_default=True, help="How many seeds, 3 or more."),
    click.option("--tokens", help="First token ids, 1,2,3 (default, and after them: drawn)."),
    *TEXT_PROMPT,
    click.option(
        "--m", "sizes", default="1,2,4,8", show_default=True, help="Rows of a forward, two or more."
    ),
    click.option("--n", default=8, show_default=True, help="Tokens decoded in a pass."),
    click.option("--rounds", default=24, show_default=True, help="Timed pairs, over all seeds."),
    click.option(
        "--confidence", default=0.95, show_default=True, help="Of the interval, 0.95 or more."
    ),
)
_EVIDENCE = (
    click.option(
        "--store",
        "folder",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Store that the evidence goes to (default: .parity-store).",
    ),
    click.option("--name", default="", help="Name of the evidence (default: from the two sides)."),
    click.option("--show", metavar="NAME", help="Verify and show the last evidence of NAME."),
    click.option(
        "--json", "json_path", metavar="FILE", help="Write the evidence as JSON (- is stdout)."
    ),
    HTML,
    click.option("--junit", "junit_path", metavar="FILE", help="Write JUnit XML."),
    MARKDOWN,
    GITHUB,
    click.option("-q", "--quiet", is_flag=True, help="One line."),
)


@click.command()
@with_options((*_SIDES, *_RUNS, *_EVIDENCE))
def gate(**options: object) -> int:
    """May a faster engine become the default? Only if it is equal, bit for bit, and faster.

    Exit status: 0 default, 1 refused or opt-in, 2 bad input, 3 undecided or not run.
    """
    from parity.cli.gating import run_gate_command

    return run_gate_command(command_line(sys.argv[1:]), **options)  # type: ignore[arg-type]
