"""``parity dump``: run one engine and write its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parity.cli.options import make_run
from parity.dump_writer import write_dump
from parity.errors import InputError
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import EngineSpec, parse_spec


def run_dump(
    engine: str, output: Path, *, plain: bool, force: bool, options: dict[str, Any]
) -> int:
    """Run ``parity dump``; an existing file is refused before anything is run."""
    from parity.run import run_side
    from parity.sides import open_side

    if output.exists() and not force:
        raise InputError(f"{output} exists already", "give another name, or --force")
    spec = parse_spec(engine, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(f"--engine {engine}: not an engine", "parity engines lists them")
    run = make_run(**options)
    with Progress() as progress:
        done = run_side(open_side("engine", spec, run, progress), run)
        write_dump(done.dump, output, plain=plain, force=force)
        progress.note(f"{len(done.dump.entries):,} keys written to {output}")
    return 0
